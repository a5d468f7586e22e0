"""What fits, by the footprint, for the shapes that are named; and what is said of what does not."""

import io
import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engines import Demand, Subject
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.parts import cutover
from benchmarks.gpu.parts.cutover import name_of, subject_of
from benchmarks.gpu.room import LONGEST, SHORTEST, SHORTEST_OUTPUT, Limits, choose, lengths, needed_for
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.sizes import GPU, Cutover
from benchmarks.parameters import Parameters
from intentctl.arguments import EngineName
from runtime.footprint import peak_bytes
from tests.rows import rows

DEVICE_BYTES, HOST_BYTES = 75_000_000_000, 64_000_000_000
LIMITS = Limits(DEVICE_BYTES, HOST_BYTES)


def subject(machine: Machine, one: Cutover) -> Subject:
    return subject_of(machine, GPU, one, Path("nowhere"))


def case(name: str, active: int, target: str = "pp2") -> Cutover:
    return next(one for one in GPU.cutovers if (one.name, one.active, one.pair[1]) == (name, active, target))


def test_loads_and_lengths_are_those_that_were_asked_for():
    assert {(one.name, one.active) for one in GPU.cutovers} == {
        (name, active) for name in ("Llama-3-8B", "Llama-2-13B") for active in (100, 200, 1000)
    }
    assert GPU.most == LIMITS
    found = list(lengths())
    totals = [context + output for context, output in found]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == LONGEST
    assert found[-1] == (SHORTEST, SHORTEST_OUTPUT)
    assert all(context >= SHORTEST and output >= SHORTEST_OUTPUT for context, output in found)


@rows(
    ("name", "active", "fits"),
    [
        *(("Llama-3-8B", active, True) for active in (100, 200, 1000)),
        *(("Llama-2-13B", active, active == 100) for active in (100, 200, 1000)),
    ],
)
def test_what_fits_one_gpu_of_80_gb(h100, name, active, fits):
    one = case(name, active)
    needed = choose(subject(h100, one), one.pair, active, LIMITS)
    assert needed.fits(LIMITS) is fits
    assert (needed.device_bytes <= DEVICE_BYTES) is fits
    assert needed.host_bytes <= HOST_BYTES


@rows("one", GPU.cutovers, ids=name_of)
def test_chosen_lengths_can_be_measured_and_longer_ones_do_not_fit(h100, one):
    whole = subject(h100, one)
    needed = choose(whole, one.pair, one.active, LIMITS)
    parameters = Parameters(
        EngineName.TORCH, ("patch",), (one.pair,), (one.active,), (1,), (needed.context,), needed.output
    )
    parameters.check(whole)
    for context, output in lengths():
        if (context, output) == (needed.context, needed.output):
            break
        longer = needed_for(whole, one.pair, Demand(one.active, context + output), (context, output))
        assert not longer.fits(LIMITS)


@given(st.sampled_from(GPU.cutovers), st.integers(1, 1200), st.integers(195, 600))
def test_what_is_needed_is_more_than_the_footprint_and_grows_with_the_load(one, active, tokens):
    machine = Machine("cuda", "H100", 85_000_000_000, 84_000_000_000, 120_000_000_000, 1e12)
    whole, demand = subject(machine, one), Demand(active, tokens)
    needed = needed_for(whole, one.pair, demand, (tokens - 170, 170))
    settings = whole.settings(demand)
    assert settings.num_blocks is not None
    now, target = map(whole.topology, one.pair)
    peak = peak_bytes(now, target, whole.spec, settings.num_blocks, settings.block_size)
    assert needed.device_bytes > sum(peak.values())
    more = needed_for(whole, one.pair, Demand(active + 1, tokens + 1), (tokens - 169, 170))
    assert more.device_bytes >= needed.device_bytes
    assert more.host_bytes >= needed.host_bytes


def test_less_free_memory_takes_shorter_streams_and_no_more_is_used_than_is_allowed(h100):
    one = case("Llama-3-8B", 200)
    chosen = []
    for free_bytes in (84_000_000_000, 50_000_000_000, 20_000_000_000):
        limits = GPU.limits(replace(h100, free_bytes=free_bytes))
        needed = choose(subject(h100, one), one.pair, one.active, limits)
        chosen.append((needed.context + needed.output, needed.fits(limits)))
    assert chosen[0][0] > chosen[1][0] > chosen[2][0]
    assert [fits for _, fits in chosen] == [True, True, False]
    assert GPU.limits(h100) == LIMITS
    small = GPU.limits(replace(h100, free_bytes=10_000_000_000, host_bytes=5_000_000_000))
    assert small.device_bytes < 10_000_000_000
    assert small.host_bytes < 5_000_000_000


def test_cases_that_do_not_fit_are_skipped_with_the_figures(h100, monkeypatch):
    monkeypatch.setattr(cutover, "measured", lambda *_: {"figure": 1})
    out = io.StringIO()
    cutover.run(h100, Rows(out))
    planned, *rows = map(json.loads, out.getvalue().splitlines())
    assert [row["case"] for row in rows if "figure" in row][:2] == planned["planned"][:2]
    assert {*planned["planned"]} == {row["case"] for row in rows}
    skipped = {row["case"]: row for row in rows if "skipped" in row}
    assert len(skipped) == 4
    row = skipped["Llama-2-13B 1x1-pp2 1000 streams patch"]
    assert "GB of device memory" in row["skipped"]
    assert "75.0 GB and 64.0 GB may be used" in row["skipped"]
    assert row["device_bytes_needed"] > DEVICE_BYTES
