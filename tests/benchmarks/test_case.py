from dataclasses import replace
from functools import partial

import pytest

from benchmarks.case import Case, run_case, tally
from benchmarks.load import Recording
from benchmarks.parameters import Parameters
from benchmarks.report import Tally
from intentctl.arguments import EngineName
from runtime.engine import Finish
from runtime.ledger import Counts
from runtime.models import Phase
from tests.rows import rows
from tests.runtime.scripted import Script, ScriptedEngine


def recording(num_tokens, finish) -> Recording:
    return Recording((1,), 10, list(range(num_tokens)), finish=finish)


@rows(
    ("num_tokens", "finish", "seen", "lost", "duplicated"),
    [
        (10, Finish.LENGTH, Counts(), 0, 0),
        (8, Finish.LENGTH, Counts(), 2, 0),
        (11, Finish.LENGTH, Counts(), 0, 1),
        (8, None, Counts(), 0, 0),  # it was given up by its client
        (8, Finish.LENGTH, Counts(lost=3, duplicates=4), 5, 4),
    ],
)
def test_a_stream_that_ended_should_have_every_token_once(num_tokens, finish, seen, lost, duplicated):
    assert tally([recording(num_tokens, finish)], seen) == Tally(num_tokens, lost, duplicated)


@pytest.fixture
def scripted(monkeypatch, subject):
    """Scripted engines in place of real ones; returns the script that later ones follow."""
    scripts = [Script()]

    async def start(self, topology, path, demand):
        return ScriptedEngine(topology, scripts[-1], max_running=demand.streams, max_tokens=demand.tokens)

    monkeypatch.setattr(type(subject), "start", start)
    return scripts


def case(subject, mode) -> Case:
    return Case(
        Parameters(EngineName.TORCH, (mode,), (("1x1", "tp2"),), (2,), (1,), (40,), 300),
        subject,
        mode,
        ("1x1", "tp2"),
        2,
        40,
    )


def test_layers_that_stay_do_not_move_and_a_late_stream_has_its_past_in_its_prompt(subject, tokenizer):
    def moved(*pair) -> int:
        return replace(case(subject, "patch"), pair=pair).layers_moved

    split = "CPU[0]:0-{0} > CPU[1]:{0}-8"
    assert moved("1x1", "tp2") == moved("pp2", "tp2") == 8
    assert moved(split.format(4), split.format(7)) == 3
    begin = partial(case(subject, "patch").begin, tokenizer)
    whole, late = begin(0, 300), begin(0, 100)
    assert (len(whole.prompt), len(late.prompt)) == (40, 240)
    assert late.prompt[:40] == whole.prompt


async def test_streams_to_be_drained_begin_anew_before_each_switch(scripted, subject):
    run = await run_case(case(subject, "drain"))
    assert [len(stream.arrivals_s) for stream in run.streams].count(150) == 2


@rows("mode", ["patch", "replay", "restart", "drain"])
async def test_a_case_switches_there_and_back_and_loses_nothing(scripted, subject, mode, capsys):
    run = await run_case(case(subject, mode))
    assert run.error is None
    assert [(one.source, one.target) for one in run.measured] == [("1x1", "tp2"), ("tp2", "1x1")]
    assert run.tally.tokens > 0
    assert (run.tally.lost, run.tally.duplicated) == (0, 0)
    for one in run.measured:
        before, after = one.quiet
        assert before.end_s == one.switched.interval.start_s
        assert after.start_s == one.switched.interval.end_s
        assert before.start_s <= before.end_s <= after.start_s <= after.end_s
    assert "switch 2 of 2, tp2 to 1x1" in capsys.readouterr().err


async def test_what_breaks_a_case_is_part_of_its_result(scripted, subject):
    scripted.append(Script(lost_while=Phase.SYNCING))
    run = await run_case(case(subject, "patch"))
    assert run.error is not None
    assert "rank_lost" in run.error
    assert run.measured == ()
    assert run.tally.tokens > 0
