"""The cluster as a picture."""

from dataclasses import replace

from intentctl.console.cluster import inventory_of, picture
from runtime.models import Gpu, LayerRange, Precision, Stage, Topology
from service.documents.state import NodeDocument, StateDocument, TokenCounts

BF16, FP8 = Precision("bf16", "bf16", "bf16"), Precision("fp8", "bf16", "bf16")
NODES = (
    NodeDocument(name="a", link="nvlink", gpus=tuple(Gpu(place, "A100", 80 * 10**9) for place in (0, 1))),
    NodeDocument(name="b", link="pcie", gpus=tuple(Gpu(place, "L40S", 48 * 10**9) for place in (2, 3))),
)
MIXED = Topology(
    stages=(
        Stage("A100", (0, 1), LayerRange(0, 52), BF16),
        Stage("L40S", (2,), LayerRange(52, 80), FP8, ((LayerRange(60, 64), Precision("int4", "bf16", "bf16")),)),
    ),
)


def test_each_device_says_its_stage_rank_layers_and_formats_and_pipelines_are_numbered():
    a, b = picture(NODES, {"llama": [MIXED]}, {3: "new fans"})
    assert [device.out for device in (*a.devices, *b.devices)] == ["", "", "", "new fans"]
    first, second = (device.use for device in a.devices)
    assert (first.stage, first.stages, first.rank, first.ranks, first.layers) == (1, 2, 1, 2, "0–51")
    assert (second.rank, second.precision) == (2, "bf16")
    assert (b.devices[0].use.stage, b.devices[0].use.precision) == (2, "fp8, 60–63 int4")
    assert b.devices[1].use is None
    other = Topology((Stage("L40S", (3,), LayerRange(0, 80), FP8),))
    for sets in ([MIXED, other], [Topology.of_replicas([MIXED, other])]):
        a, b = picture(NODES, {"llama": sets})
        assert [device.group for device in (*a.devices, *b.devices)] == ["llama/1"] * 3 + ["llama/2"]
        assert (b.devices[1].use.stage, b.devices[1].use.stages) == (1, 1)
    a, _ = picture(NODES, {"llama": [MIXED]})
    assert a.devices[0].group == ""
    whole = replace(
        other.stages[0], precision=BF16, overrides=((LayerRange(0, 80), Precision("int8", "bf16", "bf16")),)
    )
    _, b = picture(NODES, {"llama": [Topology((whole,))]})
    assert b.devices[1].use.precision == "int8 on bf16"


def test_the_nodes_of_all_models_make_one_cluster():
    def state(model, *nodes):
        return StateDocument(
            model=model, generation=1, topology=MIXED, operation=None, streams=0,
            tokens=TokenCounts(accepted=0, lost=0, duplicates=0), inventory=nodes,
        )  # fmt: skip

    half = NODES[0].model_copy(update={"gpus": NODES[0].gpus[:1]})
    other = NODES[0].model_copy(update={"gpus": NODES[0].gpus[1:]})
    (node,) = inventory_of([state("x", half), state("y", other)])
    assert [gpu.index for gpu in node.gpus] == [0, 1]
