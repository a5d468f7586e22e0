"""Options that many commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from intentctl.arguments import Form
from intentctl.credentials import Place

Output = Annotated[Form, typer.Option("--output", "-o", help="How data is printed.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking; policy still holds.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask: a question becomes an error.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for a switch.", min=0)]


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
