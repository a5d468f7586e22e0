"""What people do: forms of pages, with the token of their session, done by the service in their name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from intentctl.console import answers, pages, slash
from intentctl.console.upstream import Upstream
from intentctl.console.visit import Visit, cookie, form_of, refuse_foreign, see, visit
from selector.models import Plan
from service import api
from service import documents as docs
from service.documents.errors import ServiceError
from service.documents.operations import ApproveRequest, CancelRequest, RejectRequest
from service.documents.plans import PlanRequest, VersionDocument, VersionedFollowUp
from service.documents.problems import Code
from service.documents.promises import ControlRequest

PLAN = "/plan"
"""The end of a path at which the same form is sent once more: planning says on the conversation's page why it cannot."""


@dataclass(frozen=True, slots=True)
class FormData:
    """What somebody sent."""

    fields: Mapping[str, Sequence[str]]

    def one(self, name: str) -> str:
        """A field; empty where there is none."""
        return next(iter(self.fields.get(name, ())), "")

    def all(self, name: str) -> list[str]:
        """All fields of a name."""
        return [value for value in self.fields.get(name, ()) if value]


Act = Callable[[Upstream, str, FormData], Awaitable[str]]
"""Does something with what has this id, and says which page shows it."""
Show = Callable[[Visit, str, int], Awaitable[Response]]
"""The page to go back to where that is refused."""


def acting(act: Act, show: Show) -> Callable[[Request], Awaitable[Response]]:
    """A route that does something, and shows why not where the service refuses."""

    async def route(request: Request) -> Response:
        refuse_foreign(request)
        here = await visit(request)
        form = FormData(await form_of(request))
        if not here.session.has_token(form.one("token")):
            raise HTTPException(403)
        subject = request.path_params.get("id", "")
        upstream = here.session.upstream
        try:
            path = await act(upstream, subject, form)
        except (ServiceError, ValidationError) as error:
            refused = (
                error
                if isinstance(error, ServiceError)
                else ServiceError(Code.INVALID_REQUEST, error.errors()[0]["msg"])
            )
            if refused.code in {Code.UNAUTHENTICATED, Code.UNREACHABLE}:
                raise
            here.notice = refused.problem
            upstream.forget()
            return await _shown(show, here, subject or form.one("text"), refused)
        upstream.forget()
        return see(path, goes_on=path.endswith(PLAN))

    return route


async def _shown(show: Show, here: Visit, subject: str, why: ServiceError) -> Response:
    """The page to go back to; where there is none, what was refused alone.

    Raises:
        ServiceError: why it was refused.
    """
    try:
        return await show(here, subject, why.problem.status)
    except ServiceError:
        raise why from None


async def _say(upstream: Upstream, _: str, form: FormData) -> str:
    """Words: a command, a question about the plan that is shown, or a wish."""
    text = form.one("text").strip()
    if not text:
        return "/talk"
    if slash.is_slash(text):
        path = slash.destination(text)
        if path is None:
            raise ServiceError(Code.NOT_FOUND, f"there is no command {text.split()[0]}; /help shows all")
        return path
    if _is_question(form):
        return await _ask(upstream, form.one("plan"), form)
    return _next(await upstream.ask(lambda client: client(api.intents.create_intent, docs.TranslateRequest(text=text))))


def _is_question(form: FormData) -> bool:
    """Whether words ask about the plan that is shown beside them."""
    return bool(form.one("plan")) and answers.is_question(form.one("text"))


async def _ask(upstream: Upstream, plan_id: str, form: FormData) -> str:
    """A question about a plan; where it takes another plan, that is made."""
    question = form.one("text").strip()[:500]
    plan = await upstream.ask(lambda client: client(api.plans.plan, plan_id))
    made_id = await answers.planned_instead(upstream, plan, question)
    fields = {"ask": question} | ({"with": made_id} if made_id else {})
    return f"/plans/{quote(plan_id, safe='')}?{urlencode(fields)}#answer"


def _next(kept: VersionDocument) -> str:
    """What follows words that were kept: a plan, where nothing is to be answered first."""
    return f"/intents/{kept.id}{PLAN if kept.intent.outcome.value == 'ok' else ''}"


async def _amend(upstream: Upstream, intent_id: str, form: FormData) -> str:
    """A follow-up, or a question about the plan."""
    if _is_question(form):
        return await _ask(upstream, form.one("plan"), form)
    version = form.one("version")
    follow_up = VersionedFollowUp(text=form.one("text"), version=int(version) if version.isdecimal() else None)
    return _next(await upstream.ask(lambda client: client(api.intents.amend_intent, intent_id, follow_up)))


async def _plan(upstream: Upstream, intent_id: str, _: FormData) -> str:
    answer = await upstream.ask(lambda client: client(api.plans.make_plan, PlanRequest(intent_id=intent_id)))
    if answer.refused:
        message = "; ".join(each.message for each in answer.refused)
        raise ServiceError(Code.INFEASIBLE, message, refused=answer.refused)
    return f"/intents/{intent_id}#newest"


async def _apply(upstream: Upstream, plan_id: str, form: FormData) -> str:
    """Apply what was read; what was read of a promise is kept first, by those who may."""
    plan = await upstream.ask(lambda client: client(api.plans.plan, plan_id))
    if form.one("digest") != plan.digest:
        raise ServiceError(Code.STALE_PLAN, f"{plan_id} says something else than what was shown; read it again")
    seen = form.all("acknowledge")
    if form.one("keep"):
        return await _keep(upstream, plan, form.all("replace"), seen)
    request = docs.ApplyRequest(acknowledge=seen)
    operation = await upstream.ask(lambda client: client(api.plans.apply, plan_id, request))
    return f"/operations/{operation.id}"


async def _keep(upstream: Upstream, plan: Plan, replace: list[str], acknowledge: list[str]) -> str:
    """Keep what a plan is for, and switch to it where that is due."""
    plans = [plan.id] if plan.changes else []
    request = docs.KeepRequest(replace=replace, acknowledge=acknowledge, plans=plans)
    kept = await upstream.ask(lambda client: client(api.promises.keep, plan.intent_id, request))
    for problem in kept.not_switched.values():
        if problem.code not in docs.NOT_NOW:
            raise ServiceError.answered(problem)
        return f"/plans/{plan.id}?kept={problem.code.value}"
    return f"/operations/{kept.operations[0].id}" if kept.operations else f"/plans/{plan.id}"


async def _approve(upstream: Upstream, plan_id: str, form: FormData) -> str:
    minutes = form.one("minutes")
    request = ApproveRequest(
        digest=form.one("digest"),
        minutes=float(minutes) if minutes.replace(".", "", 1).isdecimal() else 60,
        acknowledge=form.all("acknowledge"),
        note=form.one("note"),
    )
    await upstream.ask(lambda client: client(api.plans.approve, plan_id, request))
    return f"/plans/{plan_id}"


async def _reject(upstream: Upstream, plan_id: str, form: FormData) -> str:
    await upstream.ask(lambda client: client(api.plans.reject, plan_id, RejectRequest(note=form.one("note"))))
    return f"/plans/{plan_id}"


async def _retire(upstream: Upstream, intent_id: str, _: FormData) -> str:
    await upstream.ask(lambda client: client(api.promises.retire, intent_id))
    return f"/intents/{intent_id}"


async def _cancel(upstream: Upstream, operation_id: str, _: FormData) -> str:
    await upstream.ask(lambda client: client(api.operations.cancel, operation_id, CancelRequest()))
    return f"/operations/{operation_id}"


async def _undo(upstream: Upstream, operation_id: str, _: FormData) -> str:
    answer = await upstream.ask(lambda client: client(api.operations.undo, operation_id))
    return f"/plans/{answer.plans[0].id}"


async def _control(upstream: Upstream, _: str, form: FormData) -> str:
    yes_no = {"yes": True, "no": False}
    fields = {name: form.one(name) or None for name in ("mode", "pinned_s")}
    meant = {name: yes_no.get(form.one(name)) for name in ("paused", "pinned")}
    request = ControlRequest.model_validate({**fields, **meant})
    await upstream.ask(lambda client: client(api.promises.set_control, request))
    return "/settings#controller"


async def _drain(upstream: Upstream, _: str, form: FormData) -> str:
    request = docs.DrainRequest(what=form.one("what"), by=form.one("by") or None, why=form.one("why"))
    await upstream.ask(lambda client: client(api.state.drain, request))
    return "/#drains"


async def _undrain(upstream: Upstream, _: str, form: FormData) -> str:
    await upstream.ask(lambda client: client(api.state.undrain, form.one("what")))
    return "/"


say = acting(_say, pages.show_talk)
ask = acting(_ask, pages.show_plan)
amend = acting(_amend, pages.show_intent)
plan = acting(_plan, pages.show_intent)
retire = acting(_retire, pages.show_intent)
apply = acting(_apply, pages.show_plan)
approve = acting(_approve, pages.show_plan)
reject = acting(_reject, pages.show_plan)
cancel = acting(_cancel, pages.show_operation)
undo = acting(_undo, pages.show_operation)
drain = acting(_drain, pages.show_overview)
undrain = acting(_undrain, pages.show_overview)
control = acting(_control, pages.show_settings)


async def prefer(request: Request) -> Response:
    """Choose a language or colours; they stay in the browser."""
    refuse_foreign(request)
    form = FormData(await form_of(request))
    back = form.one("back")
    response = see(back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/")
    for name, known in (("language", {"en", "zh"}), ("theme", {"dark", "light", "auto"})):
        if form.one(name) in known:
            cookie(response, name, form.one(name), is_secret=False, is_secure=request.url.scheme == "https")
    return response
