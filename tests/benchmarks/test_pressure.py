"""The shifting load, its score, and what the two parts of the benchmark make of them."""

import json
from dataclasses import replace

import pytest

from benchmarks.load import Recording
from benchmarks.parameters import UsageError
from benchmarks.patterns import (
    BALANCED,
    DECODE,
    PREFILL,
    Answered,
    Outcome,
    alternating,
    compared,
    composite,
    middle,
    outcome,
    poisson,
    table,
)
from benchmarks.pressure import main, parameters_of, parser
from benchmarks.pressure_live import Live, Run, Shift, answered, splits
from benchmarks.pressure_simulated import Costs, Simulation, aligned, choice, measured, simulated, switches
from benchmarks.questions import cluster_of
from runtime.errors import Reason, StreamError, SwitchError
from runtime.notation import parse_topology
from selector.models import shape
from selector.performance.perf import LayerCost, ServerModel, StageCost
from selector.performance.simulator import RequestArrival
from tests.rows import rows

LIVE = Live((76, 25), clients=3, phases=2, num_requests=4, scale=1.0, rounds=1, seed=0)
COSTS = Costs(stop_s=0.005, syncing_ratio=1.25, prepare_s=0.5)


def test_the_load_shifts_and_an_outcome_is_means_over_requests():
    found = list(alternating(3, 2))
    assert [phase for phase, _ in found] == [0, 0, 1, 1, 2, 2]
    assert [pattern for _, pattern in found] == [PREFILL, PREFILL, DECODE, DECODE, PREFILL, PREFILL]
    assert [(one.input_tokens, one.output_tokens) for one in (PREFILL, DECODE)] == [(512, 16), (128, 512)]
    assert (BALANCED.input_tokens, BALANCED.output_tokens) == (320, 264)
    answers = [Answered(1.0, 1.5, 3.5, 5), Answered(2.0, 3.5, 11.0, 16)]
    assert outcome(answers) == Outcome(1.0, 0.5, 2.1)
    assert middle([Outcome(1, 5, 3), Outcome(2, 4, 9), Outcome(9, 0, 4)]) == Outcome(2, 4, 4)


def test_arrivals_keep_the_rate_of_their_pattern_and_are_drawn_alike_at_every_rate():
    load = list(alternating(2, 4000))
    arrivals = poisson(load, {PREFILL: 20.0, DECODE: 4.0}, seed=1)
    assert arrivals[3999].at_s == pytest.approx(4000 / 20, rel=0.05)
    assert arrivals[-1].at_s - arrivals[3999].at_s == pytest.approx(4000 / 4, rel=0.05)
    assert (arrivals[0].input_tokens, arrivals[-1].output_tokens) == (512, 512)
    faster = poisson(load, {PREFILL: 40.0, DECODE: 8.0}, seed=1)
    assert [one.at_s for one in faster] == pytest.approx([one.at_s / 2 for one in arrivals])


def test_the_score_is_the_mean_of_what_lies_between_the_worst_and_the_best():
    outcomes = {
        "a": Outcome(1.0, 0.04, 100.0),
        "b": Outcome(3.0, 0.02, 200.0),
        "c": Outcome(2.0, 0.03, 125.0),
    }
    assert composite(outcomes) == pytest.approx(
        {"a": (1 + 0 + 0) / 3, "b": (0 + 1 + 1) / 3, "c": (0.5 + 0.5 + 0.25) / 3}
    )
    alike = {"a": Outcome(1.0, 0.02, 100.0), "b": Outcome(2.0, 0.02, 100.0)}
    assert composite(alike) == {"a": 1.0, "b": pytest.approx(2 / 3)}


def test_every_way_to_switch_is_scored_beside_the_static_choices_alone():
    static = {"a": Outcome(2.0, 0.02, 100.0), "b": Outcome(1.0, 0.04, 200.0)}
    best, worst = Outcome(1.0, 0.02, 200.0), Outcome(100.0, 0.4, 1.0)
    found = compared(static, {"good": best, "bad": worst})
    assert [(row["choice"], row["composite"]) for row in found["rows"]] == [
        ("a", 0.3333),
        ("b", 0.6667),
        ("good", 1.0),
        ("bad", 0.0),
    ]
    assert found["gains"]["good"] == {"over_best_static": 0.5, "over_mean_static": 1.0}
    assert found["gains"]["bad"] == {"over_best_static": -1.0, "over_mean_static": -1.0}
    assert "good: +50.0% over the best static choice, +100.0% over their mean" in table(found)
    found = compared({"a": Outcome(2.0, 0.02, 1.0)}, {"b": Outcome(1.0, 0.01, 2.0)})
    assert found["gains"]["b"]["over_best_static"] is None
    assert "no score to compare with" in table(found)[-1]


# --- simulated -------------------------------------------------------------------------------------------------------


def server(kv_tokens: int, token_s: float) -> ServerModel:
    layer = LayerCost(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, token_s, 0.0)
    return ServerModel((StageCost(((1, layer),), (), 1.0, 0.01, (0.0, 0.0), 0.0, 0.0),), 8, kv_tokens, 64)


def test_a_switch_begins_with_the_first_request_of_a_shift_and_costs_what_was_measured():
    case = Simulation("llama-2-13b", (1, 1), 1.0, phases=3, num_requests=2, seed=0)
    here, there = server(5000, 1e-4), server(9000, 2e-4)
    arrivals = [RequestArrival(float(second), 1, 1) for second in range(6)]
    prepare_s = {"decode-optimal": 0.75, "prefill-optimal": 1.5}
    slow, then, slow_there, back = switches(arrivals, case, {PREFILL: here, DECODE: there}, (6000, prepare_s, COSTS))
    assert (slow.at_s, then.at_s, slow_there.at_s, back.at_s) == (2.0, 2.75, 4.0, 5.5)
    assert slow.server == replace(here, share=0.8)
    assert slow_there.server == replace(there, share=0.8, kv_tokens=6000)
    assert (slow.stop_s, then.stop_s, back.stop_s) == (0.0, 0.005, 0.005)
    assert (then.server, back.server) == (there, here)


def test_the_simulated_part_says_its_choices_and_serves_the_same_load_with_each():
    case = Simulation("llama-3-8b", (1, 1), 0.5, phases=2, num_requests=20, seed=0)
    found = simulated(case, COSTS)
    assert found["kind"] == "simulated"
    assert list(found["choices"]) == ["prefill-optimal", "decode-optimal", "balanced"]
    assert len(found["rows"]) == 5
    assert found["costs"]["prepare_s"]["decode-optimal"] > 1.0  # what loading takes there
    assert found["kv_tokens_beside"] <= min(found["kv_tokens"].values())
    dearer = simulated(case, replace(COSTS, stop_s=20.0, prepare_s=3.0))
    assert dearer["costs"]["prepare_s"] == {"decode-optimal": 3.0, "prefill-optimal": 3.0}
    assert dearer["rows"][:1][0]["ttft_s"] == found["rows"][0]["ttft_s"]
    assert dearer["rows"][3]["tpot_s"] > found["rows"][3]["tpot_s"]


def test_a_pipeline_is_turned_where_that_leaves_more_room_beside_the_other():
    case = Simulation("llama-2-13b", (1, 1), 0.8, 2, 20, 0)
    spec, cluster = shape(case.model), cluster_of(*case.devices)
    ahead = parse_topology("L40S[1]:0-18@bf16 > A100[0]:18-40@bf16", cluster, 40, "bf16")
    prompts = replace(choice(PREFILL, spec, case), topology=ahead)
    away = parse_topology("A100[0]:0-27@bf16 > L40S[1]:27-40@bf16", cluster, 40, "bf16")
    near = parse_topology("L40S[1]:0-13@bf16 > A100[0]:13-40@bf16", cluster, 40, "bf16")
    for topology in (away, near):
        found = aligned(replace(prompts, topology=topology), prompts, spec, cluster)
        assert found.topology == near
        assert found.prediction == prompts.prediction


def test_a_simulation_is_repeated_with_the_pipeline_turned_where_that_is_another(capsys):
    sizes = ["--part", "simulated", "--loads", "0.5", "--requests", "10", "--phases", "2"]
    costs = ["--stop-ms", "5", "--prepare-s", "0.5", "--syncing-ratio", "1.1"]
    assert main([*sizes, *costs, "--models", "llama-2-13b:1+1,llama-3-8b:1+1"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("simulated")]
    assert [title.endswith("in the order that moves least") for title in titles] == [False, True, False]


@rows(("num_blocks", "fits"), [(39, False), (40, True)])
def test_the_longest_request_has_to_fit_beside(monkeypatch, num_blocks, fits):
    monkeypatch.setattr("benchmarks.pressure_simulated.blocks_beside", lambda *arguments: num_blocks)
    case = Simulation("llama-3-8b", (1, 1), 0.5, phases=1, num_requests=2, seed=0)
    if fits:
        assert simulated(case, COSTS)["kv_tokens_beside"] == 640
        return
    with pytest.raises(UsageError, match="side by side"):
        simulated(case, COSTS)


def test_costs_are_the_worst_of_what_was_measured(tmp_path):
    rows = [
        {"mode": "patch", "stop_ms": {"p99": 5.0}, "prepare_s": {"p50": 0.5}},
        {"mode": "patch", "stop_ms": {"p99": -1.0}, "prepare_s": {"p50": 2.0}},
        {"mode": "restart", "stop_ms": {"p99": 900.0}, "prepare_s": {"p50": 9.0}},
    ]
    directions = [{"syncing_tpot_ratio": ratio} for ratio in (0.9, 1.2, None)]
    (tmp_path / "cutover-torch.json").write_text(json.dumps({"rows": rows}))
    with pytest.raises(UsageError, match="overhead"):
        measured(tmp_path)
    (tmp_path / "overhead.json").write_text(json.dumps({"directions": directions}))
    assert measured(tmp_path) == Costs(0.005, 1.2, 2.0)
    (tmp_path / "overhead.json").write_text("{}")
    with pytest.raises(UsageError, match="--syncing-ratio"):
        measured(tmp_path)


# --- live ------------------------------------------------------------------------------------------------------------


def test_the_even_split_is_not_the_one_with_the_most_kv(subject):
    found = splits(LIVE, subject.spec)
    assert str(found.even) == "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"
    assert str(found.roomy) == "CPU[0]:0-6@fp32 > CPU[1]:6-8@fp32"
    assert str(found.between) == "CPU[0]:0-5@fp32 > CPU[1]:5-8@fp32"
    assert found.beside == found.held(found.even) < found.held(found.between) < found.held(found.roomy)
    assert (found.of(PREFILL), found.of(DECODE)) == (found.even, found.roomy)


@rows(
    ("memory_mb", "message"),
    [((76, 76), "has the most KV and is even too"), ((12, 7), "a request of 640 tokens needs 21")],
)
def test_memory_that_leaves_nothing_to_choose_is_refused(subject, memory_mb, message):
    with pytest.raises(UsageError, match=message):
        splits(replace(LIVE, memory_mb=memory_mb), subject.spec)


def test_scaled_lengths_and_answers_are_read_from_the_stamps():
    assert replace(LIVE, scale=0.5).lengths(DECODE) == (64, 256)
    assert replace(LIVE, scale=0.01).lengths(PREFILL) == (5, 2)
    recording = Recording((1,), 3, [1, 2, 3], [2.0, 2.5, 4.0], ["x"] * 3, None, 1.0)
    assert answered(recording) == Answered(1.0, 2.0, 4.0, 3)
    with pytest.raises(StreamError):
        answered(Recording((1,), 3))


async def test_the_first_request_of_a_phase_begins_a_switch_and_the_load_goes_on(subject, tokenizer):
    choices, begun = splits(LIVE, subject.spec), []
    run = Run(LIVE, choices, "switching", True)

    class Noted:
        def begin(self, target):
            begun.append((target, len(run.recordings)))

    served = list(run._load(tokenizer, Noted()))
    assert [(len(one.prompt), one.max_tokens) for one in served] == [(512, 16)] * 4 + [(128, 512)] * 4
    assert begun == [(choices.roomy, 4)]
    assert [phase for phase, _ in run.recordings] == [0] * 4 + [1] * 4
    still = Run(LIVE, choices, "static")
    list(still._load(tokenizer, Noted()))
    assert len(begun) == 1


async def test_a_switch_without_room_is_asked_for_again_and_any_other_refusal_is_not(subject, monkeypatch):
    choices = splits(LIVE, subject.spec)
    run = Run(LIVE, choices, "switching", False)
    monkeypatch.setattr("benchmarks.pressure_live.RETRY_S", 0.0)

    class Switcher:
        def __init__(self, *problems):
            self.problems = list(problems)

        async def switch(self, target):
            if self.problems:
                raise self.problems.pop(0)

    class Engine:
        topology = choices.even

    full, lost = SwitchError(Reason.NO_MEMORY, "full"), SwitchError(Reason.RANK_LOST, "gone")
    shift = Shift(Engine(), Switcher(full, full), run)
    shift.begin(choices.roomy)
    await shift.ended()
    assert (run.refused, len(run.switched_s)) == (2, 1)
    await shift.to(choices.even)
    assert len(run.switched_s) == 1
    with pytest.raises(SwitchError, match="gone"):
        await Shift(Engine(), Switcher(lost), run).to(choices.roomy)


def test_every_case_has_a_load_and_costs_are_read_only_where_they_lack(monkeypatch):
    costs = ["--stop-ms", "5", "--prepare-s", "0.5", "--syncing-ratio", "1.1"]
    found = parameters_of(parser().parse_args([*costs, "--loads", "0.5,1", "--requests", "20,40"]))
    assert [(one.model, one.num_requests, one.load) for one in found.simulations][:3] == [
        ("llama-2-13b", 20, 0.5),
        ("llama-2-13b", 20, 1.0),
        ("llama-2-13b", 40, 0.5),
    ]
    assert len(found.simulations) == 8
    assert found.costs == Costs(0.005, 1.1, 0.5)
    monkeypatch.setattr("benchmarks.pressure.measured", lambda: Costs(0.25, 3.0, 4.0))

    def costs(*arguments):
        return parameters_of(parser().parse_args(arguments)).costs

    assert costs() == Costs(0.25, 3.0, 4.0)
    assert costs("--stop-ms", "5", "--prepare-s", "0") == Costs(0.005, 3.0, 0.0)
    assert costs("--part", "live") == Costs(0.0, 1.0, 0.0)


def test_the_simulated_part_is_printed_and_written(capsys, tmp_path):
    file = tmp_path / "pressure.json"
    sizes = ["--models", "llama-3-8b:1+1", "--loads", "0.5", "--requests", "10", "--phases", "2"]
    costs = ["--stop-ms", "5", "--prepare-s", "0.5", "--syncing-ratio", "1.1"]
    assert main(["--part", "simulated", *sizes, *costs, "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert "simulated: llama-3-8b on 1 A100 + 1 L40S, 10 requests a phase, load 0.5" in said
    document = json.loads(file.read_text())
    assert document["benchmark"] == "pressure"
    assert document["parameters"]["costs"]["stop_s"] == 0.005
    assert [one["kind"] for one in document["results"]] == ["simulated"]
