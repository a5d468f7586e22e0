"""What is old is forgotten, and nothing that runs, is promised, or that somebody may still ask for."""

import time
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, update

from service.deployment.policy import Retention
from service.documents.state import Page
from service.store import tables as t
from service.store.retention import DAY_S, prune
from tests.service.examples import intent, operation, plan

KEPT = Retention(plans_days=90, history_days=400)
OLD, OLDER = 100, 401
"""Days."""


def aged(store, days: float) -> None:
    """Put all that is there into the past."""
    past_s = time.time() - days * DAY_S
    with store.transaction() as session:
        for column in (
            t.IntentRow.created_s, t.PlanRow.created_s, t.OperationRow.created_s, t.JournalRow.at_s, t.GenerationRow.at_s,
            t.OutcomeRow.at_s, t.AttainmentRow.hour_s, t.ApprovalRow.at_s,
        ):  # fmt: skip
            session.execute(update(column.class_).values({column.key: past_s}))


def add_plan(store, number: int, applied: str = "") -> None:
    made = replace(plan(), id=f"plan-{number}", intent_id=f"intent-{number}")
    store.save_plan(intent(), made)
    if applied:
        store.claim_plan(made.id, operation(applied, end_s=2.0))
        store.append_journal(applied, "done", "")


def names(store, column) -> set:
    with store.transaction() as session:
        return set(session.scalars(select(column)))


def test_plans_that_nobody_applied_go_first_and_applied_ones_with_their_operation(store):
    add_plan(store, 1)
    add_plan(store, 2, applied="op-2")
    store.save_intent("intent-3", intent())
    store.save_intent("intent-4", intent())
    with store.transaction() as session:
        session.add(t.PromiseRow(intent_id="intent-4", state="retired", document={}, activated_s=1.0))
    aged(store, OLD)
    add_plan(store, 5)

    prune(store, KEPT)
    assert names(store, t.PlanRow.id) == {"plan-2", "plan-5"}
    assert names(store, t.IntentRow.id) == {"intent-2", "intent-4", "intent-5"}
    assert names(store, t.OperationRow.id) == {"op-2"}
    aged(store, OLDER)
    prune(store, KEPT)
    assert (names(store, t.PlanRow.id), names(store, t.OperationRow.id), names(store, t.JournalRow.id)) == (set(),) * 3
    assert names(store, t.IntentRow.id) == {"intent-4"}


def test_where_a_restart_begins_is_kept_however_old(store):
    for number in (1, 2):
        add_plan(store, number, applied=f"op-{number}")
        store.commit(f"op-{number}", ("committed", ""), "counting", "CPU[0]:0-8@fp32")
    newest = store.next_generation("counting", "CPU[0]:0-8@fp32")
    aged(store, OLDER)
    before = store.committed("counting")

    prune(store, KEPT)
    after = store.committed("counting")
    assert after
    assert before
    assert after[:3] == before[:3]
    assert names(store, t.OperationRow.id) == {"op-2"}
    assert names(store, t.PlanRow.id) == {"plan-2"}
    assert names(store, t.GenerationRow.id) == {before.generation, newest}
    assert {line.phase for line in store.journal("op-2")} == {"done", "committed"}
    assert store.journal("op-1") == []


def test_a_no_that_still_holds_is_kept_and_so_are_words_that_were_amended_lately(store):
    for number in (1, 2, 3):
        add_plan(store, number)
        store.save_intent(f"amended-{number}", intent())
    aged(store, OLD)
    now_s = time.time()
    word = {"digest": "", "by": "ada", "role": "approver", "acknowledged": [], "note": "", "at_s": now_s - OLD * DAY_S}
    for number, verdict, until_s, barred_s in (
        (1, "rejected", None, now_s + 60),
        (2, "rejected", None, now_s - 60),
        (3, "approved", now_s + 60, None),
    ):
        row = t.ApprovalRow(plan_id=f"plan-{number}", verdict=verdict, until_s=until_s, barred_until_s=barred_s, **word)
        with store.transaction() as session:
            session.add(row)
    with store.transaction() as session:
        for name, at_s in (("amended-1", now_s - 60), ("amended-2", now_s - OLD * DAY_S)):
            session.add(t.AmendmentRow(intent_id=name, version=2, body={"created_s": at_s}))

    prune(store, KEPT)
    assert names(store, t.PlanRow.id) == names(store, t.ApprovalRow.plan_id) == {"plan-1", "plan-3"}
    assert names(store, t.IntentRow.id) == {"intent-1", "intent-3", "amended-1"}
    assert names(store, t.AmendmentRow.intent_id) == {"amended-1"}


def test_what_ran_as_the_kept_time_began_is_kept(store):
    first = store.next_generation("counting", "CPU[0]:0-8@fp32")
    second = store.next_generation("counting", "CPU[1]:0-8@fp32")
    aged(store, OLDER)
    third = store.next_generation("counting", "CPU[2]:0-8@fp32")
    prune(store, KEPT)
    assert names(store, t.GenerationRow.id) == {second, third}
    assert first not in names(store, t.GenerationRow.id)


def test_an_operation_that_has_not_ended_is_kept(store):
    add_plan(store, 1)
    store.claim_plan("plan-1", operation("op-1"))
    aged(store, OLDER)
    assert prune(store, KEPT) == 0
    assert [found.id for found in store.unfinished_operations()] == ["op-1"]


@pytest.mark.exhaustive
def test_a_year_of_records_is_pruned_and_what_is_left_is_as_it_was(store):
    body = {"id": "x", "intent_id": "x", "document": {}, "model": "counting", "applied_by": None}
    now_s = time.time()
    rows = [
        body | {"id": f"plan-{n}", "intent_id": f"intent-{n}", "created_s": now_s - n / 20_000 * 365 * DAY_S}
        for n in range(20_000)
    ]
    intents = [{"id": row["intent_id"], "document": {}, "created_s": row["created_s"]} for row in rows]
    with store.transaction() as session:
        session.execute(insert(t.IntentRow), intents)
        session.execute(insert(t.PlanRow), rows)
    prune(store, KEPT)
    left = {row["id"] for row in rows if row["created_s"] > now_s - 90 * DAY_S}
    assert names(store, t.PlanRow.id) == left
    assert len(names(store, t.IntentRow.id)) == len(left)
    assert store.plans(Page(1), "other").items == ()
