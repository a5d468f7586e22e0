"""Promises that are kept: agenda, observation, decisions, verdicts (docs/promises.md)."""
