"""What operators say, with what it must come to: the files under ``tests/data/utterances``.

One JSON object per line: ``id``, ``text``, ``language`` (en, zh, mixed), ``outcome``, ``goals``, ``tags``; optionally
``findings`` (codes that must occur) and ``also`` (outcomes that are as right where the conventions leave it open).
Goals are written as the document has them, without evidence; keys that are null or at their default may be left out.
Names and clock are those of ``examples/a100-l40s.yaml`` at ``NOW``.
"""

import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from benchmarks.provenance import ROOT
from intent.models import Goal, Outcome

FOLDER = ROOT / "tests" / "data" / "utterances"
FIRST_CONTACT = ROOT / "tests" / "data" / "first-contact"
DEPLOYMENT = ROOT / "examples" / "a100-l40s.yaml"
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
"""A Friday."""

GoalDocument = dict[str, Any]
_KINDS = {kind.__dataclass_fields__["type"].default: kind for kind in get_args(Goal)}
_OPTIONAL = {"findings", "also"}
_KEYS = {"id", "text", "language", "outcome", "goals", "tags"}


class CorpusError(Exception):
    """A line that is no utterance; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text and what it must come to."""

    id: str
    text: str
    language: str
    outcome: Outcome
    goals: tuple[GoalDocument, ...]
    """Complete, without evidence. Of a ``clarify`` nothing is expected."""
    tags: tuple[str, ...]
    findings: tuple[str, ...] = ()
    also: tuple[Outcome, ...] = ()


def load(files: Iterable[Path]) -> list[Utterance]:
    """All utterances of some files.

    Raises:
        CorpusError: naming the file, the line and what is wrong.
    """
    return [
        _utterance(line, f"{file}:{number}")
        for file in files
        for number, line in enumerate(_lines(file), start=1)
        if line.strip()
    ]


def own_files() -> list[Path]:
    """The project's own set."""
    return sorted(FOLDER.glob("*.jsonl"))


def first_contact_files() -> list[Path]:
    """Sets by authors who had seen the conventions alone, in the order in which they were written."""
    return sorted(FIRST_CONTACT.glob("set-*.jsonl"))


def complete(goal: GoalDocument) -> GoalDocument:
    """A goal with every key of its type but the evidence."""
    kind = _KINDS[goal["type"]]
    defaults = {one.name: None if one.default is MISSING else one.default for one in fields(kind)}
    defaults.pop("evidence")
    if unknown := goal.keys() - defaults.keys():
        raise ValueError(f"a goal of type {goal['type']} has no {', '.join(sorted(unknown))}")
    return defaults | goal


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise CorpusError(f"{file}: {problem}") from problem


def _utterance(line: str, place: str) -> Utterance:
    try:
        return _read(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CorpusError(f"{place}: {problem}") from problem


def _read(data: dict[str, Any]) -> Utterance:
    if wrong := (_KEYS - data.keys()) | (data.keys() - _KEYS - _OPTIONAL):
        raise ValueError(f"missing or unknown: {', '.join(sorted(wrong))}")
    return Utterance(
        id=data["id"],
        text=data["text"],
        language=data["language"],
        outcome=Outcome(data["outcome"]),
        goals=tuple(complete(goal) for goal in data["goals"]),
        tags=tuple(data["tags"]),
        findings=tuple(data.get("findings", ())),
        also=tuple(Outcome(one) for one in data.get("also", ())),
    )
