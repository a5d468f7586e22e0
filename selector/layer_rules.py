"""Formats of single layers: what rules that name layers make of a topology. Pure."""

from collections.abc import Sequence

from intent.models import FULL, PrecisionRule
from runtime.models import BYTES_PER_VALUE, LayerRange, Precision, Stage, Topology


def in_formats(topology: Topology, rules: Sequence[PrecisionRule], num_layers: int) -> Topology:
    """A topology with layers in the formats that rules leave them; of rules for one layer the last counts."""
    stages = (
        Stage.of(
            stage.kind,
            stage.devices,
            [(LayerRange(layer, layer + 1), _ruled(stage, layer, rules, num_layers)) for layer in stage.layers],
        )
        for stage in topology.stages
    )
    return Topology(tuple(stages)) if any(rule.layers for rule in rules) else topology


def _ruled(stage: Stage, layer: int, rules: Sequence[PrecisionRule], num_layers: int) -> Precision:
    """Its own precision where rules leave it, else what they name, or the full one of the stage's KV."""
    precision = stage.precision_of(layer)
    full = stage.precision.kv if stage.precision.kv in FULL else "bf16"
    for rule in rules:
        is_held = rule.layers is not None and layer in rule.held(num_layers)
        if is_held and precision.weights not in rule.leaves(BYTES_PER_VALUE):
            precision = stage.precision.beside(
                full if rule.rule == "forbid" or rule.value == "full" else rule.value, stage.kind
            )
    return precision
