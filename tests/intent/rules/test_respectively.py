import pytest

from intent.rules import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TTFT and TPOT under 2s and 60ms respectively", ["ttft p95 <= 2 s", "tpot p95 <= 0.06 s"]),
        ("TTFT和TPOT的p99分别不超过2秒和60毫秒", ["ttft p99 <= 2 s", "tpot p99 <= 0.06 s"]),
        ("错误率和可用性分别在0.5%以下和99.95%以上", ["error_rate <= 0.005 ratio", "availability >= 0.9995 ratio"]),
        ("acme and free p99 TTFT under 1s and 4s, respectively", ["ttft p99 <= 1 s acme", "ttft p99 <= 4 s free"]),
        ("peak and overnight GPU utilisation above 80% and 50% respectively",
         ["gpu_util >= 0.8 ratio peak", "gpu_util >= 0.5 ratio overnight"]),
        ("p50 and p99 TTFT under 1s and 3s respectively", ["ttft p50 <= 1 s", "ttft p99 <= 3 s"]),
        ("tp and pp 2 and 1 respectively", ["tp == 2", "pp == 1"]),
        ("TTFT and TPOT under 2s and 60ms respectively. cost < $5/h",
         ["ttft p95 <= 2 s", "tpot p95 <= 0.06 s", "cost <= 5 USD/h"]),
    ],
)  # fmt: skip
def test_each_takes_the_amount_at_its_place(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    "text",
    ["TTFT respectively under 2s", "TTFT and TPOT under 2s, 60ms and 5s respectively", "分别不超过2秒和4秒"],
)
def test_amounts_that_are_not_as_many_are_asked_about(text, catalogue):
    assert read(text, catalogue).questions
