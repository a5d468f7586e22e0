import json
from pathlib import Path

from service.app import control_api, openapi_document

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
REFRESH = (
    "python -c 'from service.app import openapi_document as d; print(d(), end=\"\")' > docs/openapi.json"
)


def test_the_committed_openapi_document_is_current():
    assert DOCUMENT.read_text() == openapi_document(), f"run: {REFRESH}"


def test_every_route_describes_its_errors_as_problems():
    for path, methods in json.loads(openapi_document())["paths"].items():
        for method in methods.values():
            assert method["responses"]["default"]["content"]["application/problem+json"], path


def test_the_paths_are_those_of_the_design():
    paths = set(control_api().openapi()["paths"])

    assert paths == {
        "/v1/intents",
        "/v1/intents/{intent_id}",
        "/v1/intents/{intent_id}:amend",
        "/v1/intents:amend",
        "/v1/intents:translate",
        "/v1/audit",
        "/v1/audit/head",
        "/v1/audit/verdict",
        "/v1/me",
        "/v1/keys",
        "/v1/keys/{prefix}:revoke",
        "/v1/approvals",
        "/v1/plans/{plan_id}/standing",
        "/v1/operations",
        "/v1/plans/{plan_id}:approve",
        "/v1/plans/{plan_id}:reject",
        "/v1/openslo:export",
        "/v1/openslo:import",
        "/v1/plans",
        "/v1/plans/{plan_id}",
        "/v1/plans/{plan_id}/frontiers",
        "/v1/plans/{plan_id}/simulation",
        "/v1/plans/{plan_id}:apply",
        "/v1/plans/{plan_id}:preflight",
        "/v1/operations/{operation_id}",
        "/v1/operations/{operation_id}/undo",
        "/v1/operations/{operation_id}:cancel",
        "/v1/operations/{operation_id}:undo",
        "/v1/intents/{intent_id}:activate",
        "/v1/intents/{intent_id}:retire",
        "/v1/promises",
        "/v1/agenda",
        "/v1/agenda:preview",
        "/v1/controller",
        "/v1/load",
        "/v1/load/history",
        "/v1/load/recent",
        "/v1/report",
        "/v1/events",
        "/v1/models",
        "/v1/models/{model}/topology",
        "/v1/models/{model}/profiles",
        "/v1/topology",
        "/v1/profiles",
        "/healthz",
        "/readyz",
        "/metrics",
    }
