"""Answers to requests with an ``Idempotency-Key``, in the database.

A row before acting, its answer afterwards.
"""

from dataclasses import asdict

from sqlalchemy import ColumnElement, Delete, delete, update

from service.http.idempotency import KEPT_S, KeyedRequest, StoredResponse, in_use, outcome_unknown, reused
from service.store.clock import wall_s
from service.store.store import Store
from service.store.tables import AnswerRow


class IdempotencyStore:
    """Answers for a day. Its methods block and may raise ``StoreError``."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def reserve(
        self, request: KeyedRequest, now_s: float | None = None, *, is_unused: bool = False
    ) -> StoredResponse | None:
        """Take the key of a request that is about to be acted on; None: it is taken.

        Otherwise what was answered before. ``is_unused``: where it was taken before, nothing was done.

        Raises:
            RefusedError: it is another request's key, or that of one whose outcome nobody knows.
            StoreError: it cannot be kept; nothing may be done.
        """
        moment_s = wall_s() if now_s is None else now_s
        old = delete(AnswerRow).where(AnswerRow.created_s < moment_s - KEPT_S)
        row = AnswerRow(owner=request.owner, key=request.key, digest=request.digest, created_s=moment_s)
        first = [old, _forgetting(request)] if is_unused else [old]
        return None if self.store.add_new(row, first) else self._answered(request)

    def keep(self, request: KeyedRequest, answer: StoredResponse) -> None:
        """Keep what a request was answered, if its key was taken for it."""
        waiting = update(AnswerRow).where(*_place(request), AnswerRow.status.is_(None))
        with self.store.transaction() as session:
            session.execute(waiting.values(**asdict(answer)))

    def free(self, request: KeyedRequest) -> None:
        """Forget that a request began: nothing was done, and it may be sent again."""
        with self.store.transaction() as session:
            session.execute(_forgetting(request))

    def _answered(self, request: KeyedRequest) -> StoredResponse | None:
        with self.store.transaction() as session:
            row = session.get(AnswerRow, (request.owner, request.key))
            if row is None:  # another service freed it just now
                raise in_use(request)
            if row.digest != request.digest:
                raise reused(request)
            if row.status is None:
                raise outcome_unknown(request)
            return StoredResponse(row.status, row.content_type, row.location, row.body or b"")


def _forgetting(request: KeyedRequest) -> Delete:
    return delete(AnswerRow).where(*_place(request), AnswerRow.status.is_(None))


def _place(request: KeyedRequest) -> tuple[ColumnElement[bool], ...]:
    """What finds the row of a request."""
    return AnswerRow.owner == request.owner, AnswerRow.key == request.key, AnswerRow.digest == request.digest
