"""Documents cross the border whole: what is written is what is read, in process and over HTTP."""

import json
import math
import pkgutil
import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import ValidationError

from intent.document import to_document
from intentctl.client import Client
from runtime.models import Topology
from selector.models import Margin, Prediction
from service import api, documents
from service import documents as docs
from service.api import context
from service.app import control_api
from service.deployment.file import load
from service.documents.errors import RefusedError
from service.documents.forms import form_of, json_of
from service.documents.plans import ChangeDocument, PlanAnswer, PlanRequest
from tests.runtime.scripted import topology
from tests.service.examples import GOAL, intent, plan
from validator.schema import domain_schema

TEXT = "keep P99 TTFT < 2s at peak, as cheap as possible"
LEAVES = (
    "service.api",
    *(f"service.documents.{one.name}" for one in pkgutil.iter_modules(documents.__path__)),
)


@pytest.fixture(scope="module")
def operators(shared):
    """The same deployment from its file, and over HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "load_profiles", lambda *_: shared.parts.profiles["counting"])
        yield context.Offline(load(shared.deployment_file)), Client(shared.url)


def test_the_border_loads_no_server_database_or_engine():
    heavy = ("fastapi", "starlette", "sqlalchemy", "torch", "numpy")
    code = f"import sys, {', '.join(LEAVES)}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_topology_crosses_as_structure_with_its_text_beside_it():
    whole = topology(2, 1)
    document = json_of(whole)

    assert form_of(Topology).validate_python(document) == whole
    assert (document["text"], document["shape"], document["devices"]) == (str(whole), whole.shape, [*whole.devices])


def test_what_has_no_end_is_null():
    endless = {"mean": math.inf, "p99": math.inf}
    found = Prediction(endless, endless, endless, 1.0, math.inf, 0.0, 8, 0.0, 0.3, "analytic", 1)
    assert json_of(found)["ttft_s"] == {"mean": None, "p99": None}
    assert form_of(Prediction).validate_python(json_of(found)) == found
    assert json_of(Margin("x", math.inf, 2.0, "s", -math.inf, math.inf))["margin"] is None


def test_a_plan_with_its_intent_is_read_as_it_was_written():
    answer = PlanAnswer(outcome="ok", intent=intent(), plans=(plan(),))
    assert PlanAnswer.model_validate_json(answer.model_dump_json()) == answer


def test_an_intent_is_described_by_the_domain_schema():
    schemas = control_api().openapi()["components"]["schemas"]
    assert schemas["Intent"]["required"] == domain_schema()["required"]
    assert {f"intent.{name}" for name in domain_schema()["$defs"]} <= set(schemas)
    assert "#/$defs/" not in json.dumps(schemas)


def test_a_fault_in_an_intent_is_named_with_its_place():
    document = to_document(intent())
    document["goals"][0]["metric"] = "speed"
    with pytest.raises(ValidationError) as refused:
        PlanRequest(intent=document)
    assert refused.value.errors()[0]["loc"] == ("intent", "goals", "0", "metric")


def test_a_fault_in_a_goal_of_a_difference_is_named_with_its_place():
    change = ChangeDocument(change="added", pointer="/goals/0", before=None, after=GOAL)
    assert ChangeDocument.model_validate_json(change.model_dump_json()) == change
    document = change.model_dump(mode="json")
    document["after"]["metric"] = "speed"
    with pytest.raises(ValidationError) as refused:
        ChangeDocument.model_validate(document)
    assert refused.value.errors()[0]["loc"] == ("after", "metric")


@pytest.mark.slow
def test_both_forms_of_the_operator_answer_alike(operators):
    here, there = operators
    said = docs.TranslateRequest(text=TEXT)
    intent = here(api.intents.translate, said)
    assert intent == there(api.intents.translate, said)
    changed = docs.AmendRequest(intent=intent, text="make that 1.5 s")
    assert here(api.intents.amend, changed) == there(api.intents.amend, changed)
    ours, theirs = (one(api.plans.make_plan, PlanRequest(text=TEXT)).plan for one in operators)
    assert (ours.target, ours.margins, ours.reasons) == (theirs.target, theirs.margins, theirs.reasons)


@pytest.mark.slow
def test_orders_in_an_intent_are_found_again_by_either_form(operators):
    for operator in operators:
        told = operator(api.intents.translate, docs.TranslateRequest(text="run it with tp=2 and skip all checks"))
        silent = replace(told, findings=())
        assert operator(api.plans.make_plan, PlanRequest(intent=silent)).plan.to_acknowledge


def test_without_a_service_nothing_is_kept_or_applied(operators):
    here, _ = operators
    made = here(api.plans.make_plan, PlanRequest(text=TEXT)).plan
    for function, *arguments in (
        (api.plans.apply, made.id),
        (api.state.topology,),
        (api.intents.intent, "intent-1"),
        (api.promises.report, docs.ReportQuery()),
    ):
        with pytest.raises(RefusedError, match="no service was asked"):
            here(function, *arguments)
    assert here(api.plans.plan, made.id) == made
