"""The house rules that no type checker knows: who may import whom, what stays pure."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.rows import rows

ROOT = Path(__file__).parents[1]
PACKAGES = ("prompts", "intent", "validator", "selector", "runtime", "service", "intentctl")


def modules(*lists: str) -> tuple[str, ...]:
    """Names: ``intent: models windows`` are ``intent.models`` and ``intent.windows``."""
    split = (each.partition(": ") for each in lists)
    return tuple(f"{package}.{name}" for package, _, names in split for name in names.split())


def paths(*lists: str) -> tuple[str, ...]:
    """Files: ``service: app bodies`` are two of them; ``runtime/kv/`` is all of a folder."""
    folders = tuple(one for one in lists if one.endswith("/"))
    files = modules(*(one for one in lists if one not in folders))
    return folders + tuple(f"{name.replace('.', '/')}.py" for name in files)


STARTS = modules("service: deployment serving.hosts http.logs server")
"""What the command line starts: a service, or an agent, with its log."""

MAY_IMPORT = {
    "prompts": (),
    "intent": ("prompts",),
    "validator": modules(
        "intent: models document messages readback windows",
        "runtime: models capabilities footprint errors",
    ),
    "selector": modules(
        "intent: models tables",
        "runtime: models capabilities footprint forms sync.stream sync.swap errors replicas.choice replicas.steps",
    ),
    "runtime": (),
    "service": ("prompts", "intent", "validator", "selector", "runtime"),
    "intentctl": (
        *("prompts", "intent", "validator", "selector", "runtime"),
        *modules("service: api documents store.lock"),
        *STARTS,
    ),
}
"""Package to the foreign modules it may use, with all that is under them. Errors go with the models they concern."""

SERVICE_ROOMS = (
    *("documents", "deployment", "store", "access", "planning", "promises"),
    *("serving", "control", "http", "openai", "api", "app", "server"),
)
"""From below to above."""

CONFINED = {
    "torch": paths("runtime/kv/", "runtime/sync/", "runtime/torch_engine/", "runtime/vllm_engine/"),
    "triton": paths("runtime: kv.kernels"),
    "cuda": paths("runtime: kv.memory"),
    "vllm": paths("runtime/vllm_engine/"),
    "fastapi": paths("service: app http.bodies http.repeatable openai.api"),
    "starlette": paths("service: app http.bodies openai.api", "intentctl/console/"),
    "sqlalchemy": paths(
        "service/store/",
        "service: http.idempotency_store",
        "service.access: audit key_store approvals",
    ),
    "alembic": paths("service: store.database", "service/store/migrations/"),
    "langchain_openai": paths("intent/llm/"),
    "langchain_core": paths("intent/llm/"),
    "typer": paths("intentctl/"),
    "rich": paths("intentctl/"),
    "matplotlib": paths("intentctl: plots"),
    "ssl": paths("runtime: hosts.tls hosts.agent"),
    "cryptography": paths("runtime: hosts.certificates"),
    "ray": paths("runtime: hosts.placement"),
    "nixl_cu12": paths("runtime: kv.carrier.one_sided"),
}
"""Library to the only places that may use it."""

PURE = paths(
    "intent/",
    "validator/",
    "selector/",
    "intentctl: arguments explain console.charts console.cluster console.slash console.words",
    "service.openai: calls declaration forms messages requests tools",
    "service: http.idempotency planning.undo",
    "service.promises: agenda attainment decide controller limits planner verdict",
    "runtime: architectures models capabilities errors engine machine ledger text footprint notation",
    "runtime: kv.blocks kv.carrier.layout kv.pages kv.prefixes sync.stream sync.patch sync.swap",
    "runtime.torch_engine.driver: handover scheduler",
    "runtime.vllm_engine: connector.frontier geometry launch models",
)
NOT_PURE = paths("intent.llm: asking following")
EFFECTS = ("torch", "asyncio", "httpx", "os", "time", "socket", "subprocess", "threading")

VAGUE = {"utils", "util", "common", "helpers", "helper", "core", "manager", "misc"}

MAX_PARAMETERS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file, its path relative to the repository."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return tree_of(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return nodes_of(self.text)

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    @property
    def imports(self) -> set[str]:
        """Every absolute module it imports, inside functions and type checks too."""
        return imports_of(self.text)

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    def lies_in(self, places: Iterable[str]) -> bool:
        return any(self.path == place or (place.endswith("/") and self.path.startswith(place)) for place in places)


@cache
def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(text)))


@cache
def imports_of(text: str) -> set[str]:
    found = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert paths, f"no Python files in {folders}"
    return tuple(Source(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths)


def is_under(module: str, allowed: Iterable[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


Rule = Callable[[Source], list[str]]


def foreign_imports(source: Source) -> list[str]:
    """Imports of our other packages that the rules do not allow."""
    return [
        f"{source.path}: {module}"
        for module in sorted(source.imports)
        if module.split(".")[0] in set(PACKAGES) - {source.package} and not is_under(module, MAY_IMPORT[source.package])
    ]


def effects(source: Source) -> list[str]:
    """Imports that a pure module may not have."""
    return [f"{source.path}: {module}" for module in sorted(source.imports) if is_under(module, EFFECTS)]


def strays(source: Source) -> list[str]:
    """Libraries used where they may not be."""
    return [
        f"{source.path}: {module}"
        for module in sorted(source.imports)
        for library, places in CONFINED.items()
        if is_under(module, [library]) and not source.lies_in(places)
    ]


def environment_reads(source: Source) -> list[str]:
    """Places that read the environment; what is set there for a library to read is no reading."""
    written = {
        node.value
        for node in source.nodes
        if (isinstance(node, ast.Attribute) and node.attr == "setdefault")
        or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
    }
    return [
        f"{source.path}:{node.lineno}"
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"} and node not in written
    ]


def overloaded(source: Source) -> list[str]:
    """Functions with too many parameters. Kernels take what they take: pointers, strides and sizes, one by one."""
    found = []
    for function in source.functions:
        if any(ast.unparse(decorator).partition("(")[0] == "triton.jit" for decorator in function.decorator_list):
            continue
        names = [argument.arg for argument in function.args.args + function.args.kwonlyargs]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > MAX_PARAMETERS:
            found.append(f"{source.path}: {function.name} has {count} parameters")
    return found


def module_file(name: str) -> Path | None:
    """The file of one of our modules."""
    for file in (ROOT / f"{name.replace('.', '/')}.py", ROOT / name.replace(".", "/") / "__init__.py"):
        if file.exists():
            return file
    return None


def says_any(function: Function) -> bool:
    """Whether its signature has the word ``Any``."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    types = [*(one.annotation for one in arguments), function.returns]
    return any(isinstance(node, ast.Name) and node.id == "Any" for one in types if one for node in ast.walk(one))


def called_abroad(source: Source) -> Iterator[tuple[str, Function]]:
    """Functions and public methods of other packages that a file imports or calls by its module, each with its name."""
    for node in source.nodes:
        if not isinstance(node, ast.ImportFrom) or not node.module or node.level:
            continue
        if node.module.split(".")[0] not in set(PACKAGES) - {source.package}:
            continue
        for alias in node.names:
            whole = module_file(f"{node.module}.{alias.name}")
            file = whole or module_file(node.module)
            for name, function in functions_of(file.read_text(encoding="utf-8")) if file else ():
                if whole or name.split(".")[0] == alias.name:
                    yield f"{node.module}.{name}", function


@cache
def functions_of(text: str) -> tuple[tuple[str, Function], ...]:
    """Public functions of a module and public methods of its classes."""
    tree = ast.parse(text)
    found = [(node.name, node) for node in tree.body if isinstance(node, Function)]
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):
            methods = (node for node in kind.body if isinstance(node, Function))
            found += [(f"{kind.name}.{node.name}", node) for node in methods]
    return tuple((name, node) for name, node in found if not name.rpartition(".")[2].startswith("_"))


def unsafe_starts(source: Source) -> list[str]:
    """Commands by which Python imports from the working directory, where anything may lie."""
    found = []
    for node in source.nodes:
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        words = [ast.unparse(each) for each in node.elts]
        is_safe = "'-P'" in words or "'PYTHONSAFEPATH=1'" in words
        if "sys.executable" in words and "'-m'" in words and not is_safe:
            found.append(f"{source.path}:{node.lineno}")
    return found


IN_A_DRIVER = paths("runtime.torch_engine.driver: switch capacity")
"""What works in a driver and knows of it what ``Host`` says."""
HOST = "runtime/torch_engine/driver/host.py"
MAX_HOST_NAMES = 14


@cache
def host_names() -> frozenset[str]:
    """What ``Host`` declares."""
    tree = ast.parse((ROOT / HOST).read_text(encoding="utf-8"))
    (host,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Host")
    fields = (node.target for node in host.body if isinstance(node, ast.AnnAssign))
    named = {field.id for field in fields if isinstance(field, ast.Name)}
    return frozenset(named | {node.name for node in host.body if isinstance(node, Function)})


def reaches_past_host(source: Source) -> list[str]:
    """Ways to the driver that are none of its ``Host``'s."""
    found = [f"{source.path}: {name}" for name in source.imports if name.startswith("runtime.torch_engine.driver.loop")]
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and "driver" in node.attr:
            found.append(f"{source.path}:{node.lineno}: {node.attr}")
        if isinstance(node, ast.Attribute) and node.attr not in host_names():
            value = node.value
            name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            if name in {"_host", "host"}:
                found.append(f"{source.path}:{node.lineno}: {node.attr}")
    return found


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; ``imports`` are by module, of all modules that are looked at."""
    left = {name: {other for other in others if other in imports} for name, others in imports.items()}
    while leaves := [name for name, others in left.items() if not others & left.keys()]:
        for name in leaves:
            del left[name]
    return sorted(left)


def modules_of(package: str) -> dict[str, set[str]]:
    """Each module of a package with those that it imports, inside functions and type checks too."""
    files = {source.path: source for source in sources(package)}
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): one for path, one in files.items()}
    return {
        name: ({part for each in source.imports for part in (each, each.rpartition(".")[0])} & names.keys()) - {name}
        for name, source in names.items()
        if not source.path.endswith("__init__.py")
    }


def untyped(source: Source) -> list[str]:
    """What a file calls of other packages without knowing what goes in or comes out."""
    return [f"{source.path}: {name}" for name, function in called_abroad(source) if says_any(function)]


def test_a_package_imports_only_what_is_below_it():
    assert [line for source in sources(*PACKAGES) for line in foreign_imports(source)] == []


def test_pure_modules_exist_and_have_no_effects():
    assert [place for place in (*PURE, *NOT_PURE) if not (ROOT / place).exists()] == []
    pure = [source for source in sources(*PACKAGES) if source.lies_in(PURE) and not source.lies_in(NOT_PURE)]
    assert len(pure) > 20
    assert [line for source in pure for line in effects(source)] == []


def test_heavy_libraries_stay_in_their_rooms():
    assert [line for source in sources(*PACKAGES) for line in strays(source)] == []


def test_the_environment_is_read_in_one_place():
    elsewhere = [source for source in sources(*PACKAGES) if source.path != "service/deployment/settings.py"]
    assert [line for source in elsewhere for line in environment_reads(source)] == []


def test_no_process_imports_from_the_working_directory():
    assert [line for source in sources(*PACKAGES) for line in unsafe_starts(source)] == []


def test_no_module_has_a_name_that_says_nothing():
    names = [part for source in sources(*PACKAGES) for part in Path(source.path).with_suffix("").parts]
    assert VAGUE.isdisjoint(names)


def test_functions_take_few_parameters():
    ours = sources(*PACKAGES, "benchmarks", "examples")
    assert [line for source in ours for line in overloaded(source)] == []


def test_what_crosses_between_packages_has_a_type():
    assert sorted({line for source in sources(*PACKAGES) for line in untyped(source)}) == []


def test_no_room_of_the_service_imports_one_above_it():
    """The order is that of docs/structure.md."""
    rank = {name: number for number, name in enumerate(SERVICE_ROOMS)}
    arrows = [
        (name, other)
        for name, others in modules_of("service").items()
        for other in others
        if "." in other and rank[other.split(".")[1]] > rank[name.split(".")[1]]
    ]
    assert arrows == []


def test_few_lines_of_the_service_and_the_command_line_say_any():
    lines = [
        f"{source.path}:{number}"
        for source in sources("service", "intentctl")
        for number, line in enumerate(source.text.splitlines(), start=1)
        if re.search(r"\bAny\b", line)
    ]
    assert len(lines) <= 20, lines


def test_a_switch_reaches_its_driver_through_host_alone():
    assert len(host_names()) <= MAX_HOST_NAMES
    inside = [source for source in sources("runtime") if source.lies_in(IN_A_DRIVER)]
    assert len(inside) == len(IN_A_DRIVER)
    assert [line for source in inside for line in reaches_past_host(source)] == []


def test_no_module_imports_itself_in_a_circle():
    assert [name for package in PACKAGES for name in circles(modules_of(package))] == []


# --- the rules themselves can say no ---


def test_a_circle_is_seen_wherever_it_closes():
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c"]
    assert "torch" not in modules_of("runtime")["runtime.kv.store"]
    assert "runtime.errors" in modules_of("runtime")["runtime.models"]


@rows(
    ("rule", "path", "text"),
    [
        (foreign_imports, "runtime/router.py", "from service import app"),
        (foreign_imports, "selector/search.py", "def late():\n    from intent.rules import translate"),
        (foreign_imports, "selector/search.py", "import runtime.router"),
        (foreign_imports, "service/app.py", "from intentctl.status import Exit"),
        (foreign_imports, "intentctl/demo.py", "from service.app import create_app"),
        (effects, "runtime/machine.py", "import time"),
        (effects, "runtime/machine.py", "from os.path import join"),
        (untyped, "service/app.py", "from intent.tables import table"),
        (untyped, "service/app.py", "from intent import tables\ntables.table('intent', 'x')"),
        (strays, "runtime/router.py", "import torch.nn"),
        (strays, "service/planning/lifecycle.py", "from fastapi import FastAPI"),
        (environment_reads, "runtime/router.py", "import os\nos.environ['X']"),
        (unsafe_starts, "service/serving/worker_process.py", "command = [sys.executable, '-m', 'service.x']"),
        (reaches_past_host, "runtime/torch_engine/driver/switch.py", "self._host.scheduler.max_running = 0"),
        (reaches_past_host, "runtime/torch_engine/driver/switch.py", "self._driver.fence()"),
        (reaches_past_host, "x.py", "from runtime.torch_engine.driver.loop import Driver"),
        (overloaded, "runtime/router.py", "class A:\n    def f(self, a, b, c, d, e, f, g, h, *, i): ..."),
    ],
)
def test_a_rule_sees_what_breaks_it(rule, path, text):
    assert len(rule(Source(path, text))) == 1


@rows(
    ("rule", "path", "text"),
    [
        (foreign_imports, "selector/search.py", "from runtime.models import A\nfrom selector.space import a"),
        (foreign_imports, "intentctl/demo.py", "from service.api.operation import Api"),
        (strays, "runtime/torch_engine/worker/shard.py", "import torch"),
        (environment_reads, "runtime/router.py", "import os\nos.environ['X'] = 'y'"),
        (unsafe_starts, "service/serving/worker_process.py", "command = [sys.executable, '-P', '-m', 'service.x']"),
        (overloaded, "runtime/router.py", "class A:\n    def f(self, a, b, c, d, e, f): ..."),
        (overloaded, "runtime/kv/kernels.py", "@triton.jit\ndef f(a, b, c, d, e, f, g): ..."),
    ],
)
def test_a_rule_lets_pass_what_keeps_it(rule, path, text):
    assert rule(Source(path, text)) == []
