"""Formats of single layers: what rules that name layers make of a topology, and why they cannot be met. Pure."""

from collections.abc import Collection, Sequence

from intent.models import PrecisionRule
from runtime.models import LayerRange, Precision, Stage, Topology
from selector.objectives import FULL, permitted, weights_in


def in_formats(topology: Topology, rules: Sequence[PrecisionRule], num_layers: int) -> Topology:
    """A topology with layers in the formats that rules leave them; of rules for one layer the last counts."""
    for_layers = [rule for rule in rules if rule.layers and rule.rule != "allow"]
    if all(weights_in(topology, rule.held(num_layers)) <= permitted(rule) for rule in for_layers):
        return topology
    stages = []
    for stage in topology.stages:
        parts = [(LayerRange(layer, layer + 1), stage.precision_of(layer)) for layer in stage.layers]
        for rule in for_layers:
            held = rule.held(num_layers)
            parts = [(at, _ruled(each, rule, stage) if at.start in held else each) for at, each in parts]
        stages.append(Stage.of(stage.kind, stage.devices, parts))
    return Topology(tuple(stages))


def _ruled(precision: Precision, rule: PrecisionRule, stage: Stage) -> Precision:
    """That of a layer that keeps a rule: its own, the one that the rule names, or the full one of the stage's KV."""
    if precision.weights in permitted(rule):
        return precision
    full = stage.precision.kv if stage.precision.kv in FULL else "bf16"
    return stage.precision.beside(full if rule.rule == "forbid" or rule.value == "full" else rule.value, stage.kind)


def unmet(rules: Sequence[PrecisionRule], available: Collection[str]) -> str:
    """Why a rule for layers cannot be met: no format that it leaves is there to be had; empty: all can."""
    lacking = [rule for rule in rules if rule.layers and rule.rule != "allow" and not permitted(rule, available)]
    have = ", ".join(available) or "none"
    return f"{lacking[0].evidence!r}: limits, engine and profiles leave the formats {have}" if lacking else ""
