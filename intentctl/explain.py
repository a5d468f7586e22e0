"""What can be said: topics, entries and examples from ``intent/explain.yaml``. Pure.

With what the models know of them.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from intent.models import HIGHER_IS_BETTER, LOWER_IS_BETTER, METRIC_LABELS, UNITS

Document = dict[str, Any]
Row = tuple[str, str]


class UnknownNameError(ValueError):
    """A topic or entry that is not there; names the known ones and the nearest."""


def topics() -> Mapping[str, Any]:
    """Every topic as it is written down."""
    from intent.tables import mapping

    found: Mapping[str, Any] = mapping("intent", "explain")
    return found


def explain(topic: str | None, entry: str | None) -> Document:
    """The list of topics, one topic, or one entry of it.

    Raises:
        UnknownNameError: no such topic or entry.
    """
    if topic is None:
        listed = {
            name: {"about": topic["about"], "entries": list(topic["entries"])} for name, topic in topics().items()
        }
        return {"topics": listed}
    name = _known(topic, topics(), "topic")
    found = topics()[name]
    chosen = found["entries"] if entry is None else [_known(entry, found["entries"], name)]
    entries = {entry: {**found["entries"][entry], **_facts(name, entry)} for entry in chosen}
    return {"topic": name, "about": found["about"], "entries": entries}


def rows(document: Document) -> list[Row]:
    """An explanation for people: examples, and the goals they come to."""
    if "topics" in document:
        listed = [
            (name, line)
            for name, topic in document["topics"].items()
            for line in (topic["about"], f"    {', '.join(topic['entries'])}")
        ]
        return [*listed, ("", "One of them: intentctl explain TOPIC [ENTRY]")]
    shown = [(document["topic"], document["about"])]
    for name, entry in document["entries"].items():
        shown += [(name, line) for line in _lines(entry)]
    return shown


def _facts(topic: str, entry: str) -> Document:
    """What the models say of a metric."""
    if topic != "metric":
        return {}
    side = "lower" if entry in LOWER_IS_BETTER else "higher" if entry in HIGHER_IS_BETTER else None
    return {"label": METRIC_LABELS[entry], "units": list(UNITS[entry]), "better": side}


def _lines(entry: Document) -> Iterable[str]:
    yield entry["about"]
    if "units" in entry:
        better = f"; {entry['better']} is better" if entry["better"] else ""
        yield f"{entry['label']}, in {' or '.join(entry['units'])}{better}"
    for example in entry["examples"]:
        yield f'"{example["say"]}"'
        yield from (f"    {_goal(goal)}" for goal in example.get("goals", ()))
        yield from (f"    {example[key]}" for key in ("outcome", "finding") if key in example)
    yield ""


def _goal(goal: Document) -> str:
    """A goal's slots in the order in which they are written down."""
    slots = (f"{slot}={_slot(value)}" for slot, value in goal.items() if slot != "type")
    return f"{goal.get('type', 'objective')} {' '.join(slots)}"


def _slot(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    parts = (f"{key}: {','.join(item) if isinstance(item, list) else item}" for key, item in value.items())
    return f"{{{', '.join(parts)}}}"


def _known(text: str, names: Iterable[str], kind: str) -> str:
    """The name that was said, however it was written."""
    written = {_plain(name): name for name in names}
    plain = _plain(text)
    for candidate in (plain, plain.removesuffix("s")):  # windows, units, outcomes
        if candidate in written:
            return written[candidate]
    close = difflib.get_close_matches(plain, written, n=1)
    nearest = f"did you mean {written[close[0]]!r}? " if close else ""
    raise UnknownNameError(f"there is no {kind} {text!r}; {nearest}Known are {', '.join(written.values())}")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
