"""OpenSLO at the edge of the service: a checked intent out, documents in as a checked intent."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import JsonValue

from intent.models import Intent
from intent.openslo.export import export
from intent.openslo.reader import OpenSloError, read
from service.deployment import Deployment
from service.documents.plans import ExportDocument, ImportDocument
from service.documents.problems import Code, Detail
from service.errors import RefusedError
from service.usecases import check, concerned, refuse_unless_ok


def exported(intent: Intent, deployment: Deployment) -> ExportDocument:
    """The SLOs of an intent by the metrics of the engine that serves, and what they leave out of it.

    Raises:
        RefusedError: the intent's outcome is not ok, or it is about models on different engines.
    """
    refuse_unless_ok(intent)
    engines = {model.engine.name: model.name for model in concerned(intent, deployment)}
    if len(engines) > 1:
        raise RefusedError(
            Code.UNSUPPORTED,
            f"the models {' and '.join(engines.values())} run on different engines, with metrics of different names; "
            "say in the words which model is meant",
        )
    found = export(intent, next(iter(engines)))
    return ExportDocument(slos=found.slos, left_out=found.left_out)


def imported(documents: Sequence[JsonValue], deployment: Deployment, now: datetime) -> ImportDocument:
    """The intent of SLO documents, checked, and what it leaves out of them.

    Raises:
        RefusedError: a document says what has no place in an intent; the path is named.
    """
    try:
        found = read(documents)
    except OpenSloError as error:
        raise RefusedError(Code.UNSUPPORTED, str(error), [Detail(f"/documents{error.path}", error.problem)]) from None
    return ImportDocument(intent=check(found.intent, deployment, now), left_out=found.left_out)
