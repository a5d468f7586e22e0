"""Options that many commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import OutputFormat, hours_of
from intentctl.credentials import ServerAddress

if TYPE_CHECKING:
    from service.documents.plans import When

Deployment = Annotated[
    Path | None,
    typer.Option("--deployment", help="Deployment file to use instead of a service.", envvar="INTENTCTL_DEPLOYMENT"),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Apply without prompting; policy still applies.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never prompt: a question becomes an error.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for a switch.", min=0)]


def span(text: str) -> float:
    """The seconds of a span; one that is none is refused before anybody is asked."""
    if not 0 < (hours := hours_of(text)) <= 30 * 24:
        raise typer.BadParameter(f"{text!r} is no time: write 30m, 2h or 1d, 30 days at most")
    return hours * 3600


NoFor = Annotated[
    float | None,
    typer.Option(
        "--for",
        metavar="SPAN",
        parser=span,
        help="How long the controller does not switch to this target, as 30m or 2h. [default: until the window ends, at most 4h]",
    ),
]
PinFor = Annotated[
    float | None,
    typer.Option("--for", metavar="SPAN", parser=span, help="As 30m, 2h or 1d. [default: until `resume`]"),
]


def moment(text: str | None) -> str | None:
    """A clock that is none is refused before anybody is asked."""
    if text is None:
        return None
    from intent.windows import moment as read

    try:
        read(text, "UTC")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@dataclass(frozen=True)
class Where(ServerAddress):
    """The service that is asked."""

    server: Annotated[
        str | None, typer.Option("--server", help="Address of the service.", envvar="INTENTCTL_SERVER")
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="File with the key. [default: INTENTCTL_KEY, or on this machine admin.key in the data folder]",
            envvar="INTENTCTL_KEY_FILE",
        ),
    ] = None


Now = Annotated[
    str | None,
    typer.Option("--now", help="The time that 'tomorrow' counts from, in ISO 8601.", callback=moment),
]


@dataclass(frozen=True)
class PlanOptions:
    """For which time to plan, and how closely to look at the plan."""

    verify: Annotated[bool, typer.Option("--verify", help="Simulate the workload on the target, too.")] = False
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw latency against load into this SVG.")] = None
    at: Annotated[str | None, typer.Option("--at", help="Plan for this time, as 2026-01-05T09:30.")] = None
    window: Annotated[str | None, typer.Option("--window", help="Plan for this window, as peak.")] = None
    model: Annotated[
        str | None, typer.Option("--model", help="Plan for this model only, where several are served.")
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", help="Plan a switch to this topology, as tp2; without TEXT.")
    ] = None
    now: Now = None

    @property
    def when(self) -> "When":
        """What was said of the time."""
        from service.documents.plans import When

        fields = {"at": self.at, "window": self.window, "now": self.now}
        return When(**{name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True)
class InSpiteOf:
    """Refusals that somebody who may approve knows of, and means a plan all the same."""

    now: Annotated[
        bool, typer.Option("--now", help="Switch outside the plan's window; needs the right to approve.")
    ] = False
    override: Annotated[
        bool,
        typer.Option("--override", help="Switch although a promise forbids it; needs the right to approve."),
    ] = False

    break_promise: Annotated[
        bool,
        typer.Option("--break-promise", help="Switch although this breaks a promise; needs the right to approve."),
    ] = False

    @property
    def codes(self) -> frozenset[str]:
        """As the service calls them."""
        fields = {
            "outside_window": self.now,
            "reconfiguration_limited": self.override,
            "breaks_promise": self.break_promise,
        }
        return frozenset(code for code, is_said in fields.items() if is_said)
