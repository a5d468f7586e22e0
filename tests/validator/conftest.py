from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from intent.models import Goal, Intent, RecurringWindow, TranslatorInfo
from runtime.capabilities import Limits
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node
from tests.validator.goals import CATALOGUE
from validator.models import MessageWords, Site, Speed
from validator.validate import validate

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
"""A Friday."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri")
COUNTING = ModelSpec("counting", "Qwen3ForCausalLM", 8, 128, 384, 8, 4, 32, 98, 16384)
LLAMA = ModelSpec("llama-3-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 128_256, 8192)


def node(name: str, kind: str, first: int, count: int, memory_gb: int = 80, usd_per_hour: float = 0.0) -> Node:
    gpus = tuple(Gpu(n, kind, memory_gb * 10**9, usd_per_hour) for n in range(first, first + count))
    return Node(name, gpus, Link("nvlink", 3e11, 1e-5))


@pytest.fixture(scope="session")
def en() -> MessageWords:
    return MessageWords("en")


@pytest.fixture(scope="session")
def site() -> Site:
    """Four slots on one node and the counting model."""
    return Site(
        Cluster((node("local", "CPU", 0, 4),)),
        {"counting": COUNTING},
        NOW,
        tenants=("acme", "paid"),
        windows={"peak": RecurringWindow(WEEKDAYS, "09:00", "21:00", "UTC"), "month_end": "peak"},
    )


@pytest.fixture(scope="session")
def big() -> Site:
    """Four A100 and four L40S, and a model that needs two of them."""
    nodes = node("a", "A100", 0, 4, 80, 2.2), node("b", "L40S", 4, 4, 48, 1.1)
    return Site(
        Cluster(nodes),
        {LLAMA.name: LLAMA},
        NOW,
        Limits(8, (1, 2, 4), (1, 2, 4), ("bf16", "fp8", "int8")),
        tenants=CATALOGUE.tenants,
        speeds={"A100": Speed(2.039e12, 312e12), "L40S": Speed(8.64e11, 733e12)},
    )


@pytest.fixture(scope="session")
def two_models(site) -> Site:
    """The counting model, and one of two layers."""
    return replace(site, models={"counting": COUNTING, "thin": replace(COUNTING, name="thin", num_layers=2)})


@pytest.fixture(scope="session")
def intent_of() -> Callable[..., Intent]:
    """Goals as an intent that nobody has checked yet."""

    def make(*goals: Goal, text: str = "x", language: str = "en") -> Intent:
        return Intent(text, language, goals, TranslatorInfo("rules"))

    return make


@pytest.fixture
def checked(intent_of, site) -> Callable[..., Intent]:
    """Goals as a checked intent."""

    def check(*goals: Goal, **said: str) -> Intent:
        return validate(intent_of(*goals, **said), site)

    return check
