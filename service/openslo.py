"""OpenSLO at the edge of the service: a checked intent out, documents in as a checked intent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from intent.document import to_document
from intent.models import Intent
from intent.openslo.export import export, losses
from intent.openslo.reader import read
from intent.openslo.values import OpenSloError
from service import engines
from service.deployment import Deployment
from service.errors import Code, Detail, RefusedError
from service.usecases import check, refuse_unless_ok


def exported(intent: Intent, deployment: Deployment) -> dict[str, Any]:
    """The SLOs of an intent by the metrics of the deployment's engine, and what they leave out of it.

    Raises:
        RefusedError: the intent's outcome is not ok.
    """
    refuse_unless_ok(intent)
    found = export(intent, engines.name(deployment))
    return {"slos": list(found.slos), "left_out": losses(found.left_out)}


def imported(documents: Sequence[Any], deployment: Deployment, now: datetime) -> dict[str, Any]:
    """The intent of SLO documents, checked, and what it leaves out of them.

    Raises:
        RefusedError: a document says what has no place in an intent; the path is named.
    """
    try:
        found = read(documents)
    except OpenSloError as error:
        raise RefusedError(
            Code.UNSUPPORTED, str(error), [Detail(f"/documents{error.path}", error.problem)]
        ) from None
    intent = check(found.intent, deployment, now)
    return {"intent": to_document(intent), "left_out": losses(found.left_out)}
