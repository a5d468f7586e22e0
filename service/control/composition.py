"""The parts of a running service, put together once and handed to the HTTP modules."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from intent.models import LlmSettings
from runtime.process.content import PinnedCheckpoint, warn_of_change
from runtime.process.supervised import supervised
from runtime.replicas.engine import ReplicaSet
from runtime.router import Router
from runtime.tokenizer import Tokenizer
from selector.models import Profile
from service.access.audit import Audit
from service.access.wiring import AccessControl, open_access
from service.control.notices import telling
from service.control.relocation import RelocationPlanner
from service.control.wiring import PromiseService, keep_promises
from service.deployment import engines
from service.deployment.file import Deployment
from service.deployment.models import ServedModel
from service.deployment.policy import Retention
from service.deployment.profiles import crowded, fitted, forget_outdated, load_profiles
from service.deployment.settings import Settings, llm_settings
from service.documents.access import TRANSLATOR
from service.promises.active import Active
from service.promises.planner import Planner
from service.promises.watch import Watch
from service.serving.devices import Devices
from service.serving.events import EventBus
from service.serving.hosts import open_hosts
from service.serving.metrics import Metrics, ServiceMetrics
from service.serving.restart import begin, close_unfinished, start_without_the_broken
from service.serving.serving import Serving, ServingStorage
from service.serving.traces import tracing
from service.serving.worker_process import WorkerProcess
from service.store.database import connect, prepare
from service.store.lease import Lease
from service.store.lock import lock_of
from service.store.retention import keep_pruned, prune
from service.store.store import Store

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

AT_ONCE = 64
"""Texts that are read beside each other: most of the time they wait for the LLM."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Composition:
    """The parts of a service that runs, put together once."""

    deployment: Deployment
    servings: Mapping[str, Serving]
    """By the model's name."""
    store: Store
    events: EventBus
    profiles: Mapping[str, Mapping[str, Profile]]
    """Of each model's devices."""
    llm: LlmSettings | None
    access: AccessControl
    promises: PromiseService
    devices: Devices
    planning: WorkerProcess
    """Where people's plans and simulations are made; the controllers have another one."""
    reading: WorkerProcess
    """Where words are read, by the LLM if there is one."""
    metrics: ServiceMetrics
    tracer: "Tracer | None" = None


@asynccontextmanager
async def compose(deployment: Deployment, settings: Settings) -> AsyncIterator[Composition]:
    """Start everything a deployment needs, and end it in reverse.

    Raises:
        ServiceError: the store, the deployment or a setting cannot be used; nothing runs then.
        RuntimeFault: an engine cannot start.
    """
    deployment.refuse_unless_served()
    pinned = {model.name: PinnedCheckpoint.of(model.to_serve()) for model in deployment.models}
    tokenizers = {model.name: Tokenizer.load(model.to_serve()) for model in deployment.models}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(owned_store(settings, deployment.retention))
        events = await stack.enter_async_context(EventBus(store))
        close_unfinished(store, events)
        access = open_access(store, deployment, settings.folder)
        stack.callback(access.end)
        metrics = ServiceMetrics(store.lease)
        await stack.enter_async_context(telling(deployment.webhooks, events, store, access.keys, metrics))
        own_key = access.keys.lend(TRANSLATOR)
        llm = llm_settings(deployment.llm, settings, own_key) if deployment.llm else None
        if why := crowded(deployment, {gpu.index for gpu in deployment.cluster.gpus}):
            log.warning("%s", why)
        for model in deployment.models:
            forget_outdated(model, settings.folder)
        profiles = {model.name: load_profiles(deployment, model, settings.folder) for model in deployment.models}
        models = tuple(fitted(model, profiles[model.name], settings.folder) for model in deployment.models)
        deployment = replace(deployment, models=models)
        kept = ServingStorage(store, events, Active(store, deployment), Devices(store))
        stack.callback(kept.devices.close)
        engines.load(deployment.models)
        hosts = await stack.enter_async_context(open_hosts(deployment, kept.devices, store.lease))
        servings = dict[str, Serving]()
        watches = dict[str, Watch]()
        for model in deployment.models:
            planner = Planner(deployment, model, profiles[model.name])
            best = partial(RelocationPlanner(deployment, model.name, planner, kept.active).best, load=None)
            beginning_at = partial(begin, store, deployment, model, best=best)
            engine, beginning = await start_without_the_broken(model, kept.devices, beginning_at, hosts)
            stack.push_async_callback(engine.close)
            pinned[model.name].verified()  # or the engine may have other weights than belong to the tokenizer
            stack.callback(asyncio.create_task(warn_of_change(pinned[model.name])).cancel)
            served = serve(deployment, model, engine, tokenizers[model.name], kept, beginning.origin)
            servings[model.name], watches[model.name] = await stack.enter_async_context(served)
        planning = stack.enter_context(closing(WorkerProcess()))
        controllers = stack.enter_context(closing(WorkerProcess(niceness=0)))  # a rescue is planned while all is busy
        reading = stack.enter_context(closing(WorkerProcess(AT_ONCE)))
        keeping = keep_promises(deployment, servings, watches, profiles, kept, access, controllers)
        promises = await stack.enter_async_context(keeping)
        metrics.active = kept.active
        metrics.certificate_ends = hosts.certificate_ends if hosts else {}
        metrics.on_failure += [watch.turned_away for watch in watches.values()]
        yield Composition(
            deployment=deployment,
            servings=servings,
            store=store,
            events=events,
            profiles=profiles,
            llm=llm,
            access=access,
            promises=promises,
            devices=kept.devices,
            planning=planning,
            reading=reading,
            metrics=metrics,
            tracer=stack.enter_context(tracing(settings.otlp_endpoint)),
        )


@asynccontextmanager
async def owned_store(settings: Settings, kept: Retention) -> AsyncIterator[Store]:
    """The store of a service, which nobody else writes until it is closed; old records are forgotten.

    Raises:
        StartError: another service has the folder or the database, and is not waited for.
        StoreError: the database cannot be used.
    """
    with ExitStack() as stack:
        has_lock = settings.database_url is None
        lock = await lock_of(settings.folder, settings.inference_url, wait=settings.wait, has_database=has_lock)
        stack.enter_context(lock)
        database = connect(settings.folder, settings.database_url, settings.database_password())
        stack.callback(database.dispose)
        lease = await Lease.taken(database, settings.told_at, wait=settings.wait, has_lock=has_lock)
        prepare(database)
        store = stack.enter_context(closing(Store(database, lease)))
        export = partial(Audit(store).export, kept.audit_days, settings.folder / "audit")
        pruning = partial(keep_pruned, store, partial(prune, store, kept), export)
        stack.callback(asyncio.create_task(supervised("pruning", pruning)).cancel)
        yield store


@asynccontextmanager
async def serve(
    deployment: Deployment,
    model: ServedModel,
    engine: ReplicaSet,
    tokenizer: Tokenizer,
    kept: ServingStorage,
    origin: str,
) -> AsyncIterator[tuple[Serving, Watch]]:
    """What stands between a model's running engine and the routes; ``kept`` is what outlives its switches.

    ``origin`` says why the engine runs the topology that it does.
    """
    metrics = Metrics(model.name)
    watch = Watch(metrics)
    recovery_timeout_s = deployment.clients.recovery_timeout_s
    async with Router(engine, tokenizer, observers=watch, recovery_timeout_s=recovery_timeout_s) as router:
        serving = Serving(deployment, model, engine, router, kept, metrics, origin)
        try:
            yield serving, watch
        finally:
            await serving.close()
