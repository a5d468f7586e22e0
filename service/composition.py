"""The parts of a running service, put together once and handed to the HTTP modules."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from intent.models import LlmSettings
from runtime.engine import Engine
from runtime.router import Router
from runtime.tokenizer import Tokenizer
from selector.models import Profile
from service import engines
from service.deployment import Deployment
from service.events import EventBus
from service.lock import take_lock
from service.metrics import Metrics
from service.profiles import load_profiles
from service.serving import Serving
from service.settings import Settings, llm_settings
from service.store import Store


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything the routes need."""

    serving: Serving
    store: Store
    events: EventBus
    metrics: Metrics
    profiles: Mapping[str, Profile]
    llm: LlmSettings | None


@asynccontextmanager
async def compose(deployment: Deployment, settings: Settings) -> AsyncIterator[Composition]:
    """Start everything a deployment needs, and end it in reverse.

    Raises:
        ServiceError: the store, the deployment or a setting cannot be used; nothing runs then.
        RuntimeFault: the engine cannot start.
    """
    checkpoint = deployment.to_serve()
    llm = llm_settings(deployment.llm) if deployment.llm else None
    tokenizer = Tokenizer.load(checkpoint)
    store = Store.open(settings.folder, settings.database_url)
    lock = take_lock(settings.folder)
    try:
        profiles = load_profiles(deployment, settings.folder)
        engine = await engines.start(deployment)
        try:
            async with assemble(deployment, engine, tokenizer, store) as (serving, events, metrics):
                yield Composition(serving, store, events, metrics, profiles, llm)
        finally:
            await engine.close()
    finally:
        lock.close()
        store.close()


@asynccontextmanager
async def assemble(
    deployment: Deployment, engine: Engine, tokenizer: Tokenizer, store: Store
) -> AsyncIterator[tuple[Serving, EventBus, Metrics]]:
    """What stands between a running engine and the routes."""
    events, metrics = EventBus(), Metrics(deployment.model.spec.name)
    async with Router(engine, tokenizer, observer=metrics) as router:
        serving = Serving(deployment, engine, router, store, events, metrics)
        try:
            yield serving, events, metrics
        finally:
            await serving.close()
            events.close()
