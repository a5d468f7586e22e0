"""Which key goes with a request: one that was named, that of the environment, or the one that a service here wrote."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from intentctl.status import failure

ADMIN_KEY_FILE = "admin.key"
"""Where a service writes the key of an administrator, in its data folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """A service, and what is to be shown to it."""

    server: str | None = None
    """Its address; None: the usual one on this machine."""
    key_file: Path | None = None


def key_for(url: str, key_file: Path | None) -> str | None:
    """The key for the service at an address; None: there is none.

    Raises:
        CommandError: the file that was named cannot be read.
    """
    if key_file is not None:
        return _read(key_file)
    from service.settings import read_settings

    settings = read_settings()
    if settings.key is not None:
        return settings.key.get_secret_value().strip()
    file = settings.folder / ADMIN_KEY_FILE
    try:
        return file.read_text(encoding="utf-8").strip() if _is_here(url) else None
    except (OSError, ValueError):
        return None  # somebody else's, or a service without keys: it will say so


def _read(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise failure("error", f"--key-file {file}: {reason}") from None
    if len(key.split()) != 1:
        raise failure("error", f"--key-file {file}: has no key in it, or more than one")
    return key


def _is_here(url: str) -> bool:
    """Whether an address is of this machine: a key of this machine is not for others to see."""
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
