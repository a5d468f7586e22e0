"""A vLLM driver's signs of life, and its end when steps make no progress."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from runtime.errors import Reason
from runtime.process.messages import Beat, Fatal
from runtime.vllm_engine.driver.boot import Pulse


class Heard(list[Any]):
    send = list.append


def test_steps_without_progress_end_the_process_and_name_the_worker():
    heard, ended = Heard(), list[int]()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        pulse = Pulse(heard, 3.0, lambda: ended.append(1))  # type: ignore[arg-type] - what it needs of one
        pulse.beat()
        pulse.driver = driver = SimpleNamespace(is_idle=False, turns=1, pids=(os.getpid(), worker.pid))  # type: ignore[assignment]
        pulse.beat()
        for _ in range(10):
            driver.turns += 1
            pulse.beat()
        driver.is_idle = True
        for _ in range(10):
            pulse.beat()
        assert heard == [Beat(0.0)] * 22
        driver.is_idle = False
        for _ in range(3):
            pulse.beat()
        assert not ended
        pulse.beat()
        worker.kill()
    assert ended == [1]
    detail = f"no step ended for 4 s: the worker of rank 1 (process {worker.pid}) is stopped"
    assert heard[22:] == [Beat(1.0), Beat(2.0), Beat(3.0), Beat(4.0), Fatal(Reason.RANK_LOST, detail)]


def test_a_step_may_take_some_times_the_slowest_one():
    heard, ended = Heard(), list[int]()
    pulse = Pulse(heard, 3.0, lambda: ended.append(1))  # type: ignore[arg-type] - the same
    pulse.driver = driver = SimpleNamespace(is_idle=False, turns=0, pids=())  # type: ignore[assignment]
    for _ in range(3):
        pulse.beat()
    driver.turns += 1
    pulse.beat()
    for _ in range(14):
        pulse.beat()
    assert not ended
    for _ in range(2):
        pulse.beat()
    assert ended


def test_a_driver_imports_torch_after_it_has_set_how_many_threads_it_uses():
    code = "import sys; import runtime.vllm_engine.driver.boot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
