"""Whether decisions can be trusted: ``python -m benchmarks.decisions [--deployments N] [--seed S] [--only N] [--json OUT]``.

Random deployments, each with something asked of it. Counts plans that another beats, refusals that are not so, reasons and offers
that are false, what differs from the agenda, and how far "nearest" is from it; and takes the CPU time of answers by inventory.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.answered import TICKET, Fault
from benchmarks.deployments import Case, case, cases
from benchmarks.provenance import provenance
from benchmarks.questions import PROFILES
from benchmarks.verdicts import BEGINS, KINDS, Verdict
from selector.models import Plan, SearchInput
from selector.search import select
from service.promises.agenda import ActiveGoal, Segment
from service.promises.planner import Planner

Document = dict[str, Any]
DEPLOYMENTS = 300
SEED = 1
EXAMPLES = 5
"""Of each kind, that are kept."""
TIMED = ((4, 4), (16, 16), (64, 64))
ASKED = 20
"""Questions whose time is taken on each inventory."""
HOURS = 24
DAYTIME = 0.6
"""Of a load, at the hours between a quiet night and a busy noon."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, judge and print; the exit status is 1 where something is wrong."""
    options = _parser().parse_args(arguments)
    if options.only is not None:
        return _told(case(options.only, options.seed))
    judged_ones = judged(cases(options.deployments, options.seed))
    timed = [times(sizes, options.asked, options.seed) for sizes in options.timed]
    document = {
        "benchmark": "decisions",
        **provenance(),
        "parameters": {"deployments": options.deployments, "seed": options.seed},
        **judged_ones,
        "times": timed,
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(*table(document), sep="\n")
    return int(any(document["faults"].values()))


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("python -m benchmarks.decisions", description=__doc__)
    found.add_argument("--deployments", type=int, default=DEPLOYMENTS, help="how many")
    found.add_argument("--seed", type=int, default=SEED)
    found.add_argument("--only", type=int, metavar="N", help="show what is wrong with one of them")
    found.add_argument("--asked", type=int, default=ASKED, help="questions timed on each inventory")
    found.add_argument("--no-times", dest="timed", action="store_const", const=(), default=TIMED)
    found.add_argument("--json", type=Path, metavar="OUT", help="where to write everything")
    return found


def judged(asked: Iterable[Case]) -> Document:
    """How many of some deployments have which fault, with the first of each kind."""
    counts = Counter[str]()
    told: dict[str, list[Document]] = {kind: [] for kind in KINDS}
    answers = Counter[str]()
    for one in asked:
        answer, faults = faults_of(one)
        answers[answer] += 1
        answers["tried everything"] += one.is_small
        counts.update({fault.kind for fault in faults})
        for fault in faults:
            if len(told[fault.kind]) < EXAMPLES:
                told[fault.kind].append({"number": one.number, "seed": one.seed, "asked": str(one), "is": fault.text})
    return {"answers": dict(answers), "faults": {kind: counts[kind] for kind in KINDS}, "examples": told}


def faults_of(one: Case) -> tuple[str, list[Fault]]:
    """What sort of answer a deployment got, and what is wrong with it."""
    try:
        verdict = Verdict(one)
        return ("plan" if isinstance(verdict.answer, Plan) else "refusal"), list(verdict.faults())
    except Exception as error:  # noqa: BLE001 - an answer that breaks is the worst there is: counted, and the others are asked on
        return "error", [Fault("error", f"{type(error).__name__}: {error}")]


def _told(one: Case) -> int:
    print(one)
    verdict = Verdict(one)
    answer = verdict.answer
    if isinstance(answer, Plan):
        print(f"plan: {answer.target} ({answer.batching})", *answer.reasons, sep="\n  ")
    else:
        near = answer.nearest
        print(f"refused; nearest: {near and near.topology} ({near and near.batching})")
        print(*answer.reasons, *answer.feasible_targets, sep="\n  ")
    faults = list(verdict.faults())
    print(*(f"{fault.kind}: {fault.text}" for fault in faults), sep="\n")
    return int(bool(faults))


# --- times -----------------------------------------------------------------------------------------------------------


def times(sizes: tuple[int, int], count: int, seed: int) -> Document:
    """CPU milliseconds of shortlists, whole answers and agendas of a day on one inventory; p50 and p95."""
    asked = [case(10_000 + number, seed, sizes) for number in range(count)]
    select(asked[0].goals, asked[0].problem, PROFILES, TICKET)  # the first compiles, or reads what was compiled
    taken: dict[str, list[float]] = {"shortlist": [], "answer": [], "agenda": []}
    for one in asked:
        taken["answer"].append(_cpu_ms(lambda one=one: select(one.goals, _fresh(one), PROFILES, TICKET)))
        verdict = Verdict(one)
        demands = verdict.demands
        aim = demands.balance.better if demands.balance else next(iter(demands.optimised), None)
        finder = verdict.finder
        taken["shortlist"].append(_cpu_ms(lambda: replace(finder).shortlist((*demands.bounds, *demands.wishes), aim)))  # noqa: B023 - called at once
        if max(sizes) <= 16:
            taken["agenda"].append(_cpu_ms(lambda one=one: agenda(one)))
    rows = {name: _row(values) for name, values in taken.items() if values}
    return {"a100": sizes[0], "l40s": sizes[1], "asked": count, **rows}


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The least value that so great a share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _fresh(one: Case) -> SearchInput:
    """The problem at a rate that was not asked before, so that nothing is known of it."""
    load = one.problem.workload
    return replace(one.problem, workload=replace(load, rate_rps=load.rate_rps * 1.001))


def _row(values: Sequence[float]) -> Document:
    return {
        f"{name}_ms": round(nearest_rank(values, share), 1)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
    }


def _cpu_ms(work: Any) -> float:
    begun_s = time.process_time()
    work()
    return (time.process_time() - begun_s) * 1e3


def agenda(one: Case) -> None:
    """A day in hours, each with its own load."""
    names = [f"h{number}" for number in range(HOURS)]
    shares = [1 - abs(number - 13) / 13 * DAYTIME for number in range(HOURS)]
    load = one.problem.workload
    loads = {name: replace(load, rate_rps=load.rate_rps * share) for name, share in zip(names, shares, strict=True)}
    model = replace(one.model, workload={**one.model.workload, **loads})
    promised = tuple(ActiveGoal("one", goal, BEGINS) for goal in one.goals)
    segments = [
        Segment(BEGINS + timedelta(hours=number), BEGINS + timedelta(hours=number + 1), (name,), promised)
        for number, name in enumerate(names)
    ]
    Planner(one.deployment, model, PROFILES).agenda(segments, one.problem.now, one.problem.capabilities)


def table(document: Document) -> Iterator[str]:
    """The document for people."""
    yield ", ".join(f"{count} {name}" for name, count in document["answers"].items())
    for kind, count in document["faults"].items():
        yield f"{kind:18}{count:5}"
    for kind, examples in document["examples"].items():
        for example in examples:
            yield f"{kind} --only {example['number']} --seed {example['seed']}: {example['asked']}\n    {example['is']}"
    for row in document["times"]:
        parts = (
            f"{name} {row[name]['p50_ms']:.0f} / {row[name]['p95_ms']:.0f}"
            for name in ("shortlist", "answer", "agenda")
            if name in row
        )
        yield f"{row['a100']}+{row['l40s']}: CPU ms p50 / p95: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
