"""Channels: whole messages in order, however the bytes come; an end that is told once; no waiting for a slow reader."""

import asyncio
import contextlib
import socket
import threading
from typing import Any

import pytest

from runtime.process.channel import AsyncChannel, BlockingChannel, encode


class Inbox:
    def __init__(self, sock: socket.socket) -> None:
        self.messages: list[Any] = []
        self.ends = 0
        self._news = asyncio.Event()
        self.channel = AsyncChannel(sock, self._hear, self._end)

    def _hear(self, message: Any) -> None:
        self.messages.append(message)
        self._news.set()

    def _end(self, why: str) -> None:
        self.why = why
        self.ends += 1
        self._news.set()

    async def until(self, count: int, ends: int = 0) -> None:
        async with asyncio.timeout(20):
            while len(self.messages) < count or self.ends < ends:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


async def test_messages_arrive_whole_whatever_the_pieces(pair):
    ours, theirs = pair
    inbox = Inbox(ours)
    data = encode({"a": 1}) + encode([2]) + encode("three")
    for start in range(0, len(data), 5):
        theirs.sendall(data[start : start + 5])
        await asyncio.sleep(0)
    await inbox.until(3)
    assert inbox.messages == [{"a": 1}, [2], "three"]
    inbox.channel.close()
    theirs.close()


async def test_a_slow_reader_blocks_nobody_and_loses_nothing(pair):
    ours, theirs = pair
    sender = AsyncChannel(ours, lambda _: None, lambda _: None)
    big = "x" * 300_000  # more than a socket buffer
    for number in range(5):
        sender.send((number, big))
    inbox = Inbox(theirs)
    await inbox.until(5)
    assert [number for number, _ in inbox.messages] == list(range(5))
    assert {len(text) for _, text in inbox.messages} == {300_000}
    sender.close()
    inbox.channel.close()


async def test_a_later_message_never_overtakes_what_waits_for_room(pair):
    ours, theirs = pair
    sender = AsyncChannel(ours, lambda _: None, lambda _: None)
    sender.send("x" * 1_000_000)
    received = bytearray(theirs.recv(1 << 16))  # there is room again, before the loop has seen it
    sender.send("small")
    theirs.setblocking(False)
    want = encode("x" * 1_000_000) + encode("small")
    async with asyncio.timeout(20):
        while len(received) < len(want):
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                received += theirs.recv(1 << 18)
    assert received == want
    sender.close()
    theirs.close()


async def test_the_end_of_the_other_side_is_told_once_after_its_last_message(pair):
    ours, theirs = pair
    inbox = Inbox(ours)
    theirs.sendall(encode("last words"))
    theirs.close()
    await inbox.until(1, ends=1)
    inbox.channel.send("to nobody")
    assert (inbox.messages, inbox.ends) == (["last words"], 1)


async def test_closing_ones_own_end_calls_nobody_back(pair):
    inbox = Inbox(pair[0])
    inbox.channel.close()
    inbox.channel.close()
    assert pair[1].recv(1) == b""
    assert inbox.ends == 0
    pair[1].close()


def test_threads_of_a_worker_do_not_mix_their_messages(pair):
    channel = BlockingChannel(pair[0])
    threads = [
        threading.Thread(target=lambda n=n: [channel.send((n, "y" * 50_000)) for _ in range(20)]) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    received = []
    for message in BlockingChannel(pair[1]).messages():
        received.append(message)
        if len(received) == 60:
            break
    assert sorted(number for number, _ in received) == [0] * 20 + [1] * 20 + [2] * 20
    for thread in threads:
        thread.join()
    for sock in pair:
        sock.close()
