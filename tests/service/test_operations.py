from runtime.errors import Reason
from runtime.models import CutoverReport, Phase, Progress
from service.documents.operations import OperationDocument
from tests.service.examples import plan

PLANNED = OperationDocument.planned("op-1", plan(), 1.0)


def progress(phase: Phase, at_s: float = 5.0, copied: int = 0) -> Progress:
    return Progress("op-1", phase, at_s, copied_bytes=copied, lag_bytes=7, lag_tokens=3)


def report(phase: Phase, reason: Reason | None = None) -> CutoverReport:
    return CutoverReport("op-1", "CPU[0]:0-8@fp32", "CPU[0,1]:0-8@fp32", phase, reason, "the rank was lost")


def test_a_phase_is_noted_once_with_the_time_it_began():
    operation = PLANNED.advanced(progress(Phase.SYNCING, 2.0, copied=10))
    document = operation.advanced(progress(Phase.SYNCING, 3.0, copied=20)).model_dump(mode="json")

    assert document["phases"] == [{"phase": "planned", "at": 1.0}, {"phase": "syncing", "at": 2.0}]
    assert document["phase"] == "syncing"
    assert document["progress"] == {"copied_bytes": 20, "lag": {"bytes": 7, "tokens": 3}}
    assert not document["done"]
    assert document.keys().isdisjoint({"result", "error"})


def test_a_switch_that_is_done_has_a_result_and_no_error():
    document = PLANNED.finished(report(Phase.DONE)).model_dump(mode="json")

    assert document["done"]
    assert document["result"]["target"] == "CPU[0,1]:0-8@fp32"
    assert "error" not in document


def test_a_switch_that_was_given_up_has_an_error_with_its_reason_and_no_result():
    operation = PLANNED.finished(report(Phase.ABORTED, Reason.RANK_LOST))

    document = operation.model_dump(mode="json")
    assert document["done"]
    assert document["error"]["reason"] == "rank_lost"
    assert "CPU[0]:0-8@fp32 goes on" in document["error"]["detail"]
    assert "result" not in document
    assert OperationDocument.model_validate(document) == operation
