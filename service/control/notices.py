"""Somebody is told: what happened goes to webhooks, in order, signed, and again until it has arrived.

Nothing waits for a receiver: each has a queue and a task of its own, and one that hangs loses its oldest notices at last.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass

import httpx

from runtime.models import Phase
from runtime.process.supervised import cancel, supervised
from service import documents as docs
from service.access.key_store import KeyStore
from service.access.keys import Key
from service.deployment.policy import Topic, Webhook, is_metadata
from service.deployment.settings import secret
from service.documents.errors import ServiceError, StoreError
from service.serving.events import EventBus
from service.serving.metrics import ServiceMetrics
from service.store.lease import Lease
from service.store.store import Store

log = logging.getLogger(__name__)

HOUR_S = 3600.0
DAY_S = 86_400.0
MOST_WAITING = 200
"""Of one receiver; then its oldest are dropped."""
PATIENCE_S = 10.0
"""For a receiver to take a notice."""
PAUSE_S = 1.0
"""Before a second try; then twice as long each time, up to ``MOST_PAUSE_S``."""
MOST_PAUSE_S = 60.0
SOON_S = 30 * DAY_S
"""Before a key or a certificate ends it is told."""
SIGNATURE = "X-Intentctl-Signature"


@dataclass(frozen=True, slots=True)
class Notice:
    """What somebody is told."""

    about: Topic
    subject: str
    """Of what: a plan, a device, a key."""
    text: str
    at_s: float
    """Unix seconds."""


def notices_of(event: docs.Event, *, is_applied: bool = False) -> Iterator[Notice]:
    """What an event has for people who do not look; ``is_applied``: its plan is."""
    now_s = time.time()
    match event.data:
        case docs.DecisionDocument(plan_id=plan_id, cause=cause, model=model, reason=reason):
            if cause == "rescue":
                yield Notice("promise", model, f"{model}: {reason}", now_s)
            if plan_id and not is_applied:
                text = f"{model}: {reason}; `intentctl approve {plan_id}`, or reject it"
                yield Notice("approval", plan_id, text, now_s)
        case docs.OutcomeDocument(verdict="worse", operation=operation, model=model, why=why):
            yield Notice("verdict", operation, f"{model}: {operation} made it worse: {why}", now_s)
        case docs.StateDocument(out=out, model=model):
            for device, why in out.items():
                yield Notice("device", f"device {device}", f"{model}: device {device} is out: {why}", now_s)
        case docs.OperationDocument(phase=Phase.ABORTED, id=operation, model=model, error=error):
            yield Notice(
                "switch", operation, f"{model}: {operation} was given up: {error.detail if error else ''}", now_s
            )


def ending(keys: Iterable[Key], certificates: Mapping[str, float], now_s: float) -> Iterator[Notice]:
    """Keys and certificates that end within 30 days, each told once a day."""
    ends = {f"the key {key.name!r}": key.expires_s for key in keys if key.expires_s and not key.revoked_s}
    for subject, end_s in {
        **ends,
        **{f"the certificate {name}": end_s for name, end_s in certificates.items()},
    }.items():
        if now_s < end_s < now_s + SOON_S:
            yield Notice("ends", subject, f"{subject} ends in {(end_s - now_s) / DAY_S:.0f} days", now_s)


class Receiver:
    """One webhook, and what it has not taken yet."""

    def __init__(self, hook: Webhook, secret: str) -> None:
        self.hook = hook
        self._secret = secret.encode()
        self._waiting = deque[Notice](maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        self._told = dict[tuple[str, str, str], float]()

    def tell(self, notice: Notice) -> None:
        """Have it told, unless it is not wanted or was told within the hour; what ends, within the day."""
        words = (notice.about, notice.subject, notice.text)
        quiet_s = DAY_S - HOUR_S if notice.about == "ends" else HOUR_S
        self._told = {known: at_s for known, at_s in self._told.items() if notice.at_s - at_s < DAY_S}
        if notice.about not in self.hook.about or notice.at_s - self._told.get(words, -DAY_S) < quiet_s:
            return
        self._told[words] = notice.at_s
        if len(self._waiting) == MOST_WAITING:
            log.warning("%s does not take what it is told; the oldest notice is dropped", self.hook.shown)
        self._waiting.append(notice)
        self._news.set()

    async def deliver(self) -> None:
        """Send what waits, the oldest first, each until it has arrived."""
        pause_s = PAUSE_S
        async with httpx.AsyncClient(follow_redirects=False, timeout=PATIENCE_S) as http:
            while True:
                if not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                notice = self._waiting[0]
                is_over, why = await self._sent(notice, http)
                if why:
                    log.warning("%s was not told (%s): %s", self.hook.shown, notice.text, why)
                if not is_over and time.time() - notice.at_s < DAY_S:  # then it is old news
                    await asyncio.sleep(pause_s)
                    pause_s = min(MOST_PAUSE_S, 2 * pause_s)
                    continue
                pause_s = PAUSE_S
                if self._waiting[0] is notice:  # or it was the oldest of too many
                    self._waiting.popleft()

    async def _sent(self, notice: Notice, http: httpx.AsyncClient) -> tuple[bool, str]:
        """Whether it is not to be sent again, and what went wrong."""
        body = json.dumps(
            {"text": f"intentctl: {notice.text}"} if self.hook.form == "slack" else asdict(notice)
        ).encode()
        at = str(int(time.time()))
        signed = hmac.new(self._secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json"} | ({SIGNATURE: f"t={at},v1={signed}"} if self._secret else {})
        try:
            async with asyncio.timeout(PATIENCE_S):
                await _refuse_metadata(httpx.URL(self.hook.url))
                answer = await http.post(self.hook.url, content=body, headers=headers)
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            return False, f"{type(error).__name__} {error}".strip()
        except (httpx.InvalidURL, ValueError) as error:
            return True, f"its URL cannot be used: {error}"
        if answer.is_success:
            return True, ""
        comes_later = answer.status_code >= 500 or answer.status_code in {408, 425, 429}
        return not comes_later, f"it answers {answer.status_code}"


async def _refuse_metadata(url: httpx.URL) -> None:
    """Refuse a name that leads to where clouds keep the keys of a machine.

    Raises:
        OSError: it does, or leads nowhere.
    """
    found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    for *_, (host, *_) in found:
        if is_metadata(str(host)):
            raise OSError(f"{url.host} is {host}, an address of this machine's metadata")


@asynccontextmanager
async def telling(
    hooks: Sequence[Webhook], events: EventBus, store: Store, keys: KeyStore, metrics: ServiceMetrics
) -> AsyncIterator[None]:
    """Tell the receivers of what happens, until the service ends: what waits then is not told.

    Raises:
        StartError: a secret is not set.
    """
    receivers = [Receiver(hook, secret(hook.secret_variable)) for hook in hooks]

    def tell(notices: Iterable[Notice]) -> None:
        for notice in notices:
            for receiver in receivers:
                receiver.tell(notice)

    async def follow() -> None:
        async for event in events.subscribe():
            plan_id = event.data.plan_id if isinstance(event.data, docs.DecisionDocument) else None
            is_applied = True  # where the store is away: nobody is asked to approve what may be applied
            with suppress(ServiceError):
                is_applied = not plan_id or (await store.beside(store.saved_plan, plan_id)).applied_by is not None
            tell(notices_of(event, is_applied=is_applied))

    async def look_ahead() -> None:
        while True:
            with suppress(StoreError):
                tell(ending(await store.beside(keys.kept), metrics.certificate_ends, time.time()))
            await asyncio.sleep(HOUR_S)

    if (lease := store.lease) is not None:
        tell(_owners(lease))
        loop = asyncio.get_running_loop()
        lease.on_loss.append(lambda: loop.call_soon_threadsafe(tell, _owners(lease)))
    work = {"notices": follow, "keys that end": look_ahead} | {
        f"webhook {number}": receiver.deliver for number, receiver in enumerate(receivers)
    }
    tasks = [asyncio.create_task(supervised(name, each)) for name, each in work.items()] if receivers else []
    try:
        yield
    finally:
        await cancel(tasks)


def _owners(lease: Lease) -> Iterator[Notice]:
    """That the database has another owner."""
    if lease.lost_to:
        yield Notice("lease", "database", f"{lease.lost_to} owns the database now; this service ends", time.time())
    elif lease.fence > 1:
        yield Notice("lease", "database", f"{lease.holder} owns the database since its start", time.time())
