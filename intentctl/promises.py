"""Commands about what is promised and how it is kept: intents, activate, agenda, report, mode, ..."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from intentctl.arguments import OutputFormat, hours_of, spread
from intentctl.options import Deployment, Output, PinFor, Where, moment
from intentctl.status import failure

if TYPE_CHECKING:
    from datetime import datetime

    from intentctl.render import Row
    from service import documents as docs

IntentId = Annotated[str, typer.Argument(help="Id of an intent that the service keeps.")]
Replace = Annotated[
    list[str] | None,
    typer.Option("--replace", metavar="INTENT", help="An active intent that this one replaces."),
]


@spread
def intents(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """List active and past promises."""
    from intentctl import commands, render
    from service import api

    found = commands.service(where)(api.promises.promises)
    rows = [row for promise in found.promises for row in promise_rows(promise)]
    render.emit(found, output, rows or [("promised", 'nothing yet; say what must hold: intentctl "TEXT"')])


@spread
def activate(where: Where, intent: IntentId, replace: Replace = None, output: Output = OutputFormat.TABLE) -> None:
    """Activate an intent: keep it in every window that it names."""
    from intentctl import commands, render
    from service import api
    from service.documents.promises import ActivateRequest

    made = commands.service(where)(api.promises.activate, intent, ActivateRequest(replace=replace or []))
    render.emit(made, output, promise_rows(made))


@spread
def retire(where: Where, intent: IntentId, output: Output = OutputFormat.TABLE) -> None:
    """Retire an active intent. The running topology stays until something asks for a change."""
    from intentctl import commands, render
    from service import api

    ended = commands.service(where)(api.promises.retire, intent)
    render.emit(ended, output, promise_rows(ended))


@spread
def agenda(
    where: Where,
    text: Annotated[
        str | None, typer.Argument(help="A text to plan for beside the active intents, or an intent's id.")
    ] = None,
    hours: Annotated[float, typer.Option("--hours", help="Hours to look ahead.", min=0.1, max=192)] = 24,
    now: Annotated[
        str | None, typer.Option("--now", help="The current time for TEXT, in ISO 8601.", callback=moment)
    ] = None,
    deployment: Deployment = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the next 24 hours: goals, topologies, switches. Changes nothing."""
    from intentctl import commands, render
    from service import api
    from service.documents.promises import AgendaQuery, AgendaRequest

    if text is None and (deployment or now):
        raise typer.BadParameter("agenda: --deployment and --now go with TEXT")
    source = commands.source(where, deployment) if text is not None else commands.service(where)
    if text is None:
        found = source(api.promises.agenda, AgendaQuery(hours=hours))
    else:
        kind = "intent_id" if commands.is_kept(text) and source.serves else "text"
        found = source(api.promises.preview, AgendaRequest.model_validate({kind: text, "hours": hours, "now": now}))
    render.emit(found, output, agenda_rows(found))


@spread
def load(
    where: Where,
    since: Annotated[
        str | None, typer.Option("--since", help="Show the load of this time span, as 30m, 24h or 7d.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show current and past load and latency."""
    from intentctl import commands, render
    from service import api
    from service.documents.promises import ReportQuery

    service = commands.service(where)
    if since is None:
        found = service(api.promises.load)
        render.emit(found, output, _load_rows(found))
        return
    history = service(api.promises.load_history, ReportQuery(hours=_hours(since)))
    rows = [
        (
            render.moment(past.begins_s),
            f"{past.model}{f', {tenant.tenant}' if tenant.tenant else ''}: {_tenant(tenant)}",
        )
        for past in history.loads
        for tenant in past.tenants
    ]
    render.emit(history, output, rows or [("load", "nothing is kept of that time; it is, every five minutes")])


@spread
def report(
    where: Where,
    since: Annotated[str, typer.Option("--since", help="Time span to report, as 30m, 24h or 7d.")] = "24h",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show how often each goal was met, and each switch with its cause and verdict."""
    from intentctl import commands, render
    from service import api
    from service.documents.promises import ReportQuery

    found = commands.service(where)(api.promises.report, ReportQuery(hours=_hours(since)))
    render.emit(found, output, _report_rows(found))


def _hours(text: str) -> float:
    hours = hours_of(text)
    if not 0 < hours <= 24 * 366:
        raise failure("error", f"--since {text}: write 30m, 24h or 7d, a year at most")
    return hours


@spread
def pause(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """Pause the controller."""
    _set(where, output, paused=True)


@spread
def resume(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """Resume the controller: end pauses, pins, overrides and rejections."""
    _set(where, output, paused=False)


@spread
def pin(where: Where, for_: PinFor = None, output: Output = OutputFormat.TABLE) -> None:
    """Pin the running topology: the controller switches nothing until `resume` or the given time."""
    _set(where, output, pinned=True, pinned_s=for_)


@spread
def mode(
    where: Where,
    name: Annotated[
        Literal["observe", "recommend", "act"] | None, typer.Argument(help="[default: show the current mode]")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show or set the controller's mode: observe, recommend, or act within policy."""
    _set(where, output, mode=name)


def _set(where: Where, output: OutputFormat, **fields: object) -> None:
    from intentctl import commands, render
    from service import api
    from service.documents.promises import ControlRequest

    service = commands.service(where)
    request = ControlRequest.model_validate({name: value for name, value in fields.items() if value is not None})
    found = service(api.promises.control) if request == ControlRequest() else service(api.promises.set_control, request)
    render.emit(found, output, control_rows(found))


# -- what people see ---------------------------------------------------------------------------------


def promise_rows(promise: "docs.PromiseDocument") -> "list[Row]":
    """An intent that was activated."""
    from intentctl import render

    begun = f"since {render.moment(promise.activated_s)}"
    when = begun if promise.ended_s is None else f"at {render.moment(promise.ended_s)}: {promise.why}"
    rows = [(promise.intent_id, f"{promise.state} {when}: {promise.text}")]
    rows += [("", f"{goal.words}, {goal.window}") for goal in promise.goals]
    rows += [("not measured", what) for what in promise.left_out]
    return rows + [("mind", what) for what in promise.against]


def agenda_rows(agenda: "docs.AgendaDocument") -> "list[Row]":
    """The time ahead."""
    models = {segment.model for segment in agenda.segments}
    return [row for segment in agenda.segments for row in _segment_rows(agenda, segment, named=len(models) > 1)]


def _segment_rows(agenda: "docs.AgendaDocument", segment: "docs.SegmentDocument", *, named: bool) -> "list[Row]":
    from intentctl import render

    when = f"{segment.begins:%a %H:%M} to {segment.ends:%a %H:%M}"
    goals = "; ".join(f"{goal.words}" for goal in segment.goals) or "nothing is promised"
    windows = ", ".join(segment.windows) or "no window"
    about = f"{segment.model}: " if named else ""
    rows = [(when, f"{about}{windows}: {goals}")]
    if segment.infeasible is not None:
        rows.append(("", f"cannot be held: {'; '.join(segment.infeasible.reasons)}"))
        rows += [("", f"feasible would be: {target}") for target in segment.infeasible.feasible_targets]
        return rows
    if segment.topology is not None:
        predicted = f", {render.prediction(segment.prediction)}" if segment.prediction else ""
        rows.append(("", f"{segment.topology.shape} {segment.topology.text}{predicted}"))
    if segment.switch_begins is not None:
        begins = "now" if agenda.is_due(segment) else f"from {segment.switch_begins:%a %H:%M:%S}"
        by = "" if agenda.mode == "act" else f", by a person (the mode is `{agenda.mode}`)"
        takes = f": {render.switch(segment.switch)}" if segment.switch else ""
        rows.append(("", f"switch {begins}{by}{takes}"))
    rows += [("", f"what runs stays: {segment.kept}")] if segment.kept else []
    return rows + [("", f"not weighed: {note}") for note in segment.notes]


def control_rows(control: "docs.ControlDocument") -> "list[Row]":
    """How the controller stands."""
    rows = [("mode", control.mode + (", paused" if control.paused else ""))]
    if control.pin:
        rows.append(("pinned", f"by {control.pin.by}; what runs is kept until {_until(control.pin.until)}"))
    for override in control.overrides:
        what = f"{override.by} applied {override.topology} ({override.operation})"
        rows.append(("override", f"{what}; the controller will not change it until {_until(override.until)}"))
    for no in control.refusals:
        what = f"{no.target}: {no.by} {no.act} {no.about}"
        rows.append(("rejected", f"{what}; not switched to until {_until(no.until)}, or `intentctl resume`"))
    return rows + [("now", decision_words(decision)) for decision in control.decisions]


def _until(moment: "datetime | None") -> str:
    return f"{moment:%a %d %b %H:%M %Z}" if moment else "`intentctl resume`"


def decision_words(decision: "docs.DecisionDocument") -> str:
    """A decision in a line."""
    to = f" to {decision.target}" if decision.target else ""
    return f"{decision.model}: {decision.kind}{to}: {decision.reason}"


def outcome_words(outcome: "docs.OutcomeDocument") -> str:
    """A switch and its verdict in a line."""
    stop = "" if outcome.stop_ms is None else f", stood still {outcome.stop_ms:.1f} ms"
    verdict = "no verdict yet" if outcome.verdict is None else outcome.verdict.replace("_", " ")
    why = f" ({outcome.why})" if outcome.why else ""
    way = f"{outcome.source} to {outcome.target}"
    return f"{outcome.cause}: {way}: {outcome.ended}{stop}; {verdict}{why}; because {outcome.reason}"


def _report_rows(report: "docs.ReportDocument") -> "list[Row]":
    from intentctl import render

    rows = [("since", f"{report.since:%Y-%m-%d %H:%M %Z}")]
    rows += [("goal", _attainment(attainment)) for attainment in report.attainment]
    rows += [(render.moment(switch.at_s), outcome_words(switch)) for switch in report.switches]
    money = f", {report.usd:.2f} USD" if report.usd is not None else ""
    return [*rows, ("devices", f"{report.device_hours:.2f} device-hours{money}")]


def _attainment(attainment: "docs.AttainmentDocument") -> str:
    what = {"requests": "requests", "ticks": "looks"}[attainment.counted]
    share = f"no {what} yet" if attainment.share is None else f"{attainment.share:.2%} of {attainment.total} {what}"
    budget = "" if attainment.budget_left is None else f", {attainment.budget_left:.0%} of the error budget left"
    return f"{attainment.words}, {attainment.window}: {share} (needs {attainment.needed:.2%}{budget})"


def _load_rows(loads: "docs.LoadsDocument") -> "list[Row]":
    rows = list["Row"]()
    for model in loads.models:
        for tenant in model.tenants:
            rows.append((", ".join(filter(None, (model.model, tenant.tenant))), _tenant(tenant)))
        if model.gpu_util is not None:
            rows.append(("", f"utilisation {model.gpu_util:.0%} over {model.seconds:g} s"))
        if model.kv_in_use is not None:
            rows.append(("", f"KV {model.kv_in_use:.0%} in use"))
    return rows


def _tenant(load: "docs.TenantLoadDocument") -> str:
    def in_ms(values: Sequence[float | None]) -> str:
        return " / ".join("-" if value is None else f"{value * 1000:.0f}" for value in values)

    latencies = [
        f"{name} {in_ms((found.p50, found.p95, found.p99))} ms"
        for name, found in (("TTFT", load.ttft_s), ("TPOT", load.tpot_s))
    ]
    demand = f"{load.rate_rps:.4g} requests/s of {load.input_tokens:.0f} + {load.output_tokens:.0f} tokens"
    return f"{demand}, {load.waiting} waiting, {load.failed} failed; P50 / P95 / P99 {', '.join(latencies)}"
