"""OpenSLO, both ways."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from service import documents as docs
from service.api.operation import READING, WISHING, post
from service.documents.access import Right
from service.documents.errors import RefusedError
from service.documents.problems import Code, Detail

if TYPE_CHECKING:
    from service.api.context import Context


@post("/v1/openslo:export", Right.SAY, *WISHING, Code.UNSUPPORTED, threads="asking")
def export_openslo(here: "Context", body: docs.WishRequest) -> docs.ExportDocument:
    """OpenSLO v1 documents of a wish, and what they leave out of it."""
    from intent.openslo.export import export
    from service.planning.lifecycle import concerned, refuse_unless_ok

    intent, _ = here.wished(body, None)
    refuse_unless_ok(intent)
    engines = {model.engine.name: model.name for model in concerned(intent, here.deployment)}
    if len(engines) > 1:
        raise RefusedError(
            Code.UNSUPPORTED,
            f"the models {' and '.join(engines.values())} run on different engines, with metrics of different names; "
            "say in the words which model is meant",
        )
    found = export(intent, next(iter(engines)))
    return docs.ExportDocument(slos=found.slos, left_out=found.left_out)


@post("/v1/openslo:import", Right.SAY, *READING, Code.UNSUPPORTED)
def import_openslo(here: "Context", body: docs.ImportRequest) -> docs.ImportDocument:
    """The checked intent of OpenSLO v1 documents, and what it leaves out of them. Keeps nothing."""
    from intent.openslo.reader import OpenSloError, read
    from service.planning.lifecycle import check

    try:
        found = read(body.documents)
    except OpenSloError as error:
        raise RefusedError(Code.UNSUPPORTED, str(error), [Detail(f"/documents{error.path}", error.problem)]) from None
    return docs.ImportDocument(intent=check(found.intent, here.deployment, datetime.now(UTC)), left_out=found.left_out)
