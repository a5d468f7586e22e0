import math

from intent.models import Config, FromNowWindow, Objective, ReconfigRule, Relative, TenantException
from tests.rows import rows
from validator.models import MessageWords
from validator.values import check_bounds

FIRST = Config("tp", "==", 1, "y")


def bound(metric, value, unit, op="<=", **said):
    return Objective(metric, op, "x", value=value, unit=unit, **said)


@rows(
    ("goal", "code", "slot"),
    [
        (bound("gpu_util", 1.05, "ratio", ">="), "over_100_percent", "value"),
        (bound("availability", 1.1, "ratio", ">="), "over_100_percent", "value"),
        (bound("quality_loss", 1.5, "ratio"), "over_100_percent", "value"),
        (bound("ttft", 0.0, "s"), "not_positive", "value"),
        (bound("ttft", -2.0, "s"), "not_positive", "value"),
        (bound("cost", 0.0, "USD/h"), "not_positive", "value"),
        (bound("gpu_util", 0.0, "ratio"), "not_positive", "value"),
        (bound("error_rate", -0.1, "ratio"), "not_positive", "value"),
        (bound("ttft", 0.0005, "s"), "below_physical_floor", "value"),
        (bound("tpot", 0.00001, "s"), "below_physical_floor", "value"),
        (bound("gpu_count", 2.5, "gpus", "=="), "not_whole", "value"),
        (bound("ttft", math.nan, "s"), "non_finite", "value"),
        (bound("cost", math.inf, "USD/h"), "non_finite", "value"),
        (bound("ttft", 1.0, "s", window=FromNowWindow(math.inf)), "non_finite", "window/duration_s"),
        (Config("tp", "==", 0, "x"), "setting_not_positive", "value"),
        (Config("pp", ">=", -1, "x"), "setting_not_positive", "value"),
        (Relative("ttft", "<=", "x", factor=0.0), "change_to_nothing", "factor"),
        (Relative("ttft", "<=", "x", factor=-0.2), "change_to_nothing", "factor"),
        (Relative("ttft", "<=", "x", factor=1e-4), "change_implausible", "factor"),
        (Relative("throughput_tok", ">=", "x", factor=1e6), "change_implausible", "factor"),
        (Relative("gpu_util", ">=", "x", delta=1.2, unit="ratio"), "over_100_percent", "delta"),
        (Relative("ttft", "<=", "x", delta=-math.inf, unit="s"), "non_finite", "delta"),
        (TenantException("paid", "error_rate", "x", limit=1.2, unit="ratio"), "over_100_percent", "limit"),
        (TenantException("paid", "ttft", "x", limit=0.0005, unit="s"), "below_physical_floor", "limit"),
        (TenantException("paid", "cost", "x", limit=-5.0, unit="USD/h"), "not_positive", "limit"),
        (TenantException("paid", "cost", "x", factor=0.0), "not_positive", "factor"),
        (TenantException("paid", "cost", "x", factor=0.8), "exception_loosens_nothing", "factor"),
        (TenantException("paid", "cost", "x", factor=1.0), "exception_loosens_nothing", "factor"),
        (TenantException("paid", "availability", "x", factor=1.2), "exception_loosens_nothing", "factor"),
        (ReconfigRule("limit", "x", -1.0, "1/h"), "negative", "value"),
        (ReconfigRule("limit", "x", math.nan, "1/h"), "non_finite", "value"),
    ],
)
@rows("language", ["en", "zh"])
def test_an_impossible_value_is_found_at_its_place(goal, code, slot, language):
    (finding,) = check_bounds([FIRST, goal], MessageWords(language))
    assert (finding.code, finding.pointer, finding.evidence) == (code, f"/goals/1/{slot}", "x")


@rows(
    "goal",
    [
        bound("gpu_util", 1.0, "ratio", ">="),
        bound("error_rate", 0.0, "ratio"),
        bound("ttft", 0.001, "s"),
        bound("ttft", 0.0001, "s", ">="),
        bound("throughput_tok", 1e6, "tokens/s", ">="),
        bound("gpu_count", 2.5, "gpus"),
        Objective("ttft", "minimize", "x"),
        Config("tp", "==", 1, "x"),
        Relative("ttft", "<=", "x", factor=0.8),
        Relative("throughput_tok", ">=", "x", factor=6.0),
        Relative("ttft", "<=", "x", delta=-0.2, unit="s"),
        TenantException("paid", "cost", "x", factor=1.2),
        TenantException("paid", "throughput_tok", "x", factor=0.8),
        TenantException("paid", "gpu_util", "x", factor=0.8),
        TenantException("paid", "ttft", "x"),
        ReconfigRule("limit", "x", 0.5, "1/day"),
        ReconfigRule("forbid", "x"),
    ],
)
def test_a_possible_value_passes(goal, en):
    assert list(check_bounds([goal], en)) == []


def test_the_message_says_what_would_do(en):
    (finding,) = check_bounds([bound("ttft", 0.0005, "s")], en)
    assert finding.suggestion == "at least 1 ms"
