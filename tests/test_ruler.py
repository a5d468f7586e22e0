"""The ruler: how much there is to read, by what a reader feels. No line is counted.

Ceilings are only lowered, but for statements: they rise by what a change was granted before it was made."""

import ast
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import pytest
import yaml

from selector.models import CpuSamples
from selector.profiles import fit_cpu
from tests.rows import rows
from tests.test_architecture import PACKAGES, ROOT, Function, Source, circles, modules_of, sources

MAX_STATEMENTS = {
    "prompts": 7,
    "intent": 8_061,
    "validator": 872,
    "selector": 4_565,
    "runtime": 13_062,
    "service": 10_581,
    "intentctl": 4_564,
}
MAX_STATEMENTS_OF_A_FILE = 380
MAX_STATEMENTS_OF_A_FUNCTION = 46
"""With its head."""
MAX_CLASSES = 950
MAX_FILES = 409
MAX_PACKED = 33
MAX_STAR_TUPLES = 6
MAX_ROOMS = 20
MAX_ROOMS_OF = {"intentctl": 36, "intent.rules": 31, "runtime": 25}
"""Files and folders in a folder, where there are more than usual."""
MAX_ARROWS_UP = {"runtime.torch_engine": 2, "runtime.vllm_engine": 2}
"""Imports between rooms of a folder that reach each other in a circle; elsewhere there are none."""
MAX_RUN = {"parse": (94, 999), "plan": (126, 1_649)}
"""Command to the most files and functions of the packages that it runs; what runs at import does not count."""

TRACE = """
import json, os, sys, threading
root, packages, arguments = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
from intentctl import cli
seen = set()
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(root) and frame.f_code.co_name != "<module>":
        code = frame.f_code
        seen.add((code.co_filename, code.co_qualname))
sys.argv = ["intentctl", *arguments]
threading.setprofile(note)
sys.setprofile(note)
try:
    cli.main()
except SystemExit:
    pass
sys.setprofile(None)
folders = tuple(os.path.join(root, name) + os.sep for name in packages)
ours = [one for one in seen if one[0].startswith(folders)]
print(json.dumps([len({file for file, _ in ours}), len(ours)]), file=sys.stderr)
"""


def statements(nodes: Collection[ast.AST]) -> int:
    """How many, without texts that stand alone; a packed assignment is as many as it has targets."""
    count = sum(isinstance(node, ast.stmt) and not is_text(node) for node in nodes)
    return count + sum(len(node.value.elts) - 1 for node in packed(nodes))


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def packed(nodes: Iterable[ast.AST]) -> Iterator[ast.Assign]:
    """Assignments of several values at once: ``a, b = x, y``."""
    for node in nodes:
        is_tuple = isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        if is_tuple and any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            yield node


def oversized(source: Source) -> Iterator[str]:
    """What is too long to be read at once: the file, and functions of it."""
    if (count := statements(source.nodes)) > MAX_STATEMENTS_OF_A_FILE:
        yield f"{source.path}: {count} statements"
    long = (each for each in source.functions if (each.end_lineno or 0) - each.lineno >= MAX_STATEMENTS_OF_A_FUNCTION)
    for function in long:  # no line has two statements
        if (count := statements([*ast.walk(function)])) > MAX_STATEMENTS_OF_A_FUNCTION:
            yield f"{source.path}: {function.name} has {count} statements"


def star_tuples(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Calls with a star before a tuple that the same function wrote: ``place = a, b`` and ``f(*place)``."""
    for function in (node for node in nodes if isinstance(node, Function)):
        inside = [*ast.walk(function)]
        written = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in (node for node in inside if isinstance(node, ast.Call)):
            stars = [argument.value for argument in call.args if isinstance(argument, ast.Starred)]
            if any(isinstance(star, ast.Tuple) or getattr(star, "id", "") in written for star in stars):
                yield call


def rooms() -> dict[str, set[str]]:
    """Each folder with the files and folders in it, as modules."""
    found = defaultdict[str, set[str]](set)
    for package in PACKAGES:
        for module in modules_of(package):
            parts = module.split(".")
            for depth in range(1, len(parts)):
                found[".".join(parts[:depth])].add(".".join(parts[: depth + 1]))
    return found


def arrows_up(folder: str, names: set[str], imports: Mapping[str, set[str]]) -> int:
    """Imports between rooms of a folder that lie in a circle; several files that import the same are one."""

    def room(module: str) -> str | None:
        name = ".".join(module.split(".")[: folder.count(".") + 2])
        return name if name in names else None

    arrows = defaultdict[str, set[str]](set)
    for module, others in imports.items():
        if here := room(module):
            arrows[here] |= {there for other in others if (there := room(other)) and there != here}
    back = {there: {here for here in names if there in arrows[here]} for there in names}
    inside = set(circles(dict(arrows))) & set(circles(back))  # neither above nor below all circles
    return sum(there in inside for here in inside for there in arrows[here])


def test_no_package_has_more_statements_than_its_ceiling():
    counts = Counter[str]()
    for source in sources(*PACKAGES):
        counts[source.package] += statements(source.nodes)
    assert {name: count for name, count in counts.items() if count > MAX_STATEMENTS[name]} == {}


def test_files_and_functions_stay_small():
    everywhere = sources(*PACKAGES, "tests", "benchmarks", "examples")
    assert [line for source in everywhere for line in oversized(source)] == []


def test_there_are_no_more_files_and_classes_than_the_ceilings():
    ours = sources(*PACKAGES)
    assert len(ours) <= MAX_FILES
    assert sum(isinstance(node, ast.ClassDef) for source in ours for node in source.nodes) <= MAX_CLASSES


def test_no_more_is_packed_than_the_ceilings():
    ours = sources(*PACKAGES)
    lines = [f"{source.path}:{node.lineno}" for source in ours for node in packed(source.nodes)]
    assert len(lines) <= MAX_PACKED, lines
    lines = [f"{source.path}:{node.lineno}" for source in ours for node in star_tuples(source.nodes)]
    assert len(lines) <= MAX_STAR_TUPLES, lines


def test_no_folder_has_more_rooms_or_arrows_up_than_its_ceiling():
    imports = {module: others for package in PACKAGES for module, others in modules_of(package).items()}
    for folder, names in rooms().items():
        assert len(names) <= MAX_ROOMS_OF.get(folder, MAX_ROOMS), folder
        assert arrows_up(folder, names, imports) <= MAX_ARROWS_UP.get(folder, 0), folder


@pytest.mark.slow
@pytest.mark.parametrize("command", ["parse", "plan"])
def test_a_command_runs_no_more_than_its_ceiling(command, tmp_path):
    """With a profile of the CPU in the file: a measured one is another one each time, and leads elsewhere."""
    deployment = yaml.safe_load((ROOT / "examples/local-cpu.yaml").read_text(encoding="utf-8"))
    deployment["models"][0]["path"] = str(ROOT / "examples/counting")
    file = tmp_path / "deployment.yaml"
    file.write_text(yaml.safe_dump({**deployment, "profiles": {"CPU": "cpu.yaml"}}))
    (tmp_path / "cpu.yaml").write_text(
        yaml.safe_dump(fit_cpu(CpuSamples(5e10, 1e10, 5e9, 2e-4, 3e-5, 2e9, 3e-5, 5e-4)).to_mapping())
    )
    arguments = (command, "keep P99 TTFT < 2s at peak", "--deployment", str(file))
    ran = subprocess.run(
        [sys.executable, "-c", TRACE, str(ROOT), " ".join(PACKAGES), *arguments],
        cwd=ROOT,
        env={**os.environ, "INTENTCTL_DATA_DIR": str(tmp_path), "INTENTCTL_SERVER": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    files, functions = json.loads(ran.stderr.splitlines()[-1])
    most_files, most_functions = MAX_RUN[command]
    assert (files <= most_files, functions <= most_functions) == (True, True), f"{files} files, {functions} functions"


# --- the ruler itself can say no ---


@rows(
    ("text", "count"),
    [
        ('"""A page."""\nONE = 1  # one\n"""Of it."""\nTWO = (\n    2,\n)', 2),
        ("import a\n\ndef f(x):\n    if x:\n        return 1\n    return 2", 5),
        ("a, b = x, y", 2),
        ("(a, b), c = x, y", 2),
        ("a, b = f()", 1),
    ],
)
def test_statements_are_counted_without_texts_and_packed_ones_as_their_targets(text, count):
    assert statements([*ast.walk(ast.parse(text))]) == count


@rows("text", ["x = 1\n" * 381, "def long():\n" + "    x = 1\n" * 46])
def test_what_is_too_long_is_seen(text):
    assert len(list(oversized(Source("runtime/router.py", text)))) == 1


@rows(
    ("text", "count"),
    [
        ("def f():\n    place = a, b\n    return g(c, *place)", 1),
        ("def f():\n    return g(*(a, b))", 1),
        ("def f(place):\n    return g(*place)", 0),
        ("PLACE = a, b\ndef f():\n    return g(*PLACE)", 0),
    ],
)
def test_a_star_before_a_tuple_of_the_same_function_is_seen(text, count):
    assert len(list(star_tuples(ast.walk(ast.parse(text))))) == count


@rows(
    ("imports", "count"),
    [
        ({"a.x": {"a.y"}, "a.y": set(), "a.r.z": {"a.x"}}, 0),
        ({"a.x": {"a.r.one"}, "a.r.two": {"a.x"}, "a.r.one": set(), "a.y": {"a.x"}}, 2),
        ({"a.x": {"a.y"}, "a.y": {"a.x"}, "a.r.z": {"a.x", "a.y"}}, 2),
    ],
)
def test_imports_of_a_circle_of_rooms_are_counted(imports, count):
    assert arrows_up("a", {"a.x", "a.y", "a.r"}, imports) == count
