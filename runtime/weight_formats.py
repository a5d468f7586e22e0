"""Formats of weights beside the full ones: how they are grouped, and what a value takes with its scale. Pure.

int8 has a scale for each output row, int4 one for each group along a row (those of fp8 are too few to count). A checkpoint is
quantised whole and sliced afterwards, so that numbers do not change with TP; slices then have to end where groups do.
"""

from functools import cache

from runtime.errors import TopologyError
from runtime.models import BYTES_PER_VALUE, ModelSpec, Topology, rank_part

GROUPS = (128, 64, 32)
"""Values that share a scale in int4; the first that suits a weight."""
_SCALE_BYTES = 4
"""Of a row or a group: a 16-bit scale and a 16-bit zero point, or a scale in 32 bits."""


def group_of(width: int, parts: tuple[int, ...] = (1,)) -> int | None:
    """Values of a group in rows of ``width``: the most that divide it, and each of its ``parts`` if some do; None: none does."""
    whole = [group for group in GROUPS if not width % group]
    fine = [group for group in whole if all(not width % (part * group) for part in parts)]
    return next(iter(fine), whole[-1] if whole else None)


@cache
def groups(model: ModelSpec) -> dict[str, int | None]:
    """Values of a group of int4, by what a weight multiplies: ``hidden``, the heads' ``attention``, or the ``mlp``'s width."""
    return {
        "hidden": group_of(model.hidden_size),
        "attention": group_of(model.num_heads * model.head_dim, model.tp_degrees),
        "mlp": group_of(model.intermediate_size, model.tp_degrees),
    }


@cache
def value_bytes(weights: str, model: ModelSpec) -> float:
    """Bytes that a value of a decoder layer takes in a weight format, with its part of the scales."""
    plain = BYTES_PER_VALUE[weights]
    if weights not in {"int8", "int4"}:
        return plain
    heads = model.num_heads * model.head_dim
    mlp = model.num_experts * model.intermediate_size
    rows = {  # output rows, and how wide they are
        "hidden": (heads + 2 * model.num_kv_heads * model.head_dim + 2 * mlp, model.hidden_size),
        "attention": (model.hidden_size, heads),
        "mlp": (model.hidden_size * model.num_experts, model.intermediate_size),
    }
    scales = 0.0
    for name, (count, width) in rows.items():
        group = groups(model)[name] if weights == "int4" else width
        scales += count * width / (group or GROUPS[-1])
    return plain + _SCALE_BYTES * scales / model.layer_parameters


def refuse_cut_groups(topology: Topology, model: ModelSpec) -> None:
    """Refuse int4 layers whose groups a slice would cut.

    Raises:
        TopologyError: naming the width.
    """
    for stage in topology.stages:
        if any(stage.precision_of(layer).weights == "int4" for layer in stage.layers) and (
            why := why_not("int4", Topology((stage,)), model)
        ):
            raise TopologyError(f"{stage}: {why}")


def why_not(weights: str, topology: Topology, model: ModelSpec) -> str:
    """Why a model cannot be held in a weight format on a topology: a slice would cut a group. Empty: it can."""
    if weights != "int4":
        return ""
    names = {
        "hidden": (model.hidden_size, 1, 1),
        "attention": (model.num_kv_heads, model.num_heads // model.num_kv_heads * model.head_dim, 0),
        "mlp": (model.intermediate_size, 1, 0),
    }
    for name, (count, width, is_whole) in names.items():
        group = groups(model)[name]
        if group is None:
            return f"int4 is in groups of {', '.join(map(str, GROUPS))}, of which none divides the {name} width {count * width}"
        for degree in {1} if is_whole else {stage.tp_size for stage in topology.stages}:
            if any(rank_part(count, degree, rank).start * width % group for rank in range(degree)):
                return f"TP {degree} cuts groups of {group} of int4 in the {name} width {count * width} of {model.name}"
    return ""
