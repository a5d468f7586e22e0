"""Errors of the selector.

SelectorError
    ProfileError     a profile that is missing, malformed or says nothing about what was asked
    WorkloadError    a load or trace that is none
    SampleError      measurements that no profile can be fitted to
"""


class SelectorError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do."""


class ProfileError(SelectorError):
    """A profile that is missing, malformed or says nothing about what was asked."""


class WorkloadError(SelectorError):
    """A load or trace that is none: no requests, no rate, lengths that are not positive."""


class SampleError(SelectorError):
    """Measurements that no profile can be fitted to: too few, or times that are none."""
