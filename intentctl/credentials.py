"""Which key goes with a request.

One that was named, that of the environment, or the one that a service here wrote.
"""

import ipaddress
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from intentctl.status import failure

DEFAULT_SERVER = "http://127.0.0.1:8642"
ADMIN_KEY_FILE = "admin.key"
"""Where a service writes the key of an administrator, in its data folder."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A service, and what is to be shown to it."""

    server: str | None = None
    """Its address; None: the usual one on this machine."""
    key_file: Path | None = None


def key_for(url: str, key_file: Path | None) -> str | None:
    """The key for the service at an address; None: there is none.

    A file that was named is for the service that is asked, ``INTENTCTL_KEY`` for ``INTENTCTL_SERVER``, and ``admin.key`` for the
    service that runs over its folder.

    Raises:
        CommandError: the file that was named cannot be read, or the key of the environment is for another service.
    """
    key = _read(key_file) if key_file is not None else _kept(url)
    if key is not None:
        say_if_clear(url)
    return key


def served_here() -> str:
    """The address of the service that runs over the data folder; empty: none does."""
    from service.deployment.settings import read_settings
    from service.store.lock import holder

    return holder(read_settings().folder).removesuffix("/openai/v1")


def _kept(url: str) -> str | None:
    """The key that the environment or the data folder has for an address."""
    from service.deployment.settings import read_settings

    settings = read_settings()
    if settings.key is not None:
        theirs = settings.server or DEFAULT_SERVER
        if url.rstrip("/") != theirs.rstrip("/"):
            how = "set INTENTCTL_SERVER too, or name the key of this one with --key-file"
            raise failure("error", f"INTENTCTL_KEY is for {theirs}, and is not sent to {url}; {how}")
        return settings.key.get_secret_value().strip()
    if served_here() != url.rstrip("/"):
        return None  # somebody else may listen there, as at ::1 by the name of localhost
    with suppress(OSError, ValueError):  # somebody else's, or a service without keys: it will say so
        return (settings.folder / ADMIN_KEY_FILE).read_text(encoding="utf-8").strip()
    return None


def _read(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise failure("error", f"--key-file {file}: {reason}") from None
    if len(key.split()) != 1:
        raise failure("error", f"--key-file {file}: has no key in it, or more than one")
    return key


def say_if_clear(url: str) -> None:
    """Say that keys travel in clear text, where they do."""
    if urlsplit(url).scheme == "http" and not is_loopback(urlsplit(url).hostname or ""):
        print(f"keys go to {url} in clear text; use https://, or a tunnel to 127.0.0.1", file=sys.stderr)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
