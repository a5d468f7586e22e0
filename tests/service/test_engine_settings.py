"""What the file says of engines and switches: read, refused where it cannot be, listed in docs/settings.md, obeyed."""

import json
import re
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from runtime.capabilities import Batching, Limits
from runtime.engine import GenerationRequest, SamplingParams
from runtime.footprint import blocks
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, uniform
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.launch import CPU_BYTES, USUAL
from runtime.vllm_engine.models import VllmSettings
from selector.profiles import fit_cpu
from service.deployment import engines
from service.deployment.engine_settings import BYTES, TORCH, VLLM, fitted
from service.deployment.file import load
from service.deployment.policy import ClientLimits, Retention
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, SAMPLES, read, refused

ROOT = Path(__file__).parents[2]


def with_limits(limits: str, rest: str = "") -> str:
    return DEPLOYMENT.replace("limits: {", f"limits: {{{limits}, " if limits else "limits: {") + rest


@rows(
    ("flops_s", "said", "steps", "cut_s"),
    [
        (5e12, "", (64, 64, 256), 2.0),
        (5e10, "", (64, 64, 64), 3.2),
        (5e9, "", (32, 32, 32), 14.1),
        (5e9, "max_step_tokens: 128", (64, 64, 128), 54.8),
        (5e9, "max_sequences: 48", (48, 64, 64), 27.7),
        (5e9, "max_sequences: 64", (64, 64, 64), 27.7),
    ],
)
def test_what_the_file_leaves_out_follows_from_how_long_a_step_takes(tmp_path, flops_s, said, steps, cut_s):
    """Of a model of 106 million parameters in its layers; small parts of prompts where they take long."""
    model = ModelSpec("smol", "LlamaForCausalLM", 30, 576, 1536, 9, 3, 64, 49_152, 8192)
    cpu = fit_cpu(replace(SAMPLES, gemm_flops_s=flops_s))
    found = fitted(read(tmp_path, with_limits(said)).model().engine, model, cpu)
    torch = found.torch
    assert (torch.max_running, torch.closing_batch_tokens, torch.max_batch_tokens) == steps
    assert found.switch.cut_timeout_s == pytest.approx(cut_s, rel=0.05)
    assert fitted(found, model, cpu) == found


def test_a_cut_is_waited_for_as_long_as_the_file_says(tmp_path):
    model = ModelSpec("smol", "LlamaForCausalLM", 30, 576, 1536, 9, 3, 64, 49_152, 8192)
    said = read(tmp_path, with_limits("", "switch: {cut_timeout_s: 1.5}\n")).model().engine
    assert fitted(said, model, fit_cpu(replace(SAMPLES, gemm_flops_s=5e9))).switch.cut_timeout_s == 1.5


# --- what is read ---


def test_every_setting_of_the_built_in_engine_is_read(tmp_path):
    said = """\
torch:
  {block_size: 16, layers_per_slab: 2, kv_blocks: 100, closing_step_tokens: 96, copy_slice_mb: 0.5, copy_share: 0.1,
   beside_copy_share: 1, stop_timeout_s: 0.25, standby: 0, rank_transport: torch_distributed,
   prefix_caching: false, check_copies: true}
"""
    text = with_limits("max_sequences: 80, max_step_tokens: 512", said)
    assert read(tmp_path, text).model().engine.torch == EngineSettings(
        spare=True,
        block_size=16,
        layers_per_slab=2,
        num_blocks=100,
        max_running=80,
        max_batch_tokens=512,
        closing_batch_tokens=96,
        copy_slice_bytes=500_000,
        copy_share=0.1,
        beside_copy_share=1,
        stop_timeout_s=0.25,
        num_standby=0,
        rank_transport="torch_distributed",
        prefix_caching=False,
        check_copies=True,
    )


def test_every_setting_of_vllm_and_of_switches_is_read(tmp_path):
    said = """\
engine: vllm
vllm:
  {options: {seed: 1}, kv_cache_gb: 2, staging_gb: 3, copy_slice_mb: 8, path: patch, drain_tokens: 0,
   drain: refuse, drain_timeout_s: 20, standby: 2, spare: false}
switch:
  {warming_timeout_s: 900, syncing_timeout_s: 30, cut_timeout_s: 1.5, cleaning_timeout_s: 25, lag_tokens_per_request: 4}
"""
    engine = read(tmp_path, with_limits("max_sequences: 80, max_step_tokens: 512", said)).model().engine

    assert engine.vllm == VllmSettings(
        options={"seed": 1},
        kv_cache_bytes=2_000_000_000,
        staging_bytes=3_000_000_000,
        slice_bytes=8_000_000,
        path="patch",
        drain_tokens=0,
        drain="refuse",
        drain_timeout_s=20,
        max_sequences=80,
        max_step_tokens=512,
        num_standby=2,
        spare=False,
    )
    assert engine.switch == SwitchSettings(900, 30, 1.5, 25, 4)


def test_a_file_that_says_nothing_has_the_defaults(tmp_path):
    engine = read(tmp_path).model().engine
    assert (engine.torch, engine.switch) == (EngineSettings(spare=True), SwitchSettings())


@rows(
    ("limits", "rest", "steps"),
    [
        ("max_sequences: 4", "", (4, 64, 256)),
        ("max_sequences: 100", "", (100, 100, 256)),
        ("max_sequences: 1000", "", (1000, 1000, 1000)),
        ("max_step_tokens: 16", "", (16, 16, 16)),
        ("", "torch: {closing_step_tokens: 20}\n", (20, 20, 256)),
        ("", "torch: {closing_step_tokens: 300}\n", (64, 300, 300)),
    ],
)
def test_limits_that_are_not_said_follow_those_that_are(tmp_path, limits, rest, steps):
    torch = read(tmp_path, with_limits(limits, rest)).model().engine.torch
    assert (torch.max_running, torch.closing_batch_tokens, torch.max_batch_tokens) == steps


# --- what is refused ---


@rows(
    ("limits", "rest", "said"),
    [
        ("", "torch: {copy_share: 0}\n", ":14: torch.copy_share: 0 is less than or equal to the minimum of 0"),
        ("", "torch: {copy_share: 1.5}\n", "torch.copy_share: 1.5 is greater than the maximum of 1"),
        ("", "torch: {block_size: 0}\n", "torch.block_size: 0 is less than the minimum of 1"),
        ("", "torch: {block_size: 32.0}\n", "torch.block_size: 32.0 is not of type 'integer'"),
        ("", "torch: {standby: true}\n", "torch.standby: True is not of type 'integer'"),
        ("", "switch: {warming_timeout_s: 0}\n", "switch.warming_timeout_s: 0 is less than or equal to the minimum of 0"),
        ("", "switch: {warming_timeout_s: .nan}\n", "switch.warming_timeout_s: nan is not of type 'number'"),
        ("", "switch: {syncing_timeout_s: .inf}\n", "switch.syncing_timeout_s: inf is not of type 'number'"),
        ("", "torch: {layer_per_slab: 2}\n", "torch.layer_per_slab: unknown key; did you mean 'layers_per_slab'"),
        ("", "switch: {warmup_timeout_s: 2}\n", "switch.warmup_timeout_s: unknown key; did you mean 'warming_timeout_s'"),
        ("", "engine: vllm\ntorch: {standby: 2}\n", ":15: torch: the engine is vllm; write `engine: torch`, or remove this"),
        ("", "engine: torch\nvllm: {standby: 2}\n", ":15: vllm: the engine is torch; write `engine: vllm`, or remove this"),
        ("", "torch: {stop_timeout_s: 2}\n",
         ":14: torch.stop_timeout_s: torch.stop_timeout_s 2 has to be less than switch.cut_timeout_s 2.0 (the default)"),
        ("", "switch: {cut_timeout_s: 0.4}\n",
         ":14: switch.cut_timeout_s: torch.stop_timeout_s 0.5 (the default) has to be less than switch.cut_timeout_s 0.4"),
        ("", "engine: vllm\nvllm: {drain: later}\n", "vllm.drain: 'later' is not one of ['wait', 'refuse']"),
        ("", "torch: {layers_per_slab: 3}\n", ":14: torch.layers_per_slab: as the model starts, stage 1 "),
        ("", "torch: {kv_blocks: 1000000}\n", ":14: torch.kv_blocks: 1000000 blocks of 32 tokens do not fit"),
        ("max_sequences: 48, max_step_tokens: 32", "",
         ":13: limits.max_sequences: limits.max_sequences 48 is more than limits.max_step_tokens 32"),
        ("max_sequences: 48, max_step_tokens: 32", "", "lower limits.max_sequences or raise limits.max_step_tokens"),
        ("max_sequences: 48, max_step_tokens: 32", "engine: vllm\n",
         ":13: limits.max_sequences: limits.max_sequences 48 is more than limits.max_step_tokens 32"),
        ("max_sequences: 48, max_step_tokens: 32", "engine: vllm\n", "or raise limits.max_step_tokens"),
        ("max_sequences: 48", "torch: {closing_step_tokens: 32}\n",
         "limits.max_sequences 48 is more than torch.closing_step_tokens 32"),
        ("max_step_tokens: 32", "torch: {closing_step_tokens: 48}\n",
         "torch.closing_step_tokens 48 is more than limits.max_step_tokens 32"),
        ("max_sequences: 48", "engine: vllm\nvllm: {options: {max_num_seqs: 16}}\n",
         ":15: vllm.options.max_num_seqs: 16 contradicts limits.max_sequences, 48"),
        ("max_step_tokens: 32", "engine: vllm\nvllm: {options: {max_num_seqs: 64}}\n",
         "vllm.options.max_num_seqs 64 is more than limits.max_step_tokens 32"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_file_line_and_path(tmp_path, limits, rest, said):
    assert said in refused(tmp_path, with_limits(limits, rest))


def test_a_limit_and_an_option_of_vllm_may_say_the_same(tmp_path):
    text = with_limits("max_sequences: 16", "engine: vllm\nvllm: {options: {max_num_seqs: 16}}\n")
    assert read(tmp_path, text).model().engine.vllm.max_sequences == 16


# --- what is predicted, and what is done ---


@rows(
    ("limits", "rest", "batching"),
    [
        ("max_sequences: 96, max_step_tokens: 512", "engine: torch\n", Batching(96, 512)),
        ("max_sequences: 96, max_step_tokens: 512", "engine: vllm\n", Batching(96, 512)),
        ("max_sequences: 96", "engine: vllm\nvllm: {options: {max_num_batched_tokens: 128}}\n", Batching(96, 128)),
    ],
)  # fmt: skip
def test_predictions_keep_to_what_the_engine_is_told(tmp_path, limits, rest, batching):
    capabilities = engines.capabilities(read(tmp_path, with_limits(limits, rest)).model())
    assert capabilities is not None
    assert capabilities.batching == batching


GPUS = DEPLOYMENT.replace("kind: CPU, count: 4, memory_gb: 1", "kind: L40S, count: 4, memory_gb: 48").replace(
    "pp2", "L40Sx2"
)


@rows(
    ("text", "kv_bytes", "kv_tokens"),
    [
        (GPUS + "engine: vllm\n", 12_000_000_000, None),
        (GPUS + "engine: vllm\nvllm: {kv_cache_gb: 2}\n", 2_000_000_000, None),
        (GPUS.replace(", start: L40Sx2", "") + "engine: vllm\n", 12_000_000_000, None),
        (DEPLOYMENT + "engine: vllm\n", CPU_BYTES, None),
        (GPUS + "engine: torch\n", None, 8191 * 32),
        (DEPLOYMENT + "engine: torch\ntorch: {kv_blocks: 60, block_size: 8}\n", None, 59 * 8),
        (DEPLOYMENT + "engine: torch\n", None, 1701 * 32),
    ],
)
def test_a_plan_knows_the_kv_cache_that_the_engine_will_have(tmp_path, text, kv_bytes, kv_tokens):
    capabilities = engines.capabilities(read(tmp_path, text).model())
    assert capabilities is not None
    assert (capabilities.kv_bytes, capabilities.kv_tokens) == (kv_bytes, kv_tokens)


def test_a_quantised_checkpoint_is_planned_for_in_its_own_format(tmp_path):
    text = GPUS.replace(" precision: fp32,", "").replace(", precision: fp32", "").replace("[fp32]", "[bf16, int4]")
    text += "engine: vllm\n"
    model = read(tmp_path, text).model()
    assert (model.precision, model.spec.quantised) == ("bf16", None)
    config = tmp_path / "counting" / "config.json"
    found = json.loads(config.read_text())
    config.write_text(json.dumps({**found, "quantization_config": {"quant_method": "awq", "bits": 4}}))
    model = load(tmp_path / "deployment.yaml").model()
    capabilities = engines.capabilities(model)
    assert (model.precision, capabilities and capabilities.precisions) == ("int4", ("int4",))
    assert model.problem("always", Limits(), None, None).precision == "int4"


def test_two_gigabytes_of_kv_on_each_of_four_devices_are_23_chats_of_a_70b():
    spec = ModelSpec("m", "LlamaForCausalLM", 80, 8192, 28672, 64, 8, 128, 128256, 131072)
    gpus = tuple(Gpu(index, "A100", 80_000_000_000) for index in range(4))
    cluster = Cluster((Node("dgx", gpus, Link("nvlink", 3e11, 5e-6)),))
    found = blocks(uniform(cluster, "A100", 4, 1, 80, "bf16"), spec, cluster, 16, kv_bytes=2_000_000_000)
    assert found * 16 // (800 + 250) == 23
    tokens = blocks(uniform(cluster, "A100", 4, 1, 80, "bf16"), spec, cluster, 16, kv_tokens=1_000)
    assert tokens == 62


def test_there_are_no_more_stages_than_slabs(tmp_path):
    capabilities = engines.capabilities(
        read(tmp_path, DEPLOYMENT + "engine: torch\ntorch: {layers_per_slab: 4}\n").model()
    )
    assert capabilities is not None
    assert capabilities.max_pp == 2


@pytest.mark.slow
async def test_the_built_in_engine_runs_as_it_is_told(tmp_path):
    text = with_limits("max_sequences: 2", "torch: {block_size: 8, kv_blocks: 60}\n")
    text = text.replace("path: counting", f"path: {ROOT / 'examples' / 'counting'}").replace("pp2", "CPUx1")
    model = read(tmp_path, text).model()
    engine = await engines.start(model, engines.first(model))
    try:
        assert engine.capabilities.kv_tokens == 59 * 8
        for name in "abcd":
            await engine.submit(GenerationRequest(name, (5, 6, 7), SamplingParams(max_tokens=200), epoch=0))
        started, most = set[str](), 0
        async for batch in engine.outputs():
            started |= {token.request_id for token in batch}
            ended = {token.request_id for token in batch if token.finish}
            most = max(most, len(started))
            started -= ended
            if "d" in ended:
                break
        stats = await engine.stats()

        assert engine.capabilities.batching == Batching(2, 256)
        assert most == 2
        assert stats.total_blocks == 60 - 1  # one is never given to a request
    finally:
        await engine.close()


# --- what docs/settings.md says ---


def documented() -> dict[str, tuple[str, str]]:
    """Key to its default and range, of the tables of four columns."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    settings = (row for row in rows if len(row) == 4 and row[0].startswith("`"))
    return {key.strip("`"): (default, may_be) for key, default, may_be, _ in settings}


def schema() -> dict[str, Any]:
    """Key to its schema, of all that the table lists."""
    whole = json.loads(files("service.deployment").joinpath("schema/deployment.v1.json").read_text(encoding="utf-8"))
    sections = {name: whole["$defs"][name] for name in ("torch", "vllm", "switch")}
    sections |= {name: whole["properties"][name] for name in ("limits", "clients", "retention")}

    def plain(rule: dict[str, Any]) -> dict[str, Any]:
        return whole["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule

    return {
        f"{section}.{key}": plain(rule)
        for section, rules in sections.items()
        for key, rule in rules["properties"].items()
    }


def defaults() -> dict[str, list[Any]]:
    """Key to its default, and to vLLM's where that is another; nothing where there is none."""
    usual = EngineSettings(spare=True)
    sections = {"torch": (TORCH, usual), "vllm": (VLLM, VllmSettings()), "switch": ({}, SwitchSettings())}
    found: dict[str, list[Any]] = {}
    for section, key in (one.split(".") for one in schema()):
        if section in sections:
            names, settings = sections[section]
            found[f"{section}.{key}"] = [getattr(settings, names.get(key, key))]
    found["limits.max_sequences"], found["limits.max_step_tokens"] = (
        [usual.max_running, USUAL.max_sequences],
        [usual.max_batch_tokens, USUAL.max_step_tokens],
    )
    for key in ("max_utilisation", "headroom", "usual_tpot_s"):
        found[f"limits.{key}"] = [getattr(Limits(), key)]
    clients = {field.name: field.default for field in fields(ClientLimits)}
    del clients["max_body_bytes"]  # follows the context
    kept = {f"retention.{field.name}": [field.default] for field in fields(Retention)}
    return found | kept | {f"clients.{key}": [default] for key, default in clients.items()}


def written(key: str, default: Any) -> str:
    """A default as the table has it."""
    if default is None or default == {}:
        return ""
    if default == 0 and key.endswith(("_gb", "_mb")):
        return ""  # by memory
    if isinstance(default, bool | str):
        return str(default).lower()
    unit = BYTES.get(key.rpartition("_")[2])
    return f"{default / unit:.3g}" if unit else f"{default:.6g}"


def test_the_table_has_every_key_of_the_schema_and_no_other():
    assert documented().keys() == schema().keys()
    assert {*defaults()} <= schema().keys()


@rows("key", schema())
def test_the_table_has_the_default_that_the_code_has(key):
    cell, _ = documented()[key]
    wanted = " ".join(written(key, default) for default in defaults().get(key, []))
    assert " ".join(re.findall(r"[\d.]+|true|false|auto|wait|shared_memory", cell)) == wanted.strip()


@rows("key", [key for key, rule in schema().items() if rule.get("type") not in ["object", "array"]])
def test_the_table_has_the_range_that_the_schema_has(key):
    rule = schema()[key]
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    said = [f"{sign} {rule[bound]}" for bound, sign in signs.items() if bound in rule]
    said += [f"`{value}`" for value in rule.get("enum", [])]
    said += ["`true`", "`false`"] if rule.get("type") == "boolean" else []
    assert documented()[key][1] == ", ".join(said)
