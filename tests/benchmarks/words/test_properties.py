import random

from benchmarks.words.properties import (
    corrected,
    dropped_qualifiers,
    hostile_strings,
    lost_in_changes,
    lost_in_readback,
    run,
    table,
)
from benchmarks.words.utterances import DEPLOYMENT, NOW, load, own_files
from service.deployment.file import load as load_deployment

DEPLOYMENT_READ = load_deployment(DEPLOYMENT)


def test_a_wish_that_is_accepted_with_its_qualifier_is_told_and_one_that_is_asked_about_is_not(monkeypatch):
    monkeypatch.setattr("benchmarks.words.properties.qualified", lambda chance, texts: "p99 TTFT < 2s at peak")
    dropped = dropped_qualifiers(DEPLOYMENT_READ, load(own_files()), 1, random.Random(0))
    assert [(one["text"], one["accepted"][0]["metric"]) for one in dropped] == [("p99 TTFT < 2s at peak", "ttft")]
    monkeypatch.setattr("benchmarks.words.properties.qualified", lambda chance, texts: "latency < 2s")
    assert dropped_qualifiers(DEPLOYMENT_READ, load(own_files()), 1, random.Random(0)) == []


def test_a_change_that_loses_something_is_told_and_one_that_is_asked_about_is_not(monkeypatch):
    def losing(deployment, text):
        monkeypatch.setattr("benchmarks.words.properties.changed", lambda *_: ("glued", text))
        return lost_in_changes(DEPLOYMENT_READ, load(own_files())[:1], 1, random.Random(0))

    (said,) = [one.text for one in load(own_files())[:1]]
    assert losing(DEPLOYMENT_READ, said) == []
    assert losing(DEPLOYMENT_READ, "latency < 2s") == []
    assert [one["change"] for one in losing(DEPLOYMENT_READ, "cost under 10 USD/h")] == ["glued"]


def test_what_raises_is_told_with_its_text(monkeypatch):
    def fail(text, catalogue):
        raise ValueError(text)

    monkeypatch.setattr("benchmarks.words.properties.translate", fail)
    found = hostile_strings(DEPLOYMENT_READ, ["TTFT 2s"], 3, random.Random(0))
    assert len(found.raised) == 3
    assert found.raised[0]["raised"] == repr(ValueError(found.raised[0]["text"]))


def test_a_number_that_nobody_said_is_told_with_its_goal(monkeypatch):
    monkeypatch.setattr("benchmarks.words.properties.unsaid", lambda goal, text: ["value"])
    monkeypatch.setattr("benchmarks.words.properties.hostile", lambda chance, texts: "p99 TTFT < 2s at peak")
    found = hostile_strings(DEPLOYMENT_READ, ["-"], 1, random.Random(0))
    assert [(one["unsaid"], one["goal"]["metric"]) for one in found.invented] == [(["value"], "ttft")]
    assert found.slowest == "p99 TTFT < 2s at peak"
    assert found.slowest_s > 0


def test_goals_that_come_back_otherwise_are_told_and_counted(monkeypatch):
    monkeypatch.setattr("benchmarks.words.properties.in_words", lambda goals, language: "p99 TTFT < 2s at peak")
    lost = lost_in_readback(DEPLOYMENT_READ.catalogue(NOW), 2, random.Random(0))
    assert [one["text"] for one in lost] == ["p99 TTFT < 2s at peak"] * 2
    assert lost[0]["read"][0]["metric"] == "ttft"
    monkeypatch.setattr("benchmarks.words.properties.in_words", lambda goals, language: "hello")
    text = table(run(DEPLOYMENT_READ, load(own_files()), 2, 0))
    assert "read back otherwise     2 of 2" in text
    assert "'text': 'hello'" in text


def test_a_word_that_was_taken_for_another_counts_as_said():
    catalogue = DEPLOYMENT_READ.catalogue(NOW)
    assert corrected("EDIAN TTFT under 1 s", catalogue) == "EDIAN TTFT under 1 s median"
    assert corrected("median TTFT under 1 s", catalogue) == "median TTFT under 1 s"
