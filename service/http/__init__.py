"""Connections, bodies and repeated requests, before and around the operations."""
