"""What a deployment file tells an engine and its switches.

Read, checked, handed down as their own settings.

A section is a mapping with the keys ``engine``, ``torch``, ``vllm`` and ``switch``, wherever in the file it stands;
``limits`` hold for all of them. docs/settings.md lists every key.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import JsonValue

from runtime.errors import TopologyError
from runtime.footprint import blocks, refuse_divided_stacks
from runtime.machine import SwitchSettings
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Topology
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.launch import LIMITED
from runtime.vllm_engine.models import VllmSettings
from selector.models import Profile
from service.deployment.located_yaml import Key, LocatedYaml, Section, dotted
from service.documents.errors import DeploymentError

EngineName = Literal["torch", "vllm"]
Settings = TypeVar("Settings", EngineSettings, VllmSettings, SwitchSettings)

TORCH = {
    "kv_blocks": "num_blocks",
    "closing_step_tokens": "closing_batch_tokens",
    "copy_slice_mb": "copy_slice_bytes",
    "standby": "num_standby",
}
VLLM = {
    "kv_cache_gb": "kv_cache_bytes",
    "staging_gb": "staging_bytes",
    "copy_slice_mb": "slice_bytes",
    "standby": "num_standby",
}
"""Key of the file to the field that it sets, for each mapping of a section; where it is not here they have the same name."""
BYTES = {"gb": 1e9, "mb": 1e6}
"""Unit at the end of a key to bytes, in which fields are."""
START_BLOCK_TOKENS = 16
"""Of a KV block of vLLM, to see whether one fits."""

Said = tuple[tuple[Key, ...], Any]
"""Where a setting stands, or would, and its value."""
_Switch = tuple[tuple[Key, ...], SwitchSettings]
"""Where the settings of switches stand, or would, and what they are."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and what it and its switches are told."""

    named: EngineName | None
    """The one that the file names; plans keep to what it can run."""
    torch: EngineSettings
    vllm: VllmSettings
    switch: SwitchSettings
    unsaid: frozenset[str] = frozenset()
    """Of ``step_tokens`` and ``cut_timeout``, what the file leaves out."""

    @property
    def name(self) -> EngineName:
        """The one that serves: the built-in one where the file names none."""
        return self.named or "torch"

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block, to see whether one fits."""
        return self.torch.block_size if self.name == "torch" else START_BLOCK_TOKENS


def read_engine(source: LocatedYaml, path: tuple[Key, ...] = ()) -> EngineChoice:
    """What the section at ``path`` says; a mapping that it lacks is that of the top level.

    Raises:
        DeploymentError: it has settings of the other engine, or some that contradict each other or ``limits``.
    """
    named: EngineName | None = source.get(_place(source, path, "engine"))
    name: EngineName = named or "torch"
    other = "vllm" if name == "torch" else "torch"
    if path and source.get((*path, other)) is not None:
        raise _not_its_engine(source, (*path, other), name)
    switch_at = _place(source, path, "switch")
    switch = _told(source, switch_at, {}, SwitchSettings())
    torch = EngineSettings()
    vllm = VllmSettings()
    if name == "torch":
        torch = _torch(source, _place(source, path, "torch"), (switch_at, switch))
    else:
        vllm = _vllm(source, _place(source, path, "vllm"))
    places = {
        "step_tokens": (("limits", "max_step_tokens"), (*_place(source, path, "torch"), "closing_step_tokens")),
        "cut_timeout": ((*switch_at, "cut_timeout_s"),),
        "sequences": (("limits", "max_sequences"),),
    }
    unsaid = frozenset(name for name, keys in places.items() if all(source.get(key) is None for key in keys))
    return EngineChoice(named, torch, vllm, switch, unsaid)


LONGEST_CHUNK_S = 0.3
"""Of a prompt's part in a step, for which the other streams wait."""
LEAST_CHUNK_TOKENS = 32
STEPS_TO_CUT = 10
"""A cut that takes more steps than these is not ready."""


def fitted(choice: EngineChoice, model: ModelSpec, cpu: Profile, base: str = "fp32") -> EngineChoice:
    """What the file leaves out, by how long a step of a model in a format takes on one measured CPU.

    A prompt's part of a step is small enough for the streams beside it, and a cut is waited for as long as some steps take.
    """
    flops = 2 * model.num_layers * model.layer_parameters
    token_s = flops / cpu.flops_s[base]
    weights_s = model.layer_parameters * BYTES_PER_VALUE[base] / (cpu.memory_bytes_s * cpu.weight_share[base])
    decode_s = model.num_layers * (weights_s + cpu.layer_overhead_s)
    torch = choice.torch
    tokens = torch.max_batch_tokens
    least = LEAST_CHUNK_TOKENS if "sequences" in choice.unsaid else max(LEAST_CHUNK_TOKENS, torch.max_running)
    while "step_tokens" in choice.unsaid and tokens // 2 >= least and tokens * token_s > LONGEST_CHUNK_S:
        tokens //= 2
    torch = replace(
        torch,
        max_batch_tokens=tokens,
        closing_batch_tokens=min(torch.closing_batch_tokens, tokens),
        max_running=min(torch.max_running, tokens),
    )
    switch = choice.switch
    if "cut_timeout" in choice.unsaid:
        cut_s = max(switch.cut_timeout_s, STEPS_TO_CUT * (tokens * token_s + decode_s))
        switch = replace(switch, cut_timeout_s=cut_s)
    return replace(choice, torch=torch, switch=switch)


def refuse_unused(source: LocatedYaml, engines: Sequence[EngineChoice]) -> None:
    """Refuse settings at the top level for an engine that no model has.

    Raises:
        DeploymentError: there are some.
    """
    used = {engine.name for engine in engines}
    for name in ("torch", "vllm"):
        if name not in used and source.get((name,)) is not None:
            raise _not_its_engine(source, (name,), *used)


def _not_its_engine(source: LocatedYaml, path: tuple[Key, ...], engine: EngineName) -> DeploymentError:
    return source.error(path, f"the engine is {engine}; write `engine: {path[-1]}`, or remove this")


def _place(source: LocatedYaml, path: tuple[Key, ...], key: str) -> tuple[Key, ...]:
    """Where a key stands: in the section, or at the top level."""
    return (*path, key) if source.get((*path, key)) is not None else (key,)


def refuse_start(
    source: LocatedYaml,
    path: tuple[Key, ...],
    engine: EngineChoice,
    start: Topology,
    model: ModelSpec,
    cluster: Cluster,
) -> None:
    """Refuse settings of the built-in engine with which the topology it starts in cannot run.

    Raises:
        DeploymentError: slabs of several layers that a stage would divide, or more KV blocks than fit.
    """
    if wrong := start_blocker(engine, start, model, cluster):
        key, why = wrong
        raise source.error((*_place(source, path, "torch"), key), why)


def start_blocker(engine: EngineChoice, start: Topology, model: ModelSpec, cluster: Cluster) -> tuple[str, str] | None:
    """The setting of the built-in engine with which a topology cannot run, and why; None where it can."""
    if wrong := unfit_stages(engine, start):
        return "layers_per_slab", f"as the model starts, {wrong}"
    if engine.name != "torch":
        return None
    settings = engine.torch
    fits = blocks(start, model, cluster, settings.block_size)
    if settings.num_blocks is None or settings.num_blocks <= fits:
        return None
    message = f"{settings.num_blocks} blocks of {settings.block_size} tokens do not fit {start}: it holds {fits}"
    return "kv_blocks", f"{message}; lower this, or leave it out to have half of what one device holds"


def unfit_stages(engine: EngineChoice, target: Topology) -> str:
    """Why the built-in engine's settings keep it from running the stages of a topology.

    Empty where they do not.

    One that holds fewer KV blocks than the setting says runs with as many as it holds.
    """
    try:
        refuse_divided_stacks(target, engine.torch.layers_per_slab if engine.name == "torch" else 1)
    except TopologyError as error:
        return str(error)
    return ""


def _told(source: LocatedYaml, path: tuple[Key, ...], keys: Mapping[str, str], usual: Settings) -> Settings:
    """The usual settings with what a mapping of the file says instead."""
    fields = source.get(path) or {}
    translated: Section = {keys.get(key, key): _in_bytes(key, value) for key, value in fields.items()}
    return replace(usual, **translated)


def _in_bytes(key: str, value: JsonValue) -> JsonValue:
    unit = BYTES.get(key.rpartition("_")[2])
    return round(value * unit) if unit is not None and isinstance(value, int | float) else value


def _torch(source: LocatedYaml, at: tuple[Key, ...], switch: _Switch) -> EngineSettings:
    _refuse_impatience(source, at, EngineSettings())
    torch = _told(source, at, TORCH, _steps(source, (*at, "closing_step_tokens")))
    _refuse_no_shorter(
        source,
        ((*at, "stop_timeout_s"), torch.stop_timeout_s),
        ((*switch[0], "cut_timeout_s"), switch[1].cut_timeout_s),
        "the last patch is only a part of the cut",
    )
    return torch


def _steps(source: LocatedYaml, closing_at: tuple[Key, ...]) -> EngineSettings:
    """The settings that bound steps.

    What the file leaves out follows what it says, so that every running sequence fits a step.
    """
    places: list[tuple[Key, ...]] = [
        ("limits", "max_sequences"),
        closing_at,
        ("limits", "max_step_tokens"),
    ]
    steps = [source.get(place) for place in places]
    given = [pair for pair in zip(places, steps, strict=True) if pair[1] is not None]
    for low, high in itertools.combinations(given, 2):
        _refuse_more_sequences(source, low, high)
    sequences, closing, step = steps
    usual = EngineSettings(spare=True)
    sequences = sequences or min(usual.max_running, closing or usual.max_running, step or usual.max_running)
    step = step or max(usual.max_batch_tokens, sequences, closing or 0)
    closing = closing or min(max(usual.closing_batch_tokens, sequences), step)
    return replace(usual, max_running=sequences, closing_batch_tokens=closing, max_batch_tokens=step)


def _vllm(source: LocatedYaml, at: tuple[Key, ...]) -> VllmSettings:
    """With the limits that vLLM gets, where its own options do not say the same."""
    at_once, in_a_step = (_limited(source, at, option, key) for option, key in LIMITED.items())
    if isinstance(at_once[1], int) and isinstance(in_a_step[1], int):
        _refuse_more_sequences(source, at_once, in_a_step)
    _refuse_impatience(source, at, VllmSettings())
    limits = {key: source.get(("limits", key)) for key in LIMITED.values()}
    return _told(source, at, VLLM, VllmSettings(**limits))


def _limited(source: LocatedYaml, at: tuple[Key, ...], option: str, key: str) -> Said:
    """What bounds vLLM's steps: its own option, or the limit of the deployment."""
    own = (*at, "options", option)
    limit = ("limits", key)
    wanted = source.get(own)
    allowed = source.get(limit)
    if wanted is None:
        return limit, allowed
    if allowed is not None and wanted != allowed:
        message = f"{wanted} contradicts limits.{key}, {allowed}, which vLLM gets as {option}; leave one of them out"
        raise source.error(own, message)
    return own, wanted


def _refuse_more_sequences(source: LocatedYaml, low: Said, high: Said) -> None:
    if low[1] > high[1]:
        raise _contradiction(source, low, "is more than", high, "every running sequence has to fit a step")


def _refuse_no_shorter(source: LocatedYaml, low: Said, high: Said, why: str) -> None:
    if low[1] >= high[1]:
        raise _contradiction(source, low, "has to be less than", high, why)


def _refuse_impatience(source: LocatedYaml, at: tuple[Key, ...], usual: EngineSettings | VllmSettings) -> None:
    stalled = (*at, "stall_after_s")
    lost = (*at, "lost_after_s")
    _refuse_no_shorter(
        source,
        (stalled, source.get(stalled) or usual.stall_after_s),
        (lost, source.get(lost) or usual.lost_after_s),
        "an engine is not ready for a while before it counts as lost",
    )


def _contradiction(source: LocatedYaml, low: Said, relation: str, high: Said, why: str) -> DeploymentError:
    """Stands where the file says one of the two."""
    listed = [
        f"{dotted(path)} {value}{' (the default)' if source.get(path) is None else ''}" for path, value in (low, high)
    ]
    where = high[0] if source.get(low[0]) is None else low[0]
    message = f"{listed[0]} {relation} {listed[1]}: {why}; lower {dotted(low[0])} or raise {dotted(high[0])}"
    return source.error(where, message)
