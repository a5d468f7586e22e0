import os
from pathlib import Path

import pytest

from benchmarks.gpu.machine import Machine

GIGA = 1_000_000_000


@pytest.fixture
def bare() -> dict[str, str]:
    """The environment of an interpreter that has only the packages of a bare GPU machine."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "bare")}


@pytest.fixture
def h100() -> Machine:
    return Machine("cuda", "H100", 85 * GIGA, 84 * GIGA, 120 * GIGA, 1e12, {"compiler": "/usr/bin/cc"})


@pytest.fixture
def cpu() -> Machine:
    return Machine("cpu", "CPU", 16 * GIGA, 12 * GIGA, 12 * GIGA, 1e10)
