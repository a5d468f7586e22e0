from dataclasses import replace

from intent.models import Config, Objective, Placement
from runtime.models import Cluster, Gpu, Link, Node
from tests.rows import rows
from validator.feasibility import check_inventory
from validator.models import MessageWords


def cluster(*counts, kind="CPU"):
    """One node for each count."""
    nodes, first = [], 0
    for number, count in enumerate(counts):
        gpus = tuple(Gpu(index, kind, 10**9) for index in range(first, first + count))
        nodes.append(Node(f"n{number}", gpus, Link("shared-memory", 1e9, 1e-5)))
        first += count
    return Cluster(tuple(nodes))


def found(site, en, *goals):
    return [(finding.code, finding.pointer) for finding in check_inventory(goals, site, en)]


@rows(
    ("goal", "code"),
    [
        (Config("tp", "==", 16, "x"), "too_few_for_tp"),
        (Config("tp", "==", 3, "x"), "tp_does_not_divide"),
        (Config("tp", ">=", 5, "x"), "too_few_for_tp"),
        (Config("pp", "==", 9, "x"), "more_stages_than_layers"),
        (Config("pp", "==", 5, "x"), "too_few_for_pp"),
        (Config("replicas", "==", 5, "x"), "too_few_for_replicas"),
        (Config("replicas_per_node", "==", 5, "x"), "too_few_on_a_node"),
        (Config("lost_devices", ">=", 4, "x"), "lost_devices_too_many"),
        (Config("lost_nodes", ">=", 1, "x"), "lost_nodes_only_one"),
    ],
)
@rows("language", ["en", "zh"])
def test_a_setting_that_cannot_be_is_found(goal, code, language, site):
    (finding,) = check_inventory([goal], site, MessageWords(language))
    assert (finding.code, finding.pointer) == (code, "/goals/0/value")
    assert finding.suggestion


@rows(
    "goal",
    [
        Config("tp", "==", 4, "x"),
        Config("tp", "<=", 16, "x"),
        Config("tp", ">=", 3, "x"),
        Config("pp", "==", 4, "x"),
        Config("pp", "<=", 80, "x"),
        Config("replicas", "<=", 3, "x"),
        Config("replicas_per_node", "==", 4, "x"),
        Config("replicas_per_node", "<=", 9, "x"),
        Config("lost_devices", ">=", 3, "x"),
        Config("tp", "==", 16, "x", model="nobody"),
        Objective("gpu_count", "==", "x", value=4.0, unit="gpus"),
        Placement("forbid", "gpu:gpu-1", "x"),
        Placement("require", "node:local", "x"),
    ],
)
def test_a_setting_that_can_be_passes(goal, site, en):
    assert found(site, en, goal) == []


def test_the_message_says_what_there_is_and_what_could_be(site, en):
    (finding,) = check_inventory([Config("tp", "==", 16, "tp=16")], site, en)
    assert "has 4" in finding.message
    assert finding.suggestion == "TP can be 1, 2, 4"


@rows(
    ("counts", "goal", "code"),
    [
        ((4, 4), Config("lost_nodes", ">=", 1, "x"), None),
        ((4, 4), Config("lost_nodes", ">=", 2, "x"), "lost_nodes_too_many"),
        ((1,), Config("lost_devices", ">=", 1, "x"), "lost_devices_only_one"),
        ((4, 2), Config("replicas_per_node", "==", 2, "x"), None),
        ((4, 2), Config("replicas_per_node", "==", 3, "x"), "too_few_on_a_node"),
    ],
)
def test_what_may_be_lost_leaves_one_and_replicas_fit_on_each_node(counts, goal, code, site, en):
    here = replace(site, cluster=cluster(*counts))
    assert [one for one, _ in found(here, en, goal)] == ([code] if code else [])


def test_what_is_wrong_for_every_model_is_said_once(site, en):
    (spec,) = site.models.values()
    here = replace(site, models={**site.models, "another": replace(spec, name="another")})
    assert found(here, en, Config("lost_nodes", ">=", 1, "x")) == [("lost_nodes_only_one", "/goals/0/value")]


def test_a_workload_that_is_kept_off_every_device_is_found(site, en):
    assert found(site, en, Placement("forbid", "node:local", "x", "batch")) == [("no_device_left", "/goals/0/selector")]


def test_tp_stays_on_devices_of_one_kind_on_one_node(site, en):
    two_nodes = replace(site, cluster=cluster(2, 2))
    (finding,) = check_inventory([Config("tp", "==", 4, "x")], two_nodes, en)
    assert (finding.code, finding.suggestion) == ("too_few_for_tp", "TP can be 1, 2")
    node = Node("a", (Gpu(0, "A100", 10**9), Gpu(1, "L40S", 10**9)), Link("pcie", 1e9, 1e-5))
    assert found(replace(site, cluster=Cluster((node,))), en, Config("tp", "==", 2, "x"))


def test_tp_divides_the_kv_heads_and_not_only_the_heads(site, en):
    grouped = replace(site.models["counting"], num_heads=12, num_kv_heads=6)
    heads = replace(site, models={"grouped": grouped})
    assert found(heads, en, Config("tp", "==", 4, "x")) == [("tp_does_not_divide", "/goals/0/value")]
    assert found(heads, en, Config("tp", "==", 3, "x")) == []


def test_a_setting_counts_for_every_model_unless_one_is_named(two_models, en):
    assert found(two_models, en, Config("pp", "==", 3, "x")) == [("more_stages_than_layers", "/goals/0/value")]
    assert found(two_models, en, Config("pp", "==", 3, "x", model="counting")) == []
