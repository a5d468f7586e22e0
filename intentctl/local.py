"""An operator in this process, from a deployment file that was named; and what is served where none is."""

from pathlib import Path
from typing import TYPE_CHECKING

from intentctl.arguments import EngineName

if TYPE_CHECKING:
    from service.api.operation import Api
    from service.deployment.file import Deployment

_FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = {EngineName.TORCH: _FOLDER / "local-cpu.yaml", EngineName.VLLM: _FOLDER / "local-vllm.yaml"}
"""The deployments of a source checkout, by engine."""
EXAMPLE = EXAMPLES[EngineName.TORCH]
"""Served where none is named."""


def to_serve(deployment: Path | None) -> "Deployment":
    """What a file says, or the example.

    Raises:
        DeploymentError: the file cannot be used.
    """
    from service.deployment.file import load

    return load(deployment or EXAMPLE)


def from_file(deployment: Path) -> "Api":
    """An operator that translates and plans, and can apply nothing.

    Raises:
        DeploymentError: the file cannot be used.
    """
    from service.api.context import Offline

    return Offline(to_serve(deployment))
