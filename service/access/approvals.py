"""What people said to plans: one yes or no for each, for a while, and for what the plan said then."""

import time

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from service.documents.operations import ApprovalDocument
from service.errors import StoreError
from service.pages import Listed, Page
from service.store import Store, paged
from service.tables import ApprovalRow


class Approvals:
    """Approvals in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, plan_id: str, now_s: float | None = None) -> ApprovalDocument | None:
        """What holds for a plan now; None: nobody has said anything, or it is over."""
        with self._store.transaction() as session:
            row = session.get(ApprovalRow, plan_id)
            found = ApprovalDocument.model_validate(row) if row else None
        moment_s = time.time() if now_s is None else now_s
        is_over = found is not None and found.until_s is not None and moment_s >= found.until_s
        return None if is_over else found

    def page(self, page: Page) -> Listed[ApprovalDocument]:
        """The last word to each plan, those that are over too, newest first."""
        place = ApprovalRow.at_s, ApprovalRow.plan_id
        with self._store.transaction() as session:
            rows, after = paged(session, select(ApprovalRow), page, place)
            return Listed(tuple(ApprovalDocument.model_validate(row) for row in rows), after)

    def keep(self, approval: ApprovalDocument) -> bool:
        """Keep what somebody said; False where somebody else's yes or no holds. A no may follow a yes."""
        replaced = delete(ApprovalRow).where(ApprovalRow.plan_id == approval.plan_id)
        if approval.verdict == "approved":
            is_over = ApprovalRow.until_s.is_not(None) & (ApprovalRow.until_s <= approval.at_s)
            replaced = replaced.where(is_over)
        else:
            replaced = replaced.where(ApprovalRow.verdict == "approved")
        said = approval.model_dump(mode="json")
        try:
            with self._store.transaction() as session:
                session.execute(replaced)
                session.add(ApprovalRow(**said))
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError):
                return False
            raise
        return True
