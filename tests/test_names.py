"""Names and first lines: a class name is there once, locals are named for what they hold, heads are short."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.rows import rows
from tests.test_architecture import PACKAGES, Function, sources

EMPTY = {"one", "said", "asked", "told"}
"""Locals that say who spoke, or that there are several, and not what they hold."""
MAX_HEAD = 100


@cache
def trees() -> dict[str, ast.Module]:
    return {source.path: source.tree for source in sources(*PACKAGES)}


def repeated(modules: dict[str, ast.Module]) -> dict[str, int]:
    """Class names that more than one class has."""
    names = Counter(node.name for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name: count for name, count in names.items() if count > 1}


def empty_locals(path: str, tree: ast.Module) -> Iterator[str]:
    """Parameters and variables of functions whose name says nothing, with their lines."""
    for function in ast.walk(tree):
        if isinstance(function, Function | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.arg) and node.arg in EMPTY:
                    yield f"{path}:{node.lineno}: {node.arg}"
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY:
                    yield f"{path}:{node.lineno}: {node.id}"


def bad_heads(path: str, tree: ast.Module) -> Iterator[str]:
    """Docstrings whose first line is too long, and a module without one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            text = ast.get_docstring(node)
            line = 1 if isinstance(node, ast.Module) else node.lineno
            if not text and isinstance(node, ast.Module):
                yield f"{path}: no docstring"
            elif text and len(text.splitlines()[0]) > MAX_HEAD:
                yield f"{path}:{line}: {len(text.splitlines()[0])} characters"


def test_a_class_name_is_there_once():
    assert repeated(trees()) == {}


def test_locals_are_named_for_what_they_hold():
    assert sorted({each for path, tree in trees().items() for each in empty_locals(path, tree)}) == []


def test_each_module_says_what_it_does_and_first_lines_are_short():
    assert [each for path, tree in trees().items() for each in bad_heads(path, tree)] == []


# --- the rules themselves can say no ---


def test_a_class_name_that_is_there_twice_is_seen():
    modules = {"a.py": ast.parse("class A: ..."), "b.py": ast.parse("def f():\n    class A: ...")}
    assert repeated(modules) == {"A": 2}


@rows(
    "text",
    [
        "def f(one): ...",
        "def f(*said): ...",
        "f = lambda told: told",
        "def f():\n    return [one for one in x]",
        "async def f():\n    async with x as asked: ...",
        "def f():\n    if told := x: ...",
    ],
)
def test_an_empty_local_is_seen(text):
    assert list(empty_locals("x.py", ast.parse(text)))


@rows("text", ["class A:\n    said: str", "one = 1", "def f(goal):\n    return goal.said", "f(one=1)"])
def test_fields_and_arguments_are_no_locals(text):
    assert list(empty_locals("x.py", ast.parse(text))) == []


@rows(
    ("text", "count"),
    [
        ("x = 1", 1),
        ('"""A."""\ndef f():\n    """' + "a" * 101 + '"""', 1),
        ('"""A."""\nclass A:\n    """' + "a" * 100 + "\n\n    " + "b" * 110 + '\n    """', 0),
        ('"""' + "a" * 101 + '"""', 1),
    ],
)
def test_a_bad_head_is_seen(text, count):
    assert len(list(bad_heads("x.py", ast.parse(text)))) == count
