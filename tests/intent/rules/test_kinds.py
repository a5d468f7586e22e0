import re
from pathlib import Path

import pytest

import intent.rules
from intent.models import UNITS
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, EVERYONE, Kind
from intent.rules.lexicon import phrases

SOURCES = [path for path in Path(intent.rules.__file__).parent.glob("*.py") if path.name != "kinds.py"]
MADE = frozenset(
    {Kind.QUANTITY, Kind.RANGE, Kind.WINDOW, Kind.BAD_TIME, Kind.TENANT, Kind.MODEL, Kind.SELECTOR, Kind.ORDER, Kind.UNKNOWN,
     Kind.LIST}
)  # fmt: skip
"""Kinds that come from the deployment, from numbers and times, or from where a word stands."""


@pytest.mark.parametrize("kind", sorted(set(Kind) - MADE))
def test_every_kind_but_those_that_are_made_has_phrases_in_the_lexicon(kind):
    assert kind in {found for found, _ in phrases().values()}


@pytest.mark.parametrize("kind", sorted(Kind))
def test_every_kind_plays_a_part_in_the_rules(kind):
    name = re.compile(rf"\bKind\.{kind.name}\b")
    assert any(name.search(source.read_text(encoding="utf-8")) for source in SOURCES)


def test_the_vague_metrics_are_none_that_is_measured_and_everyone_is_no_name():
    assert not {ANY_LATENCY, ANY_THROUGHPUT} & set(UNITS)
    assert not EVERYONE
