"""The project's own tables: YAML files that stand beside the code that reads them."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C where PyYAML has it: a tenth of the time."""


@cache
def table(package: str, name: str) -> Any:
    """What the file ``NAME.yaml`` of a package holds, read once.

    Raises:
        FileNotFoundError: the package has no such file.
    """
    text = files(package).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - both are safe loaders


def mapping(package: str, name: str) -> Mapping[str, object]:
    """A table that is a mapping, for other packages.

    Raises:
        FileNotFoundError: the package has no such file.
    """
    found: Mapping[str, object] = table(package, name)
    return found


def expanded(text: str, parts: Mapping[str, str]) -> str:
    """A pattern with the parts put in that it names in <>, and those that they name."""
    return re.sub(r"(?<!P)<(\w+)>", lambda match: f"(?:{expanded(parts[match[1]], parts)})", text)
