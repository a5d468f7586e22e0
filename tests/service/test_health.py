"""Whether the service lives, whether its models can be served, and metrics of a model that cannot."""

import asyncio
import threading

import anyio
import pytest

from runtime.engine import EngineState

pytestmark = pytest.mark.slow


def test_health_and_metrics_stand_when_the_engine_is_lost(http, service):
    models = [{"model": "counting", "state": "serving", "shape": "PP2"}]
    assert http.get("/readyz").json() == {"models": models, "store": "serving"}
    assert 'intentctl_engine_serving{model_name="counting"} 1.0' in http.get("/metrics").text

    service.engine.state = EngineState.FAILED
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "engine_lost")
    assert answer.json()["detail"] == "no model can serve: counting is failed; see the service's log"
    assert answer.headers["Retry-After"] == "10"
    assert http.get("/healthz").json() == {"status": "ok"}
    assert 'intentctl_engine_serving{model_name="counting"} 0.0' in http.get("/metrics").text


def test_a_stalled_store_is_told_by_health_and_metrics_and_takes_no_model_away(http, service, monkeypatch):
    assert "intentctl_store_stalled 0.0" in http.get("/metrics").text
    monkeypatch.setattr(type(service.parts.store.calls), "stalled_s", 12.0)

    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (200, "stalled")
    assert "intentctl_store_stalled 1.0" in http.get("/metrics").text


def test_health_answers_while_no_thread_is_free(http, service):
    async def take_all() -> list[asyncio.Task[None]]:
        limiter = anyio.to_thread.current_default_thread_limiter()
        return [asyncio.create_task(anyio.to_thread.run_sync(release.wait)) for _ in range(int(limiter.total_tokens))]

    release = threading.Event()
    service.call(take_all())
    try:
        assert http.get("/healthz", timeout=5).status_code == 200
        assert http.get("/readyz", timeout=5).status_code == 200
        assert http.get("/metrics", timeout=5).status_code == 200
    finally:
        release.set()
