"""What outlives the process of promises, on each kind of database."""

from service.documents.promises import LatencyDocument, PastLoadDocument, TenantLoadDocument
from service.promises.attainment import Tally
from service.store.book import KEPT_S, Book, Control, GoalKey
from service.store.store import Store

GOAL = GoalKey("m", "intent-1", "p99 TTFT <= 2 s", "at peak", "requests", 0.99)


def test_counts_add_up_by_hour_and_over_hours(store: Store) -> None:
    book = Book(store)
    book.count({GOAL: Tally(3, 4)}, 7200.0)
    book.count({GOAL: Tally(1, 1)}, 7300.0)
    book.count({GOAL: Tally(5, 10)}, 3600.0)
    (all_of_it,) = book.attainments(0.0)
    assert (all_of_it.met, all_of_it.total, all_of_it.counted) == (9, 15, "requests")
    (last_hour,) = book.attainments(7250.0)
    assert (last_hour.share, last_hour.needed) == (0.8, 0.99)


def test_how_the_controller_stands_is_kept(store: Store) -> None:
    book = Book(store)
    assert book.control("recommend") == Control("recommend")
    book.set_control(Control("act", paused=True, resumed_s=5.0))
    book.set_control(Control("observe", paused=True, resumed_s=6.0))
    assert Book(store).control("recommend") == Control("observe", paused=True, resumed_s=6.0)


def test_loads_are_kept_for_a_while(store: Store) -> None:
    book = Book(store)
    asked = {"rate_rps": 1.0, "input_tokens": 2, "output_tokens": 3, "concurrency": 4, "requests": 5}
    times = dict.fromkeys(("ttft_s", "tpot_s", "e2e_s"), LatencyDocument())
    everybody = TenantLoadDocument(tenant="", failed=0, waiting=0, **asked, **times)
    for begins_s in (100.0, 400.0, 200.0 + KEPT_S):
        book.keep_load(PastLoadDocument(model="m", begins_s=begins_s, seconds=300, tenants=(everybody,)))
    kept = book.loads(0.0)
    assert [one.begins_s for one in kept] == [400.0, 200.0 + KEPT_S]
    assert kept[0].tenants == (everybody,)
