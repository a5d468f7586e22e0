"""Profiles of known GPU kinds, as data with the source beside each number; their loader also reads files of that form."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from intent.tables import mapping
from selector.errors import ProfileError
from selector.models import Profile


def available() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@cache
def kinds() -> tuple[str, ...]:
    """The device kinds of the shipped profiles."""
    return tuple(sorted({_shipped(name).kind for name in available()}))


def is_file(name: str) -> bool:
    """Whether a name means a file rather than a shipped profile: it ends in ``.yaml`` or ``.yml``."""
    return Path(name).suffix in {".yaml", ".yml"}


def load(name: str) -> Profile:
    """The profile of that name (``a100-80gb``), of the device kind of that name (``A100``), or in a file (``a100.yaml``).

    Raises:
        ProfileError: there is none, or it cannot be read or is malformed.
    """
    if is_file(name):
        return _from_file(Path(name))
    profiles = {other: _shipped(other) for other in available()}
    for other, profile in profiles.items():
        if name in {other, profile.kind}:
            return profile
    known = ", ".join(f"{other} (kind {profile.kind})" for other, profile in profiles.items())
    raise ProfileError(f"no profile for {name!r}; there are {known}, or give the path of a .yaml file")


@cache
def _shipped(name: str) -> Profile:
    return _parsed(mapping(__name__, name))


def _from_file(file: Path) -> Profile:
    try:
        return _parsed(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProfileError(
            f"{file} cannot be read: {reason}; `intentctl profile --out` writes one"
        ) from error
    except yaml.YAMLError as error:
        raise ProfileError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from error


def _parsed(document: Any) -> Profile:
    if not isinstance(document, Mapping):
        raise ProfileError("a profile is a mapping of keys to figures, not this")
    return Profile.from_mapping(document)
