"""The Grafana dashboard of the repository, and what it asks Prometheus."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from runtime.engine import EngineState, EngineStats
from runtime.process.supervised import contained
from service.documents.promises import AttainmentDocument
from service.documents.state import ReplicaDocument
from service.promises.active import Active
from service.serving.metrics import Metrics, ServiceMetrics, merged
from tests.runtime.scripted import topology

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/dashboards/intentctl.json"
WHOLE: dict[str, Any] = json.loads(DASHBOARD.read_text())
METRIC = re.compile(r"\b(?:intentctl_|vllm:)\w+")
VARIABLES = {
    "$model_name": "counting",
    "$tenant": "gold|",
    "$__rate_interval": "1m",
    "$__range": "1m",
}


@dataclass(frozen=True)
class Target:
    """A query of a panel."""

    title: str
    query: str

    @property
    def filled_in(self) -> str:
        """The query for the scripted service's model, for a tenant and for nobody in particular, over a minute."""
        query = self.query
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        return query


def panels(*, rows: bool = False) -> list[dict[str, Any]]:
    """All panels, those in rows that are folded up too; with ``rows`` the rows themselves."""
    found = [one for panel in WHOLE["panels"] for one in (panel, *panel.get("panels", ()))]
    return [panel for panel in found if rows or panel["type"] != "row"]


def targets() -> list[Target]:
    """All queries of panels, then those of annotations."""
    asked = [Target(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    return asked + [Target(note["name"], note["expr"]) for note in WHOLE["annotations"]["list"]]


GOAL = AttainmentDocument(
    model="counting",
    intent_id="intent-1",
    words="P99 TTFT at most 2 s",
    window="peak",
    counted="requests",
    met=995,
    total=1000,
    needed=0.99,
)


REPLICA = ReplicaDocument(
    topology=topology(1, 1),
    state=EngineState.SERVING,
    share=0.25,
    taken=0.5,
    running=3,
    waiting=1,
    is_changing=False,
    is_leaving=False,
)


class Attained(Active):
    """What is active, as far as metrics look."""

    def __init__(self, *attained: AttainmentDocument) -> None:
        self.attained = attained


def exposed() -> set[str]:
    """Names of the samples that a service exposes."""
    service = ServiceMetrics()
    service.certificate_ends = {"b.pem": 0.0}
    service.active = Attained(GOAL)
    with contained("a task"):
        text = merged([service.render(), Metrics("counting").render(EngineStats(0, 0, 8, 8), 0, [REPLICA])])
    families = text_string_to_metric_families(text)
    return {sample.name for family in families for sample in family.samples}
