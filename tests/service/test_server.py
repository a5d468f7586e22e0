import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from service.errors import StartError
from service.server import bind

EXAMPLE = Path(__file__).parents[2] / "examples" / "local-cpu.yaml"


def children(pid: int) -> list[int]:
    """Processes a process started that still run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_port_zero_lets_the_system_choose():
    with bind("127.0.0.1", 0) as one, bind("127.0.0.1", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


async def test_tokens_do_not_wait_for_the_clients_acknowledgement():
    options = asyncio.get_running_loop().create_future()

    def accepted(reader, writer):
        connection = writer.get_extra_info("socket")
        options.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await options
            writer.close()


def test_a_port_in_use_is_named_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*--port"):
            bind("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_named():
    with pytest.raises(StartError, match=r"203\.0\.113\.1"):
        bind("203.0.113.1", 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_ends_its_engine_and_itself(tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "intentctl",
        "serve",
        "--port",
        "0",
        "--data-dir",
        tmp_path,
        "--deployment",
        EXAMPLE,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert opener.open(f"{url}/healthz").status == 200
        drivers = children(process.pid)
        body = {"model": "counting", "prompt": "count by 7 from 23:", "max_tokens": 9000, "stream": True}
        asked = urllib.request.Request(
            f"{url}/openai/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        stream = opener.open(asked)
        assert stream.readline().startswith(b'data: {"id"')
        process.send_signal(number)

        assert b"the service is stopping; send the request again" in stream.read()
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""
    assert drivers
    assert not [pid for pid in drivers if Path(f"/proc/{pid}").exists()]
