"""The pages, and the parts of them that change by themselves: what a browser may GET."""

import asyncio
import math
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from intentctl import explain as explained
from intentctl.console import answers, facts, slash
from intentctl.console.visit import Visit, visit
from service import api
from service import documents as docs
from service.documents.access import RIGHTS, Right

Kind = Literal["intents", "approvals", "switches", "verdicts"]
KINDS: tuple[Kind, ...] = ("intents", "approvals", "switches", "verdicts")
DAY_H = 24.0


async def overview(request: Request) -> Response:
    """What runs, whether the promises are kept, what comes: the first page."""
    return await show_overview(await visit(request))


async def show_overview(here: Visit, _: str = "", status: int = 200) -> Response:
    """The first page."""
    seen = await facts.overview(here.session.upstream, here.reader.timezone)
    return await here.page("overview.html", status, seen=seen)


async def strip_part(request: Request) -> Response:
    """The strip at the top of every page."""
    return await (await visit(request)).whole("parts/strip.html")


async def talk(request: Request) -> Response:
    """What was said lately, and what came of it."""
    return await show_talk(await visit(request))


async def show_talk(here: Visit, text: str = "", status: int = 200) -> Response:
    """The list of conversations; ``text`` is what was said and could not be taken."""
    threads, older = await facts.talk(here.session.upstream, here.given("after") or None)
    return await here.page("talk.html", status, said=threads, older=older, text=text)


async def intent(request: Request) -> Response:
    """One conversation."""
    return await show_intent(await visit(request), request.path_params["id"])


async def show_intent(here: Visit, intent_id: str, status: int = 200) -> Response:
    """The conversation of an intent, with its plans."""
    upstream = here.session.upstream
    thread = await facts.thread(upstream, intent_id)
    plans = await asyncio.gather(*(facts.plan_view(upstream, plan.id) for plan in thread.plans))
    return await here.page("intent.html", status, thread=thread, plans=plans, suggestions=answers.SUGGESTIONS)


async def plan(request: Request) -> Response:
    """A plan, and answers to what is asked about it."""
    return await show_plan(await visit(request), request.path_params["id"])


async def show_plan(here: Visit, plan_id: str, status: int = 200) -> Response:
    """The card of a plan."""
    upstream = here.session.upstream
    card = await facts.plan_view(upstream, plan_id)
    question = here.given("ask")[:500]
    found = await answers.answer(upstream, card.plan, question, here.given("with")) if question else None
    return await here.page(
        "plan.html",
        status,
        card=card,
        question=question,
        answer=found,
        suggestions=answers.SUGGESTIONS,
        kept=here.given("kept") in docs.NOT_NOW,
    )


async def band_part(request: Request) -> Response:
    """The day ahead with an intent beside what is promised."""
    here = await visit(request)
    upstream = here.session.upstream
    promised = await upstream.recent(("promises",), facts.LONG_S, lambda client: client(api.promises.promises))
    intent_id = request.path_params["id"]
    is_active = any(promise.intent_id == intent_id and promise.state == "active" for promise in promised.promises)
    if not is_active and not here.session.may(Right.SAY):
        return here.part("parts/band.html", agenda=None, why="")
    found = await facts.band(upstream, intent_id, is_active=is_active)
    if isinstance(found, str):
        return here.part("parts/band.html", agenda=None, why=found)
    return here.part("parts/band.html", agenda=found, why="")


async def operation(request: Request) -> Response:
    """A switch."""
    return await show_operation(await visit(request), request.path_params["id"])


async def show_operation(here: Visit, operation_id: str, status: int = 200) -> Response:
    """The card of a switch."""
    seen = await facts.operation_view(here.session.upstream, operation_id, here.reader.timezone)
    return await here.page("operation.html", status, seen=seen)


async def agenda(request: Request) -> Response:
    """The next 24 hours."""
    here = await visit(request)
    hours = _hours(here, DAY_H, 24 * 8)
    return await here.page("agenda.html", agenda=await facts.ahead(here.session.upstream, hours), hours=hours)


def _hours(here: Visit, usual: float, most: float) -> float:
    try:
        hours = float(here.given("hours"))
    except ValueError:
        return usual
    return min(max(hours, 0.1), most) if math.isfinite(hours) else usual


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Something that was done, in the history."""

    at_s: float
    kind: Kind
    link: str
    what: docs.VersionDocument | docs.ApprovalDocument | docs.OperationDocument | docs.OutcomeDocument


async def history(request: Request) -> Response:
    """What was said, approved and switched, the newest first."""
    here = await visit(request)
    chosen = [kind for kind in KINDS if kind == here.given("kind")] or list(KINDS)
    entries, older = await _entries(here, chosen)
    link = f"/history?{urlencode({'kind': chosen[0], 'after': older})}" if older and len(chosen) == 1 else ""
    return await here.page("history.html", entries=entries, kind=here.given("kind"), kinds=KINDS, older=link)


async def _entries(here: Visit, kinds: list[Kind]) -> tuple[list[HistoryEntry], str | None]:
    """Of some kinds, the newest first; with one kind alone, where the older ones begin."""
    upstream = here.session.upstream
    after = (here.given("after") or None) if len(kinds) == 1 else None
    found = list[HistoryEntry]()
    older = None
    if "intents" in kinds:
        intents = await upstream.ask(
            lambda client: client(api.intents.intents, docs.PageRequest(limit=50, after=after))
        )
        found += [
            HistoryEntry(intent.created_s, "intents", f"/intents/{intent.id}", intent) for intent in intents.intents
        ]
        older = intents.next
    if "approvals" in kinds:
        approvals = await upstream.ask(
            lambda client: client(api.plans.approvals, docs.PageRequest(limit=50, after=after))
        )
        found += [
            HistoryEntry(approval.at_s, "approvals", f"/plans/{approval.plan_id}", approval)
            for approval in approvals.approvals
        ]
        older = approvals.next
    if "switches" in kinds:
        request = docs.OperationsRequest(limit=50, after=after)
        switches = await upstream.ask(lambda client: client(api.operations.operations, request))
        found += [
            HistoryEntry(operation.phases[0].at, "switches", f"/operations/{operation.id}", operation)
            for operation in switches.operations
        ]
        older = switches.next
    if "verdicts" in kinds:
        report = await upstream.recent(
            ("report", 744.0), 60, lambda client: client(api.promises.report, docs.ReportQuery(hours=744))
        )
        judged = [switch for switch in report.switches if switch.verdict is not None]
        found += [
            HistoryEntry(outcome.at_s, "verdicts", f"/operations/{outcome.operation}", outcome)
            for outcome in judged[-50:]
        ]
    return sorted(found, key=lambda entry: -entry.at_s), older if len(kinds) == 1 else None


async def report(request: Request) -> Response:
    """How often each goal was met."""
    here = await visit(request)
    hours = _hours(here, DAY_H, 24 * 366)
    found = await here.session.upstream.recent(
        ("report", hours), 10, lambda client: client(api.promises.report, docs.ReportQuery(hours=hours))
    )
    return await here.page("report.html", report=found, hours=hours)


async def audit(request: Request) -> Response:
    """Who did what."""
    here = await visit(request)
    if not here.session.may(Right.AUDIT):
        return await here.page("audit.html", found=None, verdict=None, act="")
    before = here.given("before")
    act = here.given("act")[:64]
    page = docs.AuditPage(
        before=int(before) if before.isdecimal() and 0 < int(before) < 2**53 else None, act=act or None
    )
    found = await here.session.upstream.ask(lambda client: client(api.audit.audit, page))
    verdict = (
        await here.session.upstream.ask(lambda client: client(api.audit.verify_audit)) if here.given("verify") else None
    )
    return await here.page("audit.html", found=found, verdict=verdict, act=act)


async def settings(request: Request) -> Response:
    """The controller, the rights, and how things look."""
    return await show_settings(await visit(request))


async def show_settings(here: Visit, _: str = "", status: int = 200) -> Response:
    """The settings."""
    roles = {role.value: rights for role, rights in RIGHTS.items()}
    return await here.page("settings.html", status, roles=roles, all_rights=list(Right))


async def explain(request: Request) -> Response:
    """What can be said and typed, with examples."""
    here = await visit(request)
    topic = here.given("topic")
    unknown = ""
    try:
        found = explained.explain(topic or None, None)
    except explained.UnknownNameError as error:
        found = explained.explain(None, None)
        unknown = str(error)
    return await here.page("explain.html", found=found, unknown=unknown, commands=slash.COMMANDS)


async def plans(request: Request) -> Response:
    """Plans that were made, the newest first."""
    here = await visit(request)
    query = docs.PlansRequest(limit=50, after=here.given("after") or None)
    found = await here.session.upstream.ask(lambda client: client(api.plans.plans, query))
    return await here.page("plans.html", found=found)
