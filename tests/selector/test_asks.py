"""What a capacity engineer asked of four clusters, and what such an engineer would sign: ``tests/data/operator/asks.yaml``.

Of each ask: what comes of it, what the plan or the nearest costs at most and is, what the answer has to say, and what would be
false of it.
"""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from intent.models import Outcome
from selector import explain, profiles
from selector.models import ALIKE, Plan
from service.deployment import engines
from service.deployment.file import Deployment, load
from service.documents.errors import RefusedError
from service.documents.plans import When
from service.planning import lifecycle
from service.promises.agenda import ActiveGoal, cut
from service.promises.planner import Planner
from tests.rows import rows

pytestmark = pytest.mark.slow

FILES = Path(__file__).parents[1] / "data" / "operator"
ASKS = yaml.safe_load((FILES / "asks.yaml").read_text(encoding="utf-8"))
PROFILES = {kind: profiles.load(kind) for kind in ("A100", "L40S")}
MONDAY = "2026-01-05T11:00"
ENDLESS = "without end would hold"
"""Never of use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an ask."""

    outcome: str
    """``plan``, ``stays`` (nothing changes), ``refused``, or what became of the words."""
    usd: float
    """Of the plan, or of the nearest."""
    runs: str
    """The same in words."""
    text: str
    plan: Plan | None = None


def deployment_of(name: str, *, alike: bool = False) -> Deployment:
    """A file, with lengths that are all alike where that is said, as ``{mean: 800, p95: 800}`` does."""
    found = load(FILES / f"{name}.yaml")
    if not alike:
        return found
    models = tuple(
        replace(
            model,
            workload={name: replace(asked, inputs=ALIKE, outputs=ALIKE) for name, asked in model.workload.items()},
        )
        for model in found.models
    )
    return replace(found, models=models)


def ask(deployment: Deployment, window: str, text: str, model: str | None = None) -> Answer:
    now = lifecycle.clock(MONDAY, deployment)
    intent = lifecycle.translate(text, deployment, None, now)
    if intent.outcome is not Outcome.OK:
        words = (*(finding.message for finding in intent.findings), *(question.text for question in intent.questions))
        return Answer(intent.outcome.value, 0.0, "", " ".join(words))
    served = deployment.model(model)
    situation = lifecycle.Situation(served.start, 0, engines.capabilities(served))
    try:
        plan = lifecycle.plan(intent, deployment, served, situation, PROFILES, When(now=MONDAY, window=window))
    except RefusedError as error:
        return refused(error)
    stays = (plan.target, plan.batching) == (plan.now, plan.now_batching)
    answer = "; ".join((*plan.reasons, *plan.offers, *(each.reason for each in plan.left_out)))
    words_of_it = explain.topology_words(plan.target)
    return Answer("stays" if stays else "plan", plan.prediction.usd_per_hour, words_of_it, answer, plan)


def refused(error: RefusedError) -> Answer:
    infeasible = error.problem.infeasible
    near = infeasible.nearest if infeasible else None
    if near is None:
        return Answer("refused", 0.0, "", str(error))
    return Answer("refused", near.prediction.usd_per_hour, near.topology.text, f"{error}; {near.reason}")


def named(row: dict[str, Any]) -> str:
    return f"{row['of']} {row['window']}: {row['ask']}"


@rows("row", ASKS[::7], ids=named)
def test_an_expert_would_sign_some_of_them(row: dict[str, Any]) -> None:
    check(row)


@pytest.mark.exhaustive
@rows("row", ASKS, ids=named)
def test_an_expert_would_sign_it(row: dict[str, Any]) -> None:
    check(row)


def check(row: dict[str, Any]) -> None:
    deployment = deployment_of(row["of"], alike=row.get("lengths") == "alike")
    answer = ask(deployment, row["window"], row["ask"], row.get("model"))
    assert re.fullmatch(row["answer"], answer.outcome), f"{answer.outcome}: {answer.text}"
    assert answer.usd <= row.get("usd", 0.0) + 1e-6, f"{answer.runs} at {answer.usd:.3g}: {answer.text}"
    assert re.search(row.get("runs", ""), answer.runs), f"{answer.runs}: {answer.text}"
    assert [part for part in row.get("says", ()) if not re.search(part, answer.text)] == [], answer.text
    assert [part for part in (ENDLESS, *row.get("never", ())) if re.search(part, answer.text)] == [], answer.text


def test_a_setting_lets_what_runs_be_busier() -> None:
    """As the review asked it: lengths all alike, and nine tenths of the A100s used."""
    found = deployment_of("a", alike=True)
    answer = ask(replace(found, limits=replace(found.limits, max_utilisation=0.95)), "day", "P99 TTFT < 2s")
    assert answer.outcome == "stays", answer.text
    assert answer.runs == "A100 TP4@bf16"


@rows(
    ("file", "window", "text"),
    [
        ("a", "night", "cut the cost by 30%; fp8 is allowed"),
        ("c-start", "day", "fp8 is allowed; quality loss < 1%"),
    ],
)
def test_each_plan_that_changes_something_says_what_the_switch_takes(file: str, window: str, text: str) -> None:
    answer = ask(deployment_of(file), window, text)
    assert answer.plan
    assert answer.plan.switch, answer.text
    assert answer.plan.switch.prepare_s + answer.plan.switch.stop_s > 20, "70B are read from a disk, not from nowhere"


@rows("text", ["P99 TTFT < 3s; as cheap as possible", "fp8 is allowed; P99 TTFT < 4s; as cheap as possible"])
def test_a_load_that_comes_and_goes_every_ten_minutes_is_not_followed(text: str) -> None:
    deployment = deployment_of("a-flap")
    served = deployment.model()
    now = lifecycle.clock("2026-01-05T08:00", deployment)
    intent = lifecycle.translate(text, deployment, None, now)
    promised = [ActiveGoal("one", goal, now) for goal in intent.goals]
    segments = cut(promised, deployment.windows, now, now + timedelta(hours=2))
    agenda = Planner(deployment, served, PROFILES).agenda(segments, served.start, engines.capabilities(served))
    assert all(part.plan for part in agenda)
    assert sum(part.changes for part in agenda) <= 2
