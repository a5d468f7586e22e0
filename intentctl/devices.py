"""`intentctl devices`, `drain` and `undrain`: what is used, what is out, and what is being emptied."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import OutputFormat, spread
from intentctl.options import Output, Where

if TYPE_CHECKING:
    from intentctl.render import Row
    from service.documents.state import DeviceDocument, DrainDocument

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


@spread
def drain(
    where: Where,
    what: Annotated[str | None, typer.Argument(help="A node, a device or a replica: b, gpu-2, chat/1.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Until when requests may end there: 10m, 18:00.")] = None,
    why: Annotated[str, typer.Option("--why", help="For those who see it.", show_default=False)] = "",
    override: Annotated[bool, typer.Option("--override", help="Even where a promise forbids switches now.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Empty WHAT without losing a token, and keep it out until `undrain`. Without WHAT: list drains."""
    from intentctl import commands, render
    from service import api
    from service.documents.state import DrainRequest

    service = commands.service(where)
    if what is None:
        listed = service(api.state.drains)
        render.emit(listed, output, [row for each in listed.drains for row in drain_rows(each)])
        return
    code = ["reconfiguration_limited"] if override else []
    begun = service(api.state.drain, DrainRequest(what=what, by=by, why=why, acknowledge=code))
    render.emit(begun, output, drain_rows(begun))


@spread
def undrain(
    where: Where,
    what: Annotated[str, typer.Argument(help="What was drained, as `intentctl drain` lists it.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Let WHAT be used again, and cancel its switch if that has not cut. Nothing moves back by itself."""
    from intentctl import commands, render
    from service import api

    left = commands.service(where)(api.state.undrain, what)
    render.emit(left, output, [("undrained", what), *(row for each in left.drains for row in drain_rows(each))])


def drain_rows(drain: "DrainDocument") -> "list[Row]":
    """A drain: what is left there, who wants it, and what it breaks."""
    from intentctl import render

    now = {
        "empty": "empty: safe to power off",
        "leaving": f"{drain.requests} requests left there",
        "used": "still used, and no switch away is under way: drain it again",
    }
    since = f"devices {', '.join(map(str, drain.devices))}, by {drain.who} since {render.moment(drain.since_s)}"
    facts = {
        "until": drain.by,
        "why": drain.why,
        "operation": ", ".join(drain.operations),
        "predicted": drain.estimate_s and f"empty in about {render.seconds(drain.estimate_s)}",
    }
    rows = [(drain.what, f"{now[drain.state]}; {since}"), *((name, text) for name, text in facts.items() if text)]
    return [*rows, *(("breaks", each) for each in drain.misses)]
