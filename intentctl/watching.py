"""`intentctl get --watch`: what happens, line by line, until the person has seen enough."""

from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.client import Client
from intentctl.promises import control_rows, decision_words, outcome_words
from intentctl.status import failure
from service.documents.operations import ApprovalDocument, OperationDocument
from service.documents.promises import ControlDocument, DecisionDocument, OutcomeDocument, PromiseDocument
from service.documents.state import Happened


def watch(service: Client, form: OutputFormat) -> None:
    """Show events.

    Raises:
        CommandError: ``unreachable`` when the service ends.
    """
    for event in service.watch():
        if form is OutputFormat.TABLE:
            render.line(event_words(event.data))
        else:
            render.emit_line(event)
    raise failure("unreachable", "the service has ended")


def event_words(happened: Happened) -> str:
    """Something that happened, in a line."""
    match happened:
        case OperationDocument():
            words = f"{happened.id}  {happened.phase}  {render.copied(happened)}"
        case PromiseDocument():
            words = f"promise  {happened.intent_id}: {happened.state} {happened.why}".rstrip()
        case ControlDocument():
            words = f"controller  {control_rows(happened)[0][1]}"
        case DecisionDocument():
            words = f"decision  {decision_words(happened)}"
        case OutcomeDocument():
            words = f"verdict  {outcome_words(happened)}"
        case ApprovalDocument():
            words = f"approval  {happened.plan_id}: {happened.verdict} by {happened.by}"
        case _:
            words = f"topology  {happened.model}: {happened.topology.shape}, generation {happened.generation}"
    return words
