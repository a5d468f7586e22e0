"""Which replica a request gets: the one that ends it first, within bounds, with the plan's shares among equals."""

from runtime.replicas.choice import UNBOUND, Bounds, Forecast, Measured, ReplicaSpeed, Work, choose, forecast
from runtime.replicas.prefixes import BLOCK, Prefixes, keys_of
from tests.rows import rows

FAST = Forecast(0.2, 0.02, 2.0)
ALIKE = Forecast(0.3, 0.019, 2.01)
SLOW = Forecast(0.5, 0.06, 7.0)
NOTHING = Measured()
NEVER = (False, False, False)


@rows(
    ("forecasts", "bounds", "behind", "avoided", "place"),
    [
        ((SLOW, FAST), UNBOUND, (0, 0), NEVER[:2], 1),
        ((FAST, ALIKE), UNBOUND, (0.0, 0.2), NEVER[:2], 1),
        ((FAST, ALIKE), UNBOUND, (0.2, 0.0), NEVER[:2], 0),
        ((FAST, ALIKE), UNBOUND, (0.0, 0.0), NEVER[:2], 0),
        ((FAST, SLOW), UNBOUND, (0.0, 0.9), NEVER[:2], 0),
        ((FAST, SLOW), Bounds(tpot_s=0.01), (0, 0), NEVER[:2], 0),
        ((SLOW, FAST), Bounds(ttft_s=0.5), (0.9, 0), NEVER[:2], 1),
        ((FAST, SLOW), Bounds(ttft_s=0.39), (0, 0.9), NEVER[:2], 0),
        ((FAST, SLOW), UNBOUND, (0, 0), (True, False), 0),
        ((FAST, ALIKE), UNBOUND, (0.9, 0), (True, False), 1),
        ((FAST, SLOW), UNBOUND, (0, 0), (True, True), 0),
        ((FAST, SLOW, ALIKE), Bounds(tpot_s=0.019), (0, 0, 0), NEVER, 2),
    ],
)
def test_the_choice(forecasts, bounds, behind, avoided, place):
    assert choose(forecasts, bounds, behind, avoided) == place


def test_work_ahead_and_a_full_batch_are_waited_for():
    speed = ReplicaSpeed(step_s=0.01, sequence_s=0.001, token_s=0.001, slots=4)
    idle = forecast(speed, NOTHING, Work(), 100, 10)
    assert (idle.ttft_s, idle.tpot_s) == (100 * 0.001 + 0.011, 0.011)
    assert idle.finish_s == idle.ttft_s + 10 * idle.tpot_s
    behind = forecast(speed, NOTHING, Work(waiting=1, prompt_tokens=500), 100, 10)
    assert behind.ttft_s == 600 * 0.001 + 0.012
    full = forecast(speed, NOTHING, Work(running=4), 100, 10)
    assert full.tpot_s == 0.014
    assert full.ttft_s == 100 * 0.001 + 0.014 + 10 * 0.014 / 4


def test_measurements_change_a_speed():
    speed = ReplicaSpeed(token_s=0.001)
    found = forecast(speed, Measured(decoding=3.0, prefilling=2.0), Work(), 100, 1)
    assert found.tpot_s == 3 * (speed.step_s + speed.sequence_s)
    assert found.ttft_s == 0.2 + found.tpot_s


def test_whole_blocks_of_a_beginning_are_known_to_who_computed_them():
    known = Prefixes[str]()
    begun = tuple(range(3 * BLOCK))
    known.note(keys_of(begun), "a")
    known.note(keys_of(begun[: 2 * BLOCK] + (7,) * BLOCK), "b")
    asked = keys_of((*begun, 5))
    assert known.cached(asked, "abc") == {"a": 3, "b": 2}
    assert known.cached(keys_of((1, *begun)), "a") == {}, "the same tokens elsewhere are another beginning"
    known.forget("a")
    assert known.cached(asked, "ab") == {"b": 2}
