"""Reading a profile from plain data."""

from typing import Any

import pytest

from selector import profiles
from selector.models import Profile, ProfileError
from tests.rows import rows


@pytest.fixture
def plain() -> dict[str, Any]:
    return profiles.load("A100").to_mapping()


@rows(
    ("change", "message"),
    [
        ({"kv_share": "fast"}, "profile of A100: kv_share is 'fast', not a number"),
        ({"kv_share": float("nan")}, "kv_share is nan; it must be a finite number"),
        ({"p2p_latency_s": -1}, "p2p_latency_s is -1; it must be a finite number, 0 or more"),
        ({"allreduce_s": {2: {0: None, 9: 1.0}}}, r"allreduce_s\.2\.0 is None, not a number"),
        ({"source": "guess"}, "source is 'guess'; use one of measured"),
        ({"colour": 1}, "unknown key colour"),
        ({"weight_share": 0.7}, "weight_share should be a mapping"),
        ({"kv_share": {"bf16": 1}}, "kv_share is {'bf16': 1}, not a number"),
        ({"allreduce_s": {"two": {0: 1.0, 1: 1.0}}}, "allreduce_s has the size 'two'"),
        ({"allreduce_s": {2: {0: 1.0}}}, r"allreduce_s\.2 needs two points"),
        ({"allreduce_s": {2: {0: 1.0, 9: 0.5}}}, "a larger message may not take less time"),
        ({3: 1, "colour": 1}, "unknown key 3, colour"),
        ({"extrapolated": "fp8"}, "extrapolated should be a list, not 'fp8'"),
        ({"kv_share": 0}, "kv_share is 0; a share is more than 0 and at most 1"),
        ({"expert_share": 1.5}, r"expert_share is 1\.5; a share is"),
        ({"weight_share": {"bf16": 1.01}}, r"weight_share\.bf16 is 1\.01; a share is"),
        ({"weight_share": {}}, "weight_share needs a format"),
        ({"compute_share": {"bf16": 0.5}}, r"compute_share the formats of flops_s \(bf16, fp16\)"),
        ({"memory_bytes_s": 0}, "memory_bytes_s is 0; it must be more than 0"),
        ({"elementwise_share": 0}, "elementwise_share is 0; it must be more than 0"),
        ({"flops_s": {"bf16": 0, "fp16": 1}}, r"flops_s\.bf16 is 0; it must be more than 0"),
    ],
)
def test_a_malformed_profile_is_refused_by_the_key_at_fault(plain, change, message):
    with pytest.raises(ProfileError, match=message):
        Profile.from_mapping(plain | change)


def test_missing_keys_are_named(plain):
    del plain["kv_share"], plain["kind"]
    with pytest.raises(ProfileError, match="a device without kind: kind, kv_share missing"):
        Profile.from_mapping(plain)
