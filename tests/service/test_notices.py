"""Who is told of what, and that a receiver that hangs, redirects or fails holds nobody up."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from runtime.models import Phase, Progress
from service import documents as docs
from service.access.keys import Key
from service.control import notices
from service.control.notices import SIGNATURE, Notice, Receiver, ending, notices_of, telling
from service.deployment.policy import TOPICS, Webhook
from service.documents.access import Role
from service.documents.errors import DeploymentError, StartError, StoreError
from tests.rows import rows
from tests.service.examples import operation, plan
from tests.service.scripted import DEPLOYMENT, read

pytestmark = pytest.mark.timeout(60)


class Listener:
    """An HTTP server that answers as it is told to; None: it takes the request and says nothing."""

    def __init__(self) -> None:
        self.answers: list[str | None] = []
        """In turn; afterwards 200."""
        self.heard: list[tuple[dict[str, str], dict]] = []
        self._news = asyncio.Event()
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                raw = await reader.readexactly(int(headers["content-length"]))
                self.heard.append((headers | {"raw": raw.decode()}, json.loads(raw)))
                self._news.set()
                status = self.answers.pop(0) if self.answers else "200 OK"
                if status is None:
                    await asyncio.sleep(3600)
                more = "Location: http://127.0.0.1:1/\r\n" if status and status.startswith("3") else ""
                writer.write(f"HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n".encode())
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def until(self, count: int) -> None:
        while len(self.heard) < count:
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def listening(
    *answers: str | None, form: str = "json", key: str = ""
) -> AsyncIterator[tuple[Listener, Receiver]]:
    """A listener, and a receiver whose notices go there."""
    made = Listener()
    made.answers = [*answers]
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made.url = f"http://127.0.0.1:{port}/hook"
        receiver = Receiver(Webhook(made.url, form=form), key)
        task = asyncio.create_task(receiver.deliver())
        try:
            yield made, receiver
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def notice(text: str, about: str = "promise") -> Notice:
    return Notice(about, "counting", text, time.time())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(notices, "PAUSE_S", 0.001)
    monkeypatch.setattr(notices, "MOST_PAUSE_S", 0.002)


async def test_a_notice_is_signed_and_arrives_once(monkeypatch):
    async with listening(key="secret") as (listener, receiver):
        for text in ("a", "a", "b"):
            receiver.tell(notice(text))
        await listener.until(2)
        receiver.tell(replace(notice("a"), at_s=time.time() + notices.HOUR_S + 1))
        await listener.until(3)

    assert [body["text"] for _, body in listener.heard] == ["a", "b", "a"]
    headers, body = listener.heard[0]
    at, signed = (part.split("=")[1] for part in headers[SIGNATURE.lower()].split(","))
    assert signed == hmac.new(b"secret", f"{at}.{headers['raw']}".encode(), hashlib.sha256).hexdigest()
    assert (body["about"], body["subject"]) == ("promise", "counting")


@rows(
    ("answers", "heard"),
    [
        (["500 no"] * 60, ["a"] * 61 + ["b"]),
        (["429 later"], ["a", "a", "b"]),
        ([None, None], ["a", "a", "a", "b"]),
        (["302 there"], ["a", "b"]),
        (["404 no"], ["a", "b"]),
    ],
)
async def test_a_notice_is_told_again_until_it_has_arrived_or_never_will(monkeypatch, answers, heard):
    monkeypatch.setattr(notices, "PATIENCE_S", 0.1 if None in answers else 10.0)
    async with listening(*answers) as (listener, receiver):
        receiver.tell(notice("a"))
        receiver.tell(notice("b"))
        await listener.until(len(heard))

    assert [body["text"] for _, body in listener.heard] == heard


async def test_a_receiver_that_hangs_costs_its_oldest_notices_and_nobody_waits():
    async with listening(None) as (listener, receiver):
        receiver.tell(notice("first"))
        await listener.until(1)
        for number in range(notices.MOST_WAITING + 50):
            receiver.tell(notice(str(number)))
        assert len(receiver._waiting) == notices.MOST_WAITING
        assert receiver._waiting[-1].text == str(notices.MOST_WAITING + 49)


async def test_slack_has_a_text():
    async with listening(form="slack") as (listener, receiver):
        receiver.tell(notice("a"))
        await listener.until(1)
    assert listener.heard[0][1] == {"text": "intentctl: a"}


async def test_only_what_is_asked_for_is_told():
    receiver = Receiver(Webhook("http://127.0.0.1:1/", about=("device",)), "")
    receiver.tell(notice("a"))
    receiver.tell(notice("b", about="device"))
    assert [each.text for each in receiver._waiting] == ["b"]


async def test_a_name_that_leads_to_the_machines_metadata_is_not_told(monkeypatch):
    receiver = Receiver(Webhook("http://somewhere.example/"), "")

    async def found(*_, **__):
        return [(2, 1, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    import httpx

    async with httpx.AsyncClient() as http:
        is_over, why = await receiver._sent(notice("a"), http)
    assert not is_over
    assert "somewhere.example is 169.254.169.254, an address of this machine's metadata" in why


def event(kind: str, data: object) -> docs.Event:
    return docs.Event(event=kind, id=1, data=data)


OUTCOME = docs.OutcomeDocument(
    operation="op-1",
    model="m",
    cause="rescue",
    reason="r",
    source="a",
    target="b",
    at_s=1.0,
    verdict="worse",
    why="slow",
)
GIVEN_UP = operation().advanced(Progress("op-1", Phase.ABORTED, 2.0)).failed(docs.Code.STORE, "the disk is full")
DECISION = docs.DecisionDocument(model="m", kind="switch", reason="TTFT is missed", cause="rescue")


@rows(
    ("happened", "about", "said"),
    [
        (event("decision", DECISION), "promise", "m: TTFT is missed"),
        (
            event("decision", DECISION.model_copy(update={"plan_id": "plan-1", "cause": "saving"})),
            "approval",
            "approve plan-1",
        ),
        (event("decision", DECISION.model_copy(update={"cause": "window"})), "", ""),
        (event("verdict", OUTCOME), "verdict", "m: op-1 made it worse: slow"),
        (event("verdict", OUTCOME.model_copy(update={"verdict": "recovered"})), "", ""),
        (event("operation", operation(end_s=2.0)), "", ""),
        (event("operation", GIVEN_UP), "switch", "counting: op-1 was given up: the disk is full"),
    ],
)
def test_events_are_told_that_somebody_has_to_know(happened, about, said):
    found = [*notices_of(happened)]
    assert [each.about for each in found] == ([about] if about else [])
    assert all(said in each.text for each in found)


def test_a_rescue_is_told_as_one_and_waits_for_a_yes_where_nobody_has_applied_it():
    found = event("decision", DECISION.model_copy(update={"plan_id": "plan-1"}))
    assert [each.about for each in notices_of(found)] == ["promise", "approval"]
    assert [each.about for each in notices_of(found, is_applied=True)] == ["promise"]


@rows("applied", [None, "op-1", StoreError("the database is away")])
async def test_what_is_told_of_a_decision_follows_from_its_plan_and_a_database_that_is_away_silences_nothing(applied):
    async with listening() as (listener, _):
        hook = Webhook(listener.url)
        bus, store = Happening(event("decision", DECISION.model_copy(update={"plan_id": "plan-1"}))), Plans(applied)
        async with telling([hook], bus, store, Plans(None), None):
            await listener.until(1 if applied else 2)
    assert [body["about"] for _, body in listener.heard] == (["promise"] if applied else ["promise", "approval"])


class Happening:
    """A bus that tells one event."""

    def __init__(self, told: docs.Event) -> None:
        self._told = told

    async def subscribe(self) -> AsyncIterator[docs.Event]:
        yield self._told
        await asyncio.sleep(3600)


class Plans:
    """A store that has a plan, or is away."""

    lease = None

    def __init__(self, applied: str | StoreError | None) -> None:
        self._applied = applied

    async def beside(self, work: object, *arguments: object) -> object:
        if isinstance(self._applied, StoreError) or not arguments:
            raise StoreError("the database is away")
        return replace(plan(), applied_by=self._applied)

    saved_plan = kept = None


def test_what_ends_within_thirty_days_is_told():
    day_s = 86_400.0
    keys = [
        Key(name, "", name, name, Role.VIEWER, None, 0.0, "", expires_s, revoked_s)
        for name, expires_s, revoked_s in (
            ("soon", 10 * day_s, None), ("late", 40 * day_s, None), ("never", None, None), ("gone", 10 * day_s, 1.0),
            ("over", -1.0, None),
        )
    ]  # fmt: skip
    found = [each.text for each in ending(keys, {"b.pem": 29.9 * day_s, "c.pem": 31 * day_s}, 0.0)]
    assert found == ["the key 'soon' ends in 10 days", "the certificate b.pem ends in 30 days"]


@rows(
    ("hook", "said"),
    [
        ("{url: 'http://169.254.169.254/latest'}", "an address of this machine's metadata"),
        ("{url: 'http://[fd00:ec2::254]/'}", "an address of this machine's metadata"),
        ("{url: 'http://[::ffff:169.254.169.254]/'}", "an address of this machine's metadata"),
        ("{url: 'http://[64:ff9b::a9fe:a9fe]/'}", "an address of this machine's metadata"),
        ("{url: 'http://a..b/x'}", "notify[0].url: is no URL"),
        ("{url: 'http://[::1/x'}", "notify[0].url: is no URL"),
        ("{url: 'http://x:99999/'}", "notify[0].url: is no URL"),
        ("{url: 'ftp://x'}", "notify[0].url"),
        ("{url: 'https://x', about: [weather]}", "notify[0].about[0]"),
        ("{url: 'https://x', form: xml}", "notify[0].form"),
    ],
)
def test_a_webhook_that_cannot_be_is_named(tmp_path, hook, said):
    with pytest.raises(DeploymentError) as refused:
        read(tmp_path, DEPLOYMENT + f"notify: [{hook}]\n")
    assert said in str(refused.value)


def test_what_is_said_of_a_webhook_is_read(tmp_path):
    text = "notify: [{url: 'https://hooks.example/T1/secret', form: slack, about: [device], secret_variable: HOOK}, {url: 'http://x'}]\n"
    first, second = read(tmp_path, DEPLOYMENT + text).webhooks
    assert first == Webhook("https://hooks.example/T1/secret", "slack", ("device",), "HOOK")
    assert second.about == TOPICS
    assert first.shown == "the webhook at hooks.example"


def test_a_secret_that_is_not_set_is_named(monkeypatch):
    from service.deployment.settings import secret

    for value in (None, ""):
        monkeypatch.delenv("HOOK", raising=False) if value is None else monkeypatch.setenv("HOOK", value)
        with pytest.raises(StartError, match="HOOK, which is not set"):
            secret("HOOK")
