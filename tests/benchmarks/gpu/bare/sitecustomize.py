"""Put on PYTHONPATH: an interpreter, and every one that it starts, has only the packages of a bare GPU machine.

With ``PLANTED`` in the environment the module of that name cannot be imported either.
"""

import importlib.metadata
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

THERE = """
torch triton numpy msgspec safetensors tokenizers transformers jinja2 cuda-bindings pytest pytest-asyncio hypothesis rich typer
httpx
"""
NEVER = """
fastapi jsonschema langchain_core langchain_openai openai pydantic pydantic_core pydantic_settings
pytest_timeout rapidfuzz sqlalchemy starlette xdist
"""
"""Whatever the others need."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> set[str]:
    """These distributions and all that they need."""
    found: set[str] = set()
    left = [canonical(name) for name in THERE.split()]
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            requirements = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        plain = (text for text in requirements if "extra ==" not in text)
        left += [canonical(match.group()) for text in plain if (match := re.match(r"[A-Za-z0-9._-]+", text))]
    return found


def blocked() -> set[str]:
    """Names of modules that a bare machine lacks."""
    there = needed() | {"intentctl", "pip", "setuptools"}
    modules = importlib.metadata.packages_distributions().items()
    return {*NEVER.split()} | {name for name, owners in modules if not there & {canonical(owner) for owner in owners}}


class Finder(PathFinder):
    """Finds what is there."""

    missing = blocked()
    planted = os.environ.get("PLANTED")

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in cls.missing or fullname == cls.planted:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
