"""Questions about a plan are answered from what is known of it, with the source; what is not known is said."""

import pytest

from intentctl.console.answers import SUGGESTIONS, alternative, in_words, is_question, load_factor, under_load
from selector.models import Frontier
from service import api
from service.documents.access import Role
from service.documents.plans import FrontiersDocument
from tests.rows import rows


@rows(
    ("said", "factor"),
    [
        ("what if load doubles?", 2.0),
        ("what if the load triples?", 3.0),
        ("what if traffic is 2.5x?", 2.5),
        ("what if the rate grows by 50%?", 1.5),
        ("what if load drops by 20 %", 0.8),
        ("如果负载翻倍？", 2.0),
        ("如果流量变成3倍", 3.0),
        ("what does the switch take?", None),
        ("why this load?", None),
    ],
)
def test_by_how_much_the_load_is_to_grow(said, factor):
    assert load_factor(said) == pytest.approx(factor) if factor else load_factor(said) is None


@rows(
    ("said", "wished"),
    [
        ("why not the L40S?", "L40S"),
        ("Why not use tp2", "tp2"),
        ("为什么不用 L40S？", "L40S"),
        ("why this one?", None),
    ],
)
def test_what_was_asked_for_instead(said, wished):
    assert alternative(said) == wished


@rows(
    ("wished", "words"),
    [
        ("tp2", "run it with tp=2 and pp=1"),
        ("PP4", "run it with tp=1 and pp=4"),
        ("tp2pp2", "run it with tp=2 and pp=2"),
        ("1x1", "run it with tp=1 and pp=1"),
        ("L40S", "only on L40S"),
    ],
)
def test_a_shape_is_to_be_run_and_anything_else_to_be_run_on(wished, words):
    assert in_words(wished) == words


@rows("text", [*SUGGESTIONS, "为什么不用 L40S？", "如果负载翻倍？"])
def test_a_question_is_no_wish(text):
    assert is_question(text)


@rows("text", ["keep P99 TTFT < 2s", "高峰期 p99 首字延迟不超过 2 秒", "make that 1.5 s"])
def test_a_wish_is_no_question(text):
    assert not is_question(text)


def test_beyond_saturation_it_is_overloaded_and_beyond_the_curve_not_known():
    curve = Frontier(
        label="target",
        topology="1x1",
        rates_rps=(1, 2, 3),
        ttft_s=(0.1, 0.2, 0.3),
        tpot_s=(0.01, 0.02, 0.03),
        saturation_rps=4,
    )
    frontiers = FrontiersDocument(plan_id="plan-1", rate_rps=1, curves=(curve,))
    assert "P99 TTFT 200 ms" in under_load(frontiers, 2).lines[1]
    assert "overloaded, it sustains 4 requests/s" in under_load(frontiers, 5).lines[1]
    assert "not drawn that far" in under_load(frontiers, 3.5).lines[1]


@pytest.fixture(scope="module")
def ask(shared_place):
    plan = shared_place.plan()
    person = shared_place.http(Role.OPERATOR)

    def asked(question):
        answer = person.post(f"/plans/{plan.id}/ask", {"text": question})
        return person.get(answer.headers["location"]).text if answer.status_code == 303 else answer.text

    return asked


@pytest.mark.slow
@rows(
    ("question", "said", "source"),
    [
        ("why not tp2?", "It takes 2 devices, the plan 1", "planned again with"),
        ("what if load doubles?", "At 2 times the planned load, 1.6 requests/s", "/frontiers"),
        ("what does the switch take?", "to prepare", "predicted switch"),
        ("how sure is that?", "Within", "error band"),
        ("why this one?", "chosen: CPU 1x1@fp32", "reasons and certificate"),
        ("what if I do nothing?", "goes on", "prediction of what runs"),
        ("what is the weather?", "That is not known from this plan", "no fact"),
        ("why not <script>?", "not known", "no fact"),
    ],
)
def test_each_answer_names_its_source(ask, question, said, source):
    html = ask(question)
    answer = html[html.index('id="answered"') :]
    assert said in answer
    assert source in answer


@pytest.mark.slow
def test_a_question_at_the_foot_of_the_page_is_asked_of_the_plan_that_is_shown(shared_place):
    plan = shared_place.plan()
    answer = shared_place.http(Role.OPERATOR).post("/say", {"text": "why this one?", "plan": plan.id})
    assert answer.headers["location"] == f"/plans/{plan.id}?ask=why+this+one%3F#answer"


@pytest.mark.slow
def test_what_cannot_be_planned_instead_says_why(shared_place):
    plan = shared_place.plan()
    answer = shared_place.http(Role.OPERATOR).post(f"/plans/{plan.id}/ask", {"text": "why not the L40S?"})
    assert answer.status_code >= 400
    assert "With L40S nothing could be planned" in answer.text
    assert "tried with" in answer.text


@pytest.mark.slow
def test_a_link_plans_nothing_and_its_page_asks_first(shared_place):
    plan, person = shared_place.plan(), shared_place.http(Role.OPERATOR)
    before = shared_place.admin(api.audit.audit_head)
    pages = [person.get(f"/plans/{plan.id}?ask=why+not+tp2%3F").text for _ in range(2)]
    pages.append(person.get(f"/intents/{plan.intent_id}").text)
    assert shared_place.admin(api.audit.audit_head) == before
    assert f'action="/plans/{plan.id}/ask"' in pages[0]
    assert "the plan is kept in your name" in pages[0]
    assert "data-auto" not in pages[2]
    assert (
        f"/plans/{plan.id}/ask" not in shared_place.http(Role.VIEWER).get(f"/plans/{plan.id}?ask=why+not+tp2%3F").text
    )
