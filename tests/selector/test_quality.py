"""What formats cost by a measured file: what counts as measured, and what is refused."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from selector.quality import QualityCurve, QualityError
from tests.rows import rows

NUM_LAYERS = 4


def _loss(loss: float) -> dict[str, float]:
    return {"loss": loss, "agreement": 1 - loss, "error": 0.001}


FILE: dict[str, Any] = {
    "model": "tiny",
    "checkpoint": {"model.safetensors": "00ff"},
    "recipe": {"rounding": "x", "hidden": 64, "attention": None, "mlp": 128},
    "layers": NUM_LAYERS,
    "formats": {
        "int8": {
            "order": [2, 0, 3, 1],
            "prefixes": {1: _loss(0.001), 2: _loss(0.002), 4: _loss(0.01)},
            "singles": {0: _loss(0.0015), 1: _loss(0.005), 2: _loss(0.001), 3: _loss(-0.0005)},
        },
        "int4": {"order": [2, 3, 0, 1], "prefixes": {4: _loss(0.2)}, "singles": {2: _loss(0.03)}},
    },
}
CURVE = QualityCurve.from_mapping(FILE)


@rows(
    ("formats", "loss", "source"),
    [
        ({}, 0.0, "measured"),
        (dict.fromkeys(range(4), "fp32"), 0.0, "measured"),
        ({2: "int8"}, 0.001, "measured"),
        ({1: "int8"}, 0.005, "measured"),
        ({3: "int8"}, 0.0, "measured"),  # nothing gains quality by losing bits
        ({0: "int8", 2: "int8", 1: "bf16"}, 0.002, "measured"),
        (dict.fromkeys(range(4), "int8"), 0.01, "measured"),
        ({0: "int8", 2: "int8", 3: "int8"}, 0.0025, "assumed"),  # a prefix that was not measured
        ({0: "int8", 1: "int8"}, 0.0065, "assumed"),
        ({2: "int4", 1: "int8"}, 0.035, "assumed"),  # two formats were never measured together
        ({2: "int4", 3: "int4"}, 0.03 + 0.4 / 4, "assumed"),
        ({3: "int4"}, 0.4 / 4, "assumed"),
        ({0: "fp8", 1: "fp8"}, 0.02 / 4 * 2, "assumed"),
        ({0: "int8", 1: "fp8"}, 0.0015 + 0.02 / 4, "assumed"),
    ],
)
def test_a_set_is_measured_if_it_was_and_else_summed(formats, loss, source):
    found, why = CURVE.loss_of(formats, {"int4": 0.4, "fp8": 0.02})
    assert (found, why) == (pytest.approx(loss), source)


@given(st.dictionaries(st.integers(0, NUM_LAYERS - 1), st.sampled_from(["fp32", "bf16", "int8", "int4", "fp8"])))
def test_layers_in_full_formats_lose_nothing_and_no_loss_is_negative(formats):
    lossy = {layer: name for layer, name in formats.items() if name not in {"fp32", "bf16"}}
    assert CURVE.loss_of(formats, {}) == CURVE.loss_of(lossy, {})
    assert CURVE.loss_of(formats, {})[0] >= 0


def test_it_survives_yaml_and_json_keys():
    assert QualityCurve.from_mapping(yaml.safe_load(yaml.safe_dump(FILE))) == CURVE
    int8 = FILE["formats"]["int8"]
    texts = {"prefixes": {str(size): loss for size, loss in int8["prefixes"].items()}}
    as_json = {**FILE, "formats": {**FILE["formats"], "int8": {**int8, **texts}}}
    assert QualityCurve.from_mapping(as_json) == CURVE


@rows(
    ("path", "value", "message"),
    [
        (("layers",), None, "lacks 'layers'"),
        (("formats", "int8", "singles"), None, "lacks 'singles'"),
        (("formats", "int8", "prefixes", 4, "loss"), None, "lacks 'loss'"),
        (("formats", "int8", "order"), [2, 0, 3], "the order of int8 does not have each of 4 layers once"),
        (("formats", "int8", "order"), [2, 0, 3, 3], "the order of int8 does not have each of 4 layers once"),
        (("layers",), 5, "does not have each of 5 layers once"),
        (("formats", "int8", "singles", 3, "loss"), "much", "it is no measured quality, or not all of one"),
        (("formats", "int8", "singles", 3, "loss"), float("nan"), "it is no measured quality, or not all of one"),
        (("formats",), [1], "it is no measured quality, or not all of one"),
        ((), ["half"], "it is no measured quality, or not all of one"),
        ((), None, "it is no measured quality, or not all of one"),
    ],
)
def test_what_is_no_measurement_is_refused_by_name(path, value, message):
    document = copy.deepcopy(FILE)
    part: Any = document
    for key in path[:-1]:
        part = part[key]
    if not path:
        document = value
    elif value is None:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    with pytest.raises(QualityError, match=message):
        QualityCurve.from_mapping(document)
