from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from intent.models import NAMED_WINDOWS, Catalogue, Intent
from intent.translate import translate
from runtime.models import Cluster, Gpu, Limits, Link, ModelSpec, Node
from validator.validate import validate

COUNTING = ModelSpec("counting", "Qwen3ForCausalLM", 8, 128, 384, 8, 4, 32, 98, 16384)


def node(name: str, kind: str, first: int, count: int) -> Node:
    gpus = tuple(Gpu(index, kind, 80 * 10**9) for index in range(first, first + count))
    return Node(name, gpus, Link("nvlink", 3e11, 1e-5))


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue(
        models=("counting",),
        windows=(*NAMED_WINDOWS, "month_end"),
        now=datetime(2026, 11, 20, 10, tzinfo=UTC),
        tz="UTC",
        tenants=("acme",),
    )


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster((node("local", "CPU", 0, 4),))


@pytest.fixture(scope="session")
def mixed() -> Cluster:
    """Four devices of one kind, two of another."""
    return Cluster((node("a", "A100", 0, 4), node("b", "L40S", 4, 2)))


@pytest.fixture(scope="session")
def models() -> dict[str, ModelSpec]:
    return {"counting": COUNTING, "thin": replace(COUNTING, name="thin", num_layers=2)}


@pytest.fixture
def checked(catalogue, cluster, models) -> Callable[..., Intent]:
    """Text to checked intent, on four devices and the counting model."""

    def check(text: str, limits: Limits | None = None) -> Intent:
        only = {"counting": models["counting"]}
        return validate(translate(text, catalogue), limits or Limits(), cluster, only)

    return check
