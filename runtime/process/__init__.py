"""Processes of ours and what they say to each other: for both engines."""
