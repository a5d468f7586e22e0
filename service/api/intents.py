"""Words, and the intents they become."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from service import documents as docs
from service.api.operation import READING, SAYING, get, post
from service.documents.access import Right
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context


def _place(version: docs.VersionDocument) -> str:
    return f"/v1/intents/{version.id}?version={version.version}"


@post("/v1/intents:translate", Right.SAY, *SAYING, threads="asking")
def translate(here: "Context", body: docs.TranslateRequest) -> docs.IntentForm:
    """Words to a checked intent document. Keeps nothing, changes nothing."""
    return here.translated(body.text, body.now)


@post("/v1/intents:amend", Right.SAY, *SAYING, Code.OUT_OF_SCOPE, Code.NO_CHANGE, threads="asking")
def amend(here: "Context", body: docs.AmendRequest) -> docs.AmendmentDocument:
    """What a follow-up makes of an intent document. Keeps nothing, changes nothing."""
    from service.planning import intents as kept

    now = here.clock(body.now)
    previous = here.checked(body.intent, now)
    return docs.AmendmentDocument.model_validate(here.read(kept.amend, previous, body, here.deployment, now, here.llm))


@post("/v1/intents", Right.SAY, *SAYING, Code.OUT_OF_SCOPE, threads="asking", status=201, location=_place)
def create_intent(here: "Context", body: docs.TranslateRequest) -> docs.VersionDocument:
    """Words to a checked intent that is kept, as its version 1; it may have a question to answer."""
    from service.access.keys import redacted
    from service.planning import intents as kept

    service = here.service
    intent = here.translated(body.text, body.now)
    with service.store.transaction():
        made = kept.create(intent, service.store, service.caller.name)
        service.acts.note("intent.create", made.id, after={"text": redacted(made.text)})
    return made


@get("/v1/intents", Right.LOOK, *READING)
def intents(here: "Context", request: docs.PageRequest) -> docs.IntentsDocument:
    """Intents that are kept, each in its latest version, newest first."""
    found = here.service.store.intents(request.page)
    return docs.IntentsDocument(intents=found.items, next=docs.cursor_text(found.next))


@get("/v1/intents/{intent_id}", Right.LOOK, *READING, Code.NOT_FOUND)
def intent(
    here: "Context", intent_id: str, version: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
) -> docs.VersionDocument:
    """An intent that is kept: its latest version, or another."""
    from service.planning import intents as kept

    return kept.version_of(here.service.store, intent_id, version)


@post(
    "/v1/intents/{intent_id}:amend",
    Right.SAY,
    *SAYING,
    Code.NOT_FOUND,
    Code.OUT_OF_SCOPE,
    Code.NO_CHANGE,
    Code.STALE_INTENT,
    threads="asking",
    status=201,
    location=_place,
)
def amend_intent(here: "Context", intent_id: str, body: docs.VersionedFollowUp) -> docs.VersionDocument:
    """The next version of an intent that is kept: an answer to its question, or a change."""
    from service.planning import intents as kept

    service = here.service
    storage = kept.IntentStorage(
        store=service.store,
        save=service.keep_version,
        deployment=here.deployment,
        llm=here.llm,
        said_by=service.caller.name,
        amend=partial(here.read, kept.amend),
    )
    return kept.follow(storage, intent_id, body, here.clock(body.now))
