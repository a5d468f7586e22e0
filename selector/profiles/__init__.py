"""Profiles of known GPU kinds, as data with the source beside each number, and their loader."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml

from selector.errors import ProfileError
from selector.models import Profile


def available() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load(name: str) -> Profile:
    """The profile of that name (``a100-80gb``), or of the device kind of that name (``A100``).

    Raises:
        ProfileError: there is none, or it is malformed.
    """
    profiles = {other: _read(other) for other in available()}
    for other, profile in profiles.items():
        if name in {other, profile.kind}:
            return profile
    known = ", ".join(f"{other} (kind {profile.kind})" for other, profile in profiles.items())
    raise ProfileError(f"no profile for {name!r}; there are {known}")


@cache
def _read(name: str) -> Profile:
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    if not isinstance(document, Mapping):
        raise ProfileError(f"profile {name!r} is not a mapping of keys to numbers")
    return Profile.from_mapping(document)
