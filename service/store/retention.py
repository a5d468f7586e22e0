"""What is old is forgotten: plans nobody applied, and what is over; never what runs or is promised."""

import asyncio
import logging
import time

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from service.deployment.policy import Retention
from service.documents.errors import StoreError
from service.store import tables as t
from service.store.store import Store

log = logging.getLogger(__name__)

DAY_S = 86_400.0
AT_A_TIME = 200
"""Rows of one transaction: others write between."""
AGAIN_S = 3600.0

Name = InstrumentedAttribute[str] | InstrumentedAttribute[int] | InstrumentedAttribute[float]


def prune(store: Store, kept: Retention) -> int:
    """Forget what is older than it is kept; how many rows that was.

    Raises:
        StoreError: the database cannot be used; what was forgotten until then is.
    """
    plans_s = time.time() - kept.plans_days * DAY_S
    history_s = time.time() - kept.history_days * DAY_S
    count = _forget(
        store, t.OperationRow.id, t.OperationRow.done.is_(True), t.OperationRow.created_s < history_s, ~_led_here()
    )
    count += _forget(store, t.OutcomeRow.operation_id, t.OutcomeRow.at_s < history_s)
    is_kept = t.JournalRow.switch_id.in_(select(t.OperationRow.id))
    count += _forget(store, t.JournalRow.id, t.JournalRow.at_s < history_s, ~is_kept)
    count += _forget(store, t.GenerationRow.id, t.GenerationRow.at_s < history_s, ~_runs())
    is_idle = t.PlanRow.applied_by.is_(None) & (t.PlanRow.created_s < plans_s)
    is_over = (t.PlanRow.created_s < history_s) & t.PlanRow.applied_by.not_in(select(t.OperationRow.id))
    count += _forget(store, t.PlanRow.id, or_(is_idle, is_over))
    count += _forget(store, t.ApprovalRow.plan_id, t.ApprovalRow.plan_id.not_in(select(t.PlanRow.id)))
    unused = select(t.IntentRow.id).where(
        t.IntentRow.created_s < plans_s,
        t.IntentRow.id.not_in(select(t.PlanRow.intent_id)),
        t.IntentRow.id.not_in(select(t.PromiseRow.intent_id)),
    )
    count += _forget(store, t.AmendmentRow.intent_id, t.AmendmentRow.intent_id.in_(unused))
    count += _forget(store, t.IntentRow.id, t.IntentRow.id.in_(unused))
    return count + _forget(store, t.AttainmentRow.hour_s, t.AttainmentRow.hour_s < history_s)


def _runs() -> ColumnElement[bool]:
    """A generation that a restart looks at: the newest of each model, and the last that a switch made."""
    newest = select(func.max(t.GenerationRow.id)).group_by(t.GenerationRow.model)
    return t.GenerationRow.id.in_(newest) | t.GenerationRow.id.in_(
        newest.where(t.GenerationRow.operation_id.is_not(None))
    )


def _led_here() -> ColumnElement[bool]:
    """The operation that made one of these."""
    return t.OperationRow.id.in_(
        select(t.GenerationRow.operation_id).where(_runs(), t.GenerationRow.operation_id.is_not(None))
    )


def _forget(store: Store, name: Name, *wanted: ColumnElement[bool]) -> int:
    """Delete rows of the table of a column by its values, some at a time; how many values that were."""
    count = 0
    while True:
        with store.transaction() as session:
            names = session.scalars(select(name).where(*wanted).limit(AT_A_TIME)).all()
            if names:
                session.execute(delete(name.class_).where(name.in_(names), *wanted))
        count += len(names)
        if len(names) < AT_A_TIME:
            return count


async def keep_pruned(store: Store, kept: Retention) -> None:
    """Forget what is old now, and each hour from then on."""
    while True:
        try:
            if count := await store.beside(prune, store, kept):
                log.info("%d records were older than they are kept, and are forgotten", count)
        except StoreError as error:
            log.warning("old records are not forgotten; it is tried again in an hour: %s", error)
        await asyncio.sleep(AGAIN_S)
