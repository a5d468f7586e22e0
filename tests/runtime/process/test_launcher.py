"""Processes started here: copies of a warm parent and modules, known by their incarnation, ended with all they started."""

import asyncio
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runtime.process.channel import BlockingChannel
from runtime.process.launcher import LocalLauncher, Process, Program, group_pids
from runtime.torch_engine.messages import FromWorker, Loaded, ToWorker

pytestmark = pytest.mark.slow
HERE = "tests.runtime.process.test_launcher"


def run(sock: socket.socket) -> None:
    """Body of a copy: answers each message, and starts a process of its own with the first."""
    channel = BlockingChannel(sock, ToWorker)
    for message in channel.messages():
        if message.generation == 0 and os.fork() == 0:
            time.sleep(600)
        channel.send(Loaded(message.generation + 1))


class Heard:
    def __init__(self, launcher: LocalLauncher, program: Program) -> None:
        self.messages: list[Any] = []
        self.ends: list[str] = []
        self._news = asyncio.Event()
        self.process: Process = launcher.start(program, self._hear, self._end)

    def _hear(self, message: Any) -> None:
        self.messages.append(message)
        self._news.set()

    def _end(self, why: str) -> None:
        self.ends.append(why)
        self._news.set()

    async def until(self, messages: int, ends: int = 0) -> None:
        async with asyncio.timeout(60):
            while len(self.messages) < messages or len(self.ends) < ends:
                self._news.clear()
                await self._news.wait()


def run_of(generation: int) -> Any:
    from runtime.torch_engine.messages import Run

    return Run(generation, 0, [], (), [], [])


async def test_a_copy_is_known_by_host_device_and_incarnation_and_told_of_when_it_dies():
    launcher, program = LocalLauncher("a"), Program(HERE, FromWorker, 3, is_warm=True)
    first, second = Heard(launcher, program), Heard(launcher, program)
    known = [heard.process.incarnation for heard in (first, second)]
    assert [(one.host, one.device) for one in known] == [("a", 3)] * 2
    assert known[0] != known[1]
    first.process.send(run_of(4))
    await first.until(1)
    assert first.messages == [Loaded(5)]
    os.kill(first.process.pid, signal.SIGKILL)
    await first.until(1, ends=1)
    for heard in (first, second):
        heard.process.end()
        await heard.process.close()
    assert (first.ends, second.ends) == ([""], [])


async def test_the_end_of_a_process_is_waited_for_though_others_take_all_threads():
    release = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = loop.run_in_executor(None, release.wait)
    heard = Heard(LocalLauncher(), Program(HERE, FromWorker, 3, is_warm=True))
    heard.process.end()
    try:
        async with asyncio.timeout(60):
            await heard.process.close()
    finally:
        release.set()
        await waiting


async def test_what_is_no_message_is_told_as_its_end():
    heard = Heard(LocalLauncher(), Program(HERE, list[int], is_warm=True))
    heard.process.send(run_of(1))
    await heard.until(0, ends=1)
    assert "a frame was refused (type)" in heard.ends[0]
    heard.process.end()
    await heard.process.close()


async def test_a_module_ends_with_all_that_it_started_and_its_folder():
    heard = Heard(LocalLauncher(), Program(HERE, FromWorker, has_folder=True))
    folder = heard.process.folder
    assert folder is not None
    heard.process.send(run_of(0))
    await heard.until(1)
    assert len(group_pids(heard.process.pid)) == 2
    heard.process.end()
    await heard.process.close()
    assert group_pids(heard.process.pid) == []
    assert not folder.exists()
    assert heard.ends == []


if __name__ == "__main__":
    import sys

    run(socket.socket(fileno=int(sys.argv[1])))
