import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from intentctl.client import Client
from intentctl.commands import follow
from service import api
from service.documents.errors import ServiceError
from service.documents.plans import PlanRequest
from service.documents.problems import Code
from tests.rows import rows

pytestmark = pytest.mark.slow


class Other(BaseHTTPRequestHandler):
    """Something that answers, but is no intentctl service."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404, "Gone fishing")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other():
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def failed(call, *arguments) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call(*arguments)
    return caught.value


def test_what_answers_without_being_a_service_is_named(other):
    client = Client(other)
    assert "not as an intentctl service of this version" in str(failed(client.readiness))
    assert "404 Gone fishing" in str(failed(client, api.state.topology))
    assert client.reachable()


@rows("name", ["plan-nowhere", "../../healthz", "a b", "%2e%2e", "x?y=1"])
def test_a_name_never_leads_elsewhere_and_a_problem_keeps_its_code_and_members(shared, name):
    error = failed(Client(shared.url), api.plans.plan, name)
    assert error.code is Code.NOT_FOUND
    assert error.problem.status == 404


def test_an_operation_is_followed_to_its_end_and_an_infeasible_plan_carries_what_comes_closest(service, shared):
    client = Client(service.url + "/")
    operation = client(api.plans.apply, client(api.plans.make_plan, PlanRequest(text="run it with tp=2")).plan.id)
    *_, end = follow(client, operation.id, timeout_s=30)
    assert end.result.phase == "done"
    error = failed(Client(shared.url), api.plans.make_plan, PlanRequest(text="keep P99 TTFT < 1 ms"))
    assert error.code is Code.INFEASIBLE
    assert error.problem.infeasible.nearest
    assert error.problem.infeasible.feasible_targets
