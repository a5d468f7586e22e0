import pytest

from benchmarks.parameters import Parameters, UsageError, parse_numbers, parse_pair, tokens_before
from intentctl.arguments import EngineName
from intentctl.measure import MIN_GAPS
from runtime.errors import TopologyError
from tests.rows import rows


def parameters(**more) -> Parameters:
    return Parameters(**({"engine": EngineName.TORCH, "modes": ("patch",), "pairs": (("1x1", "tp2"),)} | more))


def test_what_can_be_run_passes(subject):
    parameters().check(subject)
    parameters(
        engine=EngineName.VLLM, modes=("patch", "follow", "replay", "restart", "drain"), context=(300, 1000)
    ).check(subject)


@rows(
    ("wrong", "message"),
    [
        (
            {"modes": ("follow",)},
            "--mode follow: the torch engine switches by patch, stop-and-copy, gather-scatter only",
        ),
        ({"active": (5, 0)}, "--active"),
        ({"switches": (0,)}, "--switches"),
        ({"active": (5, 9), "switches": (1, 2, 3)}, "--switches has 3 numbers, --active 2"),
        ({"modes": ("patch", "magic")}, "--mode magic: there are patch, "),
        ({"context": (300, 5)}, "--context 5: the shortest prompt has 21 tokens"),
        ({"output": 169}, "--output 169: .* at least 170 tokens"),
        ({"context": (30, 16000), "output": 600}, "16600 tokens, over the model's 16384"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(subject, wrong, message):
    with pytest.raises(UsageError, match=message):
        parameters(**wrong).check(subject)


@rows("there", ["tp3", "A100x2", "tp8", "nonsense"])
def test_a_topology_that_cannot_be_is_refused(subject, there):
    with pytest.raises(TopologyError):
        parameters(pairs=(("1x1", there),)).check(subject)


def test_what_is_written_down_is_read():
    assert [tokens_before(number) >= 2 * MIN_GAPS + 1 for number in range(6)] == [
        True,
        *[False] * 3,
        True,
        False,
    ]
    assert parse_numbers("--active", "10, 200") == (10, 200)
    with pytest.raises(UsageError, match="--active '10;50'"):
        parse_numbers("--active", "10;50")
    assert parameters(active=(5, 9), switches=(3,)).switches_at(9) == 3
    assert parameters(active=(5, 9), switches=(3, 2)).switches_at(9) == 2
    assert parse_pair(" 1x1 - CPUx1@bf16 ") == ("1x1", "CPUx1@bf16")
    split = ("CPUx1:0-4 > CPUx1:4-8", "CPUx1:0-6 > CPUx1:6-8")
    assert parse_pair(" - ".join(split)) == split


@rows("text", ["", "1x1", "1x1-", "tp2-tp2", "1x1-tp2-pp2"])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(UsageError, match="joined by one dash"):
        parse_pair(text)
