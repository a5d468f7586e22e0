import json
import math
from dataclasses import replace

from benchmarks.words.utterances import DEPLOYMENT, NOW
from intent.models import Assumption
from intent.translate import translate
from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.lines import visible, visible_lines
from runtime.capabilities import Batching
from runtime.models import MeasuredLink
from selector.models import CrossingPrediction, Margin, Plan, Prediction, Spread, SwitchPrediction, Workload
from service.deployment import file as deployments
from service.documents.operations import OperationDocument
from tests.rows import rows
from tests.service.examples import intent, plan, report


@rows(("value", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (3.5e12, "3.5 TB")])
def test_sizes_read_well(value, text):
    assert render.size(value) == text


@rows(("value", "text"), [(0.0123, "12.3 ms"), (0.5, "500 ms"), (2, "2 s")])
def test_durations_read_well(value, text):
    assert render.seconds(value) == text


def test_a_plan_says_how_far_steps_are_filled_beside_its_target() -> None:
    many, few = Batching(256, 2048), Batching(256, 512)
    found = dict(render.plan_rows(plan(batching=few, now_batching=many)))
    assert found["target"].endswith(", 256 sequences at once, 512 tokens a step")
    assert found["now"].endswith(", 256 sequences at once, 2048 tokens a step")
    assert "at once" not in dict(render.plan_rows(plan()))["target"]
    applied = OperationDocument.planned("op-1", plan(batching=few), 1.0)
    assert dict(render.operation_rows(applied))["to"] == f"{plan().target.text}, {few}"


@rows(
    ("facts", "text"),
    [
        ({"paths": {"patch": 10, "follow": 2}}, "10 by patch, 2 by follow; 0 tokens recomputed"),
        ({"paths": {"patch": 12, "follow": 0}}, "12 by patch; 0 tokens recomputed"),
        ({}, "12 requests; 0 tokens recomputed"),
        (
            {"stays": {"nearly done": 2, "no room": 1}},
            "12 requests; 0 tokens recomputed; 3 left to drain (2 nearly done, 1 no room)",
        ),
    ],
)
def test_what_moved_is_told_by_path_with_what_stayed(facts, text):
    nothing = {"paths": {}, "stays": {}, "tokens_recomputed": 0}
    assert render.moved(moved=12, **nothing | facts) == text


@rows(
    ("facts", "text"),
    [
        (
            {},
            "24 MB of KV take 300 ms to the other node, computing it anew there 2 s, and the standstill is 1 ms longer",
        ),
        (
            {"sync_s": math.inf},
            "24 MB of KV would not get to the other node: it is written faster than the network takes it",
        ),
        ({"path": "anew"}, "the other node computes 24 MB of KV anew in 2 s"),
    ],
)
def test_a_plan_says_what_another_node_takes(facts, text):
    over = CrossingPrediction(
        **{"path": "copied", "kv_bytes": 24e6, "sync_s": 0.3, "cut_s": 0.001, "anew_s": 2.0} | facts
    )
    switch = SwitchPrediction(strategy="shadow", prepare_s=1.3, stop_s=0.02, pause_s=0.01, payback_s=None)
    assert render.switch(replace(switch, between_hosts=over)).endswith(f"; {text} (predicted)")
    assert "other node" not in render.switch(switch)


OVERLOADED = {"mean": math.inf, "p99": math.inf}
FINE = {"mean": 0.02, "p99": 0.03}


def a_plan(now: object = FINE, target: object = FINE, **facts: object) -> Plan:
    """From PP 2 to one device, of which nobody can tell how long it stands still."""

    def figures(latency_s: object) -> Prediction:
        known = {"ttft_s": latency_s, "tpot_s": latency_s, "e2e_s": latency_s, "throughput_tok_s": 1, "gpu_util": 0.5}
        rest = {"usd_per_hour": 0, "batch": 1, "quality_loss": 0, "error_band": 0.1, "source": "analytic", "devices": 1}
        return Prediction(**known | rest)

    fields = {
        "prediction": figures(target),
        "now_prediction": now and figures(now),
        "switch": SwitchPrediction("shadow", 1, math.inf),
    }
    return plan(**fields | facts)


@rows(
    ("now", "target", "said"),
    [
        (OVERLOADED, FINE, "nobody can predict: what runs is overloaded"),
        (FINE, OVERLOADED, "nobody can predict: the target is overloaded"),
        (OVERLOADED, OVERLOADED, "nobody can predict: what runs and the target are overloaded"),
        (FINE, FINE, "nobody can predict (predicted)"),
        (None, FINE, "nobody can predict (predicted)"),
    ],
)
def test_who_is_overloaded_is_told_of_the_one_that_is(now, target, said):
    (words,) = [text for name, text in render.plan_rows(a_plan(now, target)) if name == "switch"]
    assert said in words


def test_no_part_is_told_of_a_standstill_that_nobody_can_predict():
    switch = SwitchPrediction("shadow", 1, math.inf, 0.05)
    (words,) = [text for name, text in render.plan_rows(a_plan(None, switch=switch)) if name == "switch"]
    assert "50 ms" not in words
    known = replace(switch, stop_s=0.2)
    (words,) = [text for name, text in render.plan_rows(a_plan(None, switch=known)) if name == "switch"]
    assert "200 ms of standing still, 50 ms of that beyond the usual gap" in words


def test_what_keeps_up_where_today_does_not_is_no_saving():
    assert ("on offer", "TP2 would keep up") in render.plan_rows(a_plan(offers=["TP2 would keep up"]))


def test_a_prediction_that_holds_without_headroom_is_said_to_be_on_edge():
    soft = Margin("p99 TTFT <= 2 s", 1.9, 2.0, "s", -0.05, 2.1)
    missed = replace(soft, predicted=2.05)
    for margin, words in (
        (soft, "1.9 s against 2 s, on a knife's edge: 2.1 s is within the error band"),
        (missed, "2.05 s against 2 s, missed"),
    ):
        assert ("goal", f"p99 TTFT <= 2 s: {words}") in render.plan_rows(a_plan(margins=(margin,)))


def test_steps_that_are_filled_otherwise_are_a_change():
    stays = a_plan(now=None)
    stays = replace(stays, now=stays.target, now_batching=Batching(8, 256))
    other = replace(stays, batching=Batching(8, 512))
    assert (stays.changes, other.changes) == (False, True)
    assert "change" not in {name for name, _ in render.plan_rows(other)}
    assert ("change", "nothing to change: the target is what runs") in render.plan_rows(stays)


@rows(
    ("load", "text"),
    [
        (
            Workload(2.5, 800, 250, 16),
            (
                "2.5 requests/s, 16 at once: 800 tokens in (P95 2184, public chat (Azure 2023)), "
                "250 out (P95 608, public chat (Azure 2023)); burstiness 1, prefix hit 0%"
            ),
        ),
        (
            Workload(1, 100, 50, 1, Spread(1.0, source="the file"), Spread(4, ((1, 1),), "trace a.csv"), 1.75, 0.4),
            (
                "1 requests/s, 1 at once: 100 tokens in (P95 100, the file), 50 out (P95 200, trace a.csv); "
                "burstiness 1.75, prefix hit 40%"
            ),
        ),
    ],
)
def test_a_plan_says_for_which_load_it_was_made(load, text):
    assert ("load", text) in render.plan_rows(plan(workload=load))
    assert "load" not in dict(render.plan_rows(plan()))


def test_a_switch_is_told_with_its_band_and_as_the_outage_that_it_is():
    band = SwitchPrediction(
        strategy="shadow", prepare_s=97.2, stop_s=0.2, payback_s=None, prepare_least_s=54.0, prepare_most_s=175.0
    )
    assert "97.2 s (54 s to 175 s) to prepare" in render.switch(band)
    narrow = replace(band, prepare_least_s=97.2, prepare_most_s=97.2)
    assert "97.2 s to prepare" in render.switch(narrow)
    swaps = replace(band, swap="weights of layers 2 to 5 become int8")
    assert render.switch(swaps) == (
        "a swap: weights of layers 2 to 5 become int8; requests go on, no KV moves; 97.2 s (54 s to 175 s) to prepare (predicted)"
    )
    ends = SwitchPrediction(strategy="restart", prepare_s=0.0, stop_s=95.0, payback_s=None, stop_most_s=160.0)
    told = render.switch(ends)
    assert "the running engine ends first" in told
    assert "95 s (at most 160 s) of standing still" in told


@rows(
    ("facts", "text"),
    [
        ({"transport": "none"}, "no KV; the target computed it anew"),
        (
            {"transport": "nixl", "bytes_between_hosts": 12_000_000, "link": MeasuredLink(2e9, 0.001)},
            "12 MB by nixl; measured 2 GB/s, round trip 1 ms",
        ),
        (
            {
                "transport": "nixl",
                "bytes_between_hosts": 5,
                "link": MeasuredLink(1.2e8, 0.0004, "tcp/eth0"),
            },
            "5 B by nixl over tcp/eth0; measured 120 MB/s, round trip 0.4 ms",
        ),
    ],
)
def test_what_went_between_hosts_is_told_with_the_link(facts, text):
    assert ("between hosts", text) in render.report_rows(report(**facts))
    assert "between hosts" not in dict(render.report_rows(report()))


def test_rows_are_for_people_and_text_from_outside_is_never_markup(capsys):
    render.grid([("why", "one"), ("why", "two"), ("other", "three")])
    assert capsys.readouterr().out.count("why") == 1
    render.grid([("understood", "[bold red]x[/] :smile: [link=http://a]b[/link]")])
    assert "[bold red]x[/] :smile: [link=http://a]b[/link]" in capsys.readouterr().out
    render.emit({"a": [1, "é"]}, OutputFormat.JSON, [("a", "1")])
    assert json.loads(capsys.readouterr().out) == {"a": [1, "é"]}

    render.emit({"a": [1, "é"]}, OutputFormat.TABLE, [("a", "1")])
    assert capsys.readouterr().out.split() == ["a", "1"]
    assumed = tuple(Assumption("/goals/0/window", text) for text in ("always", "P95", "always"))
    rows = render.intent_rows(replace(intent(), assumptions=assumed))
    assert [text for name, text in rows if name == "assumed"] == ["always", "P95"]


@rows(
    ("text", "shown"),
    [
        ("p99 首字延迟 🚀 é", "p99 首字延迟 🚀 é"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\x9bc\x07", "a\\u202eb\\x9bc\\x07"),
        ("a\nb\rc", "a\\nb\\rc"),
    ],
)
def test_what_would_steer_a_terminal_is_shown_as_its_code(text, shown):
    assert visible(text) == shown
    assert visible_lines("one\n\x1btwo\r") == "one\n\\x1btwo\\r"


def test_the_words_that_a_goal_took_are_marked_with_its_number_and_what_is_left_is_not():
    catalogue = deployments.load(DEPLOYMENT).catalogue(NOW)
    intent = translate("高峰期 p99 首字 2 秒以内，老板在看\n别用 int4", catalogue)
    assert render.marked(intent) == [
        ("高峰期 p99 首字 2 秒以内", 1),
        ("，老板在看\n", None),
        ("别用 int4", 2),
    ]
    first, marks, second, below = render.mark_lines(intent)
    assert (first, second) == ("高峰期 p99 首字 2 秒以内，老板在看", "别用 int4")
    assert (marks, below) == ("1" * 24, "2" * 9)


def test_what_a_swap_did_is_told_by_the_layers_that_changed():
    sides = {"source": "CPU[0]:0-8@fp32", "target": "CPU[0]:0-8@fp32,2-6=int8", "paths": {"swap": 3}, "moved": 3}
    rows = dict(render.report_rows(replace(report(), **sides)))
    assert rows["swap"] == "weights of layers 2 to 5 become int8; 3 requests stay where they are, with their KV"
    assert not {"copied", "moved"} & rows.keys()
    assert "swap" not in dict(render.report_rows(report()))
