from dataclasses import replace

import pytest

from intent.models import Config, Objective
from runtime.models import Cluster, Gpu, Link, Node
from validator.inventory import check


def node(name, kind, first, count):
    gpus = tuple(Gpu(index, kind, 10**9) for index in range(first, first + count))
    return Node(name, gpus, Link("shared-memory", 1e9, 1e-5))


def found(goals, cluster, models):
    return [(finding.code, finding.pointer) for finding in check(goals, cluster, models)]


@pytest.mark.parametrize(
    ("goal", "code"),
    [
        (Config("tp", "==", 16, "x"), "too_few_devices"),
        (Config("tp", "==", 3, "x"), "tp_does_not_divide"),
        (Config("tp", ">=", 5, "x"), "too_few_devices"),
        (Config("pp", "==", 9, "x"), "more_stages_than_layers"),
        (Config("pp", "==", 5, "x"), "too_few_devices"),
        (Config("replicas", "==", 2, "x"), "replicas_unsupported"),
    ],
)
def test_a_setting_that_cannot_be_is_found(goal, code, cluster, models):
    assert found([goal], cluster, {"counting": models["counting"]}) == [(code, "/goals/0/value")]


@pytest.mark.parametrize(
    "goal",
    [
        Config("tp", "==", 4, "x"),
        Config("tp", "<=", 16, "x"),
        Config("tp", ">=", 3, "x"),
        Config("pp", "==", 4, "x"),
        Config("pp", "<=", 80, "x"),
        Config("replicas", "<=", 3, "x"),
        Objective("gpu_count", "==", "x", value=4.0, unit="gpus"),
    ],
)
def test_a_setting_that_can_be_passes(goal, cluster, models):
    assert found([goal], cluster, {"counting": models["counting"]}) == []


def test_the_message_says_what_there_is_and_what_could_be(cluster, models):
    (finding,) = check([Config("tp", "==", 16, "tp=16")], cluster, {"counting": models["counting"]})
    assert "has 4" in finding.message
    assert finding.suggestion == "TP can be 1, 2, 4"


def test_tp_stays_on_devices_of_one_kind_on_one_node(mixed, models):
    assert found([Config("tp", "==", 6, "x")], mixed, {"counting": models["counting"]}) == [
        ("too_few_devices", "/goals/0/value")
    ]


def test_tp_of_a_model_is_bounded_by_the_devices_of_a_node(models):
    small = Cluster((node("a", "CPU", 0, 2), node("b", "CPU", 2, 2)))
    (finding,) = check([Config("tp", "==", 4, "x")], small, {"counting": models["counting"]})
    assert (finding.code, finding.suggestion) == ("too_few_devices", "TP can be 1, 2")


def test_tp_divides_the_kv_heads_and_not_only_the_heads(cluster, models):
    grouped = replace(models["counting"], num_heads=12, num_kv_heads=6)
    assert found([Config("tp", "==", 4, "x")], cluster, {"grouped": grouped}) == [
        ("tp_does_not_divide", "/goals/0/value")
    ]
    assert found([Config("tp", "==", 3, "x")], cluster, {"grouped": grouped}) == []


def test_tp_and_pp_together_need_their_product(cluster, models):
    goals = [Config("tp", "==", 4, "x"), Config("pp", "==", 2, "x")]
    assert found(goals, cluster, {"counting": models["counting"]}) == [("too_few_devices", "/goals/1/value")]
    assert (
        found(
            [Config("tp", "==", 4, "x", window="peak"), Config("pp", "==", 2, "x", window="overnight")],
            cluster,
            models,
        )
        == []
    )


def test_more_gpus_than_there_are_is_found(cluster, models):
    goal = Objective("gpu_count", ">=", "x", value=5.0, unit="gpus")
    assert found([goal], cluster, models) == [("too_few_devices", "/goals/0/value")]


def test_a_setting_counts_for_every_model_unless_one_is_named(cluster, models):
    assert found([Config("pp", "==", 3, "x")], cluster, models) == [
        ("more_stages_than_layers", "/goals/0/value")
    ]
    assert found([Config("pp", "==", 3, "x", model="counting")], cluster, models) == []


def test_a_model_that_is_not_served_is_named(cluster, models):
    (finding,) = check([Config("tp", "==", 2, "x", model="llama")], cluster, models)
    assert (finding.code, finding.pointer) == ("unknown_model", "/goals/0/model")
    assert "counting, thin" in finding.message
