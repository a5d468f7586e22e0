"""Streams behind Debian's nginx as it comes: it holds back what does not ask it not to."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.rows import rows
from tests.service.asking import until
from tests.service.examples import operation
from tests.service.scripted import ScriptedService

pytestmark = pytest.mark.slow

CONFIG = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; gzip on; gzip_types *; gzip_min_length 1;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream localhost {{ server {address}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://localhost; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


@pytest.fixture
def behind(shared: ScriptedService, tmp_path) -> Iterator[httpx.Client]:
    """A client of the service behind nginx."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("no nginx on this machine; install it (apt-get install nginx-light)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = shared.url.removeprefix("http://")
    (tmp_path / "nginx.conf").write_text(CONFIG.format(folder=tmp_path, address=address, port=port))
    running = subprocess.Popen([program, "-e", f"{tmp_path}/error.log", "-c", f"{tmp_path}/nginx.conf"])
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:

        def answers() -> bool:
            try:
                return http.get("/health").status_code == 200
            except httpx.ConnectError:
                return False

        try:
            until(answers, "nginx answers")
            yield http
        finally:
            running.kill()
            running.wait()


@rows("accepted", ["identity", "gzip"])
def test_each_token_reaches_its_client_before_the_next_one_is_made(behind, shared, accepted):
    body = {"model": "counting", "prompt": "abc", "max_tokens": 3, "stream": True}
    headers = {"Accept-Encoding": accepted}
    engine = shared.engine

    def one_token() -> None:
        shared.until(lambda: bool(engine.requests))
        for _ in ("prompt", "token"):
            shared.do(engine.turn)

    shared.do(engine.hold)
    try:
        with ThreadPoolExecutor(1) as beside:
            first = beside.submit(one_token)
            with behind.stream("POST", "/openai/v1/completions", json=body, headers=headers) as stream:
                assert stream.status_code == 200
                said = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))
                assert next(said)["choices"][0]["text"] == "a"
                first.result()
                for text in "bc":
                    shared.do(engine.turn)
                    assert next(said)["choices"][0]["text"] == text
    finally:
        shared.do(engine.resume)


def test_an_event_reaches_whoever_looks_while_nothing_else_happens(behind, shared):
    shared.do(shared.parts.events.publish, "operation", operation("behind-nginx"))
    headers = {"Accept-Encoding": "gzip", "Last-Event-ID": "0"}
    with behind.stream("GET", "/v1/events", headers=headers) as stream:
        assert any("behind-nginx" in line for line in stream.iter_lines())
