"""The door: whose request this is, by its key, before anything else of it is read."""

import re
import time
import uuid
from collections.abc import Callable, Collection
from typing import Protocol, cast

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from service.access.keys import Key, KeyFault, Keyring
from service.access.refusals import INFERENCE, Headers, Message, Refusal
from service.deployment.policy import Auth
from service.documents.access import Caller, Role

OPEN = frozenset({"/healthz", "/health", "/openai/health", "/readyz", "/openapi.json"})
"""What anybody may ask."""
TENANT_HEADER = b"x-intentctl-tenant"
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,64}")
THIS_MACHINE = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_ELSEWHERE = (b"x-api-key", b"api-key", b"intentctl-key")

HOW = "send one as `Authorization: Bearer KEY`; the administrator's is in admin.key in the service's data folder"


class Gate(Protocol):
    """Tells who is at the door."""

    def admit(self, scope: Message) -> Caller | None:
        """Who sends a request; None: nobody needs to be known for it.

        Raises:
            Refusal: no key, a wrong one, or too many requests with it.
        """


class OpenGate:
    """Lets everybody on this machine in as an administrator, but pages that a browser shows.

    ``auth: none``.
    """

    def admit(self, scope: Message) -> Caller | None:
        if scope["path"] not in OPEN:
            _refuse_foreign({name: value.decode("latin-1") for name, value in _headers(scope).items()})
        return Caller("anybody", Role.ADMIN, origin=_origin(scope), request_id=_request_id(_headers(scope)))


class KeyGate:
    """Asks for a key."""

    def __init__(
        self,
        keyring: Keyring,
        auth: Auth,
        tenants: Collection[str],
        on_wrong: Callable[[KeyFault, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``on_wrong`` is told why a key was refused, and the address it came from."""
        self._keyring = keyring
        self._tenants = tenants
        self._on_wrong = on_wrong
        self._clock = clock
        self._rates = FixedWindowRateLimiter(MemoryStorage())
        self._control = RateLimitItemPerMinute(auth.control_per_minute, namespace="control")
        most = auth.inference_per_minute
        self._inference = RateLimitItemPerMinute(most, namespace="inference") if most else None

    def admit(self, scope: Message) -> Caller | None:
        path = str(scope["path"])
        if path in OPEN:
            return None
        headers = _headers(scope)
        origin = _origin(scope)
        key = self._known(headers, origin)
        self._refuse_if_often(key, self._inference if path.startswith(INFERENCE) else self._control)
        return Caller(key.person, key.role, key.prefix, self._tenant(key, headers), origin, _request_id(headers))

    def _known(self, headers: dict[bytes, bytes], origin: str) -> Key:
        header = headers.get(b"authorization", b"").decode("latin-1")
        scheme, _, whole = header.partition(" ")
        found: Key | KeyFault = KeyFault.MISSING
        if whole and scheme.lower() == "bearer":
            found = self._keyring.find(whole.strip(), self._clock())
        if isinstance(found, Key):
            return found
        self._on_wrong(found, origin)
        why = {
            KeyFault.MISSING: f"{_missing(headers, header)}; {HOW}",
            KeyFault.UNKNOWN: f"this key is not known here; {HOW}",
            KeyFault.REVOKED: "this key was revoked; ask an administrator for another (intentctl keys create)",
            KeyFault.EXPIRED: "this key has expired; ask an administrator for another (intentctl keys create)",
        }
        raise Refusal("key", 401, why[found])

    def _refuse_if_often(self, key: Key, most: RateLimitItem | None) -> None:
        if most is None or self._rates.hit(most, key.prefix):
            return
        reset_s = self._rates.get_window_stats(most, key.prefix).reset_time
        where = f"auth.{most.namespace}_per_minute"
        text = f"{most.amount} requests a minute may be sent with the key {key.name!r} ({where}); send the rest later"
        raise Refusal("rate", 429, text, retry_after_s=max(1, round(reset_s - time.time())))

    def _tenant(self, key: Key, headers: dict[bytes, bytes]) -> str | None:
        tenant = headers.get(TENANT_HEADER)
        named = tenant.decode("latin-1") if tenant is not None else None
        header = TENANT_HEADER.decode()
        if key.role is not Role.GATEWAY:
            if named is not None and named != key.tenant:
                text = f"{header} may be sent with the key of a gateway alone; leave it out"
                raise Refusal("key", 403, text)
            return key.tenant
        if named in self._tenants:
            return named
        known = ", ".join(self._tenants) or "none (tenants of the deployment)"
        text = f"the key of a gateway needs {header} with the tenant; known are {known}"
        raise Refusal("key", 403, text)


def _refuse_foreign(headers: dict[bytes, str]) -> None:
    """Refuse requests from pages of another site, and to another host name than this machine's.

    Raises:
        Refusal: it is such a request.
    """
    host = headers.get(b"host", "localhost")
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", "none")
    if not THIS_MACHINE.fullmatch(host):
        text = f"the service asks for no keys (auth: none) and is called {host!r}; call it by 127.0.0.1 or localhost"
        raise Refusal("key", 403, text)
    if site not in {"same-origin", "none"} or (origin is not None and origin != f"http://{host}"):
        text = f"the service asks for no keys (auth: none), and a page of {origin or site!r} sent this; pages may send nothing"
        raise Refusal("key", 403, text)


def _missing(headers: dict[bytes, bytes], text: str) -> str:
    if text:
        return "the Authorization header has no bearer key"
    elsewhere = next((name.decode() for name in _ELSEWHERE if name in headers), None)
    return f"{elsewhere} is not read" if elsewhere else "a key is needed"


def _headers(scope: Message) -> dict[bytes, bytes]:
    return dict(cast("Headers", scope["headers"]))


def _origin(scope: Message) -> str:
    client = cast("tuple[str, int] | None", scope.get("client"))
    return client[0] if client else ""


def _request_id(headers: dict[bytes, bytes]) -> str:
    request_id = headers.get(b"x-request-id", b"")
    return request_id.decode() if _REQUEST_ID.fullmatch(request_id) else f"req-{uuid.uuid4().hex[:16]}"
