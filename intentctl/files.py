"""Files that people hand over: YAML or JSON documents, read without trust."""

import sys
from collections.abc import Hashable
from pathlib import Path

import yaml
from pydantic import JsonValue

from intentctl.status import CommandError, failure

MAX_BYTES = 256_000
"""Hundreds of goals; more is no wish."""
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))


class _Loader(yaml.SafeLoader):
    """Plain values only: no aliases, no tags, no key twice, no dates.

    Ten lines of aliases are a billion values.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's declared form
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # PyYAML has no types here
            raise yaml.constructor.ConstructorError(None, None, "aliases are not read", mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        if node.tag not in _PLAIN:
            raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag!r} is not read", node.start_mark)
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                message = f"the key {key.value!r} stands here for the second time"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def documents(name: str) -> list[JsonValue]:
    """The documents of a file, or of standard input for ``-``.

    Raises:
        CommandError: it cannot be read, is too large, or holds anything but plain values; the line is named.
    """
    data = _bytes(name)
    if len(data) > MAX_BYTES:
        raise _refused(name, f"has more than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
        found = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except UnicodeDecodeError as error:
        raise _refused(name, f"is no UTF-8 (byte {error.start})") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _refused(f"{name}{line}", f"{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # an integer of a million digits is a ValueError
        raise _refused(name, " ".join(str(error).split())) from None
    except RecursionError:
        raise _refused(name, "is nested too deeply") from None
    if not found:
        raise _refused(name, "is empty")
    return found


def _bytes(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _refused(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _refused(name: str, reason: str) -> CommandError:
    return failure("error", f"{'standard input' if name == '-' else name}: {reason}")
