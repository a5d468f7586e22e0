"""What an LLM extracted, held against the text: only what stands there counts, and code reads every number itself.

The LLM decides which words belong to which goal and what an unusual wording is about. Numbers, units, statistics,
windows and comparisons are read from its evidence with the lexicon of the rules; where both read something and differ,
the operator is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Quote:
    """The evidence of one goal: where it stands, its words, and what the lexicon reads in them."""

    start: int
    end: int
    words: str
    tokens: tuple[Token, ...]

    def invented(self, kind: Kind, value: object) -> Token:
        """A slot the LLM filled without a word of the lexicon: a token without extent, in front of the quote."""
        return Token(kind, value, self.start, self.start)

    def of(self, *kinds: Kind) -> list[Token]:
        """The tokens of these kinds, in order."""
        return [token for token in self.tokens if token.kind in kinds]


def interpret(answer: Mapping[str, Any], text: str, catalogue: Catalogue) -> Draft:
    """The goals of a wire answer.

    Raises:
        ExtractionError: the answer quotes words that are not in the text.
    """
    draft = Draft(text, catalogue)
    tokens = without_orders(tokenize(text, catalogue), orders(text))
    places = [_place(text, goal["evidence"]) for goal in answer["goals"]]
    for goal, (start, end) in zip(answer["goals"], places, strict=True):
        quote = _Quote(start, end, text[start:end], tuple(_inside(tokens, (start, end))))
        reading = _reading(draft, goal, quote, tokens)
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


def _reading(draft: Draft, goal: Mapping[str, Any], quote: _Quote, tokens: Sequence[Token]) -> Reading | None:
    """The reading of one goal, or None where LLM and lexicon differ and the operator was asked."""
    asked = len(draft.questions)
    head = _head(draft, goal["subject"], quote)
    comparison = _comparison(draft, goal["comparison"], quote)
    if len(draft.questions) > asked:
        return None
    quantity, end_of_range = _quantity(draft.text, goal, quote)
    if quantity is None and goal["number"] is not None:
        words = f"I cannot read the number in {quote.words!r}; please write it in digits."
        draft.ask("number_unreadable", Token(Kind.UNKNOWN, None, quote.start, quote.end), words, ())
        return None
    return Reading(
        quote.start,
        quote.end,
        head=head,
        stat=_stat(goal["stat"], quote),
        comparison=end_of_range or comparison,
        quantity=quantity,
        window=_window(draft.text, goal["window"], quote, tokens),
        tenant=_named(draft.text, goal["tenant"], Kind.TENANT, tokens),
        model=_named(draft.text, goal["model"], Kind.MODEL, tokens),
        notes=_notes(quote, head, comparison),
    )


def _notes(quote: _Quote, head: Token | None, comparison: Token | None) -> tuple[tuple[str, str], ...]:
    """What the LLM alone says; a setting needs no comparison, so none is noted."""
    notes = []
    if head is not None and head.kind is Kind.METRIC and head.start == head.end:
        notes.append(("metric", f"{quote.words!r} taken to mean {METRIC_LABELS.get(head.value, head.value)}"))
    if (
        comparison is not None
        and comparison.start == comparison.end
        and (head is None or head.kind is not Kind.SETTING)
    ):
        notes.append(("op", f"{quote.words!r} taken to mean {comparison.value}"))
    return tuple(notes)


def _head(draft: Draft, subject: str, quote: _Quote) -> Token | None:
    if subject in _SETTINGS:
        return quote.invented(Kind.SETTING, subject)
    if subject == "unknown":
        unknown = quote.of(Kind.UNKNOWN)
        return replace(unknown[0], end=unknown[-1].end) if unknown else None
    said = quote.of(Kind.METRIC)
    same = [token for token in (*said, *quote.of(Kind.COUNTED)) if token.value == subject]
    vague = [token for token in said if token.value in {ANY_LATENCY, ANY_THROUGHPUT}]
    if same or vague:  # a text that does not say which latency is not settled by a model's guess
        return (same or vague)[0]
    if said:
        labels = [METRIC_LABELS.get(metric, metric) for metric in (said[0].value, subject)]
        words = f"Is {draft.said(said[0])!r} meant, or {labels[1]}?"
        draft.ask("readings_differ", said[0], words, tuple(draft.instead(said[0], label) for label in labels))
        return None
    return quote.invented(Kind.METRIC, subject)


def _comparison(draft: Draft, claimed: str | None, quote: _Quote) -> Token | None:
    read = quote.of(Kind.COMPARISON, Kind.OPTIMISE)
    if read and {read[0].value, claimed} in _OPPOSITES:
        words = f"{draft.said(read[0])!r} can be read as a lower or an upper bound. Which one is meant?"
        draft.ask(
            "readings_differ",
            read[0],
            words,
            tuple(draft.instead(read[0], way) for way in ("at most", "at least")),
        )
        return None
    if read or claimed is None:
        return read[0] if read else None
    return quote.invented(Kind.OPTIMISE if claimed in {"minimize", "maximize"} else Kind.COMPARISON, claimed)


def _quantity(text: str, goal: Mapping[str, Any], quote: _Quote) -> tuple[Token | None, Token | None]:
    """The number as code reads it in the evidence, and the comparison if it is one end of a range."""
    if goal["number"] is None:
        return None, None
    claimed = fold(goal["number"]).text.strip()
    for token in quote.of(Kind.QUANTITY):
        if _says(text, token, claimed):
            return replace(token, value=_with_unit(token.value, goal["unit"], text)), None
    for token in quote.of(Kind.RANGE):
        for op, end in zip((">=", "<="), token.value, strict=True):
            if end.number == parse_number(claimed.removesuffix("%").strip()):
                comparison = replace(token, kind=Kind.COMPARISON, value=op)
                return replace(token, kind=Kind.QUANTITY, value=end), comparison
    return None, None


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


def _stat(claimed: str | None, quote: _Quote) -> Token | None:
    """The statistic that stands in the evidence; a percentile the lexicon misses counts if its digits do."""
    if read := quote.of(Kind.STAT):
        return next((token for token in read if token.value == claimed), read[0])
    digits = (claimed or "").removeprefix("p")
    words = {word for word, _, _ in split(fold(quote.words).text)}
    return quote.invented(Kind.STAT, claimed) if digits in words else None


def _window(text: str, claimed: str | None, quote: _Quote, tokens: Sequence[Token]) -> Token | None:
    """The window in the evidence, or the one quoted from elsewhere; words the lexicon does not know are asked about."""
    if claimed is None:
        return next(iter(quote.of(Kind.WINDOW)), None)
    start, end = _place(text, claimed)
    read = [
        token for token in tokens if token.kind is Kind.WINDOW and token.start < end and start < token.end
    ]
    return read[0] if read else Token(Kind.WINDOW, claimed, start, end)


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
