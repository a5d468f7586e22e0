"""What was done, in a chain that shows whether somebody changed it."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from service import documents as docs
from service.api.operation import READING, get
from service.documents.access import Right
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context


@get("/v1/audit", Right.AUDIT, *READING)
def audit(here: "Context", page: docs.AuditPage) -> docs.AuditDocument:
    """What was done, newest first: who, in which role, what, to what, from where."""
    entries = here.service.parts.access.audit.page(page.before, page.limit, page.act)
    following = entries[-1].seq if len(entries) == page.limit and entries[-1].seq > 1 else None
    return docs.AuditDocument(entries=tuple(entries), next=following)


@get("/v1/audit/head", Right.AUDIT, Code.STORE)
def audit_head(here: "Context") -> docs.HeadDocument:
    """The end of the audit's chain: kept elsewhere, it shows later that nothing before it was changed."""
    head = here.service.parts.access.audit.head()
    return docs.HeadDocument(seq=head.seq, hash=head.hash, head=str(head))


@get("/v1/audit/verdict", Right.AUDIT, *READING)
def verify_audit(here: "Context", head: Annotated[str | None, Field(pattern=docs.HEAD)] = None) -> docs.VerdictDocument:
    """Whether the audit is what it was.

    Rows that were changed, removed, put in or moved, and a tail that was cut off.
    """
    from service.access.chain import Head

    kept = here.service.parts.access.audit
    found = tuple(kept.verify(None if head is None else Head.parse(head)))
    return docs.VerdictDocument(is_whole=not found, entries=kept.head().seq, flaws=found)
