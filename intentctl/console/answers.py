"""Questions about a plan, answered from what is known of it, each answer with its source.

What is not known is said.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from intentctl.client import Client
from intentctl.console.upstream import Upstream
from intentctl.render import prediction, seconds
from selector.models import Frontier, Plan
from service import api
from service import documents as docs
from service.documents.errors import ServiceError
from service.documents.plans import FollowUp, FrontiersDocument, PlanRequest
from service.documents.problems import Code

TIMES = {
    "double": 2.0,
    "twice": 2.0,
    "triple": 3.0,
    "halve": 0.5,
    "half": 0.5,
    "翻倍": 2.0,
    "加倍": 2.0,
    "两倍": 2.0,
    "三倍": 3.0,
    "减半": 0.5,
}


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known."""

    lines: tuple[str, ...]
    source: str
    """Where it comes from."""
    link: str = ""
    """A page with more of it."""
    is_to_be_planned: bool = False
    """It takes a plan of its own, which nothing but a button makes."""


SUGGESTIONS = (
    "why this one?",
    "why not the runner-up?",
    "what if load doubles?",
    "what if I do nothing?",
    "what does the switch take?",
    "how sure is that?",
)


async def answer(upstream: Upstream, plan: Plan, question: str, made_id: str = "") -> Fact:
    """What is known about a plan.

    ``made_id`` is the plan that was made to answer the question, if one was.

    Raises:
        ServiceError: the service does not answer.
    """
    lower = question.lower()
    if (factor := load_factor(lower)) is not None:
        frontiers = await upstream.recent(
            ("frontiers", plan.id), 3600, lambda client: client(api.plans.frontiers, plan.id)
        )
        return under_load(frontiers, factor)
    if known := _fact(lower):
        return known(plan)
    if wished := alternative(question):
        if not made_id:
            words = f"To compare, the same goals are planned once more with {wished}; the plan is kept in your name."
            return Fact((words,), "nothing was planned yet", is_to_be_planned=True)
        return _compared(plan, await upstream.ask(lambda client: client(api.plans.plan, made_id)), wished)
    return Fact(
        (
            "That is not known from this plan. What can be answered: "
            + " ".join(SUGGESTIONS)
            + " Or: why not tp2? why not the L40S?",
        ),
        "the plan has no fact about it",
    )


def _fact(text: str) -> Callable[[Plan], Fact] | None:
    """What answers a question from the plan itself."""
    return next((known for pattern, known in _FACTS if re.search(pattern, text)), None)


def load_factor(text: str) -> float | None:
    """By how much the load is to grow in a question; None: it is not about that."""
    if not re.search(r"load|traffic|rate|requests|负载|流量|请求", text):
        return None
    if found := re.search(r"(?:x|×|\*)\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:x|×|times|倍)", text):
        return float(found[1] or found[2])
    if found := re.search(r"(\d+(?:\.\d+)?)\s*%", text):
        sign = -1 if re.search(r"less|drop|fall|down|减少|下降", text) else 1
        return max(0.0, 1 + sign * float(found[1]) / 100)
    return next((factor for word, factor in TIMES.items() if word in text), None)


def alternative(text: str) -> str | None:
    """What was asked for instead in "why not X?"; None: nothing was."""
    found = re.search(
        r"(?:why not|instead of|为什么不用|为什么不|为何不)\s*(?:use |run |on |with |the |an? )*([\w .,:@>\[\]-]+)",
        text,
        re.IGNORECASE,
    )
    return found[1].strip(" .?？") or None if found else None


def under_load(frontiers: FrontiersDocument, factor: float) -> Fact:
    """What each of the compared topologies does at so many times the rate."""
    rate = frontiers.rate_rps * factor
    lines = [f"At {factor:g} times the planned load, {rate:.3g} requests/s:"]
    lines += [f"{curve.label} {curve.topology}: {_at(curve, rate)}" for curve in frontiers.curves]
    return Fact(tuple(lines), "predicted P99 latencies against the rate (GET /v1/plans/…/frontiers)")


def _at(curve: Frontier, rate: float) -> str:
    if rate >= curve.saturation_rps:
        return f"overloaded, it sustains {curve.saturation_rps:.3g} requests/s"
    place = next((place for place, rate_rps in enumerate(curve.rates_rps) if rate_rps >= rate), None)
    if place is None:
        return f"not drawn that far; it sustains {curve.saturation_rps:.3g} requests/s"
    ttft_s = curve.ttft_s[place]
    tpot_s = curve.tpot_s[place]
    return f"P99 TTFT {seconds(ttft_s)}, P99 TPOT {seconds(tpot_s)} (at {curve.rates_rps[place]:.3g} requests/s)"


async def planned_instead(upstream: Upstream, plan: Plan, question: str) -> str:
    """The id of a plan for the same goals with what a question names; empty: it is answered without one.

    Raises:
        ServiceError: there is none; or the service does not answer.
    """
    words = question.lower()
    wished = alternative(question)
    if wished is None or load_factor(words) is not None or _fact(words):
        return ""
    try:
        return (await upstream.ask(lambda client: _planned_with(client, plan, wished))).id
    except ServiceError as error:
        if error.code in {Code.UNREACHABLE, Code.TIMED_OUT, Code.UNAUTHENTICATED}:
            raise
        infeasible = error.problem.infeasible
        reasons = "; ".join(infeasible.reasons) if infeasible else ""
        why = f"the goals cannot be held: {reasons}" if infeasible else f"nothing could be planned: {error}"
        raise ServiceError(error.code, f"With {wished} {why} (tried with {in_words(wished)!r})") from None


def _compared(plan: Plan, made: Plan, wished: str) -> Fact:
    """What another plan would do beside this one."""
    other = made.prediction
    missed = [margin.goal for margin in made.margins if margin.margin < 0]
    verdict = f"It would miss {', '.join(missed)}." if missed else "It would hold the goals, too."
    lines = (
        f"{made.target.shape} {made.target.text}: {prediction(other)}",
        f"Planned is {plan.target.shape}: {prediction(plan.prediction)}",
        f"{verdict} {_dearer(plan, made)}".strip(),
    )
    return Fact(lines, f"planned again with {in_words(wished)!r}", f"/plans/{made.id}")


def _dearer(plan: Plan, other: Plan) -> str:
    """What it costs beside what is planned."""
    mine = plan.prediction
    theirs = other.prediction
    if mine.usd_per_hour or theirs.usd_per_hour:
        return f"It costs {theirs.usd_per_hour:.2f} USD/h, the plan {mine.usd_per_hour:.2f}."
    return f"It takes {theirs.devices} devices, the plan {mine.devices}."


def _planned_with(service: Client, plan: Plan, wished: str) -> Plan:
    """A plan for the same goals with what was named.

    Raises:
        ServiceError: there is none.
    """
    intent = service(api.intents.intent, plan.intent_id, plan.intent_version).intent
    changed = service(
        api.intents.amend, docs.AmendRequest(intent=intent, **dict(FollowUp(text=in_words(wished), mode="merge")))
    )
    answer = service(api.plans.make_plan, PlanRequest(intent=changed.intent, model=plan.model, window=plan.window))
    if not answer.plans:
        question = next((question.text for question in answer.intent.questions), wished)
        raise ServiceError(Code.CLARIFY, question)
    return answer.plans[0]


def in_words(wished: str) -> str:
    """As a follow-up: a shape is to be run, anything else to be run on."""
    if found := re.fullmatch(r"(\d+)x(\d+)", wished):
        return f"run it with tp={found[1]} and pp={found[2]}"
    found = re.fullmatch(r"(?:tp[ =]?(\d+))?[ +>,]*(?:pp[ =]?(\d+))?", wished, re.IGNORECASE)
    if found and found[0]:
        return f"run it with tp={found[1] or 1} and pp={found[2] or 1}"
    return f"only on {wished}"


def _why(plan: Plan) -> Fact:
    return Fact((*plan.reasons, *plan.certificate), "the plan's reasons and certificate")


def _runner_up(plan: Plan) -> Fact:
    if plan.runner_up is None:
        return Fact(("Nothing of another shape was simulated.",), "the plan has no runner-up")
    other = plan.runner_up
    return Fact(
        (f"{other.topology.shape} {other.topology.text}: {prediction(other.prediction)}", other.reason),
        "the plan's runner-up",
    )


def _nothing(plan: Plan) -> Fact:
    if plan.now is None or plan.now_prediction is None:
        return Fact(("What runs now was not predicted for this plan.",), "the plan")
    return Fact(
        (f"{plan.now.shape} {plan.now.text} goes on: {prediction(plan.now_prediction)}", *plan.reasons),
        "the plan's prediction of what runs",
    )


def _switch(plan: Plan) -> Fact:
    from intentctl.render import switch, to_move

    if plan.switch is None:
        return Fact(
            ("No switch is predicted: nothing would change, or what runs does not hold its load.",),
            "the plan",
        )
    moved = to_move(plan.bytes_to_move)
    lines = [switch(plan.switch), *([f"To move: {moved}."] if moved else ())]
    return Fact(tuple(lines), "the plan's predicted switch")


def _sure(plan: Plan) -> Fact:
    found = plan.prediction
    return Fact(
        (f"Within {found.error_band:.0%}, from a profile that is {found.source}.",),
        "the plan's error band (docs/benchmarks.md has how near predictions come)",
    )


def _cost(plan: Plan) -> Fact:
    after = plan.prediction
    before = f", {plan.now_prediction.usd_per_hour:.2f} USD/h now" if plan.now_prediction else ""
    words = (
        f"{after.usd_per_hour:.2f} USD/h{before}"
        if after.usd_per_hour
        else "Devices have no price in the deployment file"
    )
    return Fact((f"{words}; {after.devices} devices.",), "the plan's prediction")


_FACTS: tuple[tuple[str, Callable[[Plan], Fact]], ...] = (
    (r"runner|second best|next best|alternative|第二|次优|备选", _runner_up),
    (r"do nothing|stay|leave it|keep what|不动|什么都不做|不切换", _nothing),
    (r"cost|price|usd|\$|cheap|expensive|多少钱|成本|费用", _cost),
    (r"switch|risk|pause|stand ?still|downtime|how long|interrupt|切换|风险|停顿|中断|多久", _switch),
    (r"sure|certain|confiden|accura|error band|trust|可信|把握|误差|准", _sure),
    (r"why (this|is|that|do|change)|reason|explain|^why\??$|为什么(选|是|要)?这|理由|原因", _why),
)


def is_question(text: str) -> bool:
    """Whether words ask about a plan, and wish nothing."""
    return bool(
        re.match(
            r"\s*(why|what if|how (sure|long|much|risky)|what (does|would|happens)|为什么|为何|如果|假如)",
            text.lower(),
        )
    )
