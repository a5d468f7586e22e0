"""What is done with intents that exist: a follow-up, and OpenSLO in both directions."""

from collections.abc import Sequence
from pathlib import Path

from intent.document import from_document
from intent.errors import DocumentError
from intent.models import Intent
from intent.openslo.export import Loss
from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.commands import check_outcome, intent_of, is_kept
from intentctl.files import documents
from intentctl.status import failure
from service import api
from service import documents as docs
from service.api.operation import Api
from service.documents.plans import AmendmentDocument, FollowUp, VersionedFollowUp, WishRequest


def amend(source: Api, which: str, follow_up: FollowUp, form: OutputFormat) -> None:
    """Show what a follow-up makes of an intent: an id makes its next version, a file is left as it is.

    Raises:
        CommandError: the new outcome is not ok, or there is no such intent or file.
        ServiceError: nothing is changed by it.
    """
    answer: AmendmentDocument
    if is_kept(which):
        answer = source(api.intents.amend_intent, which, VersionedFollowUp(**dict(follow_up)))
    elif which.startswith("intent-") and not Path(which).exists():
        raise failure("not_found", f"there is no intent and no file {which}; ids are as intent-0123456789ab")
    else:
        answer = source(api.intents.amend, docs.AmendRequest(intent=read_intent(which), **dict(follow_up)))
    render.emit(answer, form, render.amendment_rows(answer))
    check_outcome(answer.intent)


def read_intent(name: str) -> Intent:
    """The intent of a file, whose document may stand in an answer of ours.

    Raises:
        CommandError: the file cannot be read, or holds none; the place is named.
    """
    found = documents(name)
    document = found[0] if len(found) == 1 else None
    if isinstance(document, dict) and isinstance(document.get("intent"), dict):
        document = document["intent"]
    if not isinstance(document, dict):
        raise failure("error", f"{name}: must hold one intent document, as `intentctl parse -o json` prints it")
    try:
        return from_document(document)
    except DocumentError as error:
        raise failure("error", f"{name}: {error}") from error


def export_openslo(source: Api, text: str | None, file: Path | None, form: OutputFormat) -> None:
    """Print the SLOs of a wish as YAML documents; what they leave out goes to stderr.

    Raises:
        CommandError: no goal can be an SLO.
        ServiceError: the outcome is not ok.
    """
    intent = read_intent(str(file)) if file is not None else intent_of(source, text or "")
    answer = source(api.openslo.export_openslo, WishRequest(intent=intent))
    if form is OutputFormat.JSON:
        render.emit(answer, form, [])
    else:
        render.emit_documents(answer.slos)
        _tell(answer.left_out)
    if not answer.slos:
        raise failure("infeasible", "none of the goals can be an OpenSLO document")


def import_openslo(source: Api, file: str, form: OutputFormat) -> None:
    """Show the intent of OpenSLO documents; what it leaves out goes to stderr.

    Raises:
        CommandError: the outcome is not ok.
        ServiceError: something in them has no place in an intent.
    """
    answer = source(api.openslo.import_openslo, docs.ImportRequest(documents=documents(file)))
    render.emit(answer.intent, form, render.intent_rows(answer.intent))
    _tell(answer.left_out)
    check_outcome(answer.intent)


def _tell(left_out: Sequence[Loss]) -> None:
    for loss in left_out:
        render.talk(f"left out: {loss.pointer}: {loss.message}")
