from service.documents.intents import ChangeDocument, VersionDocument
from service.store import Store
from tests.service.examples import GOAL, intent, operation, plan

PLAN = plan()


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

    assert store.plan("plan-1") == (PLAN, None)
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
    assert store.intent("intent-1").text == "first"


def test_a_plan_for_an_intent_that_is_kept_leaves_it_as_it_is(store):
    store.save_intent("intent-1", intent("faster"))
    store.save_plan(intent("other"), PLAN)

    assert store.intent("intent-1").text == "faster"
    assert store.plan("plan-1") == (PLAN, None)


def test_a_plan_is_claimed_once_and_the_second_operation_is_not_kept(store):
    store.save_plan(intent(), PLAN)

    assert store.claim_plan("plan-1", operation())
    assert not store.claim_plan("plan-1", operation("op-2"))
    assert store.plan("plan-1") == (PLAN, "op-1")
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

    assert store.journal("op-1") == [("warming", "epoch 1"), ("cutting", "epoch 1")]
