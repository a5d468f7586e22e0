"""``intentctl doctor``: can this machine run the service? Each check says what to do when it fails."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.commands import service
from intentctl.credentials import ServerAddress
from intentctl.status import CommandError, failure
from runtime.engine import EngineState
from service import api
from service.documents.errors import ServiceError

PACKAGES = ("prompts", "intent", "validator", "selector", "runtime", "service", "intentctl")
VLLM_TIMEOUT_S = 120
"""For its import: seconds on a quiet machine."""


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found."""

    name: str
    state: Literal["ok", "note", "bad"]
    detail: str


def run(form: OutputFormat, place: ServerAddress) -> None:
    """Print every check.

    Raises:
        CommandError: one of them is bad.
    """
    _print(list(_checks(place)), form)


def _print(checks: list[Check], form: OutputFormat) -> None:
    document = {"checks": [asdict(check) for check in checks]}
    render.emit(document, form, [(check.name, f"{check.state}: {check.detail}") for check in checks])
    bad = [check.name for check in checks if check.state == "bad"]
    if bad:
        raise failure("error", f"not ready: {', '.join(bad)}")


def run_hosts(form: OutputFormat, file: Path) -> None:
    """Print a check for each host of a deployment.

    Raises:
        CommandError: one of them cannot be used, or the file names no hosts.
    """
    import asyncio

    from runtime.errors import EngineStartError
    from service.deployment.file import load
    from service.serving.hosts import endings, expected, own_ends

    deployment = load(file)
    if not deployment.agents:
        raise failure("error", f"{file} names no hosts; without --hosts, doctor checks this machine")
    from runtime.hosts.look import look

    seen = asyncio.run(look(expected(deployment), deployment.certificates / "service.pem"))
    checks = [Check(item.host, "bad" if item.wrong else "ok", item.wrong or item.detail) for item in seen]
    ends = {f"{item.host}.pem": item.certificate_end_s for item in seen if item.certificate_end_s}
    try:
        soon = endings(ends | own_ends(deployment.certificates))
    except EngineStartError as error:
        soon = (str(error),)
    _print([*checks, Check("certificates", "note" if soon else "ok", "; ".join(soon) or "none ends soon")], form)


def _checks(place: ServerAddress) -> Iterator[Check]:
    yield _python()
    yield _dependencies()
    yield _own_packages()
    yield _vllm()
    yield _data_dir()
    yield _shared_memory()
    yield _cores()
    yield _service(place)
    yield from _warnings(place)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Check("python", "ok" if good else "bad", found if good else f"{found}; 3.11 or newer is needed")


def _dependencies() -> Check:
    needed = [line for line in requires("intentctl") or () if "extra ==" not in line]
    missing = [name for name in map(_name_of, needed) if not _installed(name)]
    if missing:
        return Check(
            "dependencies",
            "bad",
            f"missing {', '.join(missing)}; run `make setup` or install intentctl again",
        )
    return Check("dependencies", "ok", f"intentctl {version('intentctl')} with all it needs")


def _name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _own_packages() -> Check:
    """Our package names are plain words: something else of that name may come first on the path."""
    home = Path(__file__).parent.parent
    places = {name: importlib.util.find_spec(name) for name in PACKAGES}
    foreign = [name for name, spec in places.items() if not spec or not Path(spec.origin or "/").is_relative_to(home)]
    if foreign:
        return Check("packages", "bad", f"{', '.join(foreign)} come from elsewhere than {home}; use a fresh venv")
    return Check("packages", "ok", f"all seven from {home}")


def _vllm() -> Check:
    """Only deployments with ``engine: vllm`` need it."""
    from runtime.errors import EngineStartError
    from runtime.vllm_engine.driver.boot import installed_version

    try:
        state: Literal["ok", "note"] = "ok"
        detail = installed_version()
    except EngineStartError as error:
        state = "note"
        detail = str(error)
    if importlib.util.find_spec("vllm") is None:
        return Check("vllm", "note", detail)
    lacking = vllm_lacks()
    return Check("vllm", "note" if lacking else state, f"{detail}; {lacking or 'it has all that a switch uses of it'}")


def vllm_lacks() -> str:
    """What of a switch's conditions the installed vLLM does not meet; empty: it meets all."""
    code = "from runtime.vllm_engine.connector.hooks import missing; print(', '.join(missing()))"
    command = [sys.executable, "-c", code]  # a process of its own: vLLM looks for devices when it is imported
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VLLM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"its import took longer than {VLLM_TIMEOUT_S} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the import ended with status {done.returncode}"]
        return f"it cannot be imported: {lines[-1]}"
    absent = done.stdout.strip()
    return f"it has moved {absent}" if absent else ""


def _data_dir() -> Check:
    from service.deployment.settings import read_settings

    try:
        folder = read_settings().folder
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ServiceError) as error:
        return Check("data", "bad", f"{error}; name another folder with INTENTCTL_DATA_DIR")
    return Check("data", "ok", str(folder))


def _shared_memory() -> Check:
    """The engine's processes share memory through memfd."""
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if make is None:
        return Check("shared memory", "bad", "this system has no memfd; the engine needs Linux")
    try:
        os.close(make("intentctl-doctor"))
    except OSError as error:
        return Check("shared memory", "bad", f"memfd is refused here: {error}")
    return Check("shared memory", "ok", "memfd")


def _cores() -> Check:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Check("cores", "note", f"{count}; it works, but a switch will disturb streams more than with two")
    return Check("cores", "ok", str(count))


def _service(place: ServerAddress) -> Check:
    client = service(place)
    try:
        found = client.readiness().models
    except ServiceError as error:
        return Check("service", "note", str(error))
    models = ", ".join(f"{readiness.model} as {readiness.shape}: {readiness.state}" for readiness in found)
    is_ok = all(readiness.state is EngineState.SERVING for readiness in found)
    return Check("service", "ok" if is_ok else "note", f"{client.url} has {models}")


def _warnings(place: ServerAddress) -> Iterator[Check]:
    """What a service says of itself to whoever has a key."""
    try:
        for warning in service(place)(api.keys.me).warnings:
            yield Check("service", "note", warning)
    except (ServiceError, CommandError):  # nobody answers, or the key opens nothing: said before
        return
