from intent.rules import read
from tests.rows import rows


@rows(
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
        ("cut TTFT by 20%", ["stat", "window"]),
        ("tp 2 at peak", []),
    ],
)
def test_each_default_is_an_assumption_at_its_place(text, slots, catalogue):
    told = sorted(one.pointer for one in read(text, catalogue).assumptions)
    assert told == [f"/goals/0/{slot}" for slot in slots]


def test_a_goal_that_is_asked_about_leaves_no_assumption(catalogue):
    assert read("raise TTFT by 20%", catalogue).assumptions == []
    draft = read("GPU utilisation 80, P99 TPOT < 2s", catalogue)
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]


@rows(
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
