"""The audit's chain: each entry has a hash of all that it says and of the entry before it. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from service.documents.access import HEAD, AuditEntry, Flaw

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


def flaws(
    entries: Iterable[AuditEntry], head: Head, known: Head | None = None, exported: Head | None = None
) -> tuple[Flaw, ...]:
    """Where entries, in their order, are not the chain that ends at ``head`` and once ended at ``known``.

    It begins after ``exported``.
    """
    found = list[Flaw]()
    last = exported or Head()
    if known is not None and known.seq <= last.seq and known != last:
        found.append(Flaw(known.seq, f"is none that is here: those up to {last.seq} were exported; look for it there"))
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
