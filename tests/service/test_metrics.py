"""Metrics: what an engine counts keeps rising when it starts anew; each is in docs/metrics.md."""

import re
import time
from collections import Counter
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from runtime.engine import EngineState, EngineStats, Finish
from runtime.stream import Usage
from service.serving import metrics as module
from service.serving.metrics import Metrics, ServiceMetrics
from tests.service.dashboard import GOAL, REPLICA, Attained

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def samples(metrics: Metrics, stats: EngineStats) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.render(stats))
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_prefix_cache_counters_rise_by_what_came_since_and_go_on_when_the_engine_counts_from_0():
    metrics, found = Metrics("counting"), []
    for queries, hits in ((100, 0), (250, 64), (250, 64), (30, 8)):
        told = samples(metrics, EngineStats(0, 0, 8, 8, prefix_cache_queries=queries, prefix_cache_hits=hits))
        found.append((told["intentctl_prefix_cache_queries_total"], told["intentctl_prefix_cache_hits_total"]))

    assert found == [(100, 0), (250, 64), (250, 64), (280, 72)]


def test_each_metric_is_on_its_page():
    lines = (Metrics("counting").render(None) + ServiceMetrics().render()).splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# HELP")}
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in names if not name.endswith("_created") and f"`{name}`" not in page} == set()


def test_errors_of_background_work_are_counted_by_task(monkeypatch):
    monkeypatch.setattr(module, "ERRORS", Counter(events=2, router=0))
    text = ServiceMetrics().render()
    assert 'intentctl_background_errors_total{task="events"} 2.0' in text
    assert 'intentctl_background_errors_total{task="router"} 0.0' in text


def test_each_certificate_says_how_long_it_lasts():
    service = ServiceMetrics()
    service.certificate_ends = {"b.pem": time.time() + 86_400}
    (left_s,) = re.findall(r'intentctl_certificate_left_seconds{certificate="b.pem"} (\d+)', service.render())
    assert 80_000 < int(left_s) <= 86_400


def test_each_goal_that_is_promised_says_how_far_it_was_kept_and_what_it_needs():
    service = ServiceMetrics()
    service.active = Attained(GOAL, GOAL.model_copy(update={"met": 0, "total": 0, "window": "night"}))
    told = re.findall(r'intentctl_goal_(\w+){goal="P99 TTFT at most 2 s",.*,window="(\w+)"} (\S+)', service.render())

    assert [(name, window, round(float(value), 3)) for name, window, value in told] == [
        ("share", "peak", 0.995),
        ("needed", "peak", 0.99),
        ("needed", "night", 0.99),
        ("budget_left", "peak", 0.5),
    ]


def test_times_of_requests_are_of_those_that_ended_whole():
    metrics = Metrics("counting")
    nobody = metrics.of("")
    nobody.finished(Finish.LENGTH, Usage(3, 5), e2e_s=2.0, tpot_s=0.25)
    nobody.finished(Finish.STOP, Usage(3, 1), e2e_s=0.5, tpot_s=None)
    nobody.finished(Finish.CANCELLED, Usage(3, 2), e2e_s=9.0, tpot_s=9.0)
    told = samples(metrics, EngineStats(0, 0, 8, 8))

    assert (told["intentctl_e2e_seconds_count"], told["intentctl_e2e_seconds_sum"]) == (2, 2.5)
    assert (told["intentctl_tpot_seconds_count"], told["intentctl_tpot_seconds_sum"]) == (1, 0.25)


def test_what_may_become_of_a_switch_is_counted_from_nothing():
    told = Metrics("counting").render(EngineStats(0, 0, 8, 8))

    for outcome in ("done", "no_memory", "cancelled", "engine_lost"):
        assert f'intentctl_switches_total{{model_name="counting",outcome="{outcome}"}} 0.0' in told
    assert 'intentctl_cut_seconds_count{model_name="counting",part="drain"} 0.0' in told


def test_requests_are_counted_by_tenant():
    metrics = Metrics("counting")
    metrics.of("gold").first_token(0.5)
    metrics.of("gold").finished(Finish.STOP, Usage(3, 5), e2e_s=2.0, tpot_s=0.25)
    metrics.of("").refused()
    text = metrics.render(EngineStats(0, 0, 8, 8))

    assert 'intentctl_tokens_total{kind="completion",model_name="counting",tenant="gold"} 5.0' in text
    assert 'intentctl_ttft_seconds_count{model_name="counting",tenant="gold"} 1.0' in text
    assert 'intentctl_refused_requests_total{model_name="counting",tenant=""} 1.0' in text
    assert metrics.of("gold") is metrics.of("gold")


def test_each_replica_is_told_as_long_as_it_is_there():
    metrics = Metrics("counting")
    unplanned = REPLICA.model_copy(update={"share": None, "state": EngineState.RESTARTING})

    def told(*replicas):
        found = re.findall(
            r'intentctl_replica_(\w+){model_name="counting",replica="(.+)"} (\S+)', metrics.render(None, 0, replicas)
        )
        return {name: float(value) for name, replica, value in found if replica == REPLICA.topology.text}

    load = {"running_requests": 3.0, "waiting_requests": 1.0, "taken_share": 0.5}
    assert told(REPLICA) == {"serving": 1.0, "planned_share": 0.25, **load}
    assert told(unplanned) == {"serving": 0.0, **load}
    assert told() == {}
