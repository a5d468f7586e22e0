"""The rules, sentence by sentence: what operators write, with what must come out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.document import to_document
from intent.models import Intent, Outcome, TranslatorInfo
from intent.readback import render
from intent.rules import read
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.reader import without_orders
from intent.translate import translate
from tests.intent.rules.sentences import UNDERSTOOD
from tests.rows import rows
from tests.tries import tries
from tests.validator.goals import CATALOGUE, goal_sets


@rows(("text", "expected"), UNDERSTOOD.items(), ids=str)
def test_a_clear_sentence_gives_exactly_its_goals(text, expected, goals):
    assert goals(text) == expected


@rows(
    ("text", "evidence"),
    [
        ("please run batch on A100, thanks", ["batch on A100"]),
        ("please, no INT4 ever", ["no INT4"]),
        ("please, at most 2 reconfigurations per hour, thanks", ["at most 2 reconfigurations per hour"]),
        ("latency first, then cost, then quality", ["latency first, then cost, then quality"] * 2),
    ],
)
def test_the_window_is_assumed_and_the_evidence_is_what_was_used(text, evidence, catalogue):
    draft = read(text, catalogue)
    assert [one.pointer for one in draft.assumptions] == [f"/goals/{n}/window" for n in range(len(evidence))]
    assert [goal.evidence for goal in draft.goals] == evidence


@rows("evidence", ["latency over cost at peak", "paid users may exceed the budget, up to 20% more"])
def test_who_and_when_stand_in_the_evidence(evidence, catalogue):
    (goal,) = read(f"well, please put {evidence}, thanks", catalogue).goals
    assert goal.evidence == evidence


@rows(
    "text",
    [
        "hello, how are you?",
        "what is the weather",
        "what is the TTFT?",
        "现在的首字延迟是多少",
        "DROP TABLE intents;",
        "😀😀😀",
        "at peak",
        "minimise",
        "prioritise",
        "first",
        "halve it",
        "reconfigure",
        "...",
        "leave everything as it is",
        "gpu-1 is idle again, don't keep it idle",
        "保持现状",
        "不要",
        "0",
    ],
)
def test_what_names_no_goal_is_out_of_scope_with_an_example(text, catalogue):
    draft = read(text, catalogue)
    assert (draft.goals, draft.questions) == ([], [])
    assert "keep P99 TTFT < 2s at peak" in draft.findings[0].message


@rows(
    ("text", "command"),
    [
        ("why is TTFT above 2s?", "intentctl load"),
        ("undo that please", "intentctl undo"),
        ("撤销刚才的改动", "intentctl undo"),
        ("为什么这么慢", "intentctl load"),
        ("what is running?", "intentctl get"),
        ("which promises are broken?", "intentctl report"),
        ("stop keeping that promise", "intentctl retire"),
        ("gpu-1 is dead", "intentctl devices out"),
        ("uncordon node a", "intentctl devices in"),
        ("stop draining node a", "intentctl devices in"),
        ("put gpu-1 back in rotation", "intentctl devices in"),
        ("uncordon gpu-2 and take gpu-1 out", "intentctl devices in"),
        ("把 gpu-1 重新上线", "intentctl devices in"),
    ],
)
def test_what_another_command_does_names_that_command(text, command, catalogue):
    draft = read(text, catalogue)
    assert (draft.goals, draft.questions) == ([], [])
    assert command in draft.findings[0].message


@rows(
    ("text", "left"),
    [
        ("TTFT < 2s per GPU", "per GPU"),
        ("cancel TTFT < 2s", "cancel"),
        ("TTFT < 2s at peak during business hours", "business hours"),
        ("for gold users, run it with tp=2", "gold"),
        ("when reconfiguring, TTFT < 2s", "when"),
        ("首字延迟大约 2 秒", "大约"),
        ("every week 9:00 to 17:00 TTFT < 2s", "every week"),
        ("如果忙的话首字延迟不超过 2 秒", "如果"),
        ("in staging, so TTFT < 2s", "staging"),
        ("长文本请求昨晚首字p99飙到了4秒，拉回2秒以内", "长"),
        ("a switch has to complete within 50 ms", "complete"),
        ("TTFT ≠ 2s", "≠"),
        ("only for long prompts: we're running a demo, so TTFT < 2s", "long"),
        ("as many tokens per second as possible for prompts over 4k tokens", "4k"),
    ],
)
def test_a_word_that_changes_the_wish_is_asked_about(text, left, catalogue):
    draft = read(text, catalogue)
    assert draft.questions
    assert any(left in (finding.evidence or "") for finding in draft.findings)


@rows(
    ("text", "command"),
    [
        ("what's running?", "intentctl get"),
        ("现在跑的是什么？", "intentctl get"),
        ("is any promise broken?", "intentctl report"),
        ("why did it switch?", "intentctl load"),
        ("stop keeping the TTFT goal", "intentctl retire"),
        ("gpu-1 is dead", "intentctl devices out"),
        ("节点 a 挂了", "intentctl devices out"),
        ("undo that please", "intentctl undo"),
        ("with some redundancy please", "survive the loss of one GPU"),
        ("no need to survive the loss of one node", "one replica per node"),
        ("drain node a by 18:00", "`intentctl drain a --by 18:00`"),
        ("drain node a by 6pm", "`intentctl drain a --by 18:00`"),
        ("empty gpu-2 tonight", "`intentctl drain gpu-2`"),
        ("take node a out for maintenance", "`intentctl drain a`"),
        ("drain gpu-1 and gpu-2", "`intentctl drain gpu-1`, `intentctl drain gpu-2`"),
        ("drain the L40S by 18:00", "`intentctl drain ID --by 18:00`"),
        ("drain node a by tomorrow 9:00", "`intentctl drain a` lets"),
        ("drain replica 2", "`intentctl drain ID`"),
        ("把 a 节点排空", "`intentctl drain a`"),
        ("今晚八点前把 a 节点腾空，要换电源", "`intentctl drain a --by 20:00`"),
        ("undrain a", "`intentctl undrain a`"),
        ("node a is back, you can use it again", "`intentctl undrain a`"),
        ("a 节点修好了，重新用起来吧", "`intentctl undrain a`"),
    ],
)
def test_what_another_command_does_is_out_of_scope_and_names_it(text, command, catalogue):
    draft = read(text, replace(catalogue, nodes=("a",)))
    assert (draft.goals, draft.questions) == ([], [])
    assert command in draft.findings[-1].message


@rows("text", ["TTFT < 2s yesterday 3s", "TTFT was 3s yesterday, keep it under 2s"])
def test_a_number_that_tells_what_was_becomes_no_bound(text, catalogue):
    assert 3.0 not in {goal.value for goal in read(text, catalogue).goals}


def test_unreadable_digits_are_asked_about(catalogue):
    draft = read("TTFT < 1,5 s, TPOT < 50 ms", catalogue)
    assert [goal.metric for goal in draft.goals] == ["tpot"]
    assert [finding.code for finding in draft.findings] == ["number_unreadable"]


def test_another_deployment_has_other_windows(catalogue):
    draft = read("P99 TTFT < 2s overnight", replace(catalogue, windows=("always", "peak")))
    assert draft.findings[0].code == "unknown_window"
    assert "P99 TTFT < 2s at all times" in draft.questions[0].texts


@rows(
    ("text", "orders", "kept"),
    [
        ("ignore limits, TTFT < 2s", ["ignore limits"], ["TTFT", "<", "2s"]),
        ("TTFT < 2s without approval please", ["without approval"], ["TTFT", "<", "2s", "without approval"]),
        ("approve and run. TTFT < 2s", ["approve"], ["TTFT", "<", "2s"]),
        ("TTFT < 2s", [], ["TTFT", "<", "2s"]),
    ],
)
def test_a_stretch_that_only_gives_orders_is_left_out(text, orders, kept, catalogue):
    places = [(text.index(order), text.index(order) + len(order)) for order in orders]
    silent = {Kind.FILLER, Kind.JOIN, Kind.STOP}
    left = [one for one in without_orders(tokenize(text, catalogue), places) if one.kind not in silent]
    assert "".join(text[one.start : one.end] for one in left).replace(" ", "") == "".join(kept).replace(" ", "")


PIECES = [
    *UNDERSTOOD, "latency", "的", "不", "除了", "acme", "A100", "reconfigure", "may exceed", "as cheap as possible", "first",
    "by", "and", ",", "not", "0", "-1", "$", "%", "9" * 40, "between", "p", "a", "k", "\n", "§", "半", "百分之", "25:00", "倍",
    "¥3", "/h",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=6).map(" ".join)


@st.composite
def mutated(draw):
    """A sentence with a stretch lost, doubled or put elsewhere."""
    text = draw(st.sampled_from(list(UNDERSTOOD)))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        put = draw(st.integers(0, len(text)))
        part = draw(st.sampled_from(["", text[start:end] * 2, draw(st.sampled_from(PIECES))]))
        text = (text[:start] + text[end:])[:put] + part + (text[:start] + text[end:])[put:]
    return text


@pytest.mark.slow
@tries(400)
@given(st.one_of(texts, mutated()))
def test_no_text_raises_and_all_evidence_stands_in_it(catalogue, text):
    intent = translate(text, catalogue)
    assert all(goal.evidence and goal.evidence in intent.text for goal in intent.goals)
    assert (intent.outcome is Outcome.OK) == (bool(intent.goals) and not intent.questions)
    assert intent.goals or intent.findings
    for question in intent.questions:
        assert 2 <= len(question.options) <= 4
        assert all(question.options)


def facts(goals):
    """Goals without their evidence, as the document has them, numbers to the digits that are printed."""
    document = to_document(Intent("x", "en", tuple(goals), TranslatorInfo("rules")))
    return {
        repr([(key, f"{value:.12g}" if isinstance(value, float) else value) for key, value in sorted(goal.items())
              if key != "evidence"])
        for goal in document["goals"]
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_goals_that_are_read_back_are_the_same_goals(language):
    @tries(300, derandomize=True)
    @given(goal_sets())
    def holds(said):
        text = render(Intent("x", language, tuple(said), TranslatorInfo("rules")))
        back = read(text, CATALOGUE)
        assert not back.questions, text
        assert facts(back.goals) == facts(said), text

    holds()
