"""Options that many commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import OutputFormat, hours_of
from intentctl.credentials import ServerAddress
from runtime.capabilities import USUAL_BATCHING, Batching

if TYPE_CHECKING:
    from selector.models import Spread, Workload
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
    at: Annotated[
        str | None, typer.Option("--at", help="Plan for this time, as 2026-01-05T09:30.", callback=moment)
    ] = None
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
class QualityOptions:
    """What weight formats cost: of which model, and on which text."""

    subject: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="With --quality: a model of the deployment, or a checkpoint folder."),
    ] = None
    quality: Annotated[
        bool, typer.Option("--quality", help="Measure what weight formats cost MODEL instead; needs no service.")
    ] = False
    text: Annotated[
        Path | None,
        typer.Option("--text", help="With --quality: a text like those it serves. [default: English prose]"),
    ] = None
    deployment: Deployment = None


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


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a topology is asked to serve: how long requests are, and one of three ways in which they come."""

    input_tokens: Annotated[str, typer.Option("--input", metavar="MEAN[:P95]", help="Tokens of a prompt.")]
    output_tokens: Annotated[str, typer.Option("--output", metavar="MEAN[:P95]", help="Tokens of an answer.")]
    batch: Annotated[int | None, typer.Option("--batch", help="A static batch of so many, all alike.", min=1)] = None
    rate: Annotated[float | None, typer.Option("--rate", help="Arrivals per second.", max=1e6)] = None
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", help="Clients that each wait for their answer.", min=1, max=4096)
    ] = None
    burstiness: Annotated[
        float,
        typer.Option("--burstiness", help="How uneven times between arrivals are (CV); 1: Poisson.", min=0.01, max=100),
    ] = 1.0
    prefix_hit: Annotated[float, typer.Option("--prefix-hit", help="Cached share of prompts.", min=0, max=0.99)] = 0.0

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.batch, self.rate, self.concurrency)) != 1:
            raise typer.BadParameter("say one of --batch, --rate and --concurrency")
        if self.rate is None and self.burstiness != 1:
            raise typer.BadParameter("--burstiness is that of arrivals: say it with --rate")
        if self.batch and (":" in self.input_tokens + self.output_tokens or self.prefix_hit):
            raise typer.BadParameter("requests of a static batch are all alike: leave out P95 and --prefix-hit")

    @property
    def workload(self) -> "Workload":
        """The load; a mean alone has the spread of public chat."""
        from selector.models import ALIKE, CHAT_INPUTS, CHAT_OUTPUTS, Workload

        usual_inputs, usual_outputs = (ALIKE, ALIKE) if self.batch else (CHAT_INPUTS, CHAT_OUTPUTS)
        input_tokens, inputs = _lengths("--input", self.input_tokens, usual_inputs)
        output_tokens, outputs = _lengths("--output", self.output_tokens, usual_outputs)
        rate_rps = 1.0 if self.rate is None else self.rate
        return Workload(rate_rps, input_tokens, output_tokens, 1, inputs, outputs, self.burstiness, self.prefix_hit)


def _lengths(option: str, text: str, usual: "Spread") -> "tuple[int, Spread]":
    """Mean and spread of ``800`` or ``800:2400``."""
    from selector.models import MOST_P95, Spread

    mean, _, p95 = text.partition(":")
    if not mean.isdecimal() or not int(mean) or not (p95.isdecimal() or text == mean):
        raise typer.BadParameter(f"{option} {text}: write tokens, 1 or more, as 800 or with their P95 as 800:2400")
    by_mean = int(p95) / int(mean) if p95 else usual.p95_by_mean
    if not 1 <= by_mean <= MOST_P95:
        raise typer.BadParameter(f"{option} {text}: a P95 is the mean or more, and at most {MOST_P95} times as much")
    return int(mean), Spread(by_mean, source=option) if p95 else usual


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is set."""

    max_sequences: Annotated[
        int, typer.Option("--max-sequences", help="Sequences that run at once.", min=1, max=10**6)
    ] = USUAL_BATCHING.max_sequences
    max_step_tokens: Annotated[
        int, typer.Option("--max-step-tokens", help="Tokens of one step, decodes included.", min=16, max=10**7)
    ] = USUAL_BATCHING.max_step_tokens
    kv_gb: Annotated[
        float | None,
        typer.Option("--kv-gb", help="KV cache of each device. [default: what memory leaves]", min=0, max=1e5),
    ] = None

    @property
    def batching(self) -> Batching:
        """How far steps are filled."""
        return Batching(self.max_sequences, self.max_step_tokens)
