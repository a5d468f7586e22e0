"""What is said to people, as data in both languages.

``PACKAGE/messages.yaml`` maps a key to its templates.

A template is a ``str.format`` string with named fields; both languages of a key have the same fields.
"""

from collections.abc import Mapping
from typing import Literal

from intent.tables import table

Language = Literal["en", "zh"]


def templates(package: str) -> Mapping[str, Mapping[Language, str]]:
    """Every message of a package: key to language to template."""
    found: Mapping[str, Mapping[Language, str]] = table(package, "messages")
    return found


def say(package: str, language: Language, key: str, **facts: object) -> str:
    """A message with its facts filled in.

    Raises:
        KeyError: no such message, or a fact is missing.
    """
    return templates(package)[key][language].format(**facts)
