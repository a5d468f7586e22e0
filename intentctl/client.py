"""The service as the command line sees it: an ``Operator`` over HTTP, with the standard library alone."""

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, JsonValue, ValidationError

from intent.document import from_document
from intent.errors import DocumentError
from intent.models import Intent
from intentctl.status import failure
from service import documents as docs
from service.errors import ServiceError

Answer = TypeVar("Answer", bound=BaseModel)


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
        """As the protocol says."""
        answer = self._call("POST", "/v1/intents:translate", docs.TranslateRequest(text=text, now=now))
        try:
            return from_document(json.loads(answer))
        except (ValueError, DocumentError) as error:
            raise self._no_service(error) from None

    def keep(self, text: str, now: str | None = None) -> docs.VersionDocument:
        """As the protocol says."""
        return self._read(
            docs.VersionDocument, "POST", "/v1/intents", docs.TranslateRequest(text=text, now=now)
        )

    def intent(self, intent_id: str, version: int | None = None) -> docs.VersionDocument:
        """As the protocol says."""
        which = "" if version is None else f"?version={version}"
        return self._read(docs.VersionDocument, "GET", f"/v1/intents/{_quoted(intent_id)}{which}")

    def amend(self, intent: Intent, follow_up: docs.FollowUp) -> docs.AmendmentDocument:
        """As the protocol says."""
        body = docs.AmendRequest(intent=intent, **dict(follow_up))
        return self._read(docs.AmendmentDocument, "POST", "/v1/intents:amend", body)

    def amend_kept(self, intent_id: str, follow_up: docs.VersionedFollowUp) -> docs.VersionDocument:
        """As the protocol says."""
        return self._read(docs.VersionDocument, "POST", f"/v1/intents/{_quoted(intent_id)}:amend", follow_up)

    def plan(self, asked: docs.PlanRequest) -> docs.PlanAnswer:
        """As the protocol says."""
        return self._read(docs.PlanAnswer, "POST", "/v1/plans", asked)

    def saved_plan(self, plan_id: str) -> docs.PlanDocument:
        """As the protocol says."""
        return self._read(docs.PlanDocument, "GET", f"/v1/plans/{_quoted(plan_id)}")

    def simulation(self, plan_id: str) -> docs.SimulationDocument:
        """As the protocol says."""
        return self._read(docs.SimulationDocument, "GET", f"/v1/plans/{_quoted(plan_id)}/simulation")

    def frontiers(self, plan_id: str) -> docs.FrontiersDocument:
        """As the protocol says."""
        return self._read(docs.FrontiersDocument, "GET", f"/v1/plans/{_quoted(plan_id)}/frontiers")

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.OperationDocument:
        """As the protocol says."""
        body = docs.ApplyRequest(acknowledge=list(acknowledge))
        return self._read(docs.OperationDocument, "POST", f"/v1/plans/{_quoted(plan_id)}:apply", body)

    def preflight(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.PreflightDocument:
        """As the protocol says."""
        body = docs.ApplyRequest(acknowledge=list(acknowledge))
        return self._read(docs.PreflightDocument, "POST", f"/v1/plans/{_quoted(plan_id)}:preflight", body)

    def standing(self, plan_id: str) -> docs.StandingDocument:
        """As the protocol says."""
        return self._read(docs.StandingDocument, "GET", f"/v1/plans/{_quoted(plan_id)}/standing")

    def approvals(self, asked: docs.PageRequest) -> docs.ApprovalsDocument:
        """As the protocol says."""
        return self._read(docs.ApprovalsDocument, "GET", f"/v1/approvals?{_query(asked)}")

    def approve(self, plan_id: str, asked: docs.ApproveRequest) -> docs.ApprovalDocument:
        """As the protocol says."""
        return self._read(docs.ApprovalDocument, "POST", f"/v1/plans/{_quoted(plan_id)}:approve", asked)

    def reject(self, plan_id: str, asked: docs.RejectRequest) -> docs.ApprovalDocument:
        """As the protocol says."""
        return self._read(docs.ApprovalDocument, "POST", f"/v1/plans/{_quoted(plan_id)}:reject", asked)

    def operation(self, operation_id: str) -> docs.OperationDocument:
        """As the protocol says."""
        return self._read(docs.OperationDocument, "GET", f"/v1/operations/{_quoted(operation_id)}")

    def cancel(self, operation_id: str, asked: docs.CancelRequest) -> docs.OperationDocument:
        """As the protocol says."""
        path = f"/v1/operations/{_quoted(operation_id)}:cancel"
        return self._read(docs.OperationDocument, "POST", path, asked)

    def undoable(self, operation_id: str) -> docs.UndoDocument:
        """As the protocol says."""
        return self._read(docs.UndoDocument, "GET", f"/v1/operations/{_quoted(operation_id)}/undo")

    def undo(self, operation_id: str) -> docs.PlanAnswer:
        """As the protocol says."""
        return self._read(docs.PlanAnswer, "POST", f"/v1/operations/{_quoted(operation_id)}:undo")

    def watch(self) -> Iterator[docs.Event]:
        """As the protocol says."""
        headers = {**self._sent, "Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self.url}/v1/events", headers=headers)  # noqa: S310 - scheme checked above
        return _until_the_end(self._open(request, None))

    def me(self) -> docs.MeDocument:
        """As the protocol says."""
        return self._read(docs.MeDocument, "GET", "/v1/me")

    def create_key(self, asked: docs.KeyRequest) -> docs.NewKeyDocument:
        """As the protocol says."""
        return self._read(docs.NewKeyDocument, "POST", "/v1/keys", asked)

    def keys(self) -> docs.KeysDocument:
        """As the protocol says."""
        return self._read(docs.KeysDocument, "GET", "/v1/keys")

    def revoke_key(self, prefix: str) -> docs.KeyDocument:
        """As the protocol says."""
        return self._read(docs.KeyDocument, "POST", f"/v1/keys/{_quoted(prefix)}:revoke")

    def audit(self, page: docs.AuditPage) -> docs.AuditDocument:
        """As the protocol says."""
        return self._read(docs.AuditDocument, "GET", f"/v1/audit?{_query(page)}")

    def audit_head(self) -> docs.HeadDocument:
        """As the protocol says."""
        return self._read(docs.HeadDocument, "GET", "/v1/audit/head")

    def verify_audit(self, head: str | None = None) -> docs.VerdictDocument:
        """As the protocol says."""
        which = "" if head is None else f"?head={_quoted(head)}"
        return self._read(docs.VerdictDocument, "GET", f"/v1/audit/verdict{which}")

    def intents(self, asked: docs.PageRequest) -> docs.IntentsDocument:
        """As the protocol says."""
        return self._read(docs.IntentsDocument, "GET", f"/v1/intents?{_query(asked)}")

    def plans(self, asked: docs.PlansRequest) -> docs.PlansDocument:
        """As the protocol says."""
        return self._read(docs.PlansDocument, "GET", f"/v1/plans?{_query(asked)}")

    def operations(self, asked: docs.OperationsRequest) -> docs.OperationsDocument:
        """As the protocol says."""
        return self._read(docs.OperationsDocument, "GET", f"/v1/operations?{_query(asked)}")

    def models(self) -> docs.ModelsDocument:
        """As the protocol says."""
        return self._read(docs.ModelsDocument, "GET", "/v1/models")

    def topology(self, model: str | None = None) -> docs.StateDocument:
        """As the protocol says."""
        return self._read(docs.StateDocument, "GET", _of(model, "topology"))

    def profiles(self, model: str | None = None) -> docs.ProfilesDocument:
        """As the protocol says."""
        return self._read(docs.ProfilesDocument, "GET", _of(model, "profiles"))

    def readiness(self) -> docs.Readiness:
        """Each model's state.

        Raises:
            ServiceError: no model can serve, or no service answers.
        """
        return self._read(docs.Readiness, "GET", "/readyz")

    def agenda(self, asked: docs.AgendaRequest | docs.AgendaQuery) -> docs.AgendaDocument:
        """As the protocol says."""
        if isinstance(asked, docs.AgendaQuery):
            return self._read(docs.AgendaDocument, "GET", f"/v1/agenda?{_query(asked)}")
        return self._read(docs.AgendaDocument, "POST", "/v1/agenda:preview", asked)

    def activate(self, intent_id: str, asked: docs.ActivateRequest) -> docs.PromiseDocument:
        """As the protocol says."""
        return self._read(docs.PromiseDocument, "POST", f"/v1/intents/{_quoted(intent_id)}:activate", asked)

    def retire(self, intent_id: str) -> docs.PromiseDocument:
        """As the protocol says."""
        return self._read(docs.PromiseDocument, "POST", f"/v1/intents/{_quoted(intent_id)}:retire")

    def promises(self) -> docs.PromisesDocument:
        """As the protocol says."""
        return self._read(docs.PromisesDocument, "GET", "/v1/promises")

    def control(self) -> docs.ControlDocument:
        """As the protocol says."""
        return self._read(docs.ControlDocument, "GET", "/v1/controller")

    def set_control(self, asked: docs.ControlRequest) -> docs.ControlDocument:
        """As the protocol says."""
        return self._read(docs.ControlDocument, "POST", "/v1/controller", asked)

    def load(self) -> docs.LoadsDocument:
        """As the protocol says."""
        return self._read(docs.LoadsDocument, "GET", "/v1/load")

    def recent_load(self, asked: docs.RecentQuery) -> docs.RecentLoadDocument:
        """As the protocol says."""
        return self._read(docs.RecentLoadDocument, "GET", f"/v1/load/recent?{_query(asked)}")

    def load_history(self, asked: docs.ReportQuery) -> docs.LoadHistoryDocument:
        """As the protocol says."""
        return self._read(docs.LoadHistoryDocument, "GET", f"/v1/load/history?{_query(asked)}")

    def report(self, asked: docs.ReportQuery) -> docs.ReportDocument:
        """As the protocol says."""
        return self._read(docs.ReportDocument, "GET", f"/v1/report?{_query(asked)}")

    def export_openslo(self, wish: docs.WishRequest) -> docs.ExportDocument:
        """As the protocol says."""
        return self._read(docs.ExportDocument, "POST", "/v1/openslo:export", wish)

    def import_openslo(self, documents: Sequence[JsonValue]) -> docs.ImportDocument:
        """As the protocol says."""
        return self._read(
            docs.ImportDocument, "POST", "/v1/openslo:import", docs.ImportRequest(documents=list(documents))
        )

    @property
    def _sent(self) -> dict[str, str]:
        """Headers of each request."""
        address = self.address()
        return self._headers | ({"X-Forwarded-For": address} if address else {})

    def _read(self, kind: type[Answer], method: str, path: str, body: BaseModel | None = None) -> Answer:
        """The document that answers a request."""
        try:
            return kind.model_validate_json(self._call(method, path, body))
        except ValidationError as error:
            raise self._no_service(error) from None

    def _call(self, method: str, path: str, body: BaseModel | None) -> bytes:
        data = None if body is None else json.dumps(body.model_dump(exclude_unset=True)).encode()
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
            raise ServiceError(
                docs.Code.TIMED_OUT, f"{self.url} did not answer within {timeout_s} s"
            ) from None
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
        said = found.errors()[0]["msg"] if isinstance(found, ValidationError) else found
        message = (
            f"{self.url} answers, but not as an intentctl service of this version ({said}); check --server"
        )
        return ServiceError(docs.Code.INTERNAL, message)


def _of(model: str | None, what: str) -> str:
    return f"/v1/{what}" if model is None else f"/v1/models/{_quoted(model)}/{what}"


def _query(document: BaseModel) -> str:
    return urlencode(document.model_dump(mode="json", exclude_none=True))


def _quoted(name: str) -> str:
    return quote(name, safe="")


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
