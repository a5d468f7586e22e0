from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from sqlalchemy import text

from service.documents.errors import StoreError
from service.documents.plans import ChangeDocument, VersionDocument
from service.documents.state import Listed, Page
from service.store.store import Store
from tests.rows import rows
from tests.service.examples import GOAL, intent, operation, plan

T = TypeVar("T")
PLAN = plan()


def lines(store: Store, switch_id: str) -> list[tuple[str, str]]:
    return [(line.phase, line.detail) for line in store.journal(switch_id)]


def version(number: int, text: str = "make that 1 s") -> VersionDocument:
    return VersionDocument(
        id="intent-1",
        version=number,
        supersedes=number - 1,
        mode="merge",
        text=text,
        diff=(ChangeDocument(change="added", pointer="/goals/0", before=None, after=GOAL),),
        intent=intent(),
        created_s=5.0,
    )


def test_a_plan_comes_back_as_it_was(store):
    store.save_plan(intent(), PLAN)

    assert store.plan("plan-1") == PLAN
    assert store.plan("plan-2") is None


def test_versions_of_an_intent_are_kept_and_the_latest_is_found(store):
    store.save_intent("intent-1", intent("faster"))
    assert store.save_amendment(version(2))
    assert store.save_amendment(version(3))

    assert store.intent("intent-1") == version(3)
    assert store.intent("intent-1", 2) == version(2)
    first = store.intent("intent-1", 1)
    assert (first.version, first.supersedes, first.mode, first.text) == (1, None, "new", "faster")
    assert store.intent("intent-1", 4) is None
    assert store.intent("intent-2") is None


def test_of_two_next_versions_one_is_kept(store):
    store.save_intent("intent-1", intent())

    assert store.save_amendment(version(2, "first"))
    assert not store.save_amendment(version(2, "second"))
    with store.transaction():
        assert not store.save_amendment(version(2, "third"))
    assert store.intent("intent-1").text == "first"


def test_a_plan_for_an_intent_that_is_kept_leaves_it_as_it_is(store):
    store.save_intent("intent-1", intent("faster"))
    store.save_plan(intent("other"), PLAN)

    assert store.intent("intent-1").text == "faster"
    assert store.plan("plan-1") == PLAN


def test_a_plan_is_claimed_once_and_the_second_operation_is_not_kept(store):
    store.save_plan(intent(), PLAN)

    assert store.claim_plan("plan-1", operation())
    assert not store.claim_plan("plan-1", operation("op-2"))
    assert store.plan("plan-1") == replace(PLAN, applied_by="op-1")
    assert store.operation("op-2") is None


def test_operations_are_written_over_and_the_unfinished_ones_are_found(store):
    store.save_operation(operation())
    store.save_operation(operation("op-2"))
    store.save_operation(operation(end_s=9.0))

    assert store.operation("op-1") == operation(end_s=9.0)
    assert store.unfinished_operations() == [operation("op-2")]


def test_generations_rise_across_restarts(tmp_path, database):
    generations = []
    for _ in range(2):
        store = Store.open(tmp_path, database)
        generations += [store.next_generation("a", "1x1"), store.next_generation("b", "TP2")]
        store.close()

    assert generations == [1, 2, 3, 4]


def test_the_journal_of_a_switch_is_in_order(store):
    for phase in ("warming", "cutting"):
        store.append_journal("op-1", phase, "epoch 1")
    store.append_journal("op-2", "warming", "")

    assert lines(store, "op-1") == [("warming", "epoch 1"), ("cutting", "epoch 1")]


def test_a_commit_is_a_line_of_the_journal_and_a_generation(store):
    assert store.committed("a") is None
    store.next_generation("a", "1x1")
    assert store.commit("op-1", ("committed", "epoch 1"), "a", "TP2") == 2
    store.commit("op-2", ("committed", "epoch 1"), "b", "PP2")
    store.next_generation("a", "1x1")

    assert store.committed("a") == (2, "TP2", None, None)
    assert lines(store, "op-1") == [("committed", "epoch 1")]


def test_a_commit_that_cannot_be_written_leaves_no_line(store):
    with store._engine.begin() as connection:
        connection.execute(text("ALTER TABLE generations RENAME TO gone"))

    with pytest.raises(StoreError):
        store.commit("op-1", ("committed", "epoch 1"), "a", "TP2")
    assert store.journal("op-1") == []


def walked(listed: Callable[[Page], Listed[T]], limit: int) -> list[T]:
    """Every item of a list, page by page."""
    items, page = [], Page(limit)
    while page is not None:
        part = listed(page)
        assert len(part.items) <= limit
        items += part.items
        page = Page(limit, part.next) if part.next else None
    return items


@rows("limit", [1, 2, 3, 50])
def test_operations_are_listed_newest_first_in_pages(store, limit):
    ended = [operation(f"op-{number}", start_s=number // 2, end_s=9.0) for number in range(5)]
    for one in ended:
        store.save_operation(one)
    running = operation("op-5", start_s=5.0).model_copy(update={"model": "other"})
    store.save_operation(running)

    assert walked(store.operations, limit) == [running, *reversed(ended)]
    assert walked(lambda page: store.operations(page, done=True), limit) == ended[::-1]
    assert walked(lambda page: store.operations(page, done=False), limit) == [running]
    assert walked(lambda page: store.operations(page, model="other", done=True), limit) == []


def test_what_is_new_moves_nothing_on_the_next_page(store):
    for number in range(3):
        store.save_operation(operation(f"op-{number}", start_s=number))
    first = store.operations(Page(2))
    store.save_operation(operation("op-9", start_s=9.0))

    assert [one.id for one in store.operations(Page(2, first.next)).items] == ["op-0"]


def test_plans_are_listed_with_what_applied_them(store):
    for number, model in enumerate("aba"):
        store.save_plan(intent(), plan(id=f"plan-{number}", model=model))
    store.claim_plan("plan-2", operation("op-2"))

    listed = walked(store.plans, 2)
    assert [(one.id, one.applied_by) for one in listed] == [("plan-2", "op-2"), ("plan-1", None), ("plan-0", None)]
    assert [one.id for one in walked(lambda page: store.plans(page, "a"), 1)] == ["plan-2", "plan-0"]


def test_plans_are_listed_by_the_intent_they_serve(store):
    for number, (name, model) in enumerate([("intent-1", "a"), ("intent-2", "a"), ("intent-1", "b")]):
        store.save_plan(intent(), plan(id=f"plan-{number}", intent_id=name, model=model))

    def ids(*only: str | None) -> list[str]:
        return [one.id for one in walked(lambda page: store.plans(page, *only), 1)]

    assert ids(None, "intent-1") == ["plan-2", "plan-0"]
    assert ids("a", "intent-1") == ["plan-0"]
    assert ids(None, "intent-3") == []


def test_it_is_kept_whose_key_said_an_intent(store):
    store.save_intent("intent-1", intent(), said_by="ada")
    store.save_plan(intent("other"), PLAN, said_by="eve")
    store.save_plan(intent("other"), plan(id="plan-2", intent_id="intent-2"), said_by="eve")
    store.save_amendment(version(2).model_copy(update={"said_by": "grace"}))
    store.save_intent("intent-3", intent())

    listed = {one.id: one.said_by for one in store.intents(Page()).items}
    assert listed == {"intent-1": "grace", "intent-2": "eve", "intent-3": None}
    assert store.intent("intent-1", 1).said_by == "ada"


def test_intents_are_listed_in_their_latest_versions(store):
    for name in ("intent-0", "intent-1", "intent-2"):
        store.save_intent(name, intent(name))
    store.save_amendment(version(2))
    store.save_amendment(version(3))

    listed = [(one.id, one.version) for one in walked(store.intents, 2)]
    assert listed == [("intent-2", 1), ("intent-1", 3), ("intent-0", 1)]


def test_any_text_may_be_asked_for_as_an_id(store):
    store.save_plan(intent(), PLAN)

    for name in ("", "plan-1\0", "plan-1'; --", "\ud800", "x" * 10_000, "计划"):
        assert store.plan(name) is None, name
        assert store.operation(name) is None, name
        assert store.intent(name) is None, name
        assert store.plans(Page(), intent_id=name).items == (), name


def test_words_come_back_as_they_were_said(store):
    said = "TTFT < 2s \0 计划 \N{FISH}"
    store.save_intent("intent-1", intent(said))

    assert store.intent("intent-1").text == said
