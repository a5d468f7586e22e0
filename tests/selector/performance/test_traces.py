"""The trace formats, and rows that are none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.models import WorkloadError
from selector.performance.simulator import RequestArrival
from selector.performance.traces import read_trace
from tests.rows import rows

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:47.6805900,396,109\r\n"
MOONCAKE = (
    '{"timestamp": 500, "input_length": 6758, "output_length": 500, "hash_ids": [1]}\n'
    '{"timestamp": 0, "input_length": 10, "output_length": 2}\n'
)
PLAIN = "arrival_s,input_tokens,output_tokens\n3,10,20\n1.5,30,40\n"


@rows(
    ("text", "expected"),
    [
        (AZURE, [RequestArrival(0.0, 374, 44), RequestArrival(1.0, 396, 109)]),
        (MOONCAKE, [RequestArrival(0.0, 10, 2), RequestArrival(0.5, 6758, 500)]),
        (PLAIN, [RequestArrival(0.0, 30, 40), RequestArrival(1.5, 10, 20)]),
        ("\ufeff" + PLAIN, [RequestArrival(0.0, 30, 40), RequestArrival(1.5, 10, 20)]),
    ],
)
def test_a_trace_starts_at_zero_in_order_of_time(text, expected):
    trace = read_trace(text, "t")
    assert [(one.at_s, one.input_tokens, one.output_tokens) for one in trace.arrivals] == [
        pytest.approx((one.at_s, one.input_tokens, one.output_tokens)) for one in expected
    ]
    assert (trace.bad_rows, trace.examples) == (0, ())


@rows(
    ("row", "reason"),
    [
        ("x,1,1", "line 3: could not convert"),
        ("1,0,1", "line 3: 0 tokens in"),
        ("1,1,-4", "line 3: 1 tokens in and -4 out"),
        ("1,99999999999,1", "each has to be 1 to 1,048,576"),
        ("nan,1,1", "line 3: arrival at nan"),
        ("1,2", "line 3"),
        ("1,1.5,2", "line 3: invalid literal"),
    ],
)
def test_a_bad_row_is_counted_and_named(row, reason):
    trace = read_trace(f"arrival_s,input_tokens,output_tokens\n1,1,1\n{row}\n", "t")
    assert (len(trace.arrivals), trace.bad_rows) == (1, 1)
    assert reason in trace.examples[0]


@rows(
    "row",
    ["null", "[1]", "{", '{"timestamp": 1}', '{"timestamp": "a", "input_length": 1, "output_length": 1}'],
)
def test_a_bad_line_of_json_is_counted_and_named(row):
    trace = read_trace(MOONCAKE + row + "\n", "t")
    assert (len(trace.arrivals), trace.bad_rows) == (2, 1)
    assert trace.examples[0].startswith("line 3: ")


def test_only_the_first_bad_rows_are_named():
    assert len(read_trace(PLAIN + "x,1,1\n" * 9, "t").examples) == 3


@rows(
    ("text", "reason"),
    [
        ("", "its first line should be"),
        ("a,b\n1,2\n", "its first line should be"),
        (PLAIN.split("\n", 1)[0], "it has no rows"),
        ("arrival_s,input_tokens,output_tokens\nx,1,1\n", "line 2"),
    ],
)
def test_what_is_no_trace_is_refused(text, reason):
    with pytest.raises(WorkloadError, match=reason):
        read_trace(text, "t")


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(text):
    for whole in (text, PLAIN + text):
        with contextlib.suppress(WorkloadError):
            read_trace(whole, "t")
