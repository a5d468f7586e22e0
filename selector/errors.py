"""Errors of the selector.

SelectorError
    ProfileError     a profile that is missing, malformed or says nothing about what was asked
    WorkloadError    a load or trace that is none
"""


class SelectorError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do."""


class ProfileError(SelectorError):
    """A profile that is missing, malformed or says nothing about what was asked."""


class WorkloadError(SelectorError):
    """A load or trace that is none: no requests, no rate, lengths that are not positive."""
