"""A host has one service at a time: who claims it waits until nothing is left of the one before, or is refused by name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.hosts import certificates
from runtime.hosts.messages import Claim
from runtime.hosts.remote import RemoteHost
from runtime.process.launcher import Process
from runtime.process.messages import Beat
from tests.runtime.hosts.test_agent import Heard, There, is_there

pytestmark = pytest.mark.slow


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[There]:
    certificates.write(tmp_path, ("b",))
    made = There(tmp_path)
    yield made
    await made.close()


async def echoes(host: RemoteHost) -> Heard:
    heard = Heard(host)
    heard.process.send(Beat(7.0))
    await heard.until(1)
    return heard


async def test_a_host_has_one_service_and_another_one_waits_until_it_is_gone(there):
    first = await there.host()
    running = await echoes(first)
    with pytest.raises(ConnectionError, match="the service http://a:1 has host b, and a host has one service"):
        await there.host(claim=Claim("other", 9, "http://z:1"))
    unclaimed = Heard(await there.host(claim=None))
    await unclaimed.until(0, ends=1)
    assert unclaimed.ends == ["no process can be started on host b: the service has not claimed it"]
    assert is_there(running.process.pid)
    first.close()
    await echoes(await there.host(claim=Claim("other", 9, "http://z:1")))
    assert not is_there(running.process.pid)


async def test_a_later_owner_of_the_database_has_the_host_once_the_earlier_ones_processes_are_gone(there, monkeypatch):
    running = await echoes(await there.host())
    ended = asyncio.Event()
    close = Process.close

    async def slowly(process: Process) -> None:
        await ended.wait()
        await close(process)

    monkeypatch.setattr(Process, "close", slowly)
    claiming = asyncio.create_task(there.host(claim=Claim("d", 2, "http://b:2")))
    await running.until(1, ends=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(claiming), 0.3)
    ended.set()
    later = await echoes(await claiming)
    assert not is_there(running.process.pid)
    with pytest.raises(ConnectionError, match="http://b:2 owns the database now, and with it host b"):
        await there.host()
    assert is_there(later.process.pid)
