import itertools

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.counting import context_tokens, counting_text


@given(st.integers(0, 10_000), st.integers(21, 3000))
def test_a_prompt_has_exactly_the_length_asked_for(number, length):
    assert len(counting_text(number, length)) == length


@given(st.integers(0, 10_000))
def test_a_prompt_counts_right(number):
    head, _, tail = counting_text(number, 200).partition(":")
    _, _, step, _, start = head.split()
    values = [int(start), *map(int, tail.split()[:-1])]  # the last may be cut
    assert 1 <= int(step) <= 99
    assert all((b - a) % 1000 == int(step) for a, b in itertools.pairwise(values))


def test_neighbouring_prompts_and_contexts_of_one_run_differ():
    heads = {counting_text(number, 30).partition(":")[0] for number in range(900)}
    assert len(heads) == 900
    assert len({context_tokens(number, 300) for number in range(12)}) > 6


@given(st.integers(0, 10_000), st.integers(21, 3000))
def test_contexts_differ_by_a_tenth_at_most(number, most):
    assert most - most // 10 <= context_tokens(number, most) <= most
