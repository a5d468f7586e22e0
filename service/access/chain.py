"""The audit's chain: each entry has a hash of all that it says and of the entry before it. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields

from service.documents.access import HEAD
from service.documents.forms import Json


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act, as the audit keeps it."""

    seq: int
    """From 1, without gaps."""
    at_s: float
    """Unix time."""
    who: str
    """Name of the key, or of the part of the service that acted by itself."""
    key: str
    """The key's prefix; empty where there is none."""
    role: str
    act: str
    """As `plan.apply`."""
    subject: str
    """What it was done to, as `plan-1f0c…`."""
    before: Json = field(default_factory=dict)
    after: Json = field(default_factory=dict)
    origin: str = ""
    """The address it came from."""
    request_id: str = ""
    previous: str = ""
    """The hash of the entry before."""
    hash: str = ""

    def sealed(self) -> str:
        """The hash that belongs to what it says: SHA-256 of its other fields as JSON, in hex."""
        fields = {key: value for key, value in asdict(self).items() if key != "hash"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


FIELDS = tuple(column.name for column in fields(AuditEntry))


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain."""

    seq: int = 0
    """0: there is no entry yet."""
    hash: str = ""

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """What ``str`` made.

        Raises:
            ValueError: it is none.
        """
        seq, _, found = text.partition(":")
        if not re.fullmatch(HEAD, text):
            raise ValueError(f"{text!r} is no head of an audit; write one as `intentctl audit head` prints it")
        return cls(int(seq), found)


@dataclass(frozen=True, slots=True)
class Flaw:
    """A place where the chain is not what it was."""

    seq: int
    problem: str


def flaws(entries: Iterable[AuditEntry], head: Head, known: Head | None = None) -> tuple[Flaw, ...]:
    """Where entries, in their order, are not the chain that ends at ``head`` and once ended at ``known``."""
    found = list[Flaw]()
    last = Head()
    for entry in entries:
        found += _step(last, entry)
        last = Head(entry.seq, entry.hash)
        if known is not None and entry.seq == known.seq and entry.hash != known.hash:
            found.append(Flaw(entry.seq, "is not the entry that the head you have was taken of"))
    end = known if known is not None and known.seq > head.seq else head
    if last.seq < end.seq:
        found.append(Flaw(last.seq + 1, f"and all up to {end.seq} are missing at the end"))
    elif last != head and not found:
        found.append(Flaw(head.seq, "is not the entry that the chain ends with"))
    return tuple(found)


def _step(last: Head, entry: AuditEntry) -> list[Flaw]:
    """What is wrong with an entry after the one before it."""
    found = list[Flaw]()
    if entry.seq > last.seq + 1:
        missing = f"and all up to {entry.seq - 1} are missing" if entry.seq > last.seq + 2 else "is missing"
        found.append(Flaw(last.seq + 1, missing))
    elif entry.previous != last.hash:
        found.append(Flaw(entry.seq, "does not follow from the entry before it: one of them was changed or put in"))
    if entry.sealed() != entry.hash:
        found.append(Flaw(entry.seq, "was changed"))
    return found
