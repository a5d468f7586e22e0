from benchmarks.load import Load
from benchmarks.overhead import parameters_of, parser, watch
from benchmarks.own_switch import own_switch
from benchmarks.spans import Request, Samples, Watched, directions, each, samples, switch_spans, table
from intentctl.measure import TimeInterval
from runtime.models import Phase
from tests.runtime.scripted import topology

PHASES = {
    Phase.WARMING: 10.0,
    Phase.SYNCING: 12.0,
    Phase.CUTTING: 15.0,
    Phase.COMMITTED: 15.1,
    Phase.CLEANING: 15.2,
    Phase.DONE: 16.0,
}


def test_the_spans_of_a_switch_follow_one_another_without_a_hole():
    assert switch_spans(PHASES) == {
        "warming": TimeInterval(10.0, 12.0),
        "syncing": TimeInterval(12.0, 15.0),
        "cutting": TimeInterval(15.0, 16.0),
    }


def test_a_request_belongs_where_it_began_and_everything_is_counted_once():
    early = Request(9.5, (10.5, 11.75, 12.25, 16.25))
    late = Request(12.0, (16.5,))
    spans = switch_spans(PHASES)
    assert samples([early, late], TimeInterval(9.0, 10.0)) == Samples((1000.0,), ())
    assert samples([early, late], spans["warming"]) == Samples((), (1250.0,))
    assert samples([early, late], spans["syncing"]) == Samples((4500.0,), (500.0, 4000.0))
    assert samples([early, late], spans["cutting"]) == Samples((), ())
    assert samples([Request(1.0, ())], TimeInterval(0.0, 2.0)) == Samples((), ())
    requests = [Request(k / 7, tuple((k + n) / 7 for n in range(1, 5))) for k in range(100)]
    spans = [TimeInterval(float(k), k + 1.0) for k in range(20)]
    found = [samples(requests, span) for span in spans]
    assert sum(len(one.ttft_ms) for one in found) == 100
    assert sum(len(one.tpot_ms) for one in found) == 300


def steady(start_s: float, end_s: float, gap_s: float) -> Request:
    """Asked for at the start, its tokens ``gap_s`` apart."""
    count = round((end_s - start_s) / gap_s) - 1
    return Request(start_s, tuple(start_s + gap_s * n for n in range(1, count + 1)))


def test_what_comes_after_a_switch_is_compared_with_the_time_before_on_the_target():
    there = Watched(
        "a",
        "b",
        {"before": TimeInterval(0, 10), "syncing": TimeInterval(10, 20), "after": TimeInterval(20, 30)},
    )
    back = Watched("b", "a", {"before": TimeInterval(30, 40), "after": TimeInterval(50, 60)})
    gaps_s = {0: 0.1, 10: 0.11, 20: 0.22, 30: 0.2, 50: 0.1}
    found = directions([there, back], [steady(at, at + 10, gap) for at, gap in gaps_s.items()])

    out = {row["span"]: row for row in found[0]["rows"]}
    assert (out["before"]["ttft"]["ratio"], out["before"]["tpot"]["ratio"]) == (1.0, 1.0)
    assert out["syncing"]["tpot"] == {"median_ms": 110.0, "ratio": 1.1, "samples": 89}
    assert out["after"]["ttft"] == {"median_ms": 220.0, "ratio": 1.1, "samples": 1}
    assert found[1]["rows"][1]["tpot"]["ratio"] == 1.0
    assert (found[0]["within_bar"], found[1]["within_bar"]) == (True, None)
    assert "syncing: 1.10 x before, within 1.10" in table(found)


def test_what_is_not_known_has_no_figures_and_the_bar_is_not_held_by_slow_tokens():
    spans = {"before": TimeInterval(0, 10), "syncing": TimeInterval(10, 20)}
    (found,) = directions([Watched("a", "b", spans)], [steady(0, 10, 0.1), steady(10, 20, 0.12)])
    assert (found["syncing_tpot_ratio"], found["within_bar"]) == (1.2, False)
    assert "over 1.10" in table([found])
    spans = {"before": TimeInterval(0, 10), "cutting": TimeInterval(10, 10)}
    (found,) = directions([Watched("a", "b", spans)], [steady(0, 10, 0.1)])
    assert found["rows"][1]["tpot"] == {"median_ms": None, "ratio": None, "samples": 0}
    assert "-" in table([found]).splitlines()[2]
    (found,) = directions(
        [Watched("a", "b", {"before": TimeInterval(0, 10), "after": TimeInterval(0, 10)})],
        [steady(0, 10, 0.1)],
    )
    assert found["rows"][1]["ttft"] == {"median_ms": 100.0, "ratio": None, "samples": 1}


def test_samples_of_several_switches_are_taken_together_and_are_there_by_themselves_too():
    both = [Watched("a", "b", {"before": TimeInterval(at, at + 10)}) for at in (0, 10)]
    (found,) = directions(both, [steady(0, 10, 0.1), steady(10, 20, 0.3)])
    assert found["rows"][0]["ttft"] == {"median_ms": 200.0, "ratio": 1.0, "samples": 2}
    both = [
        Watched("a", "b", {"before": TimeInterval(at, at + 5), "sham": TimeInterval(at + 5, at + 10)}) for at in (0, 10)
    ]
    found = each(both, [steady(0, 10, 0.1), steady(10, 15, 0.1), steady(15, 20, 0.2)])
    assert [one["spans"]["sham"]["tpot"]["ratio"] for one in found] == [1.0, 2.0]
    assert found[1]["spans"]["sham"]["start_s"] == 15


async def test_a_switch_is_watched_from_the_requests_before_it_to_those_after(engines, tokenizer, make):
    parameters = parameters_of(parser().parse_args(["--requests", "3", "--after", "4"]))

    class Scripted:
        def topology(self, text):
            return topology(2)

    async with own_switch(engines, topology(1), tokenizer) as strategy:
        async with Load(2, 5, make, strategy.deliver) as load:
            spans = await watch(load, strategy, "tp2", (parameters, Scripted()), 3)
        requests = [Request(one.started_s, tuple(one.arrivals_s)) for one in load.recordings]
    assert list(spans) == ["before", "sham", "warming", "syncing", "cutting", "after"]
    ends = [span.end_s for span in spans.values()]
    begins = [span.start_s for span in spans.values()]
    assert (begins[1], *begins[3:]) == (ends[0], *ends[2:5])
    apart = [at for one in requests for at in one.arrivals_s if ends[1] <= at <= begins[2]]
    assert len(apart) >= 2 * 3
    assert all(len(samples(requests, spans[name]).ttft_ms) >= 2 for name in ("before", "sham", "after"))
