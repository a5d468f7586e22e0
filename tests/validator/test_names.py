from dataclasses import replace

from intent.models import Config, Objective, Placement, Priority
from tests.rows import rows
from validator.values import findings, question, unknown


def ttft(**said):
    return Objective("ttft", "<=", "x", "p99", 2.0, "s", **said)


@rows(
    ("goal", "code", "slot", "known"),
    [
        (ttft(tenant="payd"), "unknown_tenant", "tenant", "paid, acme"),
        (ttft(model="llama"), "unknown_model", "model", "llama-3-70b"),
        (ttft(window="peek"), "unknown_window", "window", "peak"),
        (Placement("require", "gpu_type:L40", "x"), "unknown_gpu_type", "selector", "L40S, A100"),
        (Placement("freeze", "gpu:gpu-8", "x"), "unknown_gpu", "selector", "gpu-0"),
        (Placement("require", "node:c", "x"), "unknown_node", "selector", "a, b"),
        (Placement("require", "node:a", "x", "tenant:payd"), "unknown_tenant", "workload", "paid"),
        (Priority("tenant:payd", "x"), "unknown_tenant", "higher", "paid"),
        (Priority("latency", "x", "tenant:payd"), "unknown_tenant", "lower", "paid"),
    ],
)
def test_an_unknown_name_is_found_with_the_known_ones(goal, code, slot, known, big, en):
    goals = [Config("tp", "==", 1, "y"), goal]
    missing = list(unknown(goals, big))
    (finding,) = findings(missing, goals, en)
    assert (finding.code, finding.pointer) == (code, f"/goals/1/{slot}")
    assert known in finding.message
    assert missing[0].known[0] in finding.suggestion


@rows(
    "goal",
    [
        ttft(tenant="acme", model="llama-3-70b", window="overnight"),
        ttft(window="always"),
        Placement("require", "gpu_type:A100", "x", "tenant:paid"),
        Placement("require", "gpu_type:a100", "x"),
        Placement("freeze", "gpu:gpu-7", "x", "latency_critical"),
        Priority("tenant:acme", "x", "cost"),
    ],
)
def test_known_names_pass(goal, big):
    assert list(unknown([goal], big)) == []


def test_each_option_is_the_text_with_another_name(big, en, intent_of):
    goal = Placement("require", "gpu_type:H100", "on H100")
    asked = question(intent_of(goal, text="run it on h100, not on H1000"), list(unknown([goal], big)), en)
    assert asked.options == ("A100", "L40S", "leave everything as it is")
    assert asked.texts == (
        "run it on A100, not on H1000",
        "run it on L40S, not on H1000",
        "leave everything as it is",
    )
    assert asked.default == asked.options[0]


def test_a_name_said_in_other_words_is_put_into_the_read_back(big, en, intent_of):
    goal = Placement("freeze", "gpu:gpu-9", "the tenth GPU")
    asked = question(intent_of(goal, text="leave the tenth GPU alone"), list(unknown([goal], big)), en)
    *renamed, stay = asked.options
    there = {f"gpu-{number}": f"Leave gpu-{number} alone at all times." for number in range(8)}
    assert renamed
    assert set(renamed) <= set(there)
    assert asked.texts == (*(there[name] for name in renamed), stay)
    assert (asked.default, stay) == (renamed[0], "leave everything as it is")


def test_names_beside_chinese_words_are_replaced(big, en, intent_of):
    goal = ttft(tenant="payd")
    asked = question(intent_of(goal, text="对payd用户首字延迟2秒"), list(unknown([goal], big)), en)
    assert asked.default == asked.options[0] == "paid"
    assert asked.stands_for(0) == "对paid用户首字延迟2秒"


def test_where_there_are_no_names_nothing_can_be_offered(big, en, intent_of):
    goals = [ttft(tenant="acme")]
    missing = list(unknown(goals, replace(big, tenants=())))
    assert question(intent_of(*goals), missing, en) is None
    assert "tenants are none" in next(findings(missing, goals, en)).message
