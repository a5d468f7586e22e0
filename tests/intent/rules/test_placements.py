import pytest

from intent.messages import say
from intent.rules import read

NOTHING = say("intent", "en", "nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on A100", "require gpu_type:A100"),
        ("run everything on A100", "require gpu_type:A100"),
        ("latency-critical on A100", "latency_critical require gpu_type:A100"),
        ("acme on A100", "tenant:acme require gpu_type:A100"),
        ("free users on L40S", "tenant:free require gpu_type:L40S"),
        ("prefer A100 for batch", "batch prefer gpu_type:A100"),
        ("batch ideally on L40S", "batch prefer gpu_type:L40S"),
        ("keep batch off A100", "batch forbid gpu_type:A100"),
        ("not on L40S", "forbid gpu_type:L40S"),
        ("avoid gpu-1", "forbid gpu:gpu-1"),
        ("drain gpu-2", "forbid gpu:gpu-2"),
        ("leave gpu-1 alone", "freeze gpu:gpu-1"),
        ("gpu-1: do not touch", "freeze gpu:gpu-1"),
        ("batch -> node b", "batch require node:b"),
        ("acme: A100", "tenant:acme require gpu_type:A100"),
        ("move paid users over to A100", "tenant:paid require gpu_type:A100"),
        ("don't touch node b", "freeze node:b"),
        ("freeze node a at peak", "freeze node:a peak"),
        ("only A100 at peak", "require gpu_type:A100 peak"),
        ("use H200 for batch", "batch require gpu_type:H200"),
        ("延迟敏感的放在 A100", "latency_critical require gpu_type:A100"),
        ("批处理优先放 L40S", "batch prefer gpu_type:L40S"),
        ("不要用 L40S", "forbid gpu_type:L40S"),
        ("别动 gpu-1", "freeze gpu:gpu-1"),
        ("1 号卡别动", "freeze gpu:gpu-1"),
        ("节点 a 保持不变", "freeze node:a"),
        ("免费用户放 L40S", "tenant:free require gpu_type:L40S"),
        ("高峰期交互请求只跑在 A100", "interactive require gpu_type:A100 peak"),
    ],
)
def test_devices_are_required_preferred_forbidden_or_left_alone(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency-critical on A100, the rest on L40S",
         ["latency_critical require gpu_type:A100", "rest require gpu_type:L40S"]),
        ("延迟敏感的放在 A100，其余放 L40S",
         ["latency_critical require gpu_type:A100", "rest require gpu_type:L40S"]),
        ("ideally chat on A100 and batch on L40S", ["chat prefer gpu_type:A100", "batch prefer gpu_type:L40S"]),
        ("ideally chat on A100. batch on L40S", ["chat prefer gpu_type:A100", "batch require gpu_type:L40S"]),
        ("batch on L40S, not on A100", ["batch require gpu_type:L40S", "batch forbid gpu_type:A100"]),
        ("leave gpu 1 and gpu 2 alone", ["freeze gpu:gpu-1", "freeze gpu:gpu-2"]),
        ("batch on A100 and L40S", ["batch require gpu_type:A100", "batch require gpu_type:L40S"]),
        ("chat and batch on A100", ["chat require gpu_type:A100", "batch require gpu_type:A100"]),
        ("batch on A100 at peak and overnight",
         ["batch require gpu_type:A100 peak", "batch require gpu_type:A100 overnight"]),
        ("use 2 A100s", ["gpu_count == 2 gpus", "require gpu_type:A100"]),
        ("用 2 块 A100", ["gpu_count == 2 gpus", "require gpu_type:A100"]),
        ("at most 2 A100 GPUs", ["gpu_count <= 2 gpus", "require gpu_type:A100"]),
        ("用 2 张 A100", ["gpu_count == 2 gpus", "require gpu_type:A100"]),
        ("TTFT < 2s on A100", ["ttft p95 <= 2 s", "require gpu_type:A100"]),
    ],
)  # fmt: skip
def test_each_workload_and_device_is_a_goal(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("don't leave gpu-1 alone", (NOTHING, "use only gpu-1", "never use gpu-1")),
        ("don't prefer A100", (NOTHING, "use only A100", "never use A100")),
        ("A100 below 2", ("use only A100", "never use A100")),
        ("never not on A100", (NOTHING, "use only A100", "never use A100")),
        ("A100 低于 2", ("只用 A100", "禁止使用 A100")),
    ],
)
def test_what_could_be_more_than_one_rule_is_asked_about(text, options, asked, catalogue):
    assert asked(text) == ("placement_unclear", options)
    assert read(text, catalogue).questions[0].texts == options


@pytest.mark.parametrize(
    ("text", "code"),
    [("gold customers on A100", "unknown_tenant"), ("batch on A100 unless it rains", "words_not_understood")],
)
def test_a_name_or_word_that_is_not_known_is_asked_about(text, code, asked):
    assert asked(text)[0] == code


def test_the_window_is_assumed_and_the_evidence_is_what_was_used(catalogue):
    draft = read("please run batch on A100, thanks", catalogue)
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]
    assert draft.goals[0].evidence == "batch on A100"
