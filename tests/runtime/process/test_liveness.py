"""Deadlines of other processes: a pause of one's own is nobody's fault, silence is."""

import pytest

from runtime.errors import EngineLostError
from runtime.process import liveness
from runtime.process.liveness import AwakeClock, DriverWatchdog, Pauses
from runtime.process.messages import Beat
from tests.rows import rows


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(liveness, "time", made)
    return made


@rows(("stall_after_s", "lost_after_s"), [(0, 20), (1, 20), (20, 10), (10, 10), (10, 86400)])
async def test_deadlines_that_make_no_sense_are_refused_with_what_to_do(stall_after_s, lost_after_s):
    with pytest.raises(ValueError, match="give seconds without progress"):
        DriverWatchdog(stall_after_s, lost_after_s, print)


async def test_however_long_this_process_stood_still_it_is_one_turn(time):
    clock = AwakeClock(lambda: None)
    for pause_s in (0.25, 60.0, 0.25):
        time.now_s += pause_s
        clock._turn()
    assert clock.now_s == 1.0
    clock.stop()


async def test_a_silent_driver_stalls_and_is_then_ended_once(time):
    ended: list[str] = []
    vigil = DriverWatchdog(2, 3, ended.append)

    def wait(seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            time.now_s += 0.25
            vigil._clock._turn()

    wait(59)  # it imports torch
    vigil.hear(Beat())
    wait(59)  # and loads
    assert not vigil.is_stalled
    vigil.begin()
    wait(2)
    assert not vigil.is_stalled
    wait(0.25)
    assert vigil.is_stalled
    vigil.hear(Beat(stalled_s=2.5))
    assert vigil.is_stalled
    vigil.hear(Beat())
    assert not vigil.is_stalled
    assert ended == []
    wait(3.25)
    assert ended == ["its driver gave no sign of life for 3 s and was ended"]
    vigil.stop()


async def test_a_driver_that_never_begins_is_ended(time):
    ended: list[str] = []
    vigil = DriverWatchdog(2, 3, ended.append)
    for _ in range(4 * 60 + 1):
        time.now_s += 0.25
        vigil._clock._turn()
    assert len(ended) == 1
    vigil.stop()


def test_starts_one_after_the_other_are_further_and_further_apart(time):
    pauses = Pauses()
    assert [pauses.next_s() for _ in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    pauses.served()
    time.now_s += 5
    pauses.lost()
    assert pauses.next_s() == 60
    pauses.served()
    time.now_s += 61
    pauses.lost()
    assert pauses.next_s() == 0


def test_what_serves_for_ten_times_its_pause_is_not_further_apart(time):
    pauses, seen = Pauses(), list[float]()
    for served_s in (20, 20, 9, 19, 5, 41, 61):
        pauses.served()
        time.now_s += served_s
        pauses.lost()
        seen.append(pauses.next_s())
    assert seen == [0, 0, 1, 1, 2, 2, 0]


def test_a_device_is_to_blame_for_its_second_failed_start_or_at_once_if_it_is_broken(time):
    died, broken, other = EngineLostError("died"), EngineLostError("ECC"), EngineLostError("no memory")
    died.device, broken.device, broken.is_broken = 1, 2, True
    pauses = Pauses()
    assert [pauses.is_to_blame(one) for one in (died, other, broken, died)] == [False, False, True, True]
    pauses.served()
    time.now_s += 5
    pauses.lost()
    assert pauses.is_to_blame(died)
    pauses.served()
    time.now_s += 61
    pauses.lost()
    assert not pauses.is_to_blame(died)
