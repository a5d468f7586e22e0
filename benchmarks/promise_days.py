"""The controller on bad days in virtual time: steps of the load, more than fits, random days and weeks; beside oracles."""

import math
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from tests.service.promises.bad_days import DAY_S, FluidWorld, bad_days, uncontrolled
from tests.service.promises.queue_world import BASE_S, PER_DEVICE_RPS, STOP_S, WARMING, QueueWorld, step
from tests.service.promises.world import SIZES, TTFT, UTIL, always, topology

Document = dict[str, Any]
RATES_RPS, PREPARES_S, OFFS = (1.3, 1.6, 3.0), (15.0, 40.0), (1.0, 0.5, 2.0)
STEP_S, ENDS_S = 300.0, 1500.0
BAR, BAR_OFF, MOST_RESCUES = 1.15, 1.5, 2
OVER_RPS, HOUR_S, SHARE, BACK_S, MOST_SWITCHES = 7.0, 3600.0, 0.95, 600.0, 4
CALM_S = {"days": 60.0, "weeks": 120.0}
"""Between two looks where nothing goes on; else the rules' 5 s."""


def bad(seeds: int, days: int, weeks: int) -> Document:
    """All of it, with what was missed in ``broken``."""
    began_s = time.process_time()
    found: Document = {
        "steps": [_steps(rate, takes, off, seeds) for off in OFFS for rate in RATES_RPS for takes in PREPARES_S]
    }
    found["overload"] = [_overload(seed) for seed in range(min(seeds, 5))]
    found["days"] = _days(days, 1, QueueWorld, CALM_S["days"])
    found["weeks_with_a_queue"] = _days(weeks, 7, FluidWorld, CALM_S["weeks"])
    found["parameters"] = {
        "goal": TTFT.evidence,
        "requests_s_of_a_device": PER_DEVICE_RPS,
        "first_token_s": BASE_S,
        "stop_s": STOP_S,
        "served_while_preparing": WARMING,
        "overload_rps": OVER_RPS,
        "looks_s_when_calm": CALM_S,
    }
    found["bad_cpu_s"] = time.process_time() - began_s
    found["bad_broken"] = [why for one in found["steps"] + found["overload"] for why in one["broken"]]
    found["bad_broken"] += found["days"]["broken"] + found["weeks_with_a_queue"]["broken"]
    return found


# -- a load that jumps -----------------------------------------------------------------------------------


def _steps(rate_rps: float, prepare_s: float, off: float, seeds: int) -> Document:
    """Requests over the bound after a step, of all seeds, beside those of oracles."""
    over, worst, switches, verdicts, most, before = [0.0] * 3, 0.0, Counter[str](), Counter[str](), 0, 0
    for seed in range(seeds):
        world = _step(rate_rps, prepare_s, seed, off=off)
        counts = [_over(world), *_oracles(rate_rps, prepare_s, seed)]
        over = [one + more for one, more in zip(over, counts, strict=True)]
        worst = max(worst, counts[0] - BAR * counts[1])
        causes = [cause for at_s, cause, _ in world.switches if at_s > STEP_S]
        before += sum(at_s <= STEP_S for at_s, _, _ in world.switches)
        switches.update(causes)
        verdicts.update(world.verdicts)
        most = max(most, causes.count("rescue"))
    bar, name = (BAR if off == 1.0 else BAR_OFF), f"step to {rate_rps} in {prepare_s:g} s, off by {off:g}"
    broken = [f"{name}: {over[0] / over[1]:.2f} times the oracle's"] if over[0] > bar * over[1] else []
    if switches["roll_back"] or verdicts["worse"]:
        broken.append(f"{name}: rolled back")
    if most > MOST_RESCUES:
        broken.append(f"{name}: {most} rescues")
    return {
        "rate_rps": rate_rps,
        "prepare_s": prepare_s,
        "predictions_off": off,
        "seeds": seeds,
        "over": over[0],
        "over_oracle": over[1],
        "over_oracle_at_the_step": over[2],
        "ratio": over[0] / over[1],
        "most_requests_beyond_the_bar_by_one_seed": worst,
        "switches": dict(switches),
        "switches_before_the_step": before,
        "most_rescues": most,
        "verdicts": dict(verdicts),
        "broken": broken,
    }


def _step(rate_rps: float, prepare_s: float, seed: int, **facts: Any) -> QueueWorld:
    return QueueWorld(step(0.5, rate_rps, STEP_S), prepare_s, seed, watched_s=STEP_S, **facts)


def _over(world: QueueWorld) -> float:
    """Requests that come over the bound after the step."""
    world.run(STEP_S)
    before = world.over_now
    world.run(ENDS_S - STEP_S)
    return world.over_now - before


def _oracles(rate_rps: float, prepare_s: float, seed: int) -> tuple[float, float]:
    """Of a planner that knows the load, and switches a patience and a tick after the first request that is known to be over
    the bound; and of one that does at the step."""
    idle = _step(rate_rps, prepare_s, seed, is_controlled=False)
    while idle.first_over_s == math.inf and idle.now_s < ENDS_S:
        idle.tick()
    tick_s = idle.rules.tick_s
    late_s = math.ceil((idle.first_over_s + idle.rules.patience_s) / tick_s) * tick_s + tick_s
    segment = idle.controller.enter(always(TTFT).said, 0)
    known = QueueWorld(lambda _: rate_rps).planner.outlook(segment, topology(1), None)
    assert known.plan is not None
    size = len(known.plan.target.devices)
    made = [_step(rate_rps, prepare_s, seed, is_controlled=False, script=[(at_s, size)]) for at_s in (late_s, STEP_S)]
    return _over(made[0]), _over(made[1])


# -- more than anything holds ------------------------------------------------------------------------------


def _overload(seed: int) -> Document:
    def rate(at_s: float) -> float:
        return OVER_RPS if STEP_S <= at_s < STEP_S + HOUR_S else 0.5

    world = QueueWorld(rate, seed=seed, goals=(TTFT, replace(UTIL, window="always", value=0.2)))
    best = QueueWorld(rate, seed=seed, runs=topology(4), is_controlled=False)
    for one in (world, best):
        one.run(STEP_S + HOUR_S)
    share = world.served / best.served
    while world.waiting:
        world.tick()
    gone_s = world.now_s
    while world.runs != topology(1) and world.now_s < gone_s + 4 * BACK_S:
        world.tick()
    back_s, num = world.now_s - gone_s, len(world.switches)
    world.run(HOUR_S)
    broken = [f"overload {seed}: {share:.1%} served"] if share < SHARE else []
    broken += [f"overload {seed}: back after {back_s:.0f} s"] if back_s > BACK_S else []
    broken += [f"overload {seed}: {num} switches"] if num > MOST_SWITCHES else []
    causes = [(cause, len(SIZES[target].devices)) for _, cause, target in world.switches]
    return {
        "seed": seed,
        "served_of_best": share,
        "back_s": back_s,
        "switches": causes[:num],
        "in_the_hour_after": causes[num:],
        "broken": broken,
    }


# -- random days and weeks ---------------------------------------------------------------------------------


def _days(count: int, days: int, kind: type[QueueWorld], calm_s: float) -> Document:
    """How far P99 TTFT < 2 s was kept by all requests: by the controller, by doing nothing, by an oracle."""
    names = "controller", "nothing", "oracle"
    over, asked, hours = (dict.fromkeys(names, 0.0) for _ in range(3))
    worse, broken = list[str](), list[str]()
    switches, verdicts, noes = Counter[str](), Counter[str](), 0
    calm = dict.fromkeys(names[::2], 0.0), dict.fromkeys(names[::2], 0.0)
    for seed in range(count):
        world = bad_days(seed, days, kind)
        beside = [uncontrolled(world, days, foreseeing=is_foreseeing) for is_foreseeing in (False, True)]
        world.run(days * DAY_S, calm_s)
        for one in beside:
            one.run(days * DAY_S, 60)
        for name, one in zip(names, (world, *beside), strict=True):
            over[name] += one.over_now
            asked[name] += one.asked
            hours[name] += one.device_s / 3600
            if name in calm[0] and not (world.mishaps.rejects or world.mishaps.cancels):
                calm[0][name] += one.over_now
                calm[1][name] += one.asked
        if world.over_now > beside[0].over_now:
            worse.append(f"{days} days of seed {seed}")
        switches.update(cause for _, cause, _ in world.switches)
        verdicts.update(world.verdicts)
        noes += len(world.noes)
        broken += [f"{days} days of seed {seed}: {why}" for why in world.broken]
        if seed % 10 == 9:
            print(f"{seed + 1} of {count} times {days} days", file=sys.stderr)
    return {
        "count": count,
        "requests": asked["controller"],
        "attainment": {name: 1 - over[name] / asked[name] for name in names},
        "attainment_where_nobody_says_no": {name: 1 - calm[0][name] / max(1, calm[1][name]) for name in calm[0]},
        "device_hours": hours,
        "switches": dict(switches),
        "verdicts": dict(verdicts),
        "noes": noes,
        "worse_than_nothing": worse,
        "broken": broken,
    }
