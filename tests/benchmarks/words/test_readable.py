import pytest

from benchmarks.words.readable import numbers, unsaid
from benchmarks.words.utterances import complete, load, own_files

TTFT = complete({"type": "objective", "metric": "ttft", "stat": "p95", "op": "<=", "value": 2.0, "unit": "s"})
TODAY = {"date": "2026-11-20", "start": "10:00", "end": "18:00", "tz": "UTC"}


@pytest.mark.slow
def test_every_number_of_the_corpus_is_found_in_its_text():
    missing = [(one.id, unsaid(goal, one.text)) for one in load(own_files()) for goal in one.goals]
    assert [one for one in missing if one[1]] == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,500 ms", 1500), ("0.35", 0.35), (".5s", 0.5), ("two hundred and fifty", 250), ("one point five", 1.5),
        ("twenty five thousand", 25_000), ("一千五百", 1500), ("百分之四十", 40), ("三点五", 3.5),
        ("两万三", 23_000), ("一千二", 1200), ("二十三", 23),
        ("1e-5", 1e-5), ("a third", 1 / 3), ("three quarters", 0.75), ("twice", 2),
    ],
)  # fmt: skip
def test_numbers_are_read_in_digits_and_words(text, number):
    assert any(number == pytest.approx(one) for one in numbers(text))


@pytest.mark.parametrize(
    ("text", "change", "wrong"),
    [
        ("TTFT under 2s", {}, []),
        ("TTFT under 3s", {}, ["value"]),
        ("TTFT under 2s", {"value": 0.002}, ["value"]),
        ("TTFT under 2ms", {"value": 0.002}, []),
        ("首字延迟两秒半", {"value": 2.5}, []),
        ("TTFT under 2s", {"stat": "p99"}, ["stat"]),
        ("99% of TTFT under 2s", {"stat": "p99"}, []),
        ("nine out of ten TTFT under 2s", {"stat": "p90"}, []),
        ("median TTFT 2s", {"stat": "p50"}, []),
        ("p999 TTFT 2s", {"stat": "p99.9"}, []),
        ("TTFT 2s for the next 30 minutes", {"window": {"from": "now", "duration_s": 1800.0}}, []),
        ("TTFT 2s for a while", {"window": {"from": "now", "duration_s": 1800.0}}, ["window"]),
        ("TTFT 2s until tomorrow 8 am", {"window": {"from": "now", "duration_s": 79200.0}}, []),
        ("TTFT 2s until tomorrow 9 am", {"window": {"from": "now", "duration_s": 79200.0}}, ["window"]),
        ("TTFT 2s until Dec 3 9 am Asia/Shanghai", {"window": {"from": "now", "duration_s": 1090800.0}}, []),
        ("TTFT 2s until Dec 4 9 am", {"window": {"from": "now", "duration_s": 1090800.0}}, ["window"]),
        ("首字延迟压到2s", {"window": {"from": "now", "duration_s": 1800.0}}, ["window"]),
        ("到今天18点为止TTFT 2s", {"window": TODAY}, []),
        ("到今天18点为止TTFT 2s", {"window": TODAY | {"end": "19:00"}}, ["window"]),
        ("到今天18点为止TTFT 2s", {"window": TODAY | {"start": "11:00"}}, ["window"]),
        ("12月24日压到2s", {"window": {"date": "2026-12-23", "start": "00:00", "end": "24:00", "tz": "UTC"}}, ["window"]),
        ("TTFT 2s from 9 to 6pm", {"window": {"days": [], "start": "09:00", "end": "18:00", "tz": "UTC"}}, []),
        ("TTFT 2s from 9 to 5pm", {"window": {"days": [], "start": "09:00", "end": "18:00", "tz": "UTC"}}, ["window"]),
        ("TTFT 2s on 2026-11-27", {"window": {"date": "2026-11-28", "start": "00:00", "end": "24:00", "tz": "UTC"}}, ["window"]),
    ],
)  # fmt: skip
def test_a_number_nobody_said_is_named(text, change, wrong):
    assert unsaid(TTFT | change, text) == wrong


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("三k tok/s", {"type": "objective", "metric": "throughput_tok", "op": ">=", "value": 3000, "unit": "tokens/s"}),
        ("cut it by 20%", {"type": "relative", "metric": "ttft", "op": "<=", "factor": 0.8}),
        ("500 % more", {"type": "relative", "metric": "throughput_tok", "op": ">=", "factor": 6}),
        ("提升三成", {"type": "relative", "metric": "throughput_tok", "op": ">=", "factor": 1.3}),
        ("four nines", {"type": "objective", "metric": "availability", "op": ">=", "value": 0.9999, "unit": "ratio"}),
        ("600 req/min", {"type": "objective", "metric": "throughput_req", "op": ">=", "value": 10, "unit": "requests/s"}),
        ("20 tok/s per user", {"type": "objective", "metric": "tpot", "op": "<=", "value": 0.05, "unit": "s"}),
        ("$40 a week", {"type": "objective", "metric": "cost", "op": "<=", "value": 40 / 7, "unit": "USD/day"}),
        ("每周 40 美元", {"type": "objective", "metric": "cost", "op": "<=", "value": 40 / 7, "unit": "USD/day"}),
        ("$1200 a year", {"type": "objective", "metric": "cost", "op": "<=", "value": 100, "unit": "USD/month"}),
        ("一年 1200 美元", {"type": "objective", "metric": "cost", "op": "<=", "value": 100, "unit": "USD/month"}),
        ("leave gpu-3 alone", {"type": "placement", "rule": "freeze", "selector": "gpu:gpu-3"}),
    ],
)  # fmt: skip
def test_what_arithmetic_makes_of_a_number_is_said(text, goal):
    assert unsaid(complete(goal), text) == []


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [("$40 a day", 40 / 7, "USD/day"), ("$1200 a month", 100, "USD/month"), ("$70 a week", 10, "USD/h")],
)
def test_a_cost_of_a_week_or_a_year_is_said_only_by_these(text, value, unit):
    goal = complete({"type": "objective", "metric": "cost", "op": "<=", "value": value, "unit": unit})
    assert unsaid(goal, text) == ["value"]


def test_another_gpu_is_not_said():
    goal = complete({"type": "placement", "rule": "freeze", "selector": "gpu:gpu-3"})
    assert unsaid(goal, "leave gpu-1 alone") == ["selector"]
