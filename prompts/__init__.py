"""Prompt text as data, versioned, and its loader."""
