"""`intentctl agent` and `intentctl hosts`: several machines under one service."""

from pathlib import Path
from typing import Annotated

import typer

from intentctl.arguments import OutputFormat
from intentctl.options import Deployment, Output
from intentctl.status import failure

hosts = typer.Typer(
    help="Hosts: the machines of a deployment that agents speak for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
PORT = 7443


@hosts.command("init")
def init(deployment: Deployment = None, output: Output = OutputFormat.TABLE) -> None:
    """Make certificates for the service and each host's agent; what is there and lasts is kept."""
    from intentctl import render
    from runtime.errors import EngineStartError
    from service.deployment.file import load

    if deployment is None:
        raise typer.BadParameter("name the deployment file with --deployment")
    known = load(deployment)
    if not known.agents:
        raise failure("error", f"{deployment} names no hosts; write `hosts: {{b: {{agent: 10.0.0.2:{PORT}}}}}`")
    try:
        from runtime.hosts.certificates import write
    except ImportError as error:
        raise failure("error", "certificates need a library: pip install 'intentctl[cluster]'") from error
    try:
        written = write(known.certificates, tuple(known.agents))
    except (EngineStartError, OSError) as error:
        raise failure("error", str(error)) from error
    files = {name: str(known.certificates / f"{name}.pem") for name in known.agents}
    document = {"written": [str(file) for file in written], "files": files}
    lines = [(name, f"copy {file} to host {name}, readable by the agent alone") for name, file in files.items()]
    render.emit(document, output, [("written", ", ".join(file.name for file in written) or "nothing"), *lines])


def agent(
    certificate: Annotated[Path, typer.Argument(help="This host's file of `hosts init`, as b.pem.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the service reaches it.")
    ] = f"0.0.0.0:{PORT}",
    visible: Annotated[str, typer.Option(envvar="CUDA_VISIBLE_DEVICES", hidden=True)] = "",
) -> None:
    """Be the agent of this host: start drivers here for the service that shows the right certificate."""
    from runtime.errors import EngineStartError
    from runtime.hosts.agent import run
    from service.deployment.settings import read_settings
    from service.http.logs import configure

    settings = read_settings()
    configure(settings.log_level, settings.log_format)
    address, _, port = listen.rpartition(":")
    if not address or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{listen!r} is no address; write HOST:PORT, as 10.0.0.2:{PORT}")
    try:
        run(certificate, (address, int(port)), visible, typer.echo)
    except (EngineStartError, OSError) as error:
        raise failure("error", f"the agent cannot start: {error}") from error
