"""Lists in pages, newest first.

What comes after a page is named by its last item, so that new items move nothing. Pure.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list: behind the item that was made then and has this id."""

    created_s: float
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted: so many items behind a place, or from the newest on."""

    limit: int = 50
    after: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Part of a list."""

    items: tuple[T, ...]
    next: Cursor | None
    """Where the next page begins; None where this is the last."""
