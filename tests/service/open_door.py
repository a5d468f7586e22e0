"""An app behind the service's intake, with the door open: for tests of what is behind it."""

from typing import Any

from service.access.gate import OpenGate
from service.deployment.policy import ClientLimits
from service.http.intake import Intake
from service.serving.metrics import ServiceMetrics


def behind_open_door(app: Any) -> Intake:
    return Intake(app, OpenGate(), ClientLimits(), ServiceMetrics())
