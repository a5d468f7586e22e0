"""`intentctl console`: serves the console until it is told to stop."""

from ipaddress import ip_network
from typing import Annotated

import typer

from intentctl.credentials import is_loopback
from intentctl.status import failure

USUAL = "http://127.0.0.1:8642"
PORT = 8643


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


def console(
    server: Annotated[str, typer.Option("--server", help="Address of the service.", envvar="INTENTCTL_SERVER")] = USUAL,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 lets the system choose.", min=0, max=65535)] = PORT,
    public_host: Annotated[
        list[str] | None,
        typer.Option(
            "--public-host",
            help="A host name that browsers use, where --host is not loopback; repeatable.",
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", help="Network of a proxy whose X-Forwarded-* count; repeatable.", parser=_network),
    ] = None,
) -> None:
    """Serve the ops console and print its address. People sign in with their own keys."""
    import socket

    from intentctl.client import Client
    from intentctl.console.app import create_app
    from intentctl.console.server import WebServer
    from intentctl.credentials import say_if_clear

    is_local = is_loopback(host)
    Client(server)  # an address that is none is refused here
    say_if_clear(server)
    app = create_app(
        lambda key: Client(server, key),
        _names(public_host, is_local=is_local),
        is_local=is_local,
    )
    app.state.proxies = proxy or []
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise failure("error", f"console: cannot listen on {host} port {port}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host else host

    def announce() -> None:
        print(f"http://{shown}:{listener.getsockname()[1]}", flush=True)

    with listener:
        WebServer(app, announce).run(sockets=[listener])


def _names(public: list[str] | None, *, is_local: bool) -> list[str]:
    """By which the console may be called: a page of another name cannot act through it."""
    if public:
        return [*public, "localhost", "127.0.0.1", "[::1]"]
    return ["localhost", "127.0.0.1", "[::1]"] if is_local else ["*"]
