import pytest

from intent.rules import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut TTFT by 20%", "ttft p95 <= x0.8"),
        ("reduce p99 TTFT by 20% at peak", "ttft p99 <= x0.8 peak"),
        ("TTFT 20% lower than now", "ttft p95 <= x0.8"),
        ("improve TTFT by 20%", "ttft p95 <= x0.8"),
        ("improve throughput by 20%", "throughput_tok >= x1.2"),
        ("improve GPU utilisation by 10%", "gpu_util >= x1.1"),
        ("500% more throughput", "throughput_tok >= x6"),
        ("throughput up 30%", "throughput_tok >= x1.3"),
        ("cut cost by a third", "cost <= x0.666667"),
        ("cut cost by half", "cost <= x0.5"),
        ("halve TTFT", "ttft p95 <= x0.5"),
        ("double the throughput", "throughput_tok >= x2"),
        ("twice the throughput", "throughput_tok >= x2"),
        ("triple throughput at peak", "throughput_tok >= x3 peak"),
        ("1.5 times the throughput", "throughput_tok >= x1.5"),
        ("TTFT to 80% of current", "ttft p95 <= x0.8"),
        ("TTFT no worse than now", "ttft p95 <= x1"),
        ("200 ms less TTFT", "ttft p95 <= +-0.2 s"),
        ("TTFT 200 ms less", "ttft p95 <= +-0.2 s"),
        ("lower TTFT by 200 ms", "ttft p95 <= +-0.2 s"),
        ("cut the cost by $2/h", "cost <= +-2 USD/h"),
        ("drop the hourly cost by a dollar", "cost <= +-1 USD/h"),
        ("每天的花费减少40美元", "cost <= +-40 USD/day"),
        ("比现在每小时省两美元", "cost <= +-2 USD/h"),
        ("100 tokens per second more than now", "throughput_tok >= +100 tokens/s"),
        ("double the requests per second", "throughput_req >= x2"),
        ("make it 15% cheaper", "cost <= x0.85"),
        ("raise GPU utilisation by 10 percentage points", "gpu_util >= +0.1 ratio"),
        ("raise GPU utilisation by 10%", "gpu_util >= x1.1"),
        ("lower GPU utilisation by 10%", "gpu_util <= x0.9"),
        ("cut TTFT by 20% for acme overnight", "ttft p95 <= x0.8 overnight acme"),
        ("TTFT is too high, cut it by 20%", "ttft p95 <= x0.8"),
        ("首字延迟降低 20%", "ttft p95 <= x0.8"),
        ("首字延迟降低200毫秒", "ttft p95 <= +-0.2 s"),
        ("首字延迟减半", "ttft p95 <= x0.5"),
        ("首字延迟打八折", "ttft p95 <= x0.8"),
        ("首字延迟降到现在的 80%", "ttft p95 <= x0.8"),
        ("首字延迟比现在低 20%", "ttft p95 <= x0.8"),
        ("首字延迟不比现在差", "ttft p95 <= x1"),
        ("成本别比现在贵", "cost <= x1"),
        ("throughput no worse than today", "throughput_tok >= x1"),
        ("throughput at 1.5x of today", "throughput_tok >= x1.5"),
        ("lift throughput by 20%", "throughput_tok >= x1.2"),
        ("吞吐提高一倍", "throughput_tok >= x2"),
        ("吞吐翻两番", "throughput_tok >= x4"),
        ("把吞吐提升到现在的两倍", "throughput_tok >= x2"),
        ("成本降低三成", "cost <= x0.7"),
        ("错误率降低一个百分点", "error_rate <= +-0.01 ratio"),
    ],
)
def test_a_change_is_relative_to_now(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut p99 TTFT and TPOT by 20%", ["ttft p99 <= x0.8", "tpot p99 <= x0.8"]),
        ("cut TTFT by 20% and TPOT by 10%", ["ttft p95 <= x0.8", "tpot p95 <= x0.9"]),
        (
            "cut TTFT by 20% at peak and by 10% overnight",
            ["ttft p95 <= x0.8 peak", "ttft p95 <= x0.9 overnight"],
        ),
        ("cut TTFT by 20%, TPOT < 50 ms", ["ttft p95 <= x0.8", "tpot p95 <= 0.05 s"]),
        ("首字延迟降低 20%，吞吐提高 10%", ["ttft p95 <= x0.8", "throughput_tok >= x1.1"]),
    ],
)
def test_several_changes_are_several_goals(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("throughput > 500 tok/s, double it", "throughput_tok >= x2"),
        ("TTFT < 2s; halve it", "ttft p95 <= x0.5"),
        ("首字延迟不超过 2 秒，减半", "ttft p95 <= x0.5"),
    ],
)
def test_a_change_of_what_was_just_bounded_is_not_dropped(text, change, goals):
    assert goals(text)[1:] == [change]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut TTFT to 2s", "ttft p95 <= 2 s"),
        ("reduce TTFT from 3s to 2s", "ttft p95 <= 2 s"),
        ("raise GPU utilisation to 80%", "gpu_util >= 0.8 ratio"),
        ("首字延迟降到 2 秒", "ttft p95 <= 2 s"),
        ("TTFT less than 200 ms", "ttft p95 <= 0.2 s"),
        ("首字延迟低于 200 毫秒", "ttft p95 <= 0.2 s"),
    ],
)
def test_a_value_to_go_to_is_a_bound(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise TTFT by 20%", "change_unclear"),
        ("cut throughput by 20%", "change_unclear"),
        ("double TTFT", "change_unclear"),
        ("cut TTFT by 100%", "change_unclear"),
        ("cut TTFT by 150%", "change_unclear"),
        ("relax TTFT by 20%", "change_unclear"),
        ("首字延迟提高 20%", "change_unclear"),
        ("cut latency by 20%", "metric_ambiguous"),
        ("延迟降低 20%", "metric_ambiguous"),
        ("lower TTFT by 20", "unit_missing"),
        ("lower TTFT by 20 tok/s", "unit_impossible"),
        ("lower p97 TTFT by 20%", "unknown_stat"),
        ("raise GPU utilisation 80%", "comparison_missing"),
        ("lower TTFT", "bound_missing"),
        ("cut TTFT by 20% for gold customers", "unknown_tenant"),
        ("don't cut TTFT by 20%", "words_not_understood"),
    ],
)
def test_a_change_that_nobody_wants_or_that_says_too_little_is_asked_about(text, code, asked):
    assert asked(text)[0] == code


def test_what_a_change_assumes_is_told_and_nothing_when_it_is_asked_about(catalogue):
    told = [one.pointer for one in read("cut TTFT by 20%", catalogue).assumptions]
    assert sorted(told) == ["/goals/0/stat", "/goals/0/window"]
    assert read("raise TTFT by 20%", catalogue).assumptions == []
