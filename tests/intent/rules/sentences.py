"""The sentences on file, with what the rules make of them."""

from dataclasses import dataclass

from tests.intent.tables import table


@dataclass(frozen=True)
class Asked:
    """A question: its code, and where these are checked its options and the texts that they stand for."""

    code: str
    options: tuple[str, ...] | None = None
    texts: tuple[str, ...] | None = None


UNDERSTOOD: dict[str, list[str]] = {}
ASKED: dict[str, Asked] = {}

for text, said, *answers in table("sentences.txt"):
    if said.startswith("? "):
        ASKED[text] = Asked(said[2:], *(tuple(one.split(" | ")) for one in answers))
    else:
        UNDERSTOOD[text] = said.split(" ; ")
