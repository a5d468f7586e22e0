"""Tokens joined to what they say together.

Numbers with units, shares of requests, negated comparisons, lists. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import takewhile

from intent.fold import fold, overlaps
from intent.models import LOSSES, PER_NODE, Catalogue, RecurringWindow
from intent.rules.amounts import both_sides, half_more, no_units, numbers, quantities, ranges, spans
from intent.rules.kinds import Kind
from intent.rules.lexicon import MINUS
from intent.rules.lists import listed
from intent.rules.quantities import Quantity
from intent.rules.respectively import dealt
from intent.rules.rewriting import Rewrite, Rule, joined, kinds, rewritten, skip, spanning
from intent.rules.shares import complements, percentiles, ratios, shares
from intent.rules.tokens import TextToken, scan
from intent.tables import expanded, table
from intent.times.spans import REST, together

UNACCEPTABLE = "unacceptable"
"""The value of an ``AVOID`` behind what nobody may reach."""
FALL = "fall below"
"""The value of an ``EXCEPT`` that goes below a bound."""


def tokenize(text: str, catalogue: Catalogue) -> list[TextToken]:
    """The tokens of a text, in order, joined to quantities, statistics, comparisons and lists."""
    tokens = _left_over(text, _signed(_with_losses(text, scan(text, catalogue))))
    for rule in passes(text):
        tokens = list(rewritten(tokens, rule))
    return dealt(listed(percentiles(tokens)))


def _left_over(text: str, tokens: Sequence[TextToken]) -> list[TextToken]:
    """``until 20:00, then 3s``, ``at 9-10, 3s the rest of the day``: what the time before leaves over."""
    before = ""
    found = []
    for token in tokens:
        words = text[token.start : token.end].lower()
        is_then = token.value == "then" or words in _AFTERWARDS
        is_rest = (is_then and _UNTIL.search(before)) or (before and _REST_OF_DAY.fullmatch(words))
        found.append(replace(token, kind=Kind.WINDOW, value=REST) if is_rest else token)
        if token.kind is Kind.WINDOW and not is_rest:
            before = words
        elif token.kind is Kind.STOP:
            before = ""
    return found


_UNTIL = re.compile(r"^(?:until|till|before|up to)\b|[之以]前$|^[到至]")
_AFTERWARDS = frozenset({"after that", "afterwards", "之后", "以后", "然后"})
_REST_OF_DAY = re.compile(r"(?:for )?the (?:rest|remainder) of the day|当天(?:剩下|其余)的?时间")


def passes(text: str) -> tuple[Rule, ...]:
    """The rewriting passes over a text, in order.

    Each takes tokens in the order of the text and leaves them so; a token with a meaning that it
    takes lies within one that it leaves.
    """
    return (
        _glosses, partial(_hours, text), partial(_inside, text), _one_time, partial(_each, text), partial(spans, text), numbers,
        _gpus, no_units, quantities, partial(half_more, text), _cards, partial(_spared, text), partial(_taken_out, text),
        partial(_doubled, text), ratios, complements, shares, ranges, _unacceptable, _negations, partial(_permissions, text),
        both_sides, partial(_strangers, text),
        _mapped, _settings, partial(_finishing, text),
    )  # fmt: skip


def _signed(tokens: Sequence[TextToken]) -> list[TextToken]:
    """A dash between a comparison and a number is its sign: ``below - $5``."""
    result = list(tokens)
    for place in range(1, len(tokens) - 1):
        dash = tokens[place]
        after = tokens[place + 1]
        if (
            dash.value == "-"
            and tokens[place - 1].kind in {Kind.COMPARISON, Kind.TO}
            and after.kind in {Kind.NUMBER, Kind.CURRENCY}
        ):
            result[place] = replace(dash, value=MINUS)
        if dash.value == "==" and tokens[place - 1].kind is Kind.UNKNOWN and after.kind is Kind.FILLER:
            result[place] = replace(dash, kind=Kind.JOIN, value=",")  # "upshot = limit llama to six GPUs"
        measured = tokens[place - 1].kind in {Kind.METRIC, Kind.STAT}
        share = kinds(tokens[place + 1 :], Kind.NUMBER, Kind.UNIT) and tokens[place + 2].value[0] == "ratio"
        if measured and share and dash.end == after.start and (dash.value == MINUS or dash.kind is Kind.JOIN):
            result[place] = replace(dash, kind=Kind.CHANGE, value="<=" if dash.value == MINUS else ">=")  # "cost -15%"
    return result


# -- what may be lost, and replicas of each node -------------------------------------------------------


def _with_losses(text: str, tokens: Sequence[TextToken]) -> list[TextToken]:
    """The tokens with each phrase of the table as a setting and its number.

    ``survive the loss of one GPU`` is about no number of GPUs. One that is denied, asked or told stays a word of its own.
    """
    folded = fold(text)
    kept = list(tokens)
    for key in sorted(LOSSES, reverse=True):  # nodes first: where nothing is named, it is a device
        for match in _losses()[key].finditer(folded.text):
            start, end = folded.span(*match.span())
            inside = [token for token in kept if overlaps((token.start, token.end), (start, end))]
            if not inside or any(token.value in LOSSES for token in inside):
                continue
            count = next((token.value for token in inside if token.kind is Kind.NUMBER and token.value >= 1), 1.0)
            phrase = [TextToken(Kind.SETTING, key, start, end), TextToken(Kind.QUANTITY, Quantity(count), end - 1, end)]
            before = _losses()["denied"].search(folded.text[: match.start()])
            if before or _losses()["asked"].search(folded.text[match.end() :]):
                phrase = [TextToken(Kind.LIMITING, "redundancy", start, end)]
            others = [token for token in kept if token not in inside]
            kept = sorted([*others, *phrase], key=lambda token: token.start)
    return _per_node(text, kept)


def _per_node(text: str, tokens: list[TextToken]) -> list[TextToken]:
    """What each of the nodes has: ``one llama replica per box``, 每台机器一个副本."""
    folded = fold(text)
    for match in _losses()["nodes"].finditer(folded.text):
        start, end = folded.span(*match.span())
        before = [token for token in tokens if token.end <= start]
        behind = [token for token in tokens if token.start >= end]
        beside = [*takewhile(_goes_on, reversed(before)), *takewhile(_goes_on, behind)]
        head = next((token for token in beside if token.value == "replicas"), None)
        counts = [
            token.kind for token in (*before[-1:], *behind[:1]) if all(word.kind is not Kind.COUNTED for word in beside)
        ]
        if head is not None or (Kind.NUMBER in counts and _losses()["nouns"].search(folded.text)):
            phrase = TextToken(Kind.THING if head else Kind.SETTING, PER_NODE, start, end)
            around = [replace(token, value=PER_NODE) if token is head else token for token in (*before, *behind)]
            tokens = sorted([*around, phrase], key=lambda token: token.start)
    return tokens


def _goes_on(token: TextToken) -> bool:
    return token.kind not in {Kind.JOIN, Kind.STOP}


@cache
def _losses() -> Mapping[str, re.Pattern[str]]:
    """The patterns of ``losses.yaml``.

    What may be lost to the phrases that say so, and what stands around them.
    """
    parts = table(__package__, "losses")
    words = {name: "|".join(parts[name]) for name in ("denied", "asked", "nouns", "nodes")}
    for key, thing in parts["things"].items():
        words[key] = expanded(
            "|".join([*parts["patterns"], *(parts["any"] if key == "lost_devices" else ())]),
            {**parts["parts"], "thing": thing},
        )
    return {name: re.compile(pattern, re.ASCII) for name, pattern in words.items()}


# -- numbers, names and sides --------------------------------------------------------------------------


def _glosses(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``首字延迟（TTFT）``, ``latency (TTFT)``: one metric, said twice or more exactly."""
    if tokens[0].kind is not Kind.METRIC or len(tokens) < 4:
        return None
    opens, inner, closes = tokens[1:4]
    if (opens.value, closes.value) != ("(", ")") or inner.kind is not Kind.METRIC:
        return None
    return joined(tokens[:4], Kind.METRIC, inner.value)


def _spared(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``keep node b free``: nothing is to run there, whoever is called ``free``.

    So many free ones are no goal.
    """
    place = 2 if kinds(tokens, Kind.COUNTED, Kind.SELECTOR) else 1
    if not (kinds(tokens, Kind.SELECTOR) or kinds(tokens, Kind.COUNTED)) or not kinds(tokens[place:], Kind.TENANT):
        return None
    free = tokens[place]
    if text[free.start : free.end].lower() != "free" or not _KEPT.search(text[: tokens[0].start].lower()):
        return None
    kind = Kind.AVOID if place == 1 else Kind.UNKNOWN
    return [*tokens[:place], replace(free, kind=kind, value="free")], place + 1


_KEPT = re.compile(r"\b(?:keep|keeps|keeping|leave|leaves|leaving|hold|want|wants|need|needs)\b[^,.;:]*$")


def _taken_out(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``take gpu-3 out``; in ``keep chat on node b out of hours`` the word is about something else."""
    if not kinds(tokens, Kind.SELECTOR, Kind.UNKNOWN) or tokens[1].value != "out":
        return None
    if text[tokens[1].end :].lower().startswith(" of ") or not _TAKES.search(text[: tokens[0].start].lower()):
        return None
    return [tokens[0], replace(tokens[1], kind=Kind.AVOID)], 2


_TAKES = re.compile(
    r"\b(?:keep|keeps|leave|leaves|take|takes|pull|get) (?:the |our |all |both |and |or |(?:gpu|node|host)[- ]?\w+,? )*$"
)


def _doubled(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``up to at most 65 %``: the second says the side."""
    if kinds(tokens, Kind.COMPARISON, Kind.COMPARISON) and text[tokens[0].start : tokens[0].end].lower() == "up to":
        return [replace(tokens[1], start=tokens[0].start)], 2
    return None


def _gpus(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``gpu-1``, ``GPU 1``, ``1 号卡``: one device; ``gpu 70%`` is none."""
    first = tokens[0]
    rest = tokens[1:]
    if first.kind is Kind.COUNTED and first.value == "gpu_count" and rest:
        second = rest[1:2] if rest[0].value in {"#", "-"} else rest[:1]
        used = 1 + (len(rest) - len(rest[1:]) if rest[0].value in {"#", "-"} else 0) + 1
        close = bool(second) and second[0].start - first.end <= 1
        units = (Kind.UNIT, Kind.CURRENCY, Kind.PERIOD, Kind.COUNTED, Kind.TIMES)
        free = not any(kinds(tokens[used:], kind) for kind in units)
        if kinds(second, Kind.NUMBER) and close and free and _is_index(second[0].value):
            return joined(tokens[:used], Kind.SELECTOR, f"gpu:gpu-{second[0].value:g}")
    if first.kind is Kind.NUMBER and kinds(rest[1:], Kind.COUNTED) and rest[0].value in {"号", "#"}:
        return joined(tokens[:3], Kind.SELECTOR, f"gpu:gpu-{first.value:g}")
    return None


def _is_index(value: float) -> bool:
    return value == int(value) and 0 <= value < 1000


_AVOIDING = frozenset({"avoid", "avoiding", "避免"})
_TRYING = frozenset({"try not to", "尽量不要", "尽量别", "最好别", "最好不要"})
_OPPOSITE = {"<=": ">=", ">=": "<=", "better": "worse", "worse": "better"}
_PASSED_OVER = frozenset(
    {Kind.FILLER, Kind.METRIC, Kind.STAT, Kind.CHANGE, Kind.MAY, Kind.TENANT, Kind.MODEL, Kind.THING, Kind.PERIOD, Kind.COUNTED,
     Kind.QUANTITY, Kind.RECONFIG, Kind.QUANTISE, Kind.AUDIENCE, Kind.WINDOW, Kind.TO, Kind.SOFT, Kind.UNKNOWN}
)  # fmt: skip


def _negations(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``not above``, ``never let TTFT exceed``, ``别掉到 2 以下``.

    The comparison turns round, the negation is used up.
    """
    if tokens[0].kind is not Kind.NEGATION and tokens[0].value not in _AVOIDING:
        return None
    soft = [replace(tokens[0], kind=Kind.SOFT, end=tokens[0].start)] if tokens[0].value in _TRYING else []
    between: list[TextToken] = [*soft]
    for place, token in enumerate(tokens[1:], 1):
        if token.kind is Kind.COMPARISON and token.value in _OPPOSITE:
            turned = replace(token, value=_OPPOSITE[token.value])
            if not any(token.kind is Kind.QUANTITY for token in between):
                turned = replace(turned, start=tokens[0].start)
                return [turned, *between], place + 1
            return [replace(tokens[0], kind=Kind.TURNED), *between, turned], place + 1
        if between and between[-1].kind is Kind.QUANTITY:
            return None
        if token.kind not in _PASSED_OVER:
            return None
        between.append(token)
    return None


def _unacceptable(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``anything below 280 tok/s is unacceptable``, ``it is not acceptable to wait longer than``.

    The comparison turns round.
    """
    if tokens[0].value == UNACCEPTABLE:
        place = next((n for n, token in enumerate(tokens) if token.kind is Kind.COMPARISON), 0)
        passed = all(token.kind in _PASSED_OVER for token in tokens[1:place])
        turned = _OPPOSITE.get(str(tokens[place].value))
        if not (place and passed and turned):
            return None
        return [replace(tokens[0], kind=Kind.TURNED), *tokens[1:place], replace(tokens[place], value=turned)], place + 1
    if tokens[0].kind is not Kind.COMPARISON or tokens[0].value not in _OPPOSITE:
        return None
    for place, token in enumerate(tokens[1:], 1):
        if token.value == UNACCEPTABLE:
            opposite = replace(tokens[0], value=_OPPOSITE[tokens[0].value])
            return [opposite, *tokens[1:place], replace(token, kind=Kind.TURNED)], place + 1
        if token.kind not in _PASSED_OVER:
            return None
    return None


def _mapped(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``batch → L40S``, ``gpu-1: hands off``, ``replicas: 2``: one thing that is said, no heading."""
    if not kinds(tokens[1:], Kind.JOIN) or tokens[1].value != ":" or len(tokens) < 3:
        return None
    placed = tokens[0].kind in {Kind.TENANT, Kind.WORKLOAD} and tokens[2].kind is Kind.SELECTOR
    ruled = (tokens[0].kind in {Kind.SELECTOR, Kind.PRECISION} and tokens[2].kind in _RULINGS) or (
        tokens[0].kind is Kind.LAYERS and tokens[2].kind is Kind.PRECISION
    )
    counted = tokens[0].kind is Kind.COUNTED and tokens[2].kind is Kind.QUANTITY
    limited = tokens[0].kind is Kind.RECONFIG and tokens[2].kind is Kind.COMPARISON
    if placed or ruled or counted or limited:
        return [tokens[0], replace(tokens[1], kind=Kind.FILLER)], 2
    return None


_RULINGS = frozenset({Kind.FREEZE, Kind.AVOID, Kind.ALLOW, Kind.NEGATION})


def _settings(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``pp=1 replicas=1``: a setting that is set, no count of what stands before it."""
    if kinds(tokens, Kind.COUNTED, Kind.COMPARISON) and tokens[0].value != "gpu_count" and tokens[1].value == "==":
        return [replace(tokens[0], kind=Kind.SETTING)], 1
    return None


def _finishing(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``requests must finish within 20 s``: the whole answer; of a switch it would be something else."""
    word = text[tokens[0].start : tokens[0].end].lower()
    is_request = tokens[0].kind is Kind.STAT and ("request" in word or "请求" in word)
    if not (is_request or (tokens[0].kind is Kind.THING and tokens[0].value == "requests")):
        return None
    ends = next((n for n, token in enumerate(tokens) if token.kind in {Kind.JOIN, Kind.STOP}), len(tokens))
    place = next((n for n, token in enumerate(tokens[:ends]) if token.value in _FINISH), None)
    if place is None or any(token.kind in _MEASURED for token in tokens[:ends]):
        return None
    return [*tokens[:place], replace(tokens[place], kind=Kind.METRIC, value="e2e")], place + 1


_FINISH = frozenset({"finish", "finished", "complete", "completed", "be done"})
_MEASURED = frozenset({Kind.METRIC, Kind.RECONFIG, Kind.SETTING, Kind.COUNTED})


def _cards(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``2 A100s``, ``2 块 A100``: so many devices, and which."""
    if not kinds(tokens, Kind.QUANTITY):
        return None
    place = 2 if len(tokens) > 2 and tokens[1].value in _CLASSIFIERS else 1
    selector = tokens[place] if len(tokens) > place else None
    plain = tokens[0].value.unit is None or tokens[0].value.unit == "money"
    if selector is None or selector.kind is not Kind.SELECTOR or not plain or not selector.value.startswith("gpu_type"):
        return None
    amount = replace(tokens[0], value=Quantity(tokens[0].value.number))
    return [amount, TextToken(Kind.COUNTED, "gpu_count", amount.end, amount.end), selector], place + 1


def _permissions(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``may exceed``: an exception; ``may not exceed`` is none."""
    if tokens[0].kind is not Kind.MAY:
        return None
    place = skip(tokens, 1, Kind.FILLER, Kind.MAY, Kind.UNKNOWN)
    if place < len(tokens) and tokens[place].value in _FOR_A_WHILE:
        place += 1
    if kinds(tokens[place:], Kind.TENANT):
        beyond = _permissions(text, [tokens[0], *tokens[place + 1 :]])
        return ([*beyond[0][:1], tokens[place], *beyond[0][1:]], place + beyond[1]) if beyond else None
    if kinds(tokens[place:], Kind.QUANTITY, Kind.COMPARISON) and tokens[place + 1].value == ">=":  # "may go 30% over"
        return [
            replace(spanning(tokens[: place + 2], Kind.EXCEPT, "exceed"), end=tokens[place].start),
            tokens[place],
            replace(tokens[place + 1], kind=Kind.TURNED),
        ], place + 2
    is_denied = place < len(tokens) and _DENIED.match(text[tokens[place].start :].lower())
    if kinds(tokens[place:], Kind.COMPARISON) and tokens[place].value == ">=" and not is_denied:
        return joined(tokens[: place + 1], Kind.EXCEPT, "exceed")
    if kinds(tokens[place:], Kind.CHANGE, Kind.COMPARISON) and tokens[place + 1].value == "<=":
        return joined(tokens[: place + 2], Kind.EXCEPT, FALL)
    return None


_DENIED = re.compile(r"not\b|never\b|[不别]")


def _hours(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``every day 14:30 to 19:00``: the hours say the days as well."""
    every = text[tokens[0].start : tokens[0].end].lower().startswith(("every", "each", "daily"))
    if (
        kinds(tokens, Kind.PERIOD, Kind.WINDOW)
        and tokens[0].value == "day"
        and every
        and not isinstance(tokens[1].value, str)
    ):
        return joined(tokens[:2], Kind.WINDOW, tokens[1].value)
    return None


def _inside(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``工作时间内``, ``business hours 内``: within the window, no bound."""
    for length in (4, 3, 2):
        between = text[tokens[0].end : tokens[min(length, len(tokens)) - 1].end]
        if tokens[0].kind is Kind.WINDOW and len(tokens) >= length and between.strip() in _WHEN:
            return joined(tokens[:length], Kind.WINDOW, tokens[0].value)
    if kinds(tokens, Kind.WINDOW, Kind.COMPARISON) and text[tokens[1].start : tokens[1].end] in _WITHIN:
        return joined(tokens[:2], Kind.WINDOW, tokens[0].value)
    return None


def _one_time(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``9 to 17, weekdays only``: days behind hours, or hours behind days, where no goal follows them."""
    if not kinds(tokens, Kind.WINDOW, Kind.JOIN, Kind.WINDOW) or tokens[1].value != ",":
        return None
    after = next((token.kind for token in tokens[3:] if token.kind not in {Kind.FILLER, Kind.UNKNOWN}), Kind.STOP)
    alone = after in {Kind.STOP, Kind.ONLY}
    windows = [token.value for token in (tokens[0], tokens[2]) if isinstance(token.value, RecurringWindow)]
    window = together(windows) if alone and len(windows) == 2 else None
    return joined(tokens[:3], Kind.WINDOW, window) if window else None


def _each(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``每位付费用户``, ``every paid user``: a rate is for each of them."""
    place = next((n for n, token in enumerate(tokens[:4]) if token.kind not in {Kind.FILLER, Kind.UNKNOWN}), 0)
    words = text[tokens[0].start : tokens[place].start].strip().lower()
    if words in _EACH and tokens[place].kind is Kind.TENANT:
        return [replace(tokens[0], kind=Kind.PER_USER)], place
    return None


_FOR_A_WHILE = frozenset({"temporarily", "临时", "暂时", "短时", "短暂"})
_EACH = frozenset({"each", "every", "per", "每个", "每位", "每名", "每一位", "每一个"})
_WHEN = frozenset({"的话", "的时候", "时候", "期间", "的时段", "时段", "这段时间", "那段时间", "那会儿", "的那段时间"})
_WITHIN = frozenset({"内", "之内", "以内", "里"})


def _strangers(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``gold customers``, ``tenant zeta``: a tenant by a name that nobody has."""
    first = tokens[0]
    if first.kind is Kind.AUDIENCE and text[first.start : first.end].lower() in {"tenant", "租户"}:
        quoted = _QUOTED.match(text, first.end)
        if quoted is not None:
            end = next((n for n, token in enumerate(tokens) if token.start >= quoted.end()), len(tokens))
            return joined(tokens[1:end], Kind.TENANT, None)[0], end
        if kinds(tokens[1:], Kind.UNKNOWN) and str(tokens[1].value)[:1].isalnum():
            end = skip(tokens, 1, Kind.UNKNOWN)
            return [replace(spanning(tokens[1:end], Kind.TENANT, None))], end
        return None
    if text[first.start : first.end].lower() in {"node", "节点"} and _is_name(tokens[1:2]):
        return joined(tokens[:2], Kind.SELECTOR, f"node:{tokens[1].value}")
    start = 1 if first.value in _TO_WHOM else 0
    end = skip(tokens, start, Kind.UNKNOWN)
    named = tokens[start:end]
    if not named or end - start > _NAME_WORDS or not kinds(tokens[end:], Kind.AUDIENCE) or not _may_name(named):
        return None
    return [*tokens[:start], *joined(named, Kind.TENANT, None)[0], tokens[end]], end + 1


def _may_name(words: Sequence[TextToken]) -> bool:
    """Whether words before ``users`` may be somebody's name: ``gold``, 环球公司; ``这批`` and ``大`` are none."""
    word = str(words[0].value)
    if not word[:1].isalpha():
        return False
    return word.isascii() or (len(words) > 1 and word not in _NO_NAME)


_QUOTED = re.compile(r"\s*[“\"'‘「][^”\"'’」]{1,40}[”\"'’」]")
_CLASSIFIERS = frozenset("张块片台")
_TO_WHOM = frozenset({"for", "to", "对", "给", "针对"})
_NO_NAME = frozenset("这那大老新很些批有各")
_NAME_WORDS = 4
"""Words in the longest name that is looked for."""


def _is_name(tokens: Sequence[TextToken]) -> bool:
    return kinds(tokens, Kind.UNKNOWN) or (kinds(tokens, Kind.FILLER) and len(str(tokens[0].value)) == 1)
