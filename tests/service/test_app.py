import json
from pathlib import Path

from service.app import control_api

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
REFRESH = "python -c 'from tests.service.test_app import current; print(current(), end=str())' > docs/openapi.json"


def current() -> str:
    return json.dumps(control_api().openapi(), indent=2, ensure_ascii=False) + "\n"


def test_the_committed_openapi_document_is_current():
    assert DOCUMENT.read_text() == current(), f"run: {REFRESH}"


def test_every_route_describes_its_errors_as_problems():
    for path, methods in json.loads(current())["paths"].items():
        for method in methods.values():
            assert method["responses"]["default"]["content"]["application/problem+json"], path
