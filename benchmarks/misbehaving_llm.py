"""An OpenAI-compatible HTTP endpoint on a real port that misbehaves on demand, for tests and benchmarks of what asks one.

``FAULTS`` is the table of misbehaviour: what the endpoint does when it is asked about ``TEXT``, and what must come of it.
"""

import gzip
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from intent.errors import Failure
from intent.llm.quotes import wire_schema
from intent.models import LlmSettings

TEXT = "keep P99 TTFT < 2s at peak and TPOT < 50 ms overnight"
KEY = "sk-secret-key-0123456789"

Answer = dict[str, Any]
Reply = Callable[["Exchange"], None]
Expected = Failure | Literal["ok", "clarify", "out_of_scope"]
"""The rules answer because of this failure, the LLM's answer holds, there is a question, or no wish."""


def goal(**slots: str) -> Answer:
    """A goal of the wire schema; what is not given is null."""
    names = wire_schema()["properties"]["goals"]["items"]["required"]
    return {**dict.fromkeys(names), **slots}


TTFT = goal(
    evidence="P99 TTFT < 2s at peak", type="objective", subject="ttft", stat="p99", comparison="<=", number="2",
    unit="s", window="at peak",
)  # fmt: skip
TPOT = goal(
    evidence="TPOT < 50 ms overnight", type="objective", subject="tpot", comparison="<=", number="50", unit="ms",
    window="overnight",
)  # fmt: skip
NOTHING: Answer = {"goals": [], "told": [], "inventory": [], "unplaced": []}
GOOD: Answer = {**NOTHING, "goals": [TTFT, TPOT]}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request under way; ``released`` is set when the endpoint closes."""

    handler: BaseHTTPRequestHandler
    released: threading.Event
    number: int
    """Of this request, from 1."""

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """A whole answer; header names with underscores for dashes."""
        self.head(status, content_length=str(len(body)), **headers)
        self.handler.wfile.write(body)

    def head(self, status: int, **headers: str) -> None:
        """Status line and headers alone."""
        self.handler.send_response(status)
        for name, value in {"content_type": "application/json", **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def drip(self, pieces: int, pause_s: float) -> bool:
        """Single spaces, one at a time; False if the endpoint closed meanwhile."""
        for _ in range(pieces):
            self.handler.wfile.write(b" ")
            if self.released.wait(pause_s):
                return False
        return True

    def reset(self) -> None:
        """Drop the connection without a farewell."""
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handler.connection.shutdown(socket.SHUT_RD)
        self.handler.connection.close()


class Endpoint:
    """A server that gives one scripted reply to every request and keeps what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def settings(self, timeout_s: float = 20.0) -> LlmSettings:
        """What a translator needs to ask this endpoint."""
        url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return LlmSettings(base_url=url, model="m", api_key=KEY, timeout_s=timeout_s)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint.requests.append({"path": self.path, "headers": headers, "body": body})
                try:
                    endpoint.reply(Exchange(self, endpoint._released, len(endpoint.requests)))
                except OSError:
                    self.close_connection = True  # the client left first, which is what some faults are about

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
                pass

        return Handler


# -- replies ---------------------------------------------------------------------------------------


def completion(content: Any, finish_reason: str = "stop", **message: Any) -> bytes:
    """A chat completion as JSON."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(body).encode()


def saying(content: Any, finish_reason: str = "stop", **message: Any) -> Reply:
    """A completion with this content; an answer is written as JSON."""
    text = json.dumps(content, ensure_ascii=False) if isinstance(content, dict) else content
    return lambda exchange: exchange.send(200, completion(text, finish_reason, **message))


def sending(status: int, body: str = "{}", **headers: str) -> Reply:
    """Any HTTP answer."""
    return lambda exchange: exchange.send(status, body.encode(), **headers)


def in_turn(*replies: Reply) -> Reply:
    """One after the other; the last one again and again."""
    return lambda exchange: replies[min(exchange.number, len(replies)) - 1](exchange)


def _changed(**slots: str | None) -> Reply:
    """The good answer with something else in its first goal."""
    return saying({**GOOD, "goals": [{**TTFT, **slots}, TPOT]})


def _hang(exchange: Exchange) -> None:
    exchange.released.wait()


def _hang_in_body(exchange: Exchange) -> None:
    exchange.head(200, content_length="1000")
    exchange.handler.wfile.write(b'{"id": ')
    exchange.released.wait()


def _drip(exchange: Exchange) -> None:
    """A good answer behind so many single spaces that no read ever times out."""
    exchange.head(200)
    if exchange.drip(100_000, 0.02):
        exchange.handler.wfile.write(completion(json.dumps(GOOD)))


def _drip_headers(exchange: Exchange) -> None:
    exchange.handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-padding: ")
    exchange.drip(100_000, 0.02)


def _leave(exchange: Exchange) -> None:
    exchange.handler.close_connection = True


def _reset(exchange: Exchange) -> None:
    exchange.reset()


def _reset_in_body(exchange: Exchange) -> None:
    exchange.head(200, content_length="1000")
    exchange.handler.wfile.write(completion(json.dumps(GOOD))[:100])
    exchange.handler.wfile.flush()
    exchange.reset()


def _short(exchange: Exchange) -> None:
    body = completion(json.dumps(GOOD))
    exchange.head(200, content_length=str(len(body) + 10))
    exchange.handler.wfile.write(body)
    exchange.handler.close_connection = True


def _endless(exchange: Exchange) -> None:
    exchange.head(200)
    while not exchange.released.is_set():
        exchange.handler.wfile.write(b" " * 65_536)


def _bomb(exchange: Exchange) -> None:
    exchange.send(200, gzip.compress(b" " * (64 << 20)), content_encoding="gzip")


def _compressed(exchange: Exchange) -> None:
    exchange.send(200, gzip.compress(completion(json.dumps(GOOD))), content_encoding="gzip")


def _not_http(exchange: Exchange) -> None:
    exchange.handler.wfile.write(b"220 mail.example ESMTP\r\n")
    exchange.handler.close_connection = True


def _redirected(exchange: Exchange) -> None:
    """To a place that would answer well: an operator's words go nowhere but where they were sent."""
    if exchange.handler.path == "/elsewhere":
        exchange.send(200, completion(json.dumps(GOOD)))
    else:
        exchange.send(307, b"", location="/elsewhere")


def _key_said(exchange: Exchange) -> None:
    error = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    exchange.send(401, json.dumps(error).encode())


# -- the table -------------------------------------------------------------------------------------

_TEXT = json.dumps(GOOD)
_HTML = "<html><body>Please log in</body></html>"
_ERROR = json.dumps({"error": {"message": "broken", "type": "x", "code": None}})
_RUNAWAY = '{"goals": [' + " \n" * 4_000
_INVENTED = goal(
    evidence="cost under 5 USD/h", type="objective", subject="cost", comparison="<=", number="5", unit="USD/h"
)

TRANSPORT: Mapping[str, tuple[Reply, Expected]] = {
    "hangs": (_hang, Failure.TIMEOUT),
    "hangs in the body": (_hang_in_body, Failure.TIMEOUT),
    "drips the body": (_drip, Failure.TIMEOUT),
    "drips the headers": (_drip_headers, Failure.TIMEOUT),
    "leaves without a word": (_leave, Failure.UNREACHABLE),
    "resets the connection": (_reset, Failure.UNREACHABLE),
    "resets in the body": (_reset_in_body, Failure.UNREACHABLE),
    "sends less than it said": (_short, Failure.UNREACHABLE),
    "sends without end": (_endless, Failure.TOO_LARGE),
    "sends a gzip bomb": (_bomb, Failure.COMPRESSED),
    "compresses unasked": (_compressed, Failure.COMPRESSED),
    "is no HTTP server": (_not_http, Failure.UNREACHABLE),
    "redirects": (_redirected, Failure.REDIRECTED),
    "400": (sending(400, _ERROR), Failure.REQUEST_REJECTED),
    "401 and says the key": (_key_said, Failure.UNAUTHORISED),
    "403": (sending(403, _ERROR), Failure.UNAUTHORISED),
    "404": (sending(404, _ERROR), Failure.NOT_FOUND),
    "422": (sending(422, _ERROR), Failure.REQUEST_REJECTED),
    "429": (sending(429, _ERROR, retry_after="1"), Failure.RATE_LIMITED),
    "429 for an hour": (sending(429, _ERROR, retry_after="3600"), Failure.RATE_LIMITED),
    "500": (sending(500, _ERROR), Failure.SERVER_ERROR),
    "502 in HTML": (sending(502, _HTML, content_type="text/html"), Failure.SERVER_ERROR),
    "500, then well": (in_turn(sending(500, _ERROR), saying(GOOD)), "ok"),
    "HTML with status 200": (sending(200, _HTML, content_type="text/html"), Failure.NOT_A_COMPLETION),
    "JSON that is no completion": (sending(200, "{}"), Failure.NOT_A_COMPLETION),
    "a list": (sending(200, "[]"), Failure.NOT_A_COMPLETION),
    "no choices": (sending(200, '{"choices": []}'), Failure.NOT_A_COMPLETION),
    "an error with status 200": (sending(200, _ERROR), Failure.NOT_A_COMPLETION),
    "half of a completion": (sending(200, completion(_TEXT)[:90].decode()), Failure.NOT_A_COMPLETION),
    "nothing with status 204": (sending(204, ""), Failure.NOT_A_COMPLETION),
}
"""What goes wrong before there is an answer."""

FORM: Mapping[str, tuple[Reply, Expected]] = {
    "well": (saying(GOOD), "ok"),
    "well, in a fence": (saying(f"```json\n{_TEXT}\n```"), "ok"),
    "prose before JSON": (saying("Sure, here it is: " + _TEXT), Failure.NOT_JSON),
    "prose": (saying("You want a fast service."), Failure.NOT_JSON),
    "thinking aloud": (saying("<think>P99?</think>" + _TEXT), Failure.NOT_JSON),
    "JSON twice": (saying(_TEXT + _TEXT), Failure.NOT_JSON),
    "cut off by the limit": (saying(_TEXT[:200], "length"), Failure.CUT_OFF),
    "cut off as if complete": (saying(_TEXT[:-1]), Failure.NOT_JSON),
    "cut off after a goal": (saying(json.dumps({"goals": [TTFT]})[:-2]), Failure.NOT_JSON),
    "white space to the limit": (saying(_RUNAWAY, "length"), Failure.CUT_OFF),
    "white space as if complete": (saying(_RUNAWAY), Failure.NOT_JSON),
    "NaN": (saying(_TEXT.replace('"2"', "NaN")), Failure.NOT_JSON),
    "Infinity": (saying(_TEXT.replace('"2"', "-Infinity")), Failure.NOT_JSON),
    "1e400": (saying(_TEXT.replace('"2"', "1e400")), Failure.NOT_IN_SCHEMA),
    "a number of 5,000 digits": (saying(_TEXT.replace('"2"', "9" * 5_000)), Failure.NOT_JSON),
    "keys twice": (saying(_TEXT.replace('"unplaced"', '"goals": [], "unplaced"')), Failure.NOT_JSON),
    "100,000 brackets": (saying("[" * 100_000), Failure.NOT_JSON),
    "a list of goals": (saying(json.dumps([TTFT])), Failure.NOT_IN_SCHEMA),
    "wrong types": (saying({**GOOD, "goals": [{**TTFT, "number": 2}]}), Failure.NOT_IN_SCHEMA),
    "keys of its own": (saying({**GOOD, "approved": True}), Failure.NOT_IN_SCHEMA),
    "keys left out": (saying({"goals": [TTFT]}), Failure.NOT_IN_SCHEMA),
    "another schema": (saying('{"intent": "fast"}'), Failure.NOT_IN_SCHEMA),
    "empty": (saying(""), Failure.EMPTY),
    "null": (saying(None), Failure.EMPTY),
    "a list of parts": (saying([]), Failure.NOT_A_COMPLETION),
    "a refusal": (saying(None, refusal="I cannot help with that"), Failure.REFUSED),
    "filtered": (saying("", "content_filter"), Failure.FILTERED),
    "a tool call": (saying(None, "tool_calls"), Failure.CUT_OFF),
    "prose, then well": (in_turn(saying("Sure!"), saying(GOOD)), "ok"),
}
"""What is wrong with the form of an answer."""

MEANING: Mapping[str, tuple[Reply, Expected]] = {
    "evidence that is not there": (_changed(evidence="P99 TTFT under 2 s"), Failure.NOT_IN_TEXT),
    "evidence translated": (_changed(evidence="P99 首字延迟 < 2s"), Failure.NOT_IN_TEXT),
    "a number that is not there": (_changed(number="3"), Failure.NOT_IN_TEXT),
    "a number converted": (_changed(number="2000", unit="ms"), Failure.NOT_IN_TEXT),
    "a number from elsewhere": (_changed(number="50"), "clarify"),
    "the percentile as the number": (_changed(number="99"), "clarify"),
    "another unit": (_changed(unit="min"), Failure.NOT_IN_TEXT),
    "a unit from elsewhere": (_changed(unit="ms"), "clarify"),
    "a window that is not there": (_changed(window="on weekends"), Failure.NOT_IN_TEXT),
    "a tenant that is not there": (_changed(tenant="acme"), Failure.NOT_IN_TEXT),
    "a statistic that is not there": (_changed(stat="p50"), "clarify"),
    "a goal that is not there": (
        saying({**GOOD, "goals": [TTFT, TPOT, _INVENTED]}),
        Failure.NOT_IN_TEXT,
    ),
    "slots of another goal": (_changed(higher="P99"), Failure.NOT_IN_SCHEMA),
    "a goal without its slots": (_changed(type="priority"), Failure.NOT_IN_SCHEMA),
    "invented, then well": (in_turn(_changed(number="3"), saying(GOOD)), "ok"),
    "a goal left out": (saying({**GOOD, "goals": [TTFT]}), "clarify"),
    "no goal at all": (saying(NOTHING), "out_of_scope"),
    "a window left out": (_changed(window=None), "clarify"),
    "the other window": (_changed(window="overnight"), "clarify"),
    "another metric": (_changed(subject="e2e"), "clarify"),
    "the other direction": (_changed(comparison=">="), "clarify"),
    "no bound but an optimum": (_changed(comparison="minimize", number=None, unit=None), "clarify"),
    "a wish said to be told": (
        saying({**GOOD, "goals": [TTFT], "told": ["TPOT < 50 ms overnight"]}),
        "clarify",
    ),
    "inventory that is not there": (
        saying({**GOOD, "inventory": [{"evidence": "A100×4", "kind": "A100", "count": "4"}]}),
        Failure.NOT_IN_TEXT,
    ),
    "told words that are not there": (saying({**GOOD, "told": ["TTFT was 9 s"]}), Failure.NOT_IN_TEXT),
    "a period that is not there": (_changed(period="per user"), Failure.NOT_IN_TEXT),
    "two goals for one quote": (
        saying({**GOOD, "goals": [TTFT, {**TTFT, "comparison": ">="}, TPOT]}),
        "clarify",
    ),
    "the schema of another version": (saying({"goals": [TTFT, TPOT], "unplaced": []}), Failure.NOT_IN_SCHEMA),
    "words it could not place": (saying({**GOOD, "unplaced": ["keep P99"]}), "clarify"),
}
"""What is wrong with what an answer says."""

FAULTS = {**TRANSPORT, **FORM, **MEANING}
