"""The trace formats, and rows that are none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.models import MOST_P95, WorkloadError
from selector.performance.simulator import RequestArrival
from selector.performance.traces import in_flight, read_trace, workload_of
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


def plain(rows):
    return read_trace("arrival_s,input_tokens,output_tokens\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows), "t")


def test_a_load_is_as_frequent_as_long_and_as_uneven_as_its_trace():
    trace = plain((second, 100 if second % 10 else 1100, 50) for second in range(201))
    load = workload_of(trace, "chat.csv")
    assert (load.rate_rps, load.input_tokens, load.output_tokens) == (pytest.approx(1.0), 204, 50)
    assert (load.inputs.p95_by_mean, load.outputs.p95_by_mean) == (pytest.approx(1100 / 204.5, rel=0.01), 1)
    assert {load.inputs.source, load.outputs.source} == {"trace chat.csv"}
    assert in_flight(load) == 3  # 1 a second, of 50 tokens at 0.05 s each, rounded up


def test_a_histogram_of_a_trace_keeps_its_mean_and_its_tail():
    lengths = [round(100 * 1.02**number) for number in range(300)]
    found = workload_of(plain((number, length, 1) for number, length in enumerate(lengths)), "t").inputs.histogram
    assert len(found) == 12
    assert sum(share for _, share in found) == pytest.approx(1)
    assert sum(length * share for length, share in found) == pytest.approx(1)
    assert max(length for length, _ in found) > 5 > MOST_P95


@rows(
    ("gaps", "least", "most"),
    [
        ([1.0] * 50, 0.05, 0.05),  # a clock's: no gamma has none
        ([0.01] * 9 + [10.0] * 1, 2.0, 4.0),
        ([], 1.0, 1.0),
    ],
)
def test_arrivals_are_as_bursty_as_they_came(gaps, least, most):
    moments = [sum(gaps[:number]) for number in range(len(gaps) + 1)]
    assert least <= workload_of(plain((at_s, 9, 9) for at_s in moments), "t").burstiness <= most


def test_prefix_hits_are_those_of_a_cache_without_bounds_in_order_of_time():
    later = '{"timestamp": 9, "input_length": 1200, "output_length": 5, "hash_ids": [1, 2, 9]}\n'
    sooner = '{"timestamp": 3, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}\n'
    whole = '{"timestamp": 12, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    assert workload_of(read_trace(later + sooner, "t"), "t").prefix_hit == pytest.approx(1024 / 2200)
    assert workload_of(read_trace(later + sooner + whole, "t"), "t").prefix_hit == pytest.approx(1623 / 2800)
    other = '{"timestamp": 5, "input_length": 1000, "output_length": 5, "hash_ids": [7, 2]}\n'
    assert workload_of(read_trace(sooner + other, "t"), "t").prefix_hit == 0


def test_hashes_that_are_none_make_a_bad_row():
    row = '{"timestamp": 9, "input_length": 1200, "output_length": 5, "hash_ids": "x"}\n'
    assert read_trace(MOONCAKE + row, "t").examples[0].startswith("line 3: ")
