import pytest

from intent.rules import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TTFT p99.9 < 2s", "ttft p99.9 <= 2 s"),
        ("mean TPOT < 50 ms", "tpot mean <= 0.05 s"),
        ("median E2E < 10 s", "e2e p50 <= 10 s"),
        ("TTFT under 2s", "ttft p95 <= 2 s"),
        ("TTFT 2s", "ttft p95 <= 2 s"),
        ("TTFT exactly 2 s", "ttft p95 <= 2 s"),
        ("TTFT no slower than 2s", "ttft p95 <= 2 s"),
        ("2s or better TTFT", "ttft p95 <= 2 s"),
        ("cut TTFT to 2s", "ttft p95 <= 2 s"),
        ("pause at most 50 ms", "reconfig_pause <= 0.05 s"),
        ("throughput 500 tok/s", "throughput_tok >= 500 tokens/s"),
        ("throughput better than 500 tok/s", "throughput_tok >= 500 tokens/s"),
        ("throughput at least 20 requests/s", "throughput_req >= 20 requests/s"),
        ("latency under 30 ms per token", "tpot p95 <= 0.03 s"),
        ("at least 20 tokens/s per user", "tpot p95 <= 0.05 s"),
        ("20 tokens/s per user", "tpot p95 <= 0.05 s"),
        ("availability 99.9%", "availability >= 0.999 ratio"),
        ("error rate below 1%", "error_rate <= 0.01 ratio"),
        ("quality loss at most 0.02", "quality_loss <= 0.02 ratio"),
        ("GPU utilisation above 70", "gpu_util >= 0.7 ratio"),
        ("GPU utilisation 80% or better", "gpu_util >= 0.8 ratio"),
        ("raise GPU utilisation to 80%", "gpu_util >= 0.8 ratio"),
        ("cost $4/h", "cost <= 4 USD/h"),
        ("budget $40 per day", "cost <= 40 USD/day"),
        ("4 GPUs", "gpu_count == 4 gpus"),
        ("at most 4 GPUs", "gpu_count <= 4 gpus"),
        ("4 GPUs or more", "gpu_count >= 4 gpus"),
        ("4 GPUs or better", "gpu_count <= 4 gpus"),
        ("minimise cost", "cost minimize"),
        ("as cheap as possible", "cost minimize"),
        ("maximise throughput", "throughput_tok maximize"),
        ("maximise GPU utilisation", "gpu_util maximize"),
        ("minimise GPU utilisation", "gpu_util minimize"),
        ("lowest p99 TTFT", "ttft p99 minimize"),
        ("ideally TTFT < 2s", "ttft p95 <= 2 s soft"),
        ("tp=2", "tp == 2"),
        ("tp at most 4", "tp <= 4"),
        ("at least 2 replicas", "replicas >= 2"),
        ("two-stage pipeline", "pp == 2"),
        ("tp=2 for everyone", "tp == 2"),
        ("首字延迟不超过 2 秒", "ttft p95 <= 2 s"),
        ("99% 的请求首字延迟在 2 秒以内", "ttft p99 <= 2 s"),
        ("首字延迟平均半秒", "ttft mean <= 0.5 s"),
        ("每个token延迟 p90 不超过 50 毫秒", "tpot p90 <= 0.05 s"),
        ("每用户至少 20 tokens/s", "tpot p95 <= 0.05 s"),
        ("吞吐不低于每秒 500 个 token", "throughput_tok >= 500 tokens/s"),
        ("GPU 利用率不低于百分之七十", "gpu_util >= 0.7 ratio"),
        ("可用性三个九", "availability >= 0.999 ratio"),
        ("错误率低于千分之一", "error_rate <= 0.001 ratio"),
        ("每小时成本不超过 40 美元", "cost <= 40 USD/h"),
        ("预算每天 40 刀", "cost <= 40 USD/day"),
        ("最多 4 张卡", "gpu_count <= 4 gpus"),
        ("成本越低越好", "cost minimize"),
        ("吞吐尽可能高", "throughput_tok maximize"),
        ("两个副本", "replicas == 2"),
        ("limit the counter to four GPUs", "gpu_count <= 4 gpus counting"),
        ("replicas: two", "replicas == 2"),
        ("the counter's error rate: 1 percent tops", "error_rate <= 0.01 ratio counting"),
        ("端到端平均耗时13秒或更短", "e2e mean <= 13 s"),
        ("每位付费用户看到的输出速度不低于每秒10个token", "tpot p95 <= 0.1 s paid"),
        ("available 99.8% of the time", "availability >= 0.998 ratio"),
        ("999 out of 1000 requests must finish within 40 s", "e2e p99.9 <= 40 s"),
        ("requests should finish in 22 s", "e2e p95 <= 22 s"),
        ("95% 的首字延迟在 2 秒内", "ttft p95 <= 2 s"),
        ("p ninety nine TTFT under 2s", "ttft p99 <= 2 s"),
        ("p ninety nine point nine TTFT under 2s", "ttft p99.9 <= 2 s"),
        ("at most 3 errors per thousand requests", "error_rate <= 0.003 ratio"),
        ("每一万个请求里最多允许五个出错", "error_rate <= 0.0005 ratio"),
        ("per-day cost ceiling: $180", "cost <= 180 USD/day"),
        ("张量并行 2", "tp == 2"),
        ("最好首字延迟不超过 2 秒", "ttft p95 <= 2 s soft"),
    ],
)
def test_a_bound_means_one_goal(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU utilisation between 60% and 80%", ["gpu_util >= 0.6 ratio", "gpu_util <= 0.8 ratio"]),
        ("minimise cost under $5/h", ["cost minimize", "cost <= 5 USD/h"]),
        ("no fewer than 4 and no more than 6 GPUs", ["gpu_count >= 4 gpus", "gpu_count <= 6 gpus"]),
        ("cut TPOT by 10 % without using more than six GPUs", ["tpot p95 <= x0.9", "gpu_count <= 6 gpus"]),
        ("acme TTFT < 2s; 4 GPUs", ["ttft p95 <= 2 s acme", "gpu_count == 4 gpus"]),
        ("enterprise TTFT", ["? bound_missing"]),
        ("TTFT < 2s, TTFT < 2 s", ["ttft p95 <= 2 s"]),
        ("tp=2 at peak, tp=1 overnight", ["tp == 2 peak", "tp == 1 overnight"]),
        ("use tp=2 for the counter", ["tp == 2 counting"]),
    ],
)
def test_a_text_means_these_goals(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("P99 TTFT < 2s at peak", []),
        ("TTFT < 2s at peak", ["stat"]),
        ("P99 TTFT < 2s", ["window"]),
        ("P99 TTFT < 2s at all times", []),
        ("P99 TTFT 2s at peak", ["op"]),
        ("cut P99 TTFT to 2s at peak", []),
        ("raise P99 TTFT to 2s at peak", ["op"]),
        ("maximise throughput at peak", ["metric"]),
        ("GPU utilisation above 80 at peak", ["unit"]),
        ("GPU utilisation above 0.8 at peak", ["unit"]),
        ("GPU utilisation above 80% at peak", []),
        ("thoughput > 5 tok/s at peak", ["evidence"]),
        ("4 GPUs at peak", []),
        ("tp 2 at peak", []),
    ],
)
def test_each_default_is_an_assumption_at_its_place(text, slots, catalogue):
    assert [one.pointer for one in read(text, catalogue).assumptions] == [
        f"/goals/0/{slot}" for slot in slots
    ]


def test_a_goal_that_is_asked_about_leaves_no_assumption(catalogue):
    draft = read("GPU utilisation 80, P99 TPOT < 2s", catalogue)
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TTFT 2s", ["P95", "at all times", "at most 2s"]),
        ("首字延迟 2 秒", ["P95", "按始终", "不超过 2 秒"]),
        ("20 tokens/s per user at peak", ["at least 20 tokens/s per user"]),
        ("GPU utilisation above 0.8", ["0.8 read as 80 %"]),
    ],
)
def test_an_assumption_says_what_was_assumed(text, words, catalogue):
    told = " | ".join(one.text for one in read(text, catalogue).assumptions)
    assert [word for word in words if word not in told] == []
