"""What is said to people, as data in both languages: ``PACKAGE/messages.yaml`` maps a key to its templates.

A template is a ``str.format`` string with named fields; both languages of a key have the same fields.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

Language = Literal["en", "zh"]


@cache
def templates(package: str) -> Mapping[str, Mapping[Language, str]]:
    """Every message of a package: key to language to template."""
    loaded: dict[str, dict[Language, str]] = yaml.safe_load(
        files(package).joinpath("messages.yaml").read_text(encoding="utf-8")
    )
    return loaded


def say(package: str, language: Language, key: str, **facts: object) -> str:
    """A message with its facts filled in.

    Raises:
        KeyError: no such message, or a fact is missing.
    """
    return templates(package)[key][language].format(**facts)
