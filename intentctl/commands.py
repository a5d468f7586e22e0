"""What the commands do: find who answers, say what was understood, ask before applying, follow the switch."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from intentctl import render
from intentctl.arguments import SWITCH_TIMEOUT_S, Form
from intentctl.client import Client
from intentctl.lines import MAX_LINE_BYTES, texts
from intentctl.local import EXAMPLE, Local
from intentctl.status import CommandError, failure
from intentctl.visible import visible

Document = dict[str, Any]

DEFAULT_SERVER = "http://127.0.0.1:8642"
_KEPT = re.compile(r"intent-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Consent:
    """How a person says yes."""

    given: bool
    never_ask: bool


def service(server: str | None) -> Client:
    """The service at an address; nothing is asked of it yet."""
    return Client(server or DEFAULT_SERVER)


def source(server: str | None, deployment: Path | None) -> Client | Local:
    """Who answers: a deployment file that was named, else the service, else the example in this process."""
    if deployment is not None:
        render.talk(f"working in this process with {deployment}; nothing can be applied")
        return Local(deployment)
    client = service(server)
    if server is not None or client.reachable():
        return client
    if not EXAMPLE.is_file():
        raise failure("unreachable", f"no service answers at {client.url}; start one, or name a --deployment")
    render.talk(f"no service at {client.url}; working in this process with {EXAMPLE}; nothing can be applied")
    return Local(EXAMPLE)


def parse(source: Client | Local, text: str, form: Form, now: str | None) -> None:
    """Read back what was understood; for ``-`` of every line of standard input, whatever each comes to.

    Raises:
        CommandError: the outcome of the one text is not ok.
    """
    if text == "-":
        for said in texts(sys.stdin.buffer):
            intent = source.translate(said, now)
            render.emit_next(intent, form, render.intent_rows(intent))
        return
    intent = source.translate(text, now)
    render.emit(intent, form, render.intent_rows(intent))
    check_outcome(intent)


class Look(Protocol):
    """For which time a plan is made, and how closely it is looked at."""

    @property
    def when(self) -> Document:
        """``at``, ``window`` and ``now``, where they were said."""

    @property
    def verify(self) -> bool:
        """Whether the target is simulated."""

    @property
    def plot(self) -> Path | None:
        """Where latency against load is drawn."""


def plan(source: Client | Local, text: str, form: Form, look: Look) -> Document:
    """Read back, plan, and show the plan; simulated or drawn where that was asked for.

    Raises:
        CommandError: the outcome is not ok, nothing holds the goals, or the picture cannot be written.
    """
    if look.plot:
        from intentctl.plots import check_name

        check_name(look.plot)
    answer = make_plan(source, text, form, when=look.when)
    made = answer["plan"]
    if look.verify:
        made["simulation"] = source.simulation(made)
    render.emit(answer, form, render.plan_rows(made))
    if look.plot:
        _draw(source.frontiers(made), made, look.plot)
    return answer


def _draw(found: Document, made: Document, path: Path) -> None:
    from intentctl.curves import bounds, frontiers
    from intentctl.plots import draw_frontier

    draw_frontier(frontiers(found), bounds(made, found["rate_rps"]), path)
    render.talk(f"drew {path}")


def make_plan(
    source: Client | Local,
    text: str,
    form: Form,
    consent: Consent | None = None,
    when: Document | None = None,
) -> Document:
    """Outcome, intent and plan; for people the read-back is shown at once, for programs only what went wrong.

    With ``consent`` a question is put to the person at the terminal, until it is answered.

    Raises:
        CommandError: the outcome is not ok, or nothing holds the goals.
    """
    when = when or {}
    intent, kept = document_of(source, text, when.get("now")), text if is_kept(text) else None
    if form is Form.TABLE:
        render.grid(render.intent_rows(intent))
    if intent["outcome"] == "clarify" and not is_kept(text) and isinstance(source, Client):
        kept = source.keep(intent["text"])["id"]
    while intent["outcome"] == "clarify" and consent is not None and _can_ask(consent):
        intent = _answered(source, intent, kept)
        render.grid(render.intent_rows(intent))
    if form is not Form.TABLE and intent["outcome"] != "ok":
        render.emit(
            {"outcome": intent["outcome"], "intent": intent, "plan": None, "intent_id": kept}, form, []
        )
    check_outcome(intent, kept)
    try:
        if isinstance(source, Client) and kept is not None:
            return {"outcome": "ok", "intent": intent, "plan": source.plan_kept(kept, when)}
        return {"outcome": "ok", "intent": intent, "plan": source.plan(intent, when)}
    except CommandError as error:
        render.emit(error.problem, form, render.problem_rows(error.problem))
        raise


def _can_ask(consent: Consent) -> bool:
    return not consent.never_ask and sys.stdin.isatty()


def _answered(source: Client | Local, intent: Document, kept: str | None) -> Document:
    """The intent after a person's answer to its question: a number, yes, or words.

    Raises:
        CommandError: nobody answered.
    """
    print("Answer (a number, yes, or words): ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer:
        check_outcome(intent, kept)
    try:
        follow_up = {"text": answer, "mode": None, "now": None}
        if isinstance(source, Client) and kept is not None:
            found: Document = source.amend_kept(kept, follow_up)["intent"]
        else:
            found = source.amend(intent, follow_up)["intent"]
    except CommandError as error:
        if error.problem["code"] not in {"out_of_scope", "no_change"}:
            raise
        render.talk(str(error.problem["detail"]))
        return intent
    return found


def say(source: Client | Local, text: str, form: Form, consent: Consent) -> None:
    """Plan for a text, then apply it if a person says yes.

    Raises:
        CommandError: as ``plan`` and ``apply``; or the plan was made without a service.
    """
    answer = make_plan(source, text, form, consent)
    operation = None
    if form is Form.TABLE:
        render.grid(render.plan_rows(answer["plan"]))
    try:
        if answer["plan"]["changes"]:
            operation = _switch(source, answer["plan"], consent, SWITCH_TIMEOUT_S)
    finally:
        rows = render.operation_rows(operation) if operation else []
        render.emit({**answer, "operation": operation}, form, rows)
    if operation:
        _check_operation(operation)


def apply(service: Client, plan_id: str, form: Form, consent: Consent, timeout_s: float) -> None:
    """Ask, switch, and show what happened.

    Raises:
        CommandError: nobody agreed, the service refused, the switch was given up, or it took too long.
    """
    operation = _switch(service, service.saved_plan(plan_id), consent, timeout_s)
    render.emit(operation, form, render.operation_rows(operation))
    _check_operation(operation)


def _switch(source: Client | Local, plan: Document, consent: Consent, timeout_s: float) -> Document:
    """The operation at its end."""
    if isinstance(source, Local):
        message = "not applied: no service was asked; start one (intentctl serve) or name its --server"
        raise failure("unreachable", message)
    acknowledged = _acknowledged(plan, consent)
    _ask(plan, consent)
    operation = source.apply(plan["id"], acknowledged)
    try:
        with render.switch_progress() as progress:
            for state in source.follow(operation["id"], timeout_s):
                progress.show(state)
                operation = state
    except KeyboardInterrupt:
        render.talk(f"{operation['id']} goes on; see `intentctl get {operation['id']}`")
        raise
    return operation


def _check_operation(operation: Document) -> None:
    if error := operation.get("error"):
        raise CommandError(error)


def get(service: Client, name: str | None, form: Form) -> None:
    """Show the topology, an operation or a plan."""
    if name is None:
        state = service.topology()
        render.emit(state, form, render.topology_rows(state))
    elif name.startswith("op-"):
        operation = service.operation(name)
        render.emit(operation, form, render.operation_rows(operation))
    elif name.startswith("intent-"):
        version = service.intent(name)
        render.emit(version, form, render.amendment_rows(version))
    else:
        plan = service.saved_plan(name)
        render.emit(plan, form, render.plan_rows(plan))


def watch(service: Client, form: Form) -> None:
    """Show events until the person has seen enough.

    Raises:
        CommandError: ``unreachable`` when the service ends.
    """
    for event in service.events():
        if form is not Form.TABLE:
            render.emit_line(event)
        elif event["event"] == "operation":
            operation = event["data"]
            render.line(f"{operation['id']}  {operation['phase']}  {render.copied(operation)}")
        else:
            render.line(
                f"topology  {event['data']['topology']['shape']}, generation {event['data']['generation']}"
            )
    raise failure("unreachable", f"the service at {service.url} has ended")


def serve(deployment: Path | None, **overrides: object) -> None:
    """Run the service in this process until it is told to stop."""
    from intentctl.local import as_problems
    from service.server import run
    from service.settings import read_settings

    with as_problems():
        run(deployment or EXAMPLE, read_settings(**overrides), announce=lambda url: print(url, flush=True))


def _read(text: str) -> str:
    """The text, or all of standard input as one; bytes that are no UTF-8 become lone surrogates."""
    if text != "-":
        return text
    return sys.stdin.buffer.read(MAX_LINE_BYTES).decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def document_of(source: Client | Local, text: str, now: str | None = None) -> Document:
    """The intent document of words, at the present or the clock given, or of the id of an intent that the service keeps."""
    if is_kept(text) and isinstance(source, Client):
        document: Document = source.intent(text)["intent"]
        return document
    return source.translate(_read(text), now)


def is_kept(name: str) -> bool:
    """Whether this is the id of an intent that a service keeps."""
    return _KEPT.fullmatch(name) is not None


def check_outcome(intent: Document, kept: str | None = None) -> None:
    """Stop where an intent is not settled; one that is ``kept`` has an id to answer to.

    Raises:
        CommandError: with its question, or its findings.
    """
    if intent["outcome"] == "ok":
        return
    messages = [question["text"] for question in intent["questions"]]
    messages += [finding["message"] for finding in intent["findings"]]
    if intent["questions"]:
        messages.append(_how_to_answer(kept))
    raise CommandError(
        {"code": intent["outcome"], "detail": " ".join(dict.fromkeys(messages)) or intent["outcome"]}
    )


def _how_to_answer(kept: str | None) -> str:
    """What to type next."""
    if kept is not None:
        return f"Answer with a number or words: intentctl amend {kept} 1"
    return (
        'To answer say intentctl "TEXT" at a terminal, or keep the document and amend it: '
        "intentctl parse -o json TEXT > FILE; intentctl amend FILE 1"
    )


def _acknowledged(plan: Document, consent: Consent) -> list[str]:
    """The codes of findings that a person has seen just now; ``--yes`` is no person.

    Raises:
        CommandError: nobody can be asked, or nobody said yes.
    """
    findings = plan.get("to_acknowledge", ())
    for finding in findings:
        said = f"{finding['message']} ({visible(repr(finding['evidence']))})"
        if consent.never_ask or not sys.stdin.isatty():
            raise failure(
                "finding_not_acknowledged",
                f"{plan['id']} was not applied: {said} A person has to see this; --yes does not say so. "
                f"At a terminal: intentctl apply {plan['id']}",
            )
        if not _says_yes(f"{said}\nApply what else was said? [y/N] "):
            raise failure("finding_not_acknowledged", f"{plan['id']} was not applied")
    return sorted({finding["code"] for finding in findings})


def _ask(plan: Document, consent: Consent) -> None:
    if consent.given:
        return
    if consent.never_ask or not sys.stdin.isatty():
        raise failure(
            "not_approved", f"{plan['id']} was not applied: nobody can be asked; say yes with --yes"
        )
    shapes = " to ".join(topology["shape"] for topology in (plan["now"], plan["target"]) if topology)
    if not _says_yes(f"Apply {plan['id']} ({visible(shapes)})? [y/N] "):
        raise failure("not_approved", f"{plan['id']} was not applied; later: intentctl apply {plan['id']}")


def _says_yes(question: str) -> bool:
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
