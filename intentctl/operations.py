"""`intentctl cancel`: what is being done to the running service, and how to call it off."""

from typing import Annotated

import typer

from intentctl.arguments import SWITCH_TIMEOUT_S, Form, spread
from intentctl.options import Output, Where

Operation = Annotated[str, typer.Argument(help="Id of an operation, as `intentctl get` shows it.")]


@spread
def cancel(where: Where, operation: Operation, output: Output = Form.TABLE) -> None:
    """Give up a switch that has not committed; what ran goes on, and no stream notices."""
    from intentctl import commands, render

    service = commands.service(where)
    service.cancel(operation)
    *_, ended = commands.follow(service, operation, SWITCH_TIMEOUT_S)
    render.emit(ended, output, render.operation_rows(ended))
