"""What is old is forgotten: plans nobody applied, and what is over; never what runs or is promised."""

import asyncio
import logging
import time
from collections.abc import Callable

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
    now_s = time.time()
    plans_s = now_s - kept.plans_days * DAY_S
    history_s = now_s - kept.history_days * DAY_S
    runs = _runs(history_s)
    made_it = select(t.GenerationRow.operation_id).where(runs, t.GenerationRow.operation_id.is_not(None))
    is_old = t.OperationRow.done.is_(True) & (t.OperationRow.created_s < history_s)
    count = _forget(store, t.OperationRow.id, is_old, t.OperationRow.id.not_in(made_it))
    count += _forget(store, t.OutcomeRow.operation_id, t.OutcomeRow.at_s < history_s)
    is_kept = t.JournalRow.switch_id.in_(select(t.OperationRow.id))
    count += _forget(store, t.JournalRow.id, t.JournalRow.at_s < history_s, ~is_kept)
    count += _forget(store, t.GenerationRow.id, t.GenerationRow.at_s < history_s, ~runs)
    word = t.ApprovalRow
    in_force = or_(word.at_s >= plans_s, word.until_s > now_s, word.barred_until_s > now_s)
    is_decided = t.PlanRow.id.in_(select(word.plan_id).where(in_force))
    is_idle = t.PlanRow.applied_by.is_(None) & (t.PlanRow.created_s < plans_s) & ~is_decided
    is_over = (t.PlanRow.created_s < history_s) & t.PlanRow.applied_by.not_in(select(t.OperationRow.id))
    count += _forget(store, t.PlanRow.id, or_(is_idle, is_over), along=word.plan_id)
    said_lately = select(t.AmendmentRow.intent_id).where(t.AmendmentRow.body["created_s"].as_float() >= plans_s)
    used = (select(t.PlanRow.intent_id), select(t.PromiseRow.intent_id), said_lately)
    unused = [t.IntentRow.id.not_in(names) for names in used]
    is_old_intent = t.IntentRow.created_s < plans_s
    count += _forget(store, t.IntentRow.id, is_old_intent, *unused, along=t.AmendmentRow.intent_id)
    return count + _forget(store, t.AttainmentRow.hour_s, t.AttainmentRow.hour_s < history_s)


def _runs(history_s: float) -> ColumnElement[bool]:
    """Generations that somebody asks for.

    Of each model the newest, the last by a switch, and what ran when the time that is kept began.
    """
    newest = select(func.max(t.GenerationRow.id)).group_by(t.GenerationRow.model)
    by_a_switch = newest.where(t.GenerationRow.operation_id.is_not(None))
    before = newest.where(t.GenerationRow.at_s < history_s)
    return or_(*(t.GenerationRow.id.in_(each) for each in (newest, by_a_switch, before)))


def _forget(store: Store, name: Name, *wanted: ColumnElement[bool], along: Name | None = None) -> int:
    """Delete rows by a column's values, some at a time; how many. Rows ``along`` that have them go, too."""
    count = 0
    while True:
        with store.transaction() as session:
            names = session.scalars(select(name).where(*wanted).limit(AT_A_TIME)).all()
            if names and along is not None:
                session.execute(delete(along.class_).where(along.in_(names)))
            if names:
                session.execute(delete(name.class_).where(name.in_(names)))
        count += len(names)
        if len(names) < AT_A_TIME:
            return count


async def keep_pruned(store: Store, *forget: Callable[[], int]) -> None:
    """Forget what is old now, and each hour from then on; each way says how many rows that was."""
    while True:
        try:
            if count := sum([await store.beside(each) for each in forget]):
                log.info("%d records were older than they are kept, and are forgotten", count)
        except (StoreError, OSError) as error:
            log.warning("old records are not forgotten; it is tried again in an hour: %s", error)
        await asyncio.sleep(AGAIN_S)
