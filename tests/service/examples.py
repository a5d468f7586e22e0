"""Documents of the service as small as they can be."""

from dataclasses import replace

from intent.models import Intent, Objective, TranslatorInfo
from runtime.models import CutoverReport, Phase, Topology
from selector.models import Plan, Prediction
from service.deployment.file import Deployment
from service.documents.operations import OperationDocument, PhaseDocument
from tests.runtime.scripted import topology

GOAL = Objective("ttft", "<=", "TTFT < 2s", "p99", 2.0, "s")


def intent(text: str = "TTFT < 2s") -> Intent:
    return Intent(text, "en", (GOAL,), TranslatorInfo("rules"))


PREDICTION = Prediction(
    ttft_s={"mean": 0.1, "p99": 0.2},
    tpot_s={"mean": 0.01, "p99": 0.02},
    e2e_s={"mean": 1.0, "p99": 2.0},
    throughput_tok_s=100.0,
    gpu_util=0.5,
    usd_per_hour=0.0,
    batch=8,
    quality_loss=0.0,
    error_band=0.3,
    source="calibrated",
    devices=1,
)


def plan(now: Topology | None = None, target: Topology | None = None, **changes: object) -> Plan:
    made = Plan(
        id="plan-1",
        intent_id="intent-1",
        generation=4,
        model="counting",
        window="always",
        now=now or topology(1, 1),
        target=target or topology(1),
        prediction=PREDICTION,
        now_prediction=None,
        runner_up=None,
        reasons=("it is the only one",),
    )
    return replace(made, **changes)


def operation(name: str = "op-1", start_s: float = 1.0, end_s: float | None = None) -> OperationDocument:
    """An operation that was planned, or one that was done at ``end_s``."""
    made = OperationDocument.planned(name, plan(), start_s)
    if end_s is None:
        return made
    done = PhaseDocument(phase=Phase.DONE, at=end_s)
    return made.model_copy(update={"phases": (*made.phases, done), "result": report()})


def report(**facts: object) -> CutoverReport:
    return CutoverReport("op-1", str(topology(1, 1)), str(topology(1)), Phase.DONE, **facts)


def with_model(deployment: Deployment, **changes: object) -> Deployment:
    """A deployment whose only model is told otherwise."""
    return replace(deployment, models=(replace(deployment.model(), **changes),))
