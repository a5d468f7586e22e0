"""Frames over TLS: whole, in order, with back-pressure; and every certificate that opens nothing is refused by name."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from runtime.errors import EngineStartError
from runtime.hosts import certificates, tls
from runtime.hosts.tls import TlsChannel, connect, context
from tests.forked import FORK_SERVER
from tests.rows import rows

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a deployment with hosts b and c, of another deployment, and of service certificates that do not fit."""
    folder: Path = tmp_path_factory.mktemp("keys")
    certificates.write(folder, ("b", "c"))
    certificates.write(folder / "others", ("b",))
    issuer = certificates._read(folder / certificates.AUTHORITY)
    client, past = ExtendedKeyUsageOID.CLIENT_AUTH, NOW - timedelta(days=400)
    certificates.issue(folder / "expired.pem", "service", client, issuer, past)
    certificates.issue(folder / "b-expired.pem", "b", ExtendedKeyUsageOID.SERVER_AUTH, issuer, past)
    return folder


class End:
    """An end of a connection, and what it hears."""

    def __init__(self, kind: Any = Any) -> None:
        self.messages: list[Any] = []
        self.ends: list[str] = []
        self.rooms: list[bool] = []
        self._news = asyncio.Event()
        self.channel = TlsChannel(kind, self._hear(self.messages), self._hear(self.ends), self.rooms.append)

    def _hear(self, where: list[Any]) -> Any:
        def hear(what: Any) -> None:
            where.append(what)
            self._news.set()

        return hear

    async def until(self, messages: int, ends: int = 0) -> None:
        async with asyncio.timeout(20):
            while len(self.messages) < messages or len(self.ends) < ends:
                self._news.clear()
                await self._news.wait()


class Server:
    """Takes connections as an agent does; ``file`` is its certificate."""

    def __init__(self, file: Path, kind: Any = Any) -> None:
        self.ends: list[End] = []
        self.refused: list[str] = []
        self._file, self._kind = file, kind

    async def __aenter__(self) -> Self:
        self._context = context(self._file, is_server=True)
        self._server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        loop, sock = asyncio.get_running_loop(), self._server.sockets[0].dup()
        self._server.close()
        sock.setblocking(False)
        self.address = sock.getsockname()
        self._sock, self._taking = sock, loop.create_task(self._take(sock))
        return self

    async def _take(self, sock: Any) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(sock)
            end = End(self._kind)
            try:
                await loop.connect_accepted_socket(lambda end=end: end.channel, connection, ssl=self._context)
            except OSError as error:
                self.refused.append(tls.words(error))
            else:
                self.ends.append(end)

    async def __aexit__(self, *_: object) -> None:
        self._taking.cancel()
        self._sock.close()
        for end in self.ends:
            end.channel.close()


async def test_messages_arrive_whole_and_the_end_of_a_connection_is_told_once(keys):
    async with Server(keys / "b.pem") as server:
        ours = End()
        await connect(server.address, "b", keys / "service.pem", ours.channel)
        big = "x" * 300_000
        for number in range(5):
            ours.channel.send([number, big])
        while not server.ends:  # noqa: ASYNC110 - the other end of the handshake
            await asyncio.sleep(0)
        theirs = server.ends[0]
        await theirs.until(5)
        assert theirs.messages == [[number, big] for number in range(5)]
        theirs.channel.send("back")
        await ours.until(1)
        theirs.channel.close()
        await ours.until(1, ends=1)
        ours.channel.send("nobody hears this")
        assert (len(ours.ends), theirs.ends) == (1, [])


async def test_who_does_not_read_makes_the_feeder_wait_and_is_lost_in_the_end(keys, monkeypatch):
    async with Server(keys / "b.pem") as server:
        ours = End()
        await connect(server.address, "b", keys / "service.pem", ours.channel)
        while not server.ends:  # noqa: ASYNC110 - the other end of the handshake
            await asyncio.sleep(0)
        theirs = server.ends[0].channel._transport
        assert theirs is not None
        theirs.pause_reading()
        big = "x" * 4_000_000
        while not ours.rooms:
            ours.channel.send(big)
            await asyncio.sleep(0)
        theirs.resume_reading()
        while ours.rooms != [False, True]:  # noqa: ASYNC110 - the other end reads
            await asyncio.sleep(0)
        theirs.pause_reading()
        monkeypatch.setattr(tls, "MAX_UNSENT_BYTES", 8_000_000)
        while not ours.ends:
            ours.channel.send(big)
            await asyncio.sleep(0)
        assert ours.ends == ["it does not read what it is sent"]


async def test_what_is_no_message_ends_the_connection_by_name(keys):
    async with Server(keys / "b.pem", list[int]) as server:
        ours = End()
        await connect(server.address, "b", keys / "service.pem", ours.channel)
        ours.channel.send("no list")
        await ours.until(0, ends=1)
        while not server.ends or not server.ends[0].ends:  # noqa: ASYNC110 - the other end
            await asyncio.sleep(0)
        assert "a frame was refused (type)" in server.ends[0].ends[0]


WRONG = {
    "of another deployment": ("b.pem", "others/service.pem", "it is of another deployment"),
    "expired": ("b.pem", "expired.pem", "certificate has expired"),
    "an agent's": ("b.pem", "c.pem", "unsuitable certificate purpose"),
    "of a host of another name": ("c.pem", "service.pem", "not valid for 'b'"),
    "of an expired host": ("b-expired.pem", "service.pem", "certificate has expired"),
    "of another deployment's host": ("others/b.pem", "service.pem", "it is of another deployment"),
    "the service's own, shown by a server": ("service.pem", "service.pem", "unsuitable certificate purpose"),
}


@rows("shown, offered, why", WRONG.values(), ids=list(WRONG))
async def test_a_certificate_that_does_not_fit_is_refused_by_name(keys, shown, offered, why):
    async with Server(keys / shown) as server:
        ours = End()
        told = server.refused
        try:
            await connect(server.address, "b", keys / offered, ours.channel)
        except OSError as error:
            told = [tls.words(error)]
        else:  # the client of TLS 1.3 is through before the server has looked
            await ours.until(0, ends=1)
        while not told:  # noqa: ASYNC110 - the other end
            await asyncio.sleep(0)
        assert why in told[0]
        assert not server.ends


async def test_who_shows_no_certificate_or_speaks_no_tls_is_refused(keys):
    async with Server(keys / "b.pem") as server:
        bare = ssl.create_default_context(cafile=str(keys / certificates.AUTHORITY))
        reader, writer = await asyncio.open_connection(*server.address, ssl=bare, server_hostname="b")
        assert await reader.read() == b""
        writer.close()
        _, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        while len(server.refused) < 2:  # noqa: ASYNC110 - the other end
            await asyncio.sleep(0)
        writer.close()
        assert server.refused == ["peer did not return a certificate", "http request"]
        assert not server.ends


def test_certificates_are_made_once_and_anew_before_their_end(tmp_path):
    names = [file.name for file in certificates.write(tmp_path, ("b",), NOW)]
    assert names == ["authority.pem", "service.pem", "b.pem"]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert certificates.write(tmp_path, ("b",), NOW) == []
    assert [file.name for file in certificates.write(tmp_path, ("b", "c"), NOW)] == ["c.pem"]
    late = NOW + certificates.LIFE - timedelta(days=3)
    assert len(certificates.write(tmp_path, ("b", "c"), late)) == 3  # the authority lasts
    (tmp_path / "authority.pem").unlink()
    assert len(certificates.write(tmp_path, ("b", "c"), late)) == 4  # those of another authority are of no use
    (tmp_path / "authority.pem").write_text("nothing")
    with pytest.raises(EngineStartError, match=r"authority\.pem cannot be read"):
        certificates.write(tmp_path, ("b",), NOW)


def test_a_file_without_a_certificate_is_refused(keys, tmp_path):
    for text in ("", "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"):
        (tmp_path / "b.pem").write_text(text)
        with pytest.raises(EngineStartError, match="is no file of `intentctl hosts init`"):
            context(tmp_path / "b.pem", is_server=True)


def test_on_one_host_nothing_of_this_is_imported():
    """Neither the service nor an engine's process has it in memory."""
    code = (
        "import sys; import service.app, service.control.composition, runtime.torch_engine.engine, runtime.vllm_engine.engine;"
        "import runtime.torch_engine.driver.loop;"
        "found = [one for one in sys.modules if one.startswith(('runtime.hosts', 'cryptography.x509', 'ray'))];"
        "assert not found, found;"
        "import runtime.hosts.look, runtime.hosts.agent;"  # agents by hand
        "assert 'ray' not in sys.modules"
    )
    child = FORK_SERVER.Process(target=exec, args=(code,))  # it has the driver imported
    child.start()
    child.join()
    assert child.exitcode == 0
