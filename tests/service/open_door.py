"""An app behind the service's intake, with the door open: for tests of what is behind it."""

from typing import Any

from service.access.gate import OpenGate
from service.clients import ClientLimits
from service.intake import Intake
from service.metrics import ServiceMetrics


def behind_open_door(app: Any) -> Intake:
    return Intake(app, OpenGate(), ClientLimits(), ServiceMetrics())
