"""What steps take on the stages of a server. Pure."""

from selector.performance.perf import Step
from selector.performance.simulator import ServerModel

LONGEST = 2**20
"""Tokens in or out of the longest request that is taken seriously."""


def times(server: ServerModel, step: Step) -> list[float]:
    """Seconds of a step on each stage."""
    return [stage.seconds(step) / server.share for stage in server.stages]
