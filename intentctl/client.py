"""The service as the command line sees it: JSON over HTTP, with the standard library alone."""

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import quote

from intentctl.status import CommandError, failure

Document = dict[str, Any]

POLL_S = 0.1


class Client:
    """A running service. Every method raises ``CommandError`` with the problem that the service sent."""

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise failure("usage", f"--server {url!r}: is no http:// or https:// address")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        # no proxy from the environment: the service is nearly always on this machine
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def reachable(self) -> bool:
        """Whether a service answers at this address."""
        try:
            self.health()
        except CommandError as error:
            return error.problem["code"] != "unreachable"
        return True

    def health(self) -> Document:
        """State of the service and its engine."""
        return self._call("GET", "/healthz")

    def topology(self) -> Document:
        """What runs, and on what."""
        return self._call("GET", "/v1/topology")

    def profiles(self) -> Document:
        """The model's sizes and the profile of each device kind, as plans take them."""
        return self._call("GET", "/v1/profiles")

    def simulation(self, plan: Document) -> Document:
        """A plan's target in the simulator."""
        return self._call("GET", f"/v1/plans/{quote(plan['id'], safe='')}/simulation")

    def frontiers(self, plan: Document) -> Document:
        """Latency against load of what a plan compares."""
        return self._call("GET", f"/v1/plans/{quote(plan['id'], safe='')}/frontiers")

    def translate(self, text: str, now: str | None = None) -> Document:
        """Words to a checked intent document, at the service's clock or the one given."""
        return self._call("POST", "/v1/intents:translate", {"text": text, "now": now})

    def intent(self, intent_id: str) -> Document:
        """The latest version of an intent that the service keeps."""
        return self._call("GET", f"/v1/intents/{quote(intent_id, safe='')}")

    def keep(self, text: str) -> Document:
        """Words to an intent that the service keeps, as its version 1."""
        return self._call("POST", "/v1/intents", {"text": text})

    def amend_kept(self, intent_id: str, follow_up: Document) -> Document:
        """The next version of an intent that the service keeps."""
        return self._call("POST", f"/v1/intents/{quote(intent_id, safe='')}:amend", follow_up)

    def amend(self, intent: Document, follow_up: Document) -> Document:
        """What a follow-up makes of an intent document; keeps nothing."""
        return self._call("POST", "/v1/intents:amend", {"intent": intent, **follow_up})

    def import_openslo(self, documents: list[Any]) -> Document:
        """The intent of OpenSLO documents, and what it leaves out of them."""
        return self._call("POST", "/v1/openslo:import", {"documents": documents})

    def plan(self, intent: Document, when: Document) -> Document:
        """A plan for an intent document and a time (``at``, ``window``, ``now``; or nothing); applies nothing."""
        answer: Document = self._call("POST", "/v1/plans", {"intent": intent, **when})["plan"]
        return answer

    def plan_kept(self, intent_id: str, when: Document) -> Document:
        """The same for the latest version of an intent that the service keeps."""
        answer: Document = self._call("POST", "/v1/plans", {"intent_id": intent_id, **when})["plan"]
        return answer

    def export_openslo(self, intent: Document) -> Document:
        """The OpenSLO documents of an intent document, and what they leave out of it."""
        return self._call("POST", "/v1/openslo:export", {"intent": intent})

    def saved_plan(self, plan_id: str) -> Document:
        """A plan made before."""
        return self._call("GET", f"/v1/plans/{quote(plan_id, safe='')}")

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> Document:
        """Start a plan's switch; answers with its operation at once. ``acknowledge``: codes of findings a person has seen."""
        body = {"acknowledge": list(acknowledge)}
        return self._call("POST", f"/v1/plans/{quote(plan_id, safe='')}:apply", body)

    def operation(self, operation_id: str) -> Document:
        """How far a switch has come."""
        return self._call("GET", f"/v1/operations/{quote(operation_id, safe='')}")

    def follow(self, operation_id: str, timeout_s: float) -> Iterator[Document]:
        """An operation's states until it is done.

        Raises:
            CommandError: ``timed_out`` after ``timeout_s``; the operation itself goes on.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            operation = self.operation(operation_id)
            yield operation
            if operation["done"]:
                return
            if time.monotonic() > deadline:
                raise failure(
                    "timed_out",
                    f"{operation_id} is not done after {timeout_s:g} s; see `intentctl get {operation_id}`",
                )
            time.sleep(POLL_S)

    def events(self) -> Iterator[Document]:
        """What happens from now on, as ``{event, data}``, until the service ends the stream."""
        request = urllib.request.Request(f"{self.url}/v1/events", headers={"Accept": "text/event-stream"})  # noqa: S310 - scheme checked above
        return _until_the_end(self._open(request, None))

    def _call(self, method: str, path: str, body: Document | None = None) -> Document:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - scheme checked above
        with self._open(request, self._timeout_s) as response:
            try:
                answer: Document = json.load(response)
            except ValueError:
                raise failure(
                    "error", f"{self.url} answers, but not as an intentctl service; check --server"
                ) from None
            return answer

    def _open(self, request: urllib.request.Request, timeout_s: float | None) -> IO[bytes]:
        try:
            response: IO[bytes] = self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise CommandError(_problem(error, self.url)) from None
        except TimeoutError:
            raise failure("timed_out", f"{self.url} did not answer within {timeout_s} s") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise failure(
                "unreachable", f"no service answers at {self.url} ({reason}); start one: intentctl serve"
            ) from None
        return response


def _problem(error: urllib.error.HTTPError, url: str) -> Document:
    try:
        document: Document = json.load(error)
        document["detail"], document["code"]
    except (ValueError, KeyError, TypeError):
        detail = f"{url} answered {error.code} {error.reason}, not as an intentctl service; check --server"
        return {"code": "error", "detail": detail, "errors": []}
    return document


def _until_the_end(response: IO[bytes]) -> Iterator[Document]:
    with (
        response,
        contextlib.suppress(OSError, http.client.HTTPException),  # a service that was killed ends it so
    ):
        yield from _server_sent_events(response)


def _server_sent_events(lines: IO[bytes]) -> Iterator[Document]:
    event: Document = {}
    for raw in lines:
        field, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if field in {"event", "id"}:
            event[field] = value
        elif field == "data":
            event["data"] = json.loads(value)
        elif not field and "data" in event:
            yield event
            event = {}
