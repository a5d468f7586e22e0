"""What an LLM extracted, held against the text: only what stands there counts, and code reads every number itself.

The LLM decides which words belong to which goal and what an unusual wording is about. Numbers, units, statistics,
windows and comparisons are read from its evidence with the lexicon of the rules; where both read something and differ,
the operator is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from intent.draft import Draft
from intent.errors import ExtractionError
from intent.fold import fold
from intent.goals import add_goal
from intent.injection import orders
from intent.lexicon import ANY_LATENCY, ANY_THROUGHPUT, Kind, phrases, split
from intent.models import METRIC_LABELS, Catalogue
from intent.quantities import Quantity, parse_number
from intent.readings import Reading
from intent.rules import without_orders
from intent.tokens import Token, tokenize

_SETTINGS = frozenset({"tp", "pp", "replicas"})
_QUOTED = ("window", "tenant", "model")
_TELLING = frozenset(
    {
        Kind.QUANTITY,
        Kind.RANGE,
        Kind.NEGATION,
        Kind.RELATIVE,
        Kind.WINDOW,
        Kind.TENANT,
        Kind.MODEL,
        Kind.OPTIMISE,
    }
)
_LIMITING = frozenset(
    {"except", "unless", "if", "when", "until", "after", "before", "otherwise", "or", "instead"}
)
"""Words that change a wish even if a model finds nothing to say about them."""

Place = tuple[int, int]
_OPPOSITES = ({"<=", ">="}, {"minimize", "maximize"}, {"minimize", ">="}, {"maximize", "<="})


def interpret(answer: Mapping[str, Any], text: str, catalogue: Catalogue) -> Draft:
    """The goals of a wire answer.

    Raises:
        ExtractionError: the answer quotes words that are not in the text.
    """
    draft = Draft(text, catalogue)
    tokens = without_orders(tokenize(text, catalogue), orders(text))
    places = [_place(text, goal["evidence"]) for goal in answer["goals"]]
    for goal, place in zip(answer["goals"], places, strict=True):
        reading = _reading(draft, goal, place, tokens)
        if reading is not None:
            add_goal(draft, reading)
    quoted = [
        _place(text, goal[slot]) for goal in answer["goals"] for slot in _QUOTED if goal[slot] is not None
    ]
    unplaced = [_place(text, words) for words in answer["unplaced"]]
    draft.ask_about(_leftovers(tokens, [*places, *quoted], unplaced))
    return draft


def _place(text: str, quote: str) -> Place:
    """Where a quote stands in the text, whatever its case and width."""
    folded, wanted = fold(text), fold(quote).text.strip()
    start = folded.text.find(wanted) if wanted else -1
    if start < 0:
        raise ExtractionError(f"the model quoted {quote[:60]!r}, which is not in the text")
    return folded.span(start, start + len(wanted))


def _inside(tokens: Sequence[Token], place: Place) -> list[Token]:
    return [token for token in tokens if place[0] <= token.start and token.end <= place[1]]


def _leftovers(tokens: Sequence[Token], used: Sequence[Place], unplaced: Sequence[Place]) -> list[Token]:
    """What the answer says it could not place, and telling words that it passed over in silence."""
    said = [Token(Kind.UNKNOWN, "", start, end) for start, end in unplaced]
    named = [token for place in unplaced for token in _inside(tokens, place)]
    covered = [token for place in used for token in _inside(tokens, place)]
    ignored = [token for token in tokens if _tells(token) and token not in covered and token not in named]
    negated = [
        token for token in covered if token.kind in {Kind.NEGATION, Kind.RELATIVE} and token not in named
    ]
    return [*said, *ignored, *negated]


def _tells(token: Token) -> bool:
    return token.kind in _TELLING or (token.kind is Kind.UNKNOWN and token.value in _LIMITING)


def _reading(draft: Draft, goal: Mapping[str, Any], place: Place, tokens: Sequence[Token]) -> Reading | None:
    """The reading of one goal, or None where LLM and lexicon differ and the operator was asked."""
    within = _inside(tokens, place)
    notes: list[tuple[str, str]] = []
    asked = len(draft.questions)
    head = _head(draft, goal, place, within, notes)
    comparison = _comparison(draft, goal, place, within, notes)
    if len(draft.questions) > asked:
        return None
    quantity, comparison = _quantity(draft, goal, within, comparison)
    if quantity is None and goal["number"] is not None:
        words = f"I cannot read the number in {draft.text[place[0] : place[1]]!r}; please write it in digits."
        draft.ask("number_unreadable", _token(Kind.UNKNOWN, None, place), words, ())
        return None
    return Reading(
        *place,
        head=head,
        stat=_stat(goal, place, within, draft.text),
        comparison=comparison,
        quantity=quantity,
        window=_window(draft.text, goal, within, tokens),
        tenant=_named(draft.text, goal["tenant"], Kind.TENANT, tokens),
        model=_named(draft.text, goal["model"], Kind.MODEL, tokens),
        notes=tuple(notes),
    )


def _token(kind: Kind, value: object, place: Place) -> Token:
    return Token(kind, value, *place)


def _head(
    draft: Draft,
    goal: Mapping[str, Any],
    place: Place,
    within: Sequence[Token],
    notes: list[tuple[str, str]],
) -> Token | None:
    subject, front = goal["subject"], (place[0], place[0])
    if subject in _SETTINGS:
        return _token(Kind.SETTING, subject, front)
    if subject == "unknown":
        unknown = [token for token in within if token.kind is Kind.UNKNOWN]
        return replace(unknown[0], end=unknown[-1].end) if unknown else None
    said = [token for token in within if token.kind is Kind.METRIC]
    same = [token for token in said if token.value == subject]
    vague = [token for token in said if token.value in {ANY_LATENCY, ANY_THROUGHPUT}]
    if same or vague:  # a text that does not say which latency is not settled by a model's guess
        return (same or vague)[0]
    if said:
        options = tuple(
            draft.instead(said[0], METRIC_LABELS[one])
            for one in (said[0].value, subject)
            if one in METRIC_LABELS
        )
        words = (
            f"Is {draft.text[said[0].start : said[0].end]!r} meant, or {METRIC_LABELS.get(subject, subject)}?"
        )
        draft.ask("readings_differ", said[0], words, options)
        return None
    if subject in METRIC_LABELS and not any(token.kind is Kind.COUNTED for token in within):
        notes.append(
            ("metric", f"{draft.text[place[0] : place[1]]!r} taken to mean {METRIC_LABELS[subject]}")
        )
    return _token(Kind.METRIC, subject, front)


def _comparison(
    draft: Draft,
    goal: Mapping[str, Any],
    place: Place,
    within: Sequence[Token],
    notes: list[tuple[str, str]],
) -> Token | None:
    read = [token for token in within if token.kind in {Kind.COMPARISON, Kind.OPTIMISE}]
    claimed = goal["comparison"]
    if read and {read[0].value, claimed} in _OPPOSITES:
        options = (draft.instead(read[0], "at most"), draft.instead(read[0], "at least"))
        words = f"{draft.text[read[0].start : read[0].end]!r} can be read as a lower or an upper bound. Which one is meant?"
        draft.ask("readings_differ", read[0], words, options)
        return None
    if read or claimed is None:
        return read[0] if read else None
    kind = Kind.OPTIMISE if claimed in {"minimize", "maximize"} else Kind.COMPARISON
    if kind is Kind.OPTIMISE or goal["subject"] not in _SETTINGS:
        notes.append(("op", f"{draft.text[place[0] : place[1]]!r} taken to mean {claimed}"))
    return _token(kind, claimed, place)


def _quantity(
    draft: Draft, goal: Mapping[str, Any], within: Sequence[Token], comparison: Token | None
) -> tuple[Token | None, Token | None]:
    """The number as code reads it in the evidence, and the comparison that its end of a range brings."""
    if goal["number"] is None:
        return None, comparison
    claimed = fold(goal["number"]).text.strip()
    for token in within:
        if token.kind is Kind.QUANTITY and _says(draft.text, token, claimed):
            return replace(token, value=_with_unit(token.value, goal["unit"], draft.text)), comparison
        if token.kind is Kind.RANGE:
            for op, end in zip((">=", "<="), token.value, strict=True):
                if end.number == parse_number(claimed.removesuffix("%").strip()):
                    return replace(token, kind=Kind.QUANTITY, value=end), replace(
                        token, kind=Kind.COMPARISON, value=op
                    )
    return None, comparison


def _says(text: str, token: Token, claimed: str) -> bool:
    """Whether this token is the claimed number: the same words, not merely a digit of a longer one."""
    words = [word for word, _, _ in split(fold(text[token.start : token.end]).text)]
    wanted = [word for word, _, _ in split(claimed)]
    return any(words[place : place + len(wanted)] == wanted for place in range(len(words)))


def _with_unit(quantity: Quantity, unit: str | None, text: str) -> Quantity:
    """The unit that stands apart from its number (``2, in seconds``), if it stands in the text at all."""
    if quantity.unit is not None or unit is None or fold(unit).text not in fold(text).text:
        return quantity
    kind, value = phrases().get(tuple(word for word, _, _ in split(fold(unit).text)), (Kind.UNKNOWN, None))
    return quantity.in_unit(*value) if kind is Kind.UNIT else quantity


def _stat(goal: Mapping[str, Any], place: Place, within: Sequence[Token], text: str) -> Token | None:
    """The statistic that stands in the evidence; a percentile the lexicon misses counts if its digits do."""
    read = [token for token in within if token.kind is Kind.STAT]
    if read:
        return next((token for token in read if token.value == goal["stat"]), read[0])
    digits = (goal["stat"] or "").removeprefix("p")
    words = {word for word, _, _ in split(fold(text[place[0] : place[1]]).text)}
    return _token(Kind.STAT, goal["stat"], place) if digits in words else None


def _window(
    text: str, goal: Mapping[str, Any], within: Sequence[Token], tokens: Sequence[Token]
) -> Token | None:
    """The window in the evidence, or the one quoted from elsewhere in the text; unknown words are kept to be asked about."""
    if goal["window"] is not None:
        place = _place(text, goal["window"])
        read = [
            token
            for token in tokens
            if token.kind is Kind.WINDOW and token.start < place[1] and place[0] < token.end
        ]
        return read[0] if read else _token(Kind.WINDOW, goal["window"], place)
    return next((token for token in within if token.kind is Kind.WINDOW), None)


def _named(text: str, name: str | None, kind: Kind, tokens: Sequence[Token]) -> Token | None:
    """A tenant or model of the catalogue, by the words that name it.

    Raises:
        ExtractionError: the words are not in the text, or name nothing in the catalogue.
    """
    if name is None:
        return None
    found = [token for token in _inside(tokens, _place(text, name)) if token.kind is kind]
    if not found:
        raise ExtractionError(
            f"the model took {name[:60]!r} for a {kind.value}; the deployment file has none of that name"
        )
    return found[0]
