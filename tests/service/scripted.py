"""The whole service over a scripted engine, on a real port, for tests of what stands on its API.

Everything is the real thing but the engine: uvicorn, SQLite, router, coordinator, translator and selector.
"""

import asyncio
import json
import pickle
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import pytest
import tokenizers
from fastapi import FastAPI
from starlette.datastructures import State
from tokenizers import Regex, decoders, models, pre_tokenizers

from intent.models import DAYS, LlmSettings
from runtime.capabilities import Batching
from runtime.errors import RuntimeFault
from runtime.models import Topology
from runtime.replicas.engine import ReplicaSet
from runtime.tokenizer import Tokenizer
from selector.models import CpuSamples
from selector.profiles import fit_cpu
from service.access.wiring import open_access
from service.app import control_api
from service.control.composition import Composition, serve
from service.control.control_loop import ControlLoop, LoopContext
from service.control.relocation import RelocationPlanner
from service.control.wiring import keep_promises
from service.deployment.file import Deployment, load
from service.deployment.models import ServedModel
from service.deployment.settings import Settings, llm_settings
from service.documents.access import Role
from service.documents.errors import DeploymentError, ServiceError
from service.promises.active import Active
from service.promises.planner import Planner
from service.promises.watch import Watch
from service.server import ApiServer, bind
from service.serving.devices import Devices
from service.serving.events import EventBus
from service.serving.metrics import ServiceMetrics
from service.serving.restart import begin, close_unfinished
from service.serving.serving import Serving, ServingStorage
from service.serving.worker_process import WorkerProcess
from service.store import database
from service.store.lease import Lease
from service.store.store import Store
from tests.runtime.scripted import Script, ScriptedEngine

T = TypeVar("T")

WITHIN_S = 120
"""In which a service has to do what it is told: a busy machine is no failure."""
MOST_LOOKS = 50
"""In which the controller has to do what it is to do."""

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 98,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": True,
}

SAMPLES = CpuSamples(
    gemm_flops_s=5e10,
    memory_bytes_s=1e10,
    kv_bytes_s=5e9,
    layer_overhead_s=2e-4,
    allreduce_latency_s=3e-5,
    allreduce_bytes_s=2e9,
    p2p_latency_s=3e-5,
    step_overhead_s=5e-4,
)
"""Plausible for one core of a laptop; nothing here is compared with a measurement."""

DEPLOYMENT = """\
apiVersion: intentctl/v1
kind: Deployment
auth: none
cluster:
  nodes:
    - {name: local, link: {kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30},
      gpus: [{kind: CPU, count: 4, memory_gb: 1}]}
models:
  - {name: counting, path: counting, aliases: [counter], precision: fp32, start: pp2}
windows: {peak: always}
workload:
  always: {rate_rps: 0.8, input_tokens: {mean: 20, p95: 20}, output_tokens: {mean: 900, p95: 900}, concurrency: 8}
limits: {allowed_tp: [1, 2, 4], allowed_pp: [1, 2, 4], allowed_precisions: [fp32]}
"""

TWO_MODELS = DEPLOYMENT.replace(
    "start: pp2}",
    """devices: [0, 1], start: pp2}
  - name: busy
    path: counting
    precision: fp32
    start: pp2
    workload: {always: {rate_rps: 300, input_tokens: 20, output_tokens: 900, concurrency: 8}}""",
)
"""The same deployment with a model beside it that cannot keep up with what is asked of it."""

QUICK = "promises: {probation_s: 0.001, dwell_s: 0.001}\n"
"""A controller that waits for nothing but its looks, which ``ScriptedService.tick`` takes."""

KEYS = DEPLOYMENT.replace(
    "auth: none",
    "auth: {control_per_minute: 1000000, inference_per_minute: 3}\ntenants: [{name: gold}, {name: free}]",
)
"""The same deployment where keys are asked for."""


def elsewhen() -> str:
    """Windows of a deployment whose peak is on a day that is neither today nor beside it."""
    day = DAYS[(datetime.now(UTC) + timedelta(days=3)).weekday()]
    return f"{{peak: {{days: [{day}], start: '09:00', end: '18:00'}}}}"


def write_deployment(folder: Path, text: str = DEPLOYMENT) -> Path:
    """A deployment file and the shape of its checkpoint, without weights."""
    checkpoint = folder / "counting"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "config.json").write_text(json.dumps(CONFIG))
    file = folder / "deployment.yaml"
    file.write_text(text)
    return file


def read(folder: Path, text: str = DEPLOYMENT) -> Deployment:
    """A deployment by its text."""
    return load(write_deployment(folder, text))


def refused(folder: Path, text: str) -> str:
    """What is wrong with a deployment, and where."""
    with pytest.raises(DeploymentError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'deployment.yaml'}:")
    return message


PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

HERMES = """\
{% if tools %}You may call{% for tool in tools %} {{ tool | tojson }}{% endfor %}
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{%- for call in message.tool_calls or [] %}

<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}

{% endfor %}assistant:"""
"""A chat template that knows tools, and writes calls in the Hermes form."""


def character_tokenizer(template: str = PLAIN) -> Tokenizer:
    """One token per printable ASCII character and the line feed; 0 ends a text."""
    vocabulary = {"<eos>": 0, "\n": 96} | {chr(code): code - 31 for code in range(32, 127)}
    plain = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    plain.decoder = decoders.Fuse()
    return Tokenizer(plain, eos_ids=(0,), chat_template=template)


class Inline(WorkerProcess):
    """Does the work where it is asked for: a process of its own would import all of it again."""

    def _done(self, work: Callable[..., T], arguments: tuple[object, ...]) -> T:
        return pickle.loads(pickle.dumps(work))(*pickle.loads(pickle.dumps(arguments)))  # type: ignore[no-any-return]


class TickedLoop(ControlLoop):
    """Looks by itself when it is woken, and when a test says so: never both at once."""

    def __init__(self, parts: LoopContext) -> None:
        super().__init__(parts)
        self._turn = asyncio.Lock()

    async def _tick(self) -> None:
        async with self._turn:
            await super()._tick()


@cache
def _prototype() -> FastAPI:
    return control_api()


def quick_api() -> FastAPI:
    """The control API; its routes are the same for all services of the tests, as making them takes longer than the rest."""
    app = copy(_prototype())
    app.state = State()
    app.router = copy(app.router)
    app.router.routes = [*app.router.routes]
    app.router.middleware_stack = app.router.app
    return app


FILE = "sqlite:///"
"""Begins the URL of a file."""


@cache
def _new_tables() -> bytes:
    """An empty SQLite file with the tables of this version."""
    with tempfile.TemporaryDirectory() as folder:
        Store.open(Path(folder)).close()
        return (Path(folder) / "intentctl.sqlite").read_bytes()


def open_store(folder: Path, url: str | None = None) -> Store:
    """The store of a service; where there was none, its tables are copied and not made statement by statement."""
    file = Path(url.removeprefix(FILE)) if url else folder / "intentctl.sqlite"
    if file.exists() or (url and not url.startswith(FILE)):
        return Store.open(folder, url)
    file.write_bytes(_new_tables())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "migrate", lambda _: None)
        return Store.open(folder, url)


async def _owned_store(folder: Path, url: str, owner: str) -> Store:
    """A store that this service alone writes."""
    engine = database.connect(folder, url)
    lease = await Lease.taken(engine, owner, wait=True)
    database.prepare(engine)
    return Store(engine, lease)


def _patient(model: ServedModel) -> ServedModel:
    """The model, with a minute for a cut: a journal on a disk that stalls for 2 s ends a real switch, not a test's."""
    switch = replace(model.engine.switch, cut_timeout_s=max(60.0, model.engine.switch.cut_timeout_s))
    return replace(model, engine=replace(model.engine, switch=switch))


class ScriptedService:
    """A service in a thread of its own. Use as a context manager; ``call`` runs a coroutine in its loop."""

    def __init__(
        self,
        folder: Path,
        text: str = DEPLOYMENT,
        script: Script | None = None,
        template: str = PLAIN,
        max_tokens: int = 12_100,
        database: str | None = None,
        apart: Callable[[], WorkerProcess] = Inline,
        owner: str = "",
    ) -> None:
        """``database``: its URL; None: a file in the folder. ``apart``: makes the place of what computes for long.

        ``owner``: what it is called where another service wants the database; empty: none does.
        """
        self._apart = apart
        self._database = database
        self._owner = owner
        self._folder, self._script, self._template = folder, script, template
        self._max_tokens = max_tokens
        self.deployment_file = write_deployment(folder, text)
        self._deployment = load(self.deployment_file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted-service")
        self._ready: Future[str] = Future()
        self.engines: dict[str, ScriptedEngine] = {}
        self.parts: Composition
        self.server: ApiServer
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._ready.result(timeout=WITHIN_S)
        return self

    def __exit__(self, *reason: object) -> None:
        for _ in range(2):  # asked twice it waits for nothing
            self.stop()
        self.ended()

    def stop(self) -> None:
        """What a signal does; nothing where it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.server.stop)

    def ended(self) -> None:
        """Return when it has ended."""
        self._thread.join(timeout=WITHIN_S)
        assert not self._thread.is_alive()

    @property
    def engine(self) -> ScriptedEngine:
        """That of the first model."""
        return next(iter(self.engines.values()))

    @property
    def serving(self) -> Serving:
        """That of the first model."""
        return next(iter(self.parts.servings.values()))

    @property
    def admin_key(self) -> str:
        """The key of an administrator that the service left in its folder."""
        return (self._folder / "admin.key").read_text().strip()

    def client(self, key: str = "", **headers: str) -> httpx.Client:
        """A client, with a key where one is given."""
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(keepalive_expiry=2)  # less than the server's, which may close while a request is sent
        return httpx.Client(
            base_url=self.url, headers=sent | headers, timeout=WITHIN_S, trust_env=False, verify=False, limits=limits
        )

    def new_key(self, role: str, name: str = "somebody", tenant: str | None = None) -> str:
        """A new key as a whole."""
        return self.parts.access.keys.create(name, Role(role), tenant, "test")[0]

    def person(self, role: str, name: str = "somebody", tenant: str | None = None) -> httpx.Client:
        """A client with a new key."""
        return self.client(self.new_key(role, name, tenant))

    def call(self, work: Coroutine[None, None, T]) -> T:
        """The result of a coroutine run in the service's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=WITHIN_S)

    def do(self, act: Callable[..., T], *arguments: object) -> T:
        """What a function returns in the service's loop."""

        async def done() -> T:
            return act(*arguments)

        return self.call(done())

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return when something is so of the engine."""
        self.call(self.engine.until(is_so))

    def reached(self, call: str) -> None:
        """Return when the engine was told that last."""
        self.until(lambda: self.engine.calls[-1:] == [call])

    def settle(self) -> None:
        """Return when no switch is under way."""
        self.call(self.serving.settled())

    def tick(self) -> None:
        """Let the controller look once at each model: what it does each few seconds, without the seconds.

        What it cannot do it does at the next look, as in its own loop.
        """
        for runner in self.parts.promises.runners.values():
            with suppress(ServiceError, RuntimeFault):
                self.call(runner._tick())

    def ticked(self, found: Callable[[], T], what: str) -> T:
        """What is found, once something is: the controller looks before each time, and what it began has ended."""
        for _ in range(MOST_LOOKS):
            self.tick()
            self.settle()
            if seen := found():
                return seen
        raise AssertionError(f"not within {MOST_LOOKS} looks: {what}")

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(bind("127.0.0.1", 0))
            settings = Settings(port=listener.getsockname()[1])
            llm = llm_settings(self._deployment.llm, settings) if self._deployment.llm else None
            parts = await self._compose(stack, llm)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("service.app.control_api", quick_api)
                self.server = ApiServer(parts, self._ready.set_result, log_level="error")
            await self.server.serve(sockets=[listener])

    def _engine(self, replica: Topology) -> ScriptedEngine:
        return ScriptedEngine(replica, self._script, max_running=8, max_tokens=self._max_tokens)

    async def _started(self, replica: Topology, _: Batching | None) -> ScriptedEngine:
        return self._engine(replica)

    async def _compose(self, stack: AsyncExitStack, llm: LlmSettings | None) -> Composition:
        deployment = self._deployment
        if self._owner and self._database:
            store = await _owned_store(self._folder, self._database, self._owner)
        else:
            store = open_store(self._folder, self._database)
        stack.enter_context(closing(store))
        events = await stack.enter_async_context(EventBus(store))
        close_unfinished(store, events)
        kept = ServingStorage(store, events, Active(store, deployment), Devices(store))
        stack.callback(kept.devices.close)
        servings, watches = dict[str, Serving](), dict[str, Watch]()
        for model in deployment.models:
            planner = Planner(deployment, model, {"CPU": fit_cpu(SAMPLES)})
            best = partial(RelocationPlanner(deployment, model.name, planner, kept.active).best, load=None)
            beginning = begin(store, deployment, model, kept.devices.all, best)
            begun = [self._engine(replica) for replica in beginning.topology.replicas]
            engine = ReplicaSet(begun, self._started)
            stack.push_async_callback(engine.close)
            told = character_tokenizer(self._template), kept, beginning.origin
            served = serve(deployment, _patient(model), engine, *told)
            servings[model.name], watches[model.name] = await stack.enter_async_context(served)
            self.engines[model.name] = begun[0]
        profiles = {name: {"CPU": fit_cpu(SAMPLES)} for name in servings}
        access = open_access(store, deployment, self._folder)
        stack.callback(access.end)
        apart, reading = (stack.enter_context(closing(self._apart())) for _ in range(2))
        keeping = keep_promises(deployment, servings, watches, profiles, kept, access, apart)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("service.control.wiring.ControlLoop", TickedLoop)
            promises = await stack.enter_async_context(keeping)
        metrics = ServiceMetrics()
        metrics.active = kept.active
        self.parts = Composition(
            deployment,
            servings,
            store,
            events,
            profiles,
            llm,
            access,
            promises,
            kept.devices,
            apart,
            reading,
            metrics,
        )
        return self.parts


@contextmanager
def served(folder: Path, *said: Any, **facts: Any) -> Iterator[tuple[ScriptedService, httpx.Client]]:
    """A scripted service and a client of it."""
    with ScriptedService(folder, *said, **facts) as service, service.client() as http:
        yield service, http
