"""Layers in the formats that rules name for them: of a topology, and in plans."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from intent.models import PrecisionRule
from runtime.capabilities import Capabilities, Limits
from runtime.models import BYTES_PER_VALUE
from runtime.notation import parse_topology
from selector.layer_rules import in_formats
from selector.space import load_free_blocker, weights_of
from tests.rows import rows
from tests.runtime.test_notation import MIXED, topologies
from tests.selector.goals import CHEAPEST, infeasible, plan_of, ttft


def rule(words, layers="middle", **said):
    kind, value = words.split()
    return PrecisionRule(kind, value, f"{words} for {layers}", layers=layers, **said)


@rows(
    ("text", "rules", "then"),
    [
        ("A100[0]:0-8@fp32", [rule("require int8")], "A100[0]:0-8@fp32,2-6=int8"),
        (
            "A100[0]:0-4@bf16 > A100[1]:4-8@bf16",
            [rule("require int8")],
            "A100[0]:0-4@bf16,2-4=int8 > A100[1]:4-8@bf16,4-6=int8",
        ),
        ("A100[0]:0-8@fp32,2-6=int8", [rule("require int8")], "A100[0]:0-8@fp32,2-6=int8"),
        ("A100[0]:0-8@fp32,0-8=int8", [rule("forbid int8", "first 2")], "A100[0]:0-8@fp32,2-8=int8"),
        ("A100[0]:0-8@int8", [rule("require full", "last 1")], "A100[0]:0-8@bf16,0-7=int8"),
        ("A100[0]:0-8@fp32,0-8=int4", [rule("min int8", "3-4")], "A100[0]:0-8@fp32,0-3=int4,3-5=int8,5-8=int4"),
        ("A100[0]:0-8@fp32", [rule("allow int8"), rule("forbid int8")], "A100[0]:0-8@fp32"),
        ("A100[0]:0-8@bf16", [rule("require int8", None), rule("forbid int4")], "A100[0]:0-8@bf16"),
        (
            "A100[0]:0-8@bf16",
            [rule("require int8", "0-3"), rule("require int4", "4-4")],
            "A100[0]:0-8@bf16,0-4=int8,4-5=int4",
        ),
        ("L40S[4]:0-8@fp8", [rule("require full", "first 1")], "L40S[4]:0-8@fp8,0-1=bf16"),
        (
            "A100[0]:0-8@bf16 | L40S[4]:0-8@fp8",
            [rule("require int8", "7-7")],
            "A100[0]:0-8@bf16,7-8=int8 | L40S[4]:0-8@fp8,7-8=int8",
        ),
    ],
)
def test_layers_have_the_formats_that_rules_name(text, rules, then):
    assert str(in_formats(parse_topology(text, MIXED, 8), rules, 8)) == then


RULES = st.builds(
    rule,
    st.builds(
        "{} {}".format, st.sampled_from(["require", "forbid", "min"]), st.sampled_from(["int4", "int8", "bf16", "full"])
    ),
    st.sampled_from(["middle", "first 5", "last 30", "0-79", "7-7", "20-60"]),
)


@given(topologies(), RULES)
def test_layers_keep_what_a_rule_says_others_stay_and_what_is_made_is_read_back(topology, one):
    made = in_formats(topology, [one], 80)
    held = set(one.held(80))
    before = {layer: topology.stage_of(layer).precision_of(layer) for layer in range(80)}
    after = {layer: made.stage_of(layer).precision_of(layer) for layer in range(80)}
    assert {layer: after[layer] for layer in after.keys() - held} == {
        layer: before[layer] for layer in before.keys() - held
    }
    fine = one.leaves(BYTES_PER_VALUE)
    assert all(after[layer] == before[layer] for layer in held if before[layer].weights in fine)
    assert (one.rule == "forbid" and one.value in {"full", "bf16"}) or weights_of(made, held) <= fine
    assert in_formats(made, [one], 80) == made
    assert parse_topology(str(made), MIXED, 80) == made


def test_a_plan_has_the_layers_in_the_format_and_what_runs_so_stays(choose, large, four):
    now = replace(large, now=four)
    plan = plan_of(choose(now, ttft(4.0), rule("require int8")))
    assert str(plan.target) == "A100[0,1,2,3]:0-80@bf16,20-60=int8"
    assert any("today's" in reason and "'require int8 for middle'" in reason for reason in plan.reasons)
    again = plan_of(choose(replace(now, now=plan.target), ttft(4.0), rule("require int8")))
    assert again.target == plan.target
    back = plan_of(choose(replace(now, now=plan.target), ttft(4.0), rule("forbid int8", "first 30")))
    assert weights_of(back.target, range(30)) == {"bf16"}


def test_a_rule_for_layers_opens_its_format_for_no_other_layer(choose, large, four):
    plan = plan_of(choose(replace(large, now=four), ttft(4.0), rule("require int8")))
    again = plan_of(choose(replace(large, now=plan.target), rule("require int8"), ttft(4.0), CHEAPEST))
    assert weights_of(again.target, [*range(20), *range(60, 80)]) == {"bf16"}


@rows("words", ["require int4", "require fp32"])
def test_a_format_that_cannot_be_had_is_refused_by_name(words, choose, large, four):
    few = replace(large, now=four, limits=Limits(allowed_precisions=("bf16", "int8")))
    answer = infeasible(choose(few, rule(words)))
    assert answer.reasons == (f"'{words} for middle' cannot be met: limits, engine and profiles leave bf16 and int8",)


def test_leave_for_some_layers_is_left_out_and_says_so(choose, large, four):
    plan = plan_of(choose(replace(large, now=four), ttft(4.0), rule("allow int8")))
    assert plan.target == four
    assert [(each.goal, each.reason) for each in plan.left_out] == [
        ("'allow int8 for middle'", "gives leave for some layers, which no plan takes by itself")
    ]


ALIKE = Capabilities((1, 2, 4), 80, ("bf16", "int8", "fp8"), tp_per_stage=False, replicated_kv_heads=False, name="vllm")
"""An engine that runs all layers in one format."""


def test_an_engine_with_one_format_for_all_layers_is_asked_for_no_mix(choose, large, four):
    """What such rules say is kept where all layers keep it, and named where they would have to differ."""
    place = replace(large, now=four, capabilities=ALIKE)
    answer = infeasible(choose(place, rule("require int8")))
    assert answer.reasons == (
        "'require int8 for middle' cannot be met: limits, engine and profiles leave bf16, int8 and fp8, one for all layers",
    )
    for words in ("forbid int8", "require bf16", "min bf16"):
        assert weights_of(plan_of(choose(place, rule(words), ttft(4.0))).target) == {"bf16"}
    mixed = parse_topology("A100x4:0-80@bf16,20-60=int8", large.cluster, 80)
    assert "the engine vllm runs all in one" in load_free_blocker(mixed, place, ["bf16", "int8"])
    assert not load_free_blocker(mixed, replace(place, capabilities=replace(ALIKE, base="bf16")), ["bf16", "int8"])
