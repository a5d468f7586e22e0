"""What a switch has to move."""

import pytest

from runtime.footprint import kv_bytes_per_token
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from selector.moves import bytes_to_move


@pytest.fixture
def topology(laptop: Cluster) -> dict[str, Topology]:
    texts = {
        "one": "CPU[0]",
        "elsewhere": "CPU[3]",
        "tp2": "CPU[0,1]",
        "pp2": "CPU[0]:0-4 > CPU[1]:4-8",
        "bf16": "CPU[0]@bf16",
    }
    return {name: parse_topology(text, laptop, 8, "fp32") for name, text in texts.items()}


@pytest.mark.parametrize(
    ("now", "target", "weights", "kv"),
    [
        ("one", "one", 0.0, 0.0),
        ("one", "tp2", 0.5, 0.5),
        ("one", "pp2", 0.5, 0.5),
        ("tp2", "one", 0.5, 0.5),
        ("tp2", "pp2", 0.5, 0.5),
        ("one", "elsewhere", 1.0, 1.0),
        ("one", "bf16", 0.5, 0.0),
    ],
)
def test_only_what_a_device_lacks_is_moved(
    topology: dict[str, Topology], counting: ModelSpec, now: str, target: str, weights: float, kv: float
) -> None:
    moved = bytes_to_move(topology[now], topology[target], counting)
    assert moved["weights"] == weights * 4 * 8 * counting.layer_parameters
    assert moved["kv_per_token"] == kv * kv_bytes_per_token(counting, "fp32")


def test_a_first_start_loads_everything_and_has_no_cache(
    topology: dict[str, Topology], counting: ModelSpec
) -> None:
    moved = bytes_to_move(None, topology["tp2"], counting)
    assert moved == {"weights": 4 * 8 * counting.layer_parameters, "kv_per_token": 0}
