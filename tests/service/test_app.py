import json
from pathlib import Path

from service.app import openapi_document

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
