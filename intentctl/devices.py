"""`intentctl devices`: what there is, what is used, and what is out."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import OutputFormat, spread
from intentctl.options import Output, Where

if TYPE_CHECKING:
    from intentctl.render import Row
    from service.documents.state import DeviceDocument

Way = StrEnum("Way", "out in")
"""Of a device."""


@spread
def devices(
    where: Where,
    way: Annotated[Way | None, typer.Argument(help="Take a device out, or in again.")] = None,
    device: Annotated[int | None, typer.Argument(help="Its number in the list.", min=0)] = None,
    why: Annotated[str, typer.Option("--why", help="With out: for those who see it.", show_default=False)] = "",
    output: Output = OutputFormat.TABLE,
) -> None:
    """List devices: used, free or out, and why. `devices out ID` takes one out, `devices in ID` in again."""
    from intentctl import commands, render
    from service import api
    from service.documents.state import OutRequest

    if (way is None) is not (device is None):
        raise typer.BadParameter("write `intentctl devices`, `devices out ID` or `devices in ID`")
    if why and way is not Way.out:
        raise typer.BadParameter("--why goes with `devices out ID`")
    service = commands.service(where)
    if way is None or device is None:
        listed = service(api.state.devices)
        render.emit(listed, output, [device_row(device) for device in listed.devices])
        return
    changed = (
        service(api.state.take_out, device, OutRequest(why=why))
        if way is Way.out
        else service(api.state.take_in, device)
    )
    render.emit(changed, output, [device_row(changed)])
    if changed.out and changed.used and output is OutputFormat.TABLE:
        render.talk(f"{changed.model} runs on it until it is switched: intentctl agenda, intentctl plan TEXT")


def device_row(device: "DeviceDocument") -> "Row":
    """A device in a line."""
    out = f"out, by {device.out_by}: {device.out}" + ", still used" * device.used
    state = out if device.out else "used" if device.used else "free"
    return f"device {device.device}", f"{device.kind} of {device.node}, {device.model or 'no model'}; {state}"
