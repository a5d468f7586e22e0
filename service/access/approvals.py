"""What people said to plans: one yes or no for each, for a while, and for what the plan said then."""

from collections.abc import Callable

from sqlalchemy import delete, select

from service.documents.operations import ApprovalDocument
from service.documents.state import Listed, Page
from service.store.clock import wall_s
from service.store.store import Store, paged
from service.store.tables import ApprovalRow


class Approvals:
    """Approvals in the database."""

    def __init__(self, store: Store, could_approve: Callable[[str, float, float], bool]) -> None:
        """``could_approve``: whether a person has been one who may approve from a moment to another."""
        self._store = store
        self._could_approve = could_approve

    def of(self, plan_id: str, now_s: float | None = None) -> ApprovalDocument | None:
        """What holds for a plan now; None: nobody has said anything, or it is over."""
        approval = self.last(plan_id)
        return None if approval is None or self.ended(approval, now_s) else approval

    def last(self, plan_id: str) -> ApprovalDocument | None:
        """The last word to a plan, over or not."""
        with self._store.transaction() as session:
            row = session.get(ApprovalRow, plan_id)
            return ApprovalDocument.model_validate(row) if row else None

    def ended(self, approval: ApprovalDocument, now_s: float | None = None) -> str:
        """Why a yes does not hold any more, in words; empty: it does, as a no always does."""
        moment_s = wall_s() if now_s is None else now_s
        if approval.verdict == "rejected":
            return ""
        if approval.until_s is not None and moment_s >= approval.until_s:
            return (
                f"{approval.by} approved it for {(approval.until_s - approval.at_s) / 60:.3g} minutes, which are over"
            )
        if self._could_approve(approval.by, approval.at_s, moment_s):
            return ""
        return f"{approval.by} approved it, and has no key any more that may (revoked or expired)"

    def page(self, page: Page) -> Listed[ApprovalDocument]:
        """The last word to each plan, those that are over too, newest first."""
        place = ApprovalRow.at_s, ApprovalRow.plan_id
        with self._store.transaction() as session:
            rows, after = paged(session, select(ApprovalRow), page, place)
            return Listed(tuple(ApprovalDocument.model_validate(row) for row in rows), after)

    def keep(self, approval: ApprovalDocument) -> bool:
        """Keep what somebody said; False where somebody else's yes or no holds. A no may follow a yes."""
        before = self.last(approval.plan_id)
        over_s = before.at_s if before and self.ended(before, approval.at_s) else None
        replaced = delete(ApprovalRow).where(ApprovalRow.plan_id == approval.plan_id)
        is_yes = approval.verdict == "approved"
        replaced = replaced.where(ApprovalRow.at_s == over_s if is_yes else ApprovalRow.verdict == "approved")
        return self._store.add_new(ApprovalRow(**approval.model_dump(mode="json")), [replaced])
