"""The text form of a topology is read as it is printed, and what cannot be read says which part and why."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import TopologyError
from runtime.models import Cluster, Gpu, LayerRange, Link, Node, Precision, Stage, Topology
from runtime.notation import parse_topology
from tests.rows import rows
from tests.runtime.scripted import cluster_of

PCIE = Link("pcie", 25e9, 1e-5)
MIXED = Cluster(
    (
        Node("a", tuple(Gpu(index, "A100", 80 << 30) for index in range(4)), PCIE),
        Node("b", tuple(Gpu(index, "L40S", 48 << 30) for index in range(4, 8)), PCIE),
    )
)
LAPTOP = cluster_of("cpu")

PRECISIONS = st.sampled_from(["fp32", "bf16", "fp16", "fp8", "int8", "int4"])
QUANTISED = st.sampled_from(["fp8", "int8", "int4"])


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any split of 80 layers over some of the devices of ``MIXED``, with layers in any formats."""
    kinds = draw(st.permutations(["A100", "L40S"]))[: draw(st.integers(1, 2))]
    ends = [80] if len(kinds) == 1 else [draw(st.integers(1, 79)), 80]
    stages = []
    for kind, (start, end) in zip(kinds, itertools.pairwise([0, *ends]), strict=True):
        first = 0 if kind == "A100" else 4
        devices = tuple(range(first, first + draw(st.integers(1, 4))))
        main = Precision.named(draw(PRECISIONS), kind)
        cuts = sorted({start, end, *draw(st.lists(st.integers(start, end), max_size=3))})
        parts = [(LayerRange(*cut), main.beside(draw(QUANTISED), kind)) for cut in itertools.pairwise(cuts)]
        stages.append(
            Stage.of(kind, devices, [(layers, draw(st.sampled_from([main, other]))) for layers, other in parts])
        )
    return Topology(tuple(stages))


@given(topologies())
def test_what_is_printed_is_read_back(topology):
    assert parse_topology(str(topology), MIXED, 80, "bf16") == topology


def test_replicas_are_read_and_stand_alone():
    text = "A100x4@bf16 | L40S[4,5]:0-52@fp8 > L40S[6,7]:52-80@fp8"
    both = parse_topology(text, MIXED, 80)
    assert [replica.shape for replica in both.replicas] == ["TP4", "TP2xPP2"]
    assert both.shape == "TP4 | TP2xPP2"
    assert parse_topology(both.text, MIXED, 80) == both == Topology.of_replicas(both.replicas)
    assert both.replicas[0].replicas == (both.replicas[0],)


@rows(
    ("text", "why"),
    [
        (
            "A100x4:0-80@bf16 > L40S[4]:0-80@bf16",
            "'L40S[4]:0-80@bf16': let its layers go on where the stage before ends",
        ),
        ("A100x4@bf16 | L40S[4]:3-80@bf16", "'L40S[4]:3-80@bf16': let its layers start at 0"),
        ("A100x4@bf16 |", "cannot read stage ''"),
    ],
)
def test_replicas_that_are_none_are_refused(text, why):
    with pytest.raises(TopologyError, match=re.escape(why)):
        parse_topology(text, MIXED, 80)


def test_the_reference_example_is_read():
    text = "A100x4:0-52@bf16 > L40S[4,5,6,7]:52-80@fp8,60-64=int4"
    first, second = parse_topology(text, MIXED, 80, "bf16").stages
    assert (first.devices, first.layers) == ((0, 1, 2, 3), LayerRange(0, 52))
    assert second.precision_of(59).weights == "fp8"
    assert second.precision_of(60).weights == second.precision_of(63).weights == "int4"


@rows(
    ("text", "shape"),
    [
        ("tp2", "TP2"),
        ("TP2", "TP2"),
        ("TP4", "TP4"),
        ("PP2", "PP2"),
        ("tp2pp2", "TP2xPP2"),
        ("TP2xPP2", "TP2xPP2"),
        ("tp2×pp2", "TP2xPP2"),
        ("1x1", "1x1"),
        ("1×1", "1x1"),
    ],
)
def test_a_short_form_is_the_uniform_topology_on_the_only_kind(text, shape):
    assert parse_topology(text, LAPTOP, 8, "fp32").shape == shape


@rows(
    ("text", "message"),
    [
        ("", "cannot read stage ''"),
        ("x", "cannot read stage 'x'"),
        ("tp2 please", "cannot read stage 'tp2 please'"),
        ("A100[-1]:0-80", r"cannot read stage 'A100\[-1\]:0-80'; write"),
        ("tp2", "does not say which of A100, L40S"),
        ("A100x5", "5 free A100 on one node are needed; the inventory has 4"),
        ("H100x2", "no H100 in the inventory; it has A100, L40S"),
        ("A100x2 > A100x2", "stage 'A100x2' of several does not say its layers"),
        ("A100x2@fp7", "unknown precision 'fp7'; use one of"),
    ],
)
def test_what_cannot_be_read_or_bound_says_why(text, message):
    with pytest.raises(TopologyError, match=message):
        parse_topology(text, MIXED, 80, "bf16")


def test_too_many_stages_are_refused():
    with pytest.raises(TopologyError, match="TP 1 and PP 9 are not possible with 8 layers"):
        parse_topology("pp9", LAPTOP, 8, "fp32")


@rows(("text", "cluster"), [("A100x2:0-80", MIXED), ("tp2", LAPTOP)])
def test_a_text_without_a_precision_is_refused_where_none_is_given(text, cluster):
    with pytest.raises(TopologyError, match="does not say its precision"):
        parse_topology(text, cluster, 80)
    assert parse_topology(text, cluster, 80, "bf16").pp_size == 1
