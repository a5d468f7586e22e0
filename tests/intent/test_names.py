"""Names as people say them: whole ones first."""

from dataclasses import replace

import pytest

from intent import names
from tests.rows import rows


@pytest.fixture
def here(catalogue):
    return replace(
        catalogue,
        tenants=("acme", "free", "gold-plus"),
        models=("llama-3-70b", "node"),
        aliases={"免费用户": "free", "llama": "llama-3-70b", "acme corp": "acme"},
        devices={"A100": 4, "RTX 4090": 2},
        nodes=("a", "node-b", "rack 7"),
    )


@rows(
    ("words", "name"),
    [
        ("acme", "acme"), ("ACME's", "acme"), ("Acme Corp", "acme"), ("tenant acme", "acme"), ("free-tier traffic", "free"),
        ("the free users", "free"), ("免费用户", "free"),
        ("免费用户的流量", "free"), ("gold plus", "gold-plus"), ("frees", "free"),
        ("gold", None), ("globex", None), ("", None), ("users", None),
    ],
)  # fmt: skip
def test_a_tenant_is_found_in_any_case_as_a_plural_and_by_an_alias(words, name, here):
    assert names.tenant(words, here) == name


@rows(
    ("words", "selector"),
    [
        ("node-b", "node:node-b"), ("node a", "node:a"), ("host a", "node:a"), ("a", "node:a"), ("rack 7", "node:rack 7"),
        ("A100s", "gpu_type:A100"), ("the A100 boxes", "gpu_type:A100"), ("rtx 4090", "gpu_type:RTX 4090"),
        ("gpu-3", "gpu:gpu-3"), ("GPU 12", "gpu:gpu-12"), ("3 号卡", "gpu:gpu-3"), ("node b", "node:node-b"), ("H200", None),
    ],
)  # fmt: skip
def test_devices_are_found_by_their_whole_name_first(words, selector, here):
    assert names.selector(words, here) == selector


def test_a_model_that_is_called_like_a_thing_is_found(here):
    assert (names.model("llama", here), names.model("node", here), names.model("gpt", here)) == (
        "llama-3-70b",
        "node",
        None,
    )
