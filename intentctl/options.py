"""Options that many commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from intentctl.arguments import Form
from intentctl.credentials import Place

Deployment = Annotated[
    Path | None,
    typer.Option(
        "--deployment", help="Deployment file to use instead of a service.", envvar="INTENTCTL_DEPLOYMENT"
    ),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="How data is printed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking; policy still holds.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask: a question becomes an error.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for a switch.", min=0)]


def moment(said: str | None) -> str | None:
    """A clock that is none is refused before anybody is asked."""
    if said is None:
        return None
    from intent.windows import moment as read

    try:
        read(said, "UTC")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return said


@dataclass(frozen=True)
class Where(Place):
    """The service that is asked."""

    server: Annotated[
        str | None, typer.Option("--server", help="Address of the service.", envvar="INTENTCTL_SERVER")
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="File with the key to show it. [INTENTCTL_KEY, or on this machine admin.key in the data folder]",
            envvar="INTENTCTL_KEY_FILE",
        ),
    ] = None
