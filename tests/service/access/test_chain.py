from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.access.chain import Head, flaws
from service.documents.access import AuditEntry


def chain(length: int) -> list[AuditEntry]:
    found, last = list[AuditEntry](), ""
    for seq in range(1, length + 1):
        entry = AuditEntry(
            seq, 1.5 * seq, "ada", "abcd", "admin", "plan.apply", f"plan-{seq}", {}, {"n": seq}, previous=last
        )
        last = entry.sealed()
        found.append(replace(entry, hash=last))
    return found


def head(entries: list[AuditEntry]) -> Head:
    return Head(entries[-1].seq, entries[-1].hash) if entries else Head()


@given(st.integers(0, 12))
def test_a_chain_is_whole_as_it_grew(length):
    entries = chain(length)
    assert flaws(entries, head(entries)) == ()
    for kept in range(1, length + 1):
        assert flaws(entries, head(entries), head(entries[:kept])) == ()


@given(st.data(), st.integers(3, 12))
def test_any_change_is_found_where_it_is(data, length):
    entries = chain(length)
    whole, place = head(entries), data.draw(st.integers(0, length - 1))
    field, value = data.draw(
        st.sampled_from([("who", "eve"), ("at_s", 9.25), ("after", {"n": 0}), ("act", "x"), ("hash", "f" * 64)])
    )
    changed = [*entries[:place], replace(entries[place], **{field: value}), *entries[place + 1 :]]
    assert flaws(changed, whole)[0].seq == entries[place].seq


@given(st.data(), st.integers(3, 12))
def test_any_entry_that_is_missing_is_named(data, length):
    entries = chain(length)
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first, length - 1))
    left = entries[:first] + entries[last + 1 :]
    found = flaws(left, head(entries))
    assert found[0].seq == first + 1
    assert "missing" in found[0].problem


@given(st.data(), st.integers(3, 12))
def test_entries_that_changed_places_are_found(data, length):
    entries = chain(length)
    one, other = data.draw(st.lists(st.integers(0, length - 1), min_size=2, max_size=2, unique=True))
    swapped = list(entries)
    swapped[one] = replace(entries[other], seq=one + 1)
    swapped[other] = replace(entries[one], seq=other + 1)
    assert flaws(swapped, head(entries))[0].seq == min(one, other) + 1


def test_an_entry_that_was_put_in_is_found():
    entries = chain(4)
    forged = AuditEntry(3, 1.0, "eve", "", "admin", "key.create", "x", previous=entries[1].hash)
    forged = replace(forged, hash=forged.sealed())
    moved = [*entries[:2], forged, *(replace(one, seq=one.seq + 1) for one in entries[2:])]
    assert flaws(moved, Head(5, entries[-1].hash))[0].seq == 4


def test_a_chain_made_anew_is_told_by_a_head_that_was_kept():
    entries, kept = chain(4), Head(3, "0" * 64)
    (flaw,) = flaws(entries, head(entries), kept)
    assert (flaw.seq, "head you have" in flaw.problem) == (3, True)
    (cut,) = flaws(entries[:2], head(entries[:2]), head(entries))
    assert (cut.seq, cut.problem) == (3, "and all up to 4 are missing at the end")


def test_a_head_is_read_as_it_is_written():
    for one in (Head(), Head(7, "a" * 64)):
        assert Head.parse(str(one)) == one
    for text in ("", "7", "x:y", f"0:{'a' * 64}", "7:abc"):
        with pytest.raises(ValueError, match="is no head"):
            Head.parse(text)
