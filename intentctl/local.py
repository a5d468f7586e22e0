"""The deployment that a command works on, and the examples."""

from pathlib import Path
from typing import TYPE_CHECKING

from intentctl.arguments import EngineName

if TYPE_CHECKING:
    from service.deployment.file import Deployment

_FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = {EngineName.TORCH: _FOLDER / "local-cpu.yaml", EngineName.VLLM: _FOLDER / "local-vllm.yaml"}
"""The deployments of a source checkout, by engine."""
EXAMPLE = EXAMPLES[EngineName.TORCH]
"""Served where none is named."""


def to_serve(deployment: Path | None) -> "Deployment":
    """What a deployment file says; where none is named, the example.

    Raises:
        DeploymentError: the file cannot be used.
    """
    from service.deployment.file import load

    return load(deployment or EXAMPLE)
