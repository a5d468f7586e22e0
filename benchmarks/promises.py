"""What keeping promises costs: an agenda, a decision, observing; and random weeks in virtual time."""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.promise_days import bad
from benchmarks.provenance import ROOT, provenance, stolen_now_s
from intent.models import Goal, Objective
from runtime.engine import Finish
from runtime.stream import Observers, Usage
from selector import profiles
from service.deployment.engines import capabilities
from service.deployment.file import Deployment, load
from service.promises.agenda import ActiveGoal, cut
from service.promises.planner import Planner
from service.promises.watch import Watch
from service.serving.metrics import Metrics
from tests.service.promises.world import DECLARED, MONDAY, TTFT, UTIL, World, always

Document = dict[str, Any]
BARS = {"agenda_s": 2.0, "decision_ms": 5.0, "token_us": 3.0, "request_us": 50.0, "bad_cpu_s": 600.0}
NUM_INTENTS, NUM_WINDOWS, NUM_DEVICES = 5, 10, 16
REPEATS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 where a bar is missed."""
    found = argparse.ArgumentParser("python -m benchmarks.promises", description=__doc__)
    found.add_argument("--weeks", type=int, default=100)
    found.add_argument("--every-s", type=float, default=60, help="between two looks in virtual time")
    found.add_argument("--days", type=int, default=100, help="bad ones, and as many bad weeks with a queue")
    found.add_argument("--seeds", type=int, default=40, help="of each step of the load")
    found.add_argument("--json", type=Path, metavar="FILE")
    options = found.parse_args(arguments)
    document: Document = {"benchmark": "promises", **provenance()}
    document |= agenda() | decision() | observing() | weeks(options.weeks, options.every_s)
    document |= bad(options.seeds, options.days, options.days)
    document["broken"] += document.pop("bad_broken")
    document |= {"bars": BARS, "stolen_after_s": stolen_now_s()}
    for name, bar in BARS.items():
        print(f"{name:20}{document[name]:10.4f}   bar {bar:g}")
    print(f"{options.weeks} weeks: {document['switches']}; broken bounds: {document['broken']}")
    for one in document["steps"]:
        told = [one[name] for name in ("predictions_off", "rate_rps", "prepare_s", "over", "over_oracle")]
        print(*told, one["over_oracle_at_the_step"], f"{one['ratio']:.2f}", one["switches"], one["verdicts"])
    print(*document["overload"], document["days"], document["weeks_with_a_queue"], sep="\n")
    print(f"{document['bad_cpu_s']:.0f} s of CPU for the bad days")
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(document[name] > bar for name, bar in BARS.items()) or bool(document["broken"]))


# -- the agenda ----------------------------------------------------------------------------------------


def agenda() -> Document:
    """24 hours of five intents with ten windows on 16 + 16 devices, planned with nothing remembered."""
    deployment = _deployment()
    model = deployment.models[0]
    known = {kind: profiles.load(kind) for kind in model.cluster.kinds}
    promised = [ActiveGoal(f"intent-{number}", goal, MONDAY) for number, goal in enumerate(_goals())]
    begins = datetime(2026, 1, 5, 0, 30, tzinfo=UTC)
    planner = Planner(deployment, model, known)
    before_s, cpu_s = time.perf_counter(), time.process_time()
    segments = cut(promised, deployment.windows, begins, begins + timedelta(days=1))
    outlooks = planner.agenda(segments, model.start, capabilities(model))
    return {
        "agenda_s": time.perf_counter() - before_s,
        "agenda_cpu_s": time.process_time() - cpu_s,
        "segments": len(segments),
        "held": sum(one.plan is not None for one in outlooks),
        "agenda_switches": sum(one.changes for one in outlooks),
    }


def _deployment() -> Deployment:
    example = ROOT / "examples" / "a100-l40s.yaml"
    data = yaml.safe_load(example.read_text(encoding="utf-8"))
    for node in data["cluster"]["nodes"]:
        node["gpus"][0]["count"] = NUM_DEVICES
    data["limits"] |= {"max_gpus": 2 * NUM_DEVICES, "allowed_tp": [1, 2, 4, 8]}
    data["models"][0]["config"] = str(example.parent / "llama-3-70b" / "config.json")
    data["windows"] = {
        f"w{number}": {"start": f"{2 * number:02}:00", "end": f"{2 * number + 3:02}:00"}
        for number in range(NUM_WINDOWS)
    }
    data["workload"] |= {
        name: {
            "rate_rps": 1 + number / 2,
            "input_tokens": 800,
            "output_tokens": 250,
            "concurrency": 16 + 4 * number,
        }
        for number, name in enumerate(data["windows"])
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deployment.yaml"
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        return load(file)


def _goals() -> list[Goal]:
    """Two goals of each intent's windows, and one that always holds."""
    goals: list[Goal] = [Objective("tpot", "<=", "said", "p99", 0.2, "s")]
    for number in range(NUM_WINDOWS):
        window = f"w{number}"
        goals.append(Objective("ttft", "<=", "said", "p99", 4.0 - number / 10, "s", window))
        if number % 2:
            goals.append(Objective("cost", "minimize", "said", window=window))
    return goals


# -- a decision, and observing ---------------------------------------------------------------------------


def decision() -> Document:
    """CPU time of one look of a day with its load, surprises included, planning remembered."""
    world = random_week(0)
    world.run(3600)
    took_s = list[float]()
    for _ in range(2000):
        world.now_s += 5
        seen = world.seen(5)
        before_s = time.process_time()
        world.controller.look(seen)
        took_s.append(time.process_time() - before_s)
    return {"decision_ms": 1000 * sum(took_s) / len(took_s), "decision_max_ms": 1000 * max(took_s)}


def observing() -> Document:
    """What the watch adds to the metrics, by token and by request."""
    metrics = Metrics("m")
    bare, watched = _cost_us(metrics), _cost_us(Watch(metrics))
    return {
        "token_us": watched[0] - bare[0],
        "request_us": watched[1] - bare[1],
        "metrics_alone_us": {"token": bare[0], "request": bare[1]},
    }


def _cost_us(observers: Observers) -> tuple[float, float]:
    observer, usage = observers.of("tenant"), Usage(10, 10)
    best = [math.inf, math.inf]
    for _ in range(5):
        before_s = time.process_time()
        for _ in range(REPEATS):
            observer.next_token(0.01)
        token_s = (time.process_time() - before_s) / REPEATS
        before_s = time.process_time()
        for _ in range(REPEATS):
            observer.arrived(10)
            observer.first_token(0.1)
            observer.finished(Finish.STOP, usage, e2e_s=1.0, tpot_s=0.01)
        request_s = (time.process_time() - before_s) / REPEATS
        best = [min(best[0], token_s), min(best[1], request_s)]
    return best[0] * 1e6, best[1] * 1e6


# -- weeks in virtual time -------------------------------------------------------------------------------


def weeks(count: int, every_s: float) -> Document:
    """How often weeks with bursts and holes were switched, and why; the first one is looked at every 5 s."""
    switches, verdicts, broken = Counter[str](), Counter[str](), list[str]()
    for seed in range(count):
        world = random_week(seed)
        world.run(7 * 86_400.0, every_s=5 if seed == 0 else every_s)
        switches.update(cause for _, cause, _ in world.switches)
        verdicts.update(world.verdicts)
        broken += [f"week {seed}: {why}" for why in _broken(world)]
    return {"weeks": count, "switches": dict(switches), "verdicts": dict(verdicts), "broken": broken}


def random_week(seed: int) -> World:
    """A week of a load that follows its windows, with bursts, holes and noise."""
    rng = random.Random(seed)
    bursts = [(rng.uniform(0, 168), rng.uniform(0.1, 2), rng.choice([0, 0.3, 2, 3])) for _ in range(12)]
    phase = rng.uniform(0, math.tau)

    def rate(now: datetime) -> float:
        hour = (now - MONDAY) / timedelta(hours=1)
        factor = math.prod(times for begins, lasts, times in bursts if begins <= hour < begins + lasts)
        is_peak = now.weekday() < 5 and 9 <= now.hour < 21
        declared = DECLARED["peak" if is_peak else "off_peak"]
        return declared * factor * (1 + 0.2 * math.sin(hour * 5 + phase)) * rng.uniform(0.9, 1.1)

    return World(rate, [always(TTFT), always(UTIL)])


def _broken(world: World) -> list[str]:
    """Bounds that a week broke: two switches for a window, one beside it in a dwell time."""
    found = list[str]()
    unplanned = [at for at, cause, _ in world.switches if cause in {"rescue", "return", "saving"}]
    found += [
        f"{b} is too soon after {a}" for a, b in pairwise(unplanned) if (b - a).total_seconds() < world.rules.dwell_s
    ]
    planned = sum(cause in {"window", "roll_back"} for _, cause, _ in world.switches)
    if planned > 2 * 11 + len(unplanned):
        found.append(f"{planned} switches for 11 windows")
    return found


if __name__ == "__main__":
    sys.exit(main())
