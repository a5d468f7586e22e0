"""What is done with intents that exist: a follow-up, and OpenSLO in both directions."""

from pathlib import Path
from typing import Any

from intentctl import render
from intentctl.arguments import Form
from intentctl.client import Client
from intentctl.commands import check_outcome, document_of, is_kept
from intentctl.files import documents
from intentctl.local import Local
from intentctl.status import failure

Document = dict[str, Any]


def amend(source: Client | Local, which: str, follow_up: Document, form: Form) -> None:
    """Show what a follow-up makes of an intent: an id makes its next version, a file is left as it is.

    Raises:
        CommandError: nothing is changed by it, or the new outcome is not ok.
    """
    if is_kept(which):
        if isinstance(source, Local):
            raise failure("unreachable", f"{which} is kept by a service; name its --server, or give a file")
        answer = source.amend_kept(which, follow_up)
    elif which.startswith("intent-") and not Path(which).exists():
        raise failure("not_found", f"there is no intent and no file {which}; ids are as intent-0123456789ab")
    else:
        answer = source.amend(read_intent(which), follow_up)
    render.emit(answer, form, render.amendment_rows(answer))
    check_outcome(answer["intent"])


def read_intent(name: str) -> Document:
    """The intent document of a file, which may stand in an answer of ours.

    Raises:
        CommandError: the file cannot be read, or holds none.
    """
    found = documents(name)
    document = found[0] if len(found) == 1 else None
    if isinstance(document, dict) and isinstance(document.get("intent"), dict):
        document = document["intent"]
    if not isinstance(document, dict):
        raise failure(
            "error", f"{name}: must hold one intent document, as `intentctl parse -o json` prints it"
        )
    return document


def export_openslo(source: Client | Local, text: str | None, file: Path | None, form: Form) -> None:
    """Print the SLOs of a wish as YAML documents; what they leave out goes to stderr.

    Raises:
        CommandError: the outcome is not ok, or no goal can be an SLO.
    """
    intent = read_intent(str(file)) if file is not None else document_of(source, text or "")
    answer = source.export_openslo(intent)
    if form is Form.JSON:
        render.emit(answer, form, [])
    else:
        render.emit_documents(answer["slos"])
        _tell(answer["left_out"])
    if not answer["slos"]:
        raise failure("infeasible", "none of the goals can be an OpenSLO document")


def import_openslo(source: Client | Local, file: str, form: Form) -> None:
    """Show the intent of OpenSLO documents; what it leaves out goes to stderr.

    Raises:
        CommandError: something in them has no place in an intent, or the outcome is not ok.
    """
    answer = source.import_openslo(documents(file))
    render.emit(answer["intent"], form, render.intent_rows(answer["intent"]))
    _tell(answer["left_out"])
    check_outcome(answer["intent"])


def _tell(left_out: list[Document]) -> None:
    for loss in left_out:
        render.talk(f"left out: {loss['pointer']}: {loss['message']}")
