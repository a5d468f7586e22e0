"""YAML whose every value knows its line, checked against a JSON Schema.

Errors name file, line and path.
"""

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from service.documents.errors import DeploymentError

Key = str | int
Section = dict[str, Any]
"""A mapping of a file that its schema has validated."""

_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "number": lambda _, value: (
                isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            ),
        }
    ),
)
"""A count is no 4.0, and YAML's .nan and .inf are no numbers: no range would refuse them."""


def dotted(path: Sequence[Key]) -> str:
    """A path as people write it: ``models[0].start``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


@dataclass(frozen=True, slots=True)
class LocatedYaml:
    """The data of a file and where its parts stand."""

    file: Path
    data: Any
    root: yaml.Node

    def get(self, path: Sequence[Key]) -> Any:
        """What stands at a path; None where nothing does."""
        found = self.data
        for key in path:
            is_item = isinstance(found, list) and isinstance(key, int)
            found = found.get(key) if isinstance(found, dict) else found[key] if is_item else None
        return found

    def error(self, path: Sequence[Key], message: str) -> DeploymentError:
        """An error that names the file, the line and the dotted path."""
        return DeploymentError(f"{self.where(path)}: {message}")

    def where(self, path: Sequence[Key]) -> str:
        """The file, the line and the dotted path, for messages."""
        line = f"{self.file}:{_line(self.root, path)}"
        return f"{line}: {dotted(path)}" if path else line

    def check(self, schema: Section) -> None:
        """Refuse data that the schema does not allow.

        Raises:
            DeploymentError: naming the first error in file order.
        """
        errors = sorted(
            _Validator(schema).iter_errors(self.data),
            key=lambda error: list(map(str, error.absolute_path)),
        )
        if errors:
            path, message = _explain(errors[0])
            raise self.error(path, message)


def read(file: Path) -> LocatedYaml:
    """Read one YAML file.

    Raises:
        DeploymentError: it is missing, unreadable, no YAML, or has a key twice.
    """
    try:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
        twice = None if root is None else next(_duplicates(root), None)
    except FileNotFoundError:
        raise DeploymentError(f"{file}: no such file; name a deployment file with --deployment") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DeploymentError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise DeploymentError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise DeploymentError(f"{file}: is nested too deep, or something in it holds itself") from None
    if root is None:
        raise DeploymentError(f"{file}: is empty")
    if twice:
        raise DeploymentError(f"{file}:{twice}")
    return LocatedYaml(file, data, root)


def _line(root: yaml.Node, path: Sequence[Key]) -> int:
    """The line of the deepest part of the path that exists."""
    node = root
    line = root.start_mark.line
    for key in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if pair is None:
                break
            line = pair[0].start_mark.line
            node = pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line
    return int(line) + 1


def _duplicates(node: yaml.Node) -> Iterator[str]:
    """Line and message of each key that stands for the second time."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield f"{key.start_mark.line + 1}: the key {key.value!r} stands here for the second time; remove one"
            seen.add(key.value)
            yield from _duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _duplicates(item)


def _explain(error: ValidationError) -> tuple[list[Key], str]:
    """Where and what, in words; a misspelt key is met with its likely meaning."""
    path = list(error.absolute_path)
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = sorted(schema.get("properties", {}))
        wrong = next(key for key in error.instance if key not in known)
        close = difflib.get_close_matches(str(wrong), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here are {', '.join(known)}"
        return [*path, wrong], f"unknown key; {hint}"
    if error.validator == "required" and isinstance(error.instance, dict):
        missing = next(key for key in schema["required"] if key not in error.instance)
        return path, f"the key {missing!r} is missing"
    if error.validator == "oneOf" and isinstance(error.validator_value, list):
        return path, _explain_alternatives(error, error.validator_value)
    return path, error.message


def _explain_alternatives(error: ValidationError, branches: list[Section]) -> str:
    """Exactly one branch must hold: keys of which one is needed, or forms of one value."""
    if all("required" in branch for branch in branches):
        keys = " or ".join(repr(key) for branch in branches for key in branch["required"])
        return f"give either {keys}, and only one of them"
    return "; or ".join(branch.message for branch in error.context or ())
