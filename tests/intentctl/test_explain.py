"""`intentctl explain`: every example is read by the rules and comes to what is shown; the lists are those of the models."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from intent.document import from_document, to_document
from intent.models import (
    NAMED_WINDOWS,
    UNITS,
    Catalogue,
    Config,
    Metric,
    Op,
    Outcome,
    Placement,
    PrecisionRule,
    ReconfigRule,
    Stat,
)
from intent.translate import translate
from intentctl.explain import UnknownNameError, explain, topics
from service.deployment.file import load
from service.planning import lifecycle
from tests.rows import rows

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
CATALOGUE = Catalogue(
    models=("llama-70b",),
    windows=NAMED_WINDOWS,
    now=NOW,
    tz="UTC",
    tenants=("free", "enterprise"),
    devices={"A100": 4, "L40S": 4},
    nodes=("a", "b"),
)
LAPTOP = Path(__file__).parents[2] / "examples" / "local-cpu.yaml"

EXAMPLES = [
    pytest.param(example, id=f"{topic} {name}: {example['say']}")
    for topic, found in topics().items()
    for name, entry in found["entries"].items()
    for example in entry["examples"]
]


def that_show(what: str):
    """The examples with this, as rows."""
    return rows("example", [one for one in EXAMPLES if what in one.values[0]], ids=lambda one: one["say"])


def goals_shown(example: dict, said: list[dict]) -> list[dict]:
    """The goals of an example with every slot that is not written down, read through the document's own reader."""
    whole = [{"type": "objective", "evidence": "", **goal} for goal in example["goals"]]
    document = to_document(translate("", CATALOGUE)) | {"goals": whole}
    goals = to_document(from_document(document))["goals"]
    return [{**goal, "evidence": one["evidence"]} for goal, one in zip(goals, said, strict=True)]


@that_show("goals")
def test_an_example_comes_to_the_goals_it_shows(example):
    intent = translate(example["say"], CATALOGUE)
    said = to_document(intent)["goals"]
    assert intent.outcome is Outcome.OK, intent.questions or intent.findings
    assert said == goals_shown(example, said)


@that_show("outcome")
def test_an_example_has_the_outcome_it_shows(example):
    intent = lifecycle.translate(example["say"], load(LAPTOP), None, NOW)
    assert intent.outcome == example["outcome"]


@pytest.mark.slow
@that_show("finding")
def test_an_example_has_the_finding_it_shows(example):
    intent = lifecycle.translate(example["say"], load(LAPTOP), None, NOW)
    assert example["finding"] in {finding.code for finding in intent.findings}


def test_a_finding_is_shown_under_its_code_and_every_entry_in_both_languages():
    for code, entry in topics()["finding"]["entries"].items():
        assert {example["finding"] for example in entry["examples"]} == {code}
    spoken = {
        (topic, name): {any("\u4e00" <= one <= "\u9fff" for one in example["say"]) for example in entry["examples"]}
        for topic, found in topics().items()
        for name, entry in found["entries"].items()
        if "goals" in entry["examples"][0]
    }
    assert [place for place, languages in spoken.items() if languages != {True, False}] == []


def literals(kind: type, slot: str) -> set[str]:
    return set(get_args(kind.__annotations__[slot]))


@rows(
    ("topic", "names"),
    [
        ("metric", set(get_args(Metric))),
        ("stat", set(get_args(Stat))),
        ("op", set(get_args(Op))),
        ("unit", {unit for units in UNITS.values() for unit in units}),
        ("window", {*NAMED_WINDOWS, "hours", "date", "from now"}),
        ("precision", literals(PrecisionRule, "rule")),
        ("placement", literals(Placement, "rule")),
        ("config", literals(Config, "key")),
        ("reconfig", literals(ReconfigRule, "rule")),
        ("outcome", {outcome.value for outcome in Outcome}),
    ],
)
def test_the_entries_are_those_of_the_models(topic, names):
    assert set(topics()[topic]["entries"]) == names


def test_without_a_topic_the_topics_are_listed_and_a_metric_has_its_units_and_its_good_side():
    assert list(explain(None, None)["topics"]) == list(topics())
    (entry,) = explain("metric", "cost")["entries"].values()
    assert entry["units"] == list(UNITS["cost"])
    assert entry["better"] == "lower"


@rows(
    ("topic", "entry", "name"),
    [
        ("METRIC", "TTFT", "ttft"),
        ("windows", "off-peak", "off_peak"),
        ("unit", "usd/h", "USD/h"),
        ("window", "from now", "from now"),
    ],
)
def test_a_name_may_be_written_as_people_write_it(topic, entry, name):
    assert list(explain(topic, entry)["entries"]) == [name]


@rows(
    ("topic", "entry", "nearest"),
    [("windo", None, "'window'"), ("metric", "ttf", "'ttft'"), ("出", None, "Known")],
)
def test_an_unknown_name_is_met_with_the_known_ones_and_the_nearest(topic, entry, nearest):
    with pytest.raises(UnknownNameError, match=nearest):
        explain(topic, entry)


def test_the_command_shows_topics_examples_and_their_goals_and_prints_data(run):
    code, out, _ = run("explain", "metric", "ttft")
    assert code == 0
    assert '"keep P99 TTFT < 2s at peak"' in out
    assert "metric=ttft stat=p99 op=<= value=2 unit=s" in out
    assert "intentctl explain TOPIC" in run("explain")[1]
    assert json.loads(run("explain", "stat", "-o", "json")[1])["entries"]["p99.9"]["examples"]
    code, out, err = run("explain", "metrix")
    assert (code, out) == (2, "")
    assert "'metric'" in err
