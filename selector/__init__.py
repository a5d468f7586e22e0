"""Checked Intent to Plan: exact search over topologies against profiles."""
