"""Sensitivity and losses of weight formats, on the checkpoint that counts; the engine's whole forward pass is the oracle."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from runtime.errors import CheckpointError
from runtime.kv.store import KvShape, KvStore
from runtime.models import LayerRange
from runtime.torch_engine import quality
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights
from tests.rows import rows

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "counting"
TEXT = "".join(
    (f"count by {step} from {start}:" + "".join(f" {(start + step * place) % 1000}" for place in range(1, 60)))[:128]
    for step, start in ((7, 23), (3, 11), (41, 500), (13, 77))
)
"""A prompt and its answer for each chunk: a character is a token."""


@pytest.fixture(scope="module", autouse=True)
def _as_the_process_does():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "SIZES", 3)
        return quality.measured(FOLDER, TEXT)


def whole_pass(formats: dict[int, str]) -> tuple[float, torch.Tensor]:
    """Mean negative log-likelihood and likeliest tokens by the whole model at once."""
    weights = Weights(Checkpoint(FOLDER), torch.float32)
    model = weights.checkpoint.spec
    layers = LayerRange(0, model.num_layers)
    shard = Shard(weights, ShardSpec(layers, 0, 1, True, True, tuple(formats.get(layer) for layer in layers)), layers)
    chunks = quality.chunks_of(FOLDER, TEXT, 128)
    losses = []
    likeliest = []
    for tokens in chunks:
        store = KvStore(KvShape(model.num_layers, model.num_kv_heads, 4, 32, model.head_dim, torch.float32))
        attention = Attention(store.cache, slice(None), [Span(0, 128, (0, 1, 2, 3))])
        logits = shard.logits(shard.forward(tokens, attention, SOLO), range(127), SOLO)
        losses.append(F.cross_entropy(logits, tokens[1:]))
        likeliest.append(logits.argmax(-1))
    return torch.stack(losses).mean().item(), torch.stack(likeliest)


def test_what_is_computed_from_the_first_changed_layer_on_is_what_a_whole_pass_says(found):
    full, likeliest = whole_pass({})
    assert found["perplexity"] == pytest.approx(math.exp(full), rel=1e-4)
    for name, curve in found["formats"].items():
        sets = [
            ([3], curve["singles"][3]),
            (range(8), curve["prefixes"][8]),
            (curve["order"][:3], curve["prefixes"][3]),
        ]
        for layers, lost in sets:
            changed, other = whole_pass(dict.fromkeys(layers, name))
            assert lost["loss"] == pytest.approx(math.expm1(changed - full), abs=1e-5), (name, layers)
            assert lost["agreement"] == pytest.approx((likeliest == other).float().mean().item(), abs=1e-6)


def test_each_set_is_measured_and_what_it_loses_grows_within_its_error(found):
    assert [*found["formats"]] == ["int8", "int4"]
    for curve in found["formats"].values():
        assert sorted(curve["order"]) == [*curve["singles"]] == [*range(8)]
        prefixes = [*curve["prefixes"].items()]
        assert [size for size, _ in prefixes] == [3, 6, 8]
        for (_, less), (_, more) in itertools.pairwise(prefixes):
            assert more["loss"] >= less["loss"] - 2 * (less["error"] + more["error"])
            assert more["divergence"] >= 0.8 * less["divergence"]
    coarse, fine = (found["formats"][name]["prefixes"][8] for name in ("int4", "int8"))
    assert coarse["divergence"] > 20 * fine["divergence"] > 0


def test_scores_are_high_where_little_changes(found):
    for fine, coarse in zip(*(found["formats"][name]["scores"].values() for name in ("int8", "int4")), strict=True):
        assert fine["lts"] == coarse["lts"]
        assert 1 > fine["lrs"] > coarse["lrs"] > 0.9
        assert 1 > fine["mds"] > coarse["mds"] > 0.9


def test_layers_that_do_not_change_come_earlier(monkeypatch):
    monkeypatch.setattr(quality, "SIZES", 4)
    weights = Weights(Checkpoint(FOLDER), torch.float32)
    ours = quality.single_layers(weights)
    reading = quality.HeldText(weights, ours, quality.chunks_of(FOLDER, TEXT, 128)[:1])
    theirs = quality.single_layers(weights, "int4")
    before, _ = quality.ordered(reading, theirs, weights.norm())
    for layer in before[-2:]:
        theirs[layer] = ours[layer]
    after, scores = quality.ordered(reading, theirs, weights.norm())
    for layer in before[-2:]:
        assert after.index(layer) < before.index(layer)
        assert scores[layer]["lrs"] == pytest.approx(1, abs=1e-9)


@rows(("text", "message"), [(TEXT[:400], "has 400 tokens, and 512 are the fewest"), ("", "has 0 tokens")])
def test_a_text_that_is_too_short_is_refused(text, message):
    with pytest.raises(CheckpointError, match=message):
        quality.chunks_of(FOLDER, text, 128)


def test_text_beyond_what_is_read_is_left_out():
    assert quality.chunks_of(FOLDER, TEXT * 5, 128).shape == (16, 128)


def test_a_folder_that_cannot_be_measured_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["quality", str(tmp_path)])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr("sys.stdin.read", lambda: TEXT, raising=False)
    with pytest.raises(SystemExit) as ended:
        quality.main()
    done = subprocess.CompletedProcess([], 1, "", f"a warning\n{ended.value}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(CheckpointError, match=r"^no quality was measured: /.* has no config\.json"):
        quality.measure(tmp_path, TEXT)
