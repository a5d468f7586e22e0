"""The service as the command line sees it: an ``Operator`` over HTTP, with the standard library alone."""

import contextlib
import http.client
import inspect
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, JsonValue, ValidationError

from intent.document import from_document
from intent.errors import DocumentError
from intent.models import Intent
from intentctl.status import failure
from service import documents as docs
from service.errors import ServiceError
from service.operator import Operator

Answer = TypeVar("Answer", bound=BaseModel)
P = ParamSpec("P")
Body = BaseModel | Mapping[str, object]
_SLOT = re.compile(r"{(\w+)}")


def _over_http(of: Callable[Concatenate[Operator, P], Answer], call: str) -> Callable[Concatenate["Client", P], Answer]:
    """A method of the protocol as a call with the method, and at the path, that are named.

    Braces hold arguments.

    The other arguments are the query of a GET and the body of a POST: one document, or values by their names.
    """
    signature = inspect.signature(of)
    method, path = call.split()
    kind: type[Answer] = signature.return_annotation

    def ask(self: "Client", /, *arguments: P.args, **named: P.kwargs) -> Answer:
        bound = signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        fields = {name: value for name, value in bound.arguments.items() if value is not self}
        place = path.format(**{name: _quoted(fields.pop(name)) for name in _SLOT.findall(path)})
        document = next((value for value in fields.values() if isinstance(value, BaseModel)), None)
        if method == "POST":
            return self._read(kind, method, place, document or fields or None)
        wanted = fields if document is None else document.model_dump(mode="json")
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        return self._read(kind, method, f"{place}?{query}" if query else place)

    return ask


class Client:
    """A running service."""

    serves = True

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0) -> None:
        """``key`` goes with every request, to this service alone."""
        if not url.startswith(("http://", "https://")):
            raise failure("error", f"--server {url!r}: is no http:// or https:// address")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self.key = key or "none"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.address: Callable[[], str] = str
        """Tells for whom it is asked, where that is somebody else: the address of a browser."""
        # no proxy from the environment: the service is nearly always on this machine; and a key follows no redirection
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler,
        ):
            self._opener.add_handler(handler())

    def reachable(self) -> bool:
        """Whether a service answers at this address."""
        try:
            self.readiness()
        except ServiceError as error:
            return error.code is not docs.Code.UNREACHABLE
        return True

    def translate(self, text: str, now: str | None = None) -> Intent:
        answer = self._call("POST", "/v1/intents:translate", {"text": text, "now": now})
        try:
            return from_document(json.loads(answer))
        except (ValueError, DocumentError) as error:
            raise self._no_service(error) from None

    def amend(self, intent: Intent, follow_up: docs.FollowUp) -> docs.AmendmentDocument:
        body = docs.AmendRequest(intent=intent, **dict(follow_up))
        return self._read(docs.AmendmentDocument, "POST", "/v1/intents:amend", body)

    def watch(self) -> Iterator[docs.Event]:
        headers = {**self._sent, "Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self.url}/v1/events", headers=headers)  # noqa: S310 - scheme checked above
        return _until_the_end(self._open(request, None))

    def topology(self, model: str | None = None) -> docs.StateDocument:
        return self._read(docs.StateDocument, "GET", _of(model, "topology"))

    def profiles(self, model: str | None = None) -> docs.ProfilesDocument:
        return self._read(docs.ProfilesDocument, "GET", _of(model, "profiles"))

    def readiness(self) -> docs.Readiness:
        """Each model's state.

        Raises:
            ServiceError: no model can serve, or no service answers.
        """
        return self._read(docs.Readiness, "GET", "/readyz")

    def agenda(self, request: docs.AgendaRequest | docs.AgendaQuery) -> docs.AgendaDocument:
        return self._agenda(request) if isinstance(request, docs.AgendaQuery) else self._preview(request)

    _agenda = _over_http(Operator.agenda, "GET /v1/agenda")
    _preview = _over_http(Operator.agenda, "POST /v1/agenda:preview")

    keep = _over_http(Operator.keep, "POST /v1/intents")
    intent = _over_http(Operator.intent, "GET /v1/intents/{intent_id}")
    amend_kept = _over_http(Operator.amend_kept, "POST /v1/intents/{intent_id}:amend")
    plan = _over_http(Operator.plan, "POST /v1/plans")
    saved_plan = _over_http(Operator.saved_plan, "GET /v1/plans/{plan_id}")
    simulation = _over_http(Operator.simulation, "GET /v1/plans/{plan_id}/simulation")
    frontiers = _over_http(Operator.frontiers, "GET /v1/plans/{plan_id}/frontiers")
    apply = _over_http(Operator.apply, "POST /v1/plans/{plan_id}:apply")
    preflight = _over_http(Operator.preflight, "POST /v1/plans/{plan_id}:preflight")
    standing = _over_http(Operator.standing, "GET /v1/plans/{plan_id}/standing")
    approvals = _over_http(Operator.approvals, "GET /v1/approvals")
    approve = _over_http(Operator.approve, "POST /v1/plans/{plan_id}:approve")
    reject = _over_http(Operator.reject, "POST /v1/plans/{plan_id}:reject")
    operation = _over_http(Operator.operation, "GET /v1/operations/{operation_id}")
    cancel = _over_http(Operator.cancel, "POST /v1/operations/{operation_id}:cancel")
    undoable = _over_http(Operator.undoable, "GET /v1/operations/{operation_id}/undo")
    undo = _over_http(Operator.undo, "POST /v1/operations/{operation_id}:undo")
    me = _over_http(Operator.me, "GET /v1/me")
    create_key = _over_http(Operator.create_key, "POST /v1/keys")
    keys = _over_http(Operator.keys, "GET /v1/keys")
    revoke_key = _over_http(Operator.revoke_key, "POST /v1/keys/{prefix}:revoke")
    audit = _over_http(Operator.audit, "GET /v1/audit")
    audit_head = _over_http(Operator.audit_head, "GET /v1/audit/head")
    verify_audit = _over_http(Operator.verify_audit, "GET /v1/audit/verdict")
    intents = _over_http(Operator.intents, "GET /v1/intents")
    plans = _over_http(Operator.plans, "GET /v1/plans")
    operations = _over_http(Operator.operations, "GET /v1/operations")
    models = _over_http(Operator.models, "GET /v1/models")
    devices = _over_http(Operator.devices, "GET /v1/devices")
    take_out = _over_http(Operator.take_out, "POST /v1/devices/{device}:out")
    take_in = _over_http(Operator.take_in, "POST /v1/devices/{device}:in")
    activate = _over_http(Operator.activate, "POST /v1/intents/{intent_id}:activate")
    retire = _over_http(Operator.retire, "POST /v1/intents/{intent_id}:retire")
    promises = _over_http(Operator.promises, "GET /v1/promises")
    control = _over_http(Operator.control, "GET /v1/controller")
    set_control = _over_http(Operator.set_control, "POST /v1/controller")
    load = _over_http(Operator.load, "GET /v1/load")
    recent_load = _over_http(Operator.recent_load, "GET /v1/load/recent")
    load_history = _over_http(Operator.load_history, "GET /v1/load/history")
    report = _over_http(Operator.report, "GET /v1/report")
    export_openslo = _over_http(Operator.export_openslo, "POST /v1/openslo:export")
    import_openslo = _over_http(Operator.import_openslo, "POST /v1/openslo:import")

    @property
    def _sent(self) -> dict[str, str]:
        """Headers of each request."""
        address = self.address()
        return self._headers | ({"X-Forwarded-For": address} if address else {})

    def _read(self, kind: type[Answer], method: str, path: str, body: Body | None = None) -> Answer:
        """The document that answers a request."""
        try:
            return kind.model_validate_json(self._call(method, path, body))
        except ValidationError as error:
            raise self._no_service(error) from None

    def _call(self, method: str, path: str, body: Body | None) -> bytes:
        fields = body.model_dump(exclude_unset=True) if isinstance(body, BaseModel) else body
        data = None if fields is None else json.dumps(fields).encode()
        headers = self._sent | ({"Content-Type": "application/json"} if body is not None else {})
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - scheme checked above
        with self._open(request, self._timeout_s) as response:
            return response.read()

    def _open(self, request: urllib.request.Request, timeout_s: float | None) -> IO[bytes]:
        try:
            response: IO[bytes] = self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except TimeoutError:
            raise ServiceError(docs.Code.TIMED_OUT, f"{self.url} did not answer within {timeout_s} s") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                docs.Code.UNREACHABLE,
                f"no service answers at {self.url} ({reason}); start one: intentctl serve",
            ) from None
        return response

    def _refused(self, error: urllib.error.HTTPError) -> ServiceError:
        try:
            problem = docs.Problem.model_validate_json(error.read())
            if problem.code is docs.Code.UNAUTHENTICATED:
                how = "to intentctl: --key-file FILE, INTENTCTL_KEY_FILE or INTENTCTL_KEY"
                problem = problem.model_copy(update={"detail": f"{problem.detail}; {how}"})
            return ServiceError.answered(problem)
        except ValidationError:
            return self._no_service(f"{error.code} {error.reason}")

    def _no_service(self, found: object) -> ServiceError:
        reason = found.errors()[0]["msg"] if isinstance(found, ValidationError) else found
        message = f"{self.url} answers, but not as an intentctl service of this version ({reason}); check --server"
        return ServiceError(docs.Code.INTERNAL, message)


def _of(model: str | None, what: str) -> str:
    return f"/v1/{what}" if model is None else f"/v1/models/{_quoted(model)}/{what}"


def _quoted(name: object) -> str:
    return quote(str(name), safe="")


def _until_the_end(response: IO[bytes]) -> Iterator[docs.Event]:
    with (
        response,
        contextlib.suppress(OSError, http.client.HTTPException),  # a service that was killed ends it so
    ):
        yield from _server_sent_events(response)


def _server_sent_events(lines: IO[bytes]) -> Iterator[docs.Event]:
    event: dict[str, JsonValue] = {}
    for raw in lines:
        field, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if field in {"event", "id"}:
            event[field] = value
        elif field == "data":
            event["data"] = json.loads(value)
        elif not field and "data" in event:
            yield docs.Event.model_validate(event)
            event = {}
