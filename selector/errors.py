"""Errors of the selector.

SelectorError
    ProfileError     a profile that is missing, malformed or says nothing about what was asked
"""


class SelectorError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do."""


class ProfileError(SelectorError):
    """A profile that is missing, malformed or says nothing about what was asked."""
