"""The translator without an LLM: tokens, clauses, readings, goals. Pure; what it cannot place it asks about."""

from collections.abc import Sequence
from dataclasses import replace

from intent.clauses import HEADS, Clause, clauses
from intent.draft import EXAMPLES, NOTHING, Draft
from intent.fold import is_chinese
from intent.goals import add_goal
from intent.injection import orders
from intent.lexicon import Kind
from intent.models import Catalogue, Finding
from intent.readings import Reading, bind
from intent.tokens import Token, tokenize

_WISHES = {
    "fast": (
        "What should be fast: the first token, each next token, or all tokens together?",
        ("minimise TTFT", "minimise TPOT", "maximise token throughput"),
    ),
    "cheap": (
        "Should the cost be as low as it can be, or under a bound?",
        ("minimise cost", "cost at most 10 USD/h"),
    ),
}


def read(text: str, catalogue: Catalogue) -> Draft:
    """Everything the rules understand of a text, and questions about the rest."""
    draft = Draft(text, catalogue)
    if is_chinese(text):
        words = "The built-in rules read English; name an LLM in the deployment file for other languages."
        draft.findings.append(Finding("language_unsupported", "/text", f"{words} {EXAMPLES}"))
        return draft
    leftovers: list[Token] = []
    previous: tuple[Reading, ...] = ()
    tokens = without_orders(tokenize(text, catalogue), orders(text))
    if _unreadable(draft, tokens):
        return draft
    for clause in clauses(tokens):
        if _is_goal(clause, previous):
            bound = bind(clause, previous)
            for reading in bound.readings:
                add_goal(draft, reading)
            previous = bound.readings or previous
            leftovers += bound.leftovers
        elif wish := next(iter(clause.of(Kind.VAGUE)), None):
            words, options = _WISHES[wish.value]
            draft.ask("wish_without_metric", wish, words, options)
        else:
            leftovers += clause.tokens
    draft.ask_about(leftovers)
    return draft


def _is_goal(clause: Clause, previous: Sequence[Reading]) -> bool:
    if clause.repeats or clause.has(*HEADS):
        return True
    if clause.has(Kind.QUANTITY, Kind.RANGE):
        return (
            clause.has(Kind.COMPARISON)
            or not clause.has(Kind.UNKNOWN)
            or (not previous and _has_unit(clause))
        )
    return clause.has(Kind.UNIT) and clause.has(Kind.OPTIMISE) and not previous


def _has_unit(clause: Clause) -> bool:
    """Whether a number says what it counts; ``9am to 5pm`` does not."""
    return clause.has(Kind.RANGE) or any(token.value.unit for token in clause.of(Kind.QUANTITY))


def without_orders(tokens: Sequence[Token], places: Sequence[tuple[int, int]]) -> list[Token]:
    """Take out words that give orders; a stretch between commas that says nothing else goes with them."""
    marked = [replace(token, kind=Kind.ORDER) if _inside(token, places) else token for token in tokens]
    kept: list[Token] = []
    stretch: list[Token] = []
    for token in [*marked, None]:
        if token is not None and token.kind not in {Kind.JOIN, Kind.STOP}:
            stretch.append(token)
            continue
        ordered = any(one.kind is Kind.ORDER for one in stretch)
        says_more = any(one.kind in {*HEADS, Kind.QUANTITY, Kind.RANGE} for one in stretch)
        if not ordered or says_more:
            kept += stretch
        kept += [token] if token else []
        stretch = []
    return kept


def _inside(token: Token, places: Sequence[tuple[int, int]]) -> bool:
    return any(start < token.end and token.start < end for start, end in places)


def _unreadable(draft: Draft, tokens: Sequence[Token]) -> bool:
    """Ask about digits that could be two numbers (``1,5``) or none (``1e400``)."""
    for token in tokens:
        if token.kind is Kind.UNKNOWN and token.value[0].isdigit():
            said = draft.said(token)
            numbers = (said.replace(",", "."), said.replace(",", "")) if said.count(",") == 1 else ()
            options = (*(draft.instead(token, number) for number in numbers), NOTHING, draft.without([token]))
            draft.ask(
                "number_unreadable", token, f"{said!r} is not a number I can read. What is meant?", options
            )
            return True
    return False
