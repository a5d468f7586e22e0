"""What a text says of the inventory (``we have 4 A100s``, 当前集群有 A100×4).

No wish, but compared with the deployment. Pure.
"""

import re
from collections.abc import Sequence

from intent.fold import fold
from intent.models import Finding
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern
from intent.rules.tokens import TextToken

_BETWEEN = frozenset({Kind.LIST, Kind.JOIN, Kind.FILLER, Kind.COUNTED, Kind.TIMES, Kind.UNIT})
_THERE = re.compile(r" ?(?:in the|in our|here|on hand|available|installed)")
_JOINTS = frozenset("×x*+加跟和张块")
_COUNTS = frozenset({Kind.QUANTITY, Kind.NUMBER})


def without_inventory(draft: Draft, tokens: Sequence[TextToken], reports: list[tuple[int, int]]) -> list[TextToken]:
    """The tokens without what tells of devices; a finding where the deployment has another count."""
    kept = list(tokens)
    place = 0
    while place < len(kept):
        run = _run(kept[place:])
        if run and _is_told(draft.text, kept[place].start, kept[place + run - 1].end):
            part = kept[place : place + run]
            reports.append((part[0].start, part[-1].end))
            for count, kind in _counts(part):
                compare(draft, (part[0].start, part[-1].end), kind, count)
            del kept[place : place + run]
        else:
            place += max(run, 1)
    return kept


def compare(draft: Draft, place: tuple[int, int], kind: str, count: float) -> None:
    """A finding, where the deployment has another number of devices of a kind."""
    have = next((number for name, number in draft.catalogue.devices.items() if name.lower() == kind.lower()), 0)
    quoted = draft.text[slice(*place)]
    if count != have:
        words = draft.say("inventory_differs", said=repr(quoted), kind=kind, have=have)
        draft.findings.append(Finding("inventory_differs", "/text", words, quoted))


def _run(tokens: Sequence[TextToken]) -> int:
    """How many tokens at the front are counts of device kinds.

    ``4 A100s and 4 L40S``, ``A100 四张、L40S 两张``.
    """
    last = 0
    kinds = 0
    counts = 0
    place = 0
    for place, token in enumerate(tokens):
        if _is_kind(token):
            kinds += 1
        elif token.kind in _COUNTS and getattr(token.value, "unit", None) is None:
            counts += 1
        elif place == 0 or (token.kind not in _BETWEEN and str(token.value) not in _JOINTS):
            break
        if kinds and kinds == counts:
            last = place + 1
    while last and last < len(tokens) and tokens[last].kind is Kind.COUNTED:
        last += 1
    return last


def _is_kind(token: TextToken) -> bool:
    return token.kind is Kind.SELECTOR and str(token.value).startswith("gpu_type:")


def _is_told(text: str, start: int, end: int) -> bool:
    before = re.split(r"[.;!?\n。；！？]", fold(text[:start]).text)[-1][-60:]
    after = re.split(r"[.;,!?\n。；，！？]", fold(text[end:]).text)[0][:40]
    if pattern("using").search(re.split(r"[,，:：]", before)[-1]):
        return False
    return pattern("having").search(before) is not None or _THERE.match(after) is not None


def _counts(tokens: Sequence[TextToken]) -> list[tuple[float, str]]:
    kinds = [str(token.value).removeprefix("gpu_type:") for token in tokens if _is_kind(token)]
    counts = [getattr(token.value, "number", token.value) for token in tokens if token.kind in _COUNTS]
    return list(zip(counts, kinds, strict=False))
