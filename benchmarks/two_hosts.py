"""Requests move from one host to the other and back, while they run: ``python -m benchmarks.two_hosts`` (root).

Both hosts are namespaces of this machine. The left one runs the service, the right one an agent. Nothing is staged: the service
is the ordinary one, and its link is asked how many bytes it carried.
"""

import argparse
import contextlib
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.namespaces import PORT, AgentHost, agent_host, on_host, why_impossible
from intentctl import render
from intentctl.arguments import SWITCH_TIMEOUT_S, OutputFormat
from intentctl.client import Client
from intentctl.commands import to_its_end
from intentctl.demo import COUNTING, Switched, conclude, report, watched
from intentctl.lines import visible_lines
from intentctl.local import EXAMPLE
from intentctl.render import Document
from intentctl.status import CommandError, failure
from service import api
from service import documents as docs
from service.documents.errors import ServiceError
from service.documents.plans import PlanRequest

LEFT = "a"
RIGHT = "b"
START = "CPU[2]"
"""One device on the right."""
TARGETS = ("CPU[0,1]", "CPU[2]:0-4 > CPU[3]:4-8")
"""TP2 on the left, PP2 on the right."""
END_S = 60.0
"""How long what was interrupted may take to end by itself."""
DEPLOYMENT = """\
apiVersion: intentctl/v1
kind: Deployment
cluster:
  network: {{kind: network, bandwidth_gb_s: 1, latency_us: 100}}
  nodes:
    - {{name: a, link: {link}, gpus: [{{kind: CPU, count: 2, memory_gb: 1}}]}}
    - {{name: b, link: {link}, gpus: [{{kind: CPU, count: 2, memory_gb: 1}}]}}
hosts: {{b: {{agent: "{agent}"}}}}
models: [{{name: counting, path: {checkpoint}, precision: fp32, start: "{start}"}}]
workload:
  always: {{rate_rps: 0.2, input_tokens: {{mean: 20, p95: 20}}, output_tokens: {{mean: 900, p95: 900}}, concurrency: 8}}
approval: {{by: person}}
engine: torch
"""
LINK = "{kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}"


def run(form: OutputFormat) -> None:
    """Make the left host, run the demo there and report; both hosts are gone at the end.

    Raises:
        CommandError: hosts cannot be made here.
        SystemExit: the demo failed, and said so.
    """
    if why := why_impossible():
        raise failure("error", why)
    demo = shlex.join([sys.executable, "-m", "benchmarks.two_hosts", "--output", form, "--on-host"])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    with subprocess.Popen(on_host(LEFT, f"exec {demo}")) as host:
        try:
            host.wait()
        except KeyboardInterrupt:  # the demo has heard of it, too
            with contextlib.suppress(subprocess.TimeoutExpired):
                host.wait(END_S)
        finally:
            host.kill()
    if host.returncode:
        raise SystemExit(host.returncode if host.returncode > 0 else 128 - host.returncode)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def on_left(form: OutputFormat) -> None:
    """On the left host: make the right one, switch between them under streams, and report.

    Raises:
        CommandError: a host, a switch or a stream failed.
    """
    from runtime.hosts import certificates

    with tempfile.TemporaryDirectory(prefix="intentctl-") as name:
        file = Path(name) / "two-hosts.yaml"
        keys = file.with_suffix(".hosts")
        certificates.write(keys, (RIGHT,))
        with agent_host(RIGHT, keys / f"{RIGHT}.pem", file.parent) as right:
            agent = f"{right.address}:{PORT}"
            checkpoint = EXAMPLE.parent / "counting"
            file.write_text(DEPLOYMENT.format(link=LINK, agent=agent, checkpoint=checkpoint, start=START))
            switched, live, reference = watched(file, [partial(_move, right, target) for target in TARGETS], COUNTING)
    conclude(form, with_links(report(switched, live, reference), switched))


def _move(right: AgentHost, target: str, client: Client) -> Switched:
    """Name a topology of the other host, and apply the plan to it."""
    render.talk(f"\nintentctl plan --target {target!r}")
    plan = client(api.plans.make_plan, PlanRequest(target=target)).plan
    assert plan is not None, "a topology that is named is planned for"
    render.talk_rows(render.plan_rows(plan))
    goes_right = max(plan.target.devices) > 1
    before = right.carried_bytes(sent=goes_right)
    acknowledged = [finding.code for finding in plan.to_acknowledge]
    operation = to_its_end(
        client, client(api.plans.apply, plan.id, docs.ApplyRequest(acknowledge=acknowledged)), SWITCH_TIMEOUT_S
    )
    return Switched(f"run it as {target}", plan, operation, right.carried_bytes(sent=goes_right) - before)


def with_links(document: Document, switched: list[Switched]) -> Document:
    """A report with what the link carried, and a note where that is less than what was moved. Pure."""
    notes = list(document["notes"])
    for found, change in zip(document["switches"], switched, strict=True):
        found["link_bytes"] = change.link_bytes
        moved = found.get("bytes_between_hosts")
        if moved is not None and not 0 < moved <= (change.link_bytes or 0):
            notes.append(
                f"{change.text!r}: {moved} bytes moved between hosts, and the link carried {change.link_bytes}"
            )
    return {"hosts": [LEFT, RIGHT], **document, "notes": notes}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.two_hosts", description=__doc__)
    found.add_argument("-o", "--output", type=OutputFormat, choices=tuple(OutputFormat), default=OutputFormat.TABLE)
    found.add_argument("--on-host", action="store_true", help=argparse.SUPPRESS)  # as the first process of the left one
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Make hosts and switch between them; another status than 0 when it did not go well."""
    options = parser().parse_args(arguments)
    try:
        (on_left if options.on_host else run)(options.output)
    except (CommandError, ServiceError) as error:
        print(f"error: {visible_lines(str(error))}", file=sys.stderr)
        return error.exit if isinstance(error, CommandError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
