"""The next version of an intent from a follow-up, read by rules or by an LLM."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from intent.errors import ExtractionError
from intent.followups.conversation import (
    NOT_UNDERSTOOD,
    Amendment,
    Conversation,
    Entries,
    GoalEntry,
    Mode,
    ReadBack,
    entries_of,
    orders_in,
    translator,
    version,
)
from intent.followups.fragments import (
    VALUES,
    Fragment,
    Way,
    answered,
    cue,
    filled,
    follow_up,
    is_alike,
    number_said,
    put_into,
    same_subject,
    same_wish,
    say,
    without,
)
from intent.injection import orders
from intent.models import (
    MAX_CHARACTERS,
    Catalogue,
    Finding,
    Goal,
    Intent,
    LlmSettings,
    Objective,
    Outcome,
    Question,
    TranslatorInfo,
)
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.translate import translate

OPEN = "follow_up_open"
"""The finding of a question that a follow-up left, not the words before it."""


def followed(talk: Conversation, llm: LlmSettings) -> Amendment:
    """The version that the LLM's answer comes to.

    As it was, with a question, where the follow-up leaves something open.

    Raises:
        ExtractionError: it gave no usable answer.
    """
    from intent.llm import follow, translator  # langchain costs 1.5 s to import

    found = follow(talk.previous, talk.said, talk.catalogue, llm)
    orders = orders_in(translate(talk.said, talk.catalogue))
    if found.draft.questions:
        return Amendment(_asked(talk, found.draft, orders), (), "merge")
    if not found.draft.goals and not found.removed:
        return talk.lost()
    gone = {*found.removed, *found.replaced}
    entries = [entry for place, entry in enumerate(talk.entries) if place not in gone]
    for place, goal in enumerate(found.draft.goals):
        notes = tuple(
            (assumption.pointer.rpartition("/")[2], assumption.text)
            for assumption in found.draft.assumptions
            if assumption.pointer.startswith(f"/goals/{place}/")
        )
        entries.append(GoalEntry(goal, notes, found.replaced[place]))
    findings = [finding for finding in found.draft.findings if finding.code != OPEN]
    amendment = talk.next(entries, (*orders, *findings), found.draft.language)
    return replace(amendment, intent=replace(amendment.intent, translator=translator(llm)))


def chosen(previous: Intent, text: str) -> str:
    """What is said; of a question that a follow-up left, the option with the number that is said."""
    if not asks_about_follow_up(previous):
        return text
    question = previous.questions[0]
    number = number_said(text, len(question.options))
    return question.stands_for(number - 1) if number is not None and number <= len(question.options) else text


def asks_about_follow_up(previous: Intent) -> bool:
    """Whether the open question is about a follow-up that an LLM read."""
    return bool(previous.questions) and any(finding.code == OPEN for finding in previous.findings)


def _asked(talk: Conversation, draft: Draft, orders: tuple[Finding, ...]) -> Intent:
    """The goals as they are, and the question; its options are what to say next."""
    question = draft.questions[0]
    before = len(" ".join(talk.previous.text.split()))
    made = (_now(question.stands_for(place), talk, before) for place in range(len(question.options)))
    nothing = draft.say("nothing")
    texts = {text: say for text, say in zip(made, question.options, strict=True) if text} | {nothing: nothing}
    texts |= {talk.said: talk.said} if len(texts) == 1 else {}
    offered = list(texts)[:4]
    clarification = Question(
        question.text, tuple(texts[option] for option in offered), texts[offered[0]], tuple(offered)
    )
    return replace(
        talk.previous,
        text=f"{talk.previous.text}\n{talk.said}",
        questions=(clarification,),
        findings=tuple(
            dict.fromkeys((*orders_in(talk.previous), *orders, Finding(OPEN, "/text", clarification.text, talk.said)))
        ),
        outcome=Outcome.CLARIFY,
    )


def _now(option: str, talk: Conversation, before: int) -> str:
    """What an option says beside what was said before; the whole of it, if it stands by itself."""
    earlier = " ".join(talk.previous.text.split())
    return option[before:].strip() if option.startswith(earlier) else option


_BOUNDS = frozenset({Kind.QUANTITY, Kind.RANGE, Kind.COMPARISON})
_PARTS = {Kind.STAT: "stat", Kind.WINDOW: "window"}
"""What is said of a goal but is not what it is about: to drop it may not mean to drop the goal."""
_WHOM = {Kind.TENANT: "tenant", Kind.MODEL: "model"}
_UNSAID: Mapping[str, Any] = {"window": "always", "tenant": None, "model": None}


def amend(
    previous: Intent,
    text: str,
    catalogue: Catalogue,
    read_back: ReadBack,
    mode: Mode | None = None,
    llm: LlmSettings | None = None,
) -> Amendment:
    """The next version of an intent.

    Without ``mode`` the words decide: an answer to the open question, ``replace`` for "instead" and its like, else ``merge``.
    A follow-up that cannot be understood changes nothing: the outcome is out of scope, with a finding.
    """
    text = chosen(previous, text.strip()) if mode is None else text.strip()
    talk = Conversation(previous, text, follow_up(text), catalogue, read_back, entries_of(previous), llm)
    if mode == "replace":
        return _replaced(talk, text)
    is_open = bool(previous.questions) and mode != "merge" and not asks_about_follow_up(previous)
    if is_open and (answer := _answer(talk, previous.questions[0])):
        return answer
    if talk.follow.replaces and mode is None and (llm is None or talk.opens_anew):
        return _replaced(talk, talk.follow.text)
    if len(previous.text) + len(talk.said) >= MAX_CHARACTERS:
        facts = {"count": len(previous.text) + len(talk.said) + 1, "most": MAX_CHARACTERS}
        return talk.refused("text_too_long", "too_long", **facts)
    return _merged(talk) if llm is None else _by_llm(talk, llm)


def _by_llm(talk: Conversation, llm: LlmSettings) -> Amendment:
    """What the LLM says the follow-up changes; the rules say it where the LLM fails."""
    try:
        return followed(talk, llm)
    except ExtractionError as failure:
        amendment = _merged(talk)
        rules = TranslatorInfo("rules", reason=str(failure))
        return replace(amendment, intent=replace(amendment.intent, translator=rules))


# -- another text in place of the one before ----------------------------------------------------------


def _answer(talk: Conversation, question: Question) -> Amendment | None:
    """The option that an answer picks, in place of everything; None if it is no answer."""
    options = question.options
    if (number := number_said(talk.said, len(options))) is not None:
        if number > len(options):
            return talk.refused(NOT_UNDERSTOOD, "option_unknown", number=number, count=len(options))
        place: int | None = number - 1
    else:
        found = (answered(text, question, talk.catalogue) for text in (talk.said, talk.follow.text))
        place = next((position for position in found if position is not None), None)
    if place is None:
        return None
    meant = question.stands_for(place)
    return _whole(talk, translate(meant, talk.catalogue, talk.llm), "answer", orders_in(talk.previous))


def _replaced(talk: Conversation, text: str) -> Amendment:
    fresh = translate(text, talk.catalogue, talk.llm)
    if not fresh.goals and not fresh.questions:
        return Amendment(
            replace(talk.previous, findings=fresh.findings, questions=(), outcome=fresh.outcome),
            (),
            "replace",
        )
    return _whole(talk, fresh, "replace", ())


def _whole(talk: Conversation, fresh: Intent, mode: Mode, kept: tuple[Finding, ...]) -> Amendment:
    """A whole text in place of the one before; goals with the subject of an old one are its successors."""
    entries = [replace(entry, origin=None) for entry in entries_of(fresh)]
    for alike in (same_subject, is_alike) if mode == "answer" else (same_subject,):
        for place, entry in enumerate(entries):
            taken = {entry.origin for entry in entries}
            matches = (n for n, old in enumerate(talk.entries) if n not in taken and alike(entry.goal, old.goal))
            if entry.origin is None:
                entries[place] = replace(entry, origin=next(matches, None))
    findings = tuple(dict.fromkeys((*kept, *fresh.findings)))
    if not fresh.goals and not fresh.questions:
        findings = (*kept, Finding("withdrawn", "/text", say(talk.previous.language, "withdrawn")))
    language = fresh.language if mode == "replace" else talk.previous.language
    return version(
        talk.previous,
        entries,
        replace(fresh, findings=findings, language=language, translator=_translator(talk, fresh)),
        mode,
    )


def _translator(talk: Conversation, fresh: Intent) -> TranslatorInfo:
    """Who read the whole text."""
    return fresh.translator if talk.llm is not None else translator(talk.previous)


# -- changes of some goals -----------------------------------------------------------------------------


def _merged(talk: Conversation) -> Amendment:
    """By what the follow-up does; a wish that reads whole is taken whole, a fragment is put into a goal."""
    match talk.follow.way:
        case Way.DROP if (amendment := _dropped(talk)) is not None:
            return amendment
        case Way.DROP:
            talk = replace(talk, follow=replace(talk.follow, way=Way.SAY, text=talk.said))
        case Way.SAME:
            return _copied(talk)
    reading = translate(talk.follow.text, talk.catalogue)
    whole = bool(reading.goals) and not reading.questions
    if cue(talk.said, "step") and (not whole or _is_there(talk, reading)):
        return talk.refused(NOT_UNDERSTOOD, "step" if talk.entries else "no_goal")
    if whole:
        return _said(talk, reading)
    if talk.follow.way is Way.ALSO:
        return _copied(talk, reading)
    return _put(talk, reading)


def _is_there(talk: Conversation, reading: Intent) -> bool:
    """Whether one of these goals is about what an old one is about."""
    return any(is_alike(goal, entry.goal) for goal in reading.goals for entry in talk.entries)


def _said(talk: Conversation, reading: Intent) -> Amendment:
    """Whole goals, each in the place of the one with its subject, or beside the others."""
    entries: list[GoalEntry] = list(talk.entries)
    for entry in entries_of(reading):
        open_places = [n for n, entry in enumerate(entries) if entry in talk.entries and talk.has_old(entry.goal)]
        places = _targets(talk, entry, {n: entries[n] for n in open_places})
        points_back = talk.follow.way is Way.CHANGE
        if len(places) > 1 or (points_back and not places):
            if len(reading.goals) > 1 or not open_places:
                return talk.lost()
            versions = [_with(entries, n, _succeeding(entry, entries[n], talk)) for n in places or open_places]
            return talk.asked(versions, orders_in(reading))
        if talk.follow.old is not None and not places:
            return talk.lost()
        if places:
            entries[places[0]] = _succeeding(entry, entries[places[0]], talk)
        else:
            entries.append(replace(entry, origin=None))
    findings = tuple(finding for finding in reading.findings if finding.pointer == "/text")
    return talk.next(entries, findings, reading.language)


def _targets(talk: Conversation, entry: GoalEntry, entries: Mapping[int, GoalEntry]) -> list[int]:
    """Places of the goals that a whole goal could be about.

    Of its very subject, else of one that it leaves open.
    """
    exact = [n for n, old_entry in entries.items() if same_subject(entry.goal, old_entry.goal)]
    if exact or talk.follow.way is Way.ALSO:
        return exact
    left = _left_open(entry, talk)
    return [
        n for n, old_entry in entries.items() if same_subject(filled(entry.goal, left, old_entry.goal), old_entry.goal)
    ]


def _left_open(entry: GoalEntry, talk: Conversation) -> set[str]:
    """The slots that a goal did not say: defaults, and where a goal is pointed at also whom it is for."""
    left = {slot for slot, _ in entry.notes} & {"stat", "window", "op"}
    if talk.follow.way in {Way.EDIT, Way.CHANGE} or talk.follow.old:
        left |= {slot for slot in ("tenant", "model") if getattr(entry.goal, slot, None) is None}
    return left


def _succeeding(entry: GoalEntry, old: GoalEntry, talk: Conversation) -> GoalEntry:
    """A goal in the place of an old one: what it leaves open is as before."""
    left = _left_open(entry, talk)
    if not same_subject(filled(entry.goal, left, old.goal), old.goal):
        return replace(entry, origin=old.origin)
    notes = (
        *(note for note in entry.notes if note[0] not in left),
        *(note for note in old.notes if note[0] in left),
    )
    goal = filled(entry.goal, left, old.goal)
    return GoalEntry(goal, notes, old.origin)


def _put(talk: Conversation, reading: Intent) -> Amendment:
    """A fragment put into the one goal it fits."""
    fragment = _fragment(talk)
    fitting = {
        n: goal
        for n, entry in enumerate(talk.entries)
        if talk.has_old(entry.goal)
        and (goal := put_into(entry.goal, fragment, talk.catalogue, talk.phrase)) is not None
    }
    if fragment.says(Kind.QUANTITY):  # other words beside a number rather name a goal than change it
        fitting = {n: goal for n, goal in fitting.items() if not _is_optimum(goal)}
        same = {n: goal for n, goal in fitting.items() if _differs_in_value(goal, talk.entries[n].goal)}
        fitting = same or fitting
    versions = [_with(talk.entries, n, _changed(talk, talk.entries[n], goal, fragment)) for n, goal in fitting.items()]
    if len(versions) == 1:
        return talk.next(versions[0], orders_in(reading))
    if versions:
        return talk.asked(versions, orders_in(reading))
    return _asked_first(talk, reading) if reading.questions else talk.lost()


def _is_optimum(goal: Goal) -> bool:
    """Without a number: as cheap as possible."""
    return isinstance(goal, Objective) and goal.value is None


def _differs_in_value(goal: Goal, before: Goal) -> bool:
    return same_wish(filled(goal, VALUES, before), before)


def _asked_first(talk: Conversation, reading: Intent) -> Amendment:
    """The follow-up's own question, each option brought to what it would come to."""
    (question, *_) = reading.questions
    readings = {text: translate(text, talk.catalogue) for text in question.texts or question.options}
    ends = [
        _said(replace(talk, said=option), reading)
        for option, reading in readings.items()
        if reading.goals and not reading.questions
    ]
    versions = [entries_of(end.intent) for end in ends if end.diff]
    return talk.question(versions, question.text, orders_in(reading))


def _fragment(talk: Conversation) -> Fragment:
    """What is left of a follow-up without its cues and orders."""
    text, _ = without(talk.follow.text, "only")
    for start, end in reversed(orders(text)):
        text = f"{text[:start]} {text[end:]}"
    return Fragment.of(text.strip(), talk.catalogue)


def _changed(talk: Conversation, entry: GoalEntry, goal: Goal, fragment: Fragment) -> GoalEntry:
    """An old goal with new slots, which are no defaults any more.

    The unit is one if it was not said again.
    """
    slots = {slot for slot, _ in entry.notes if getattr(goal, slot, None) == getattr(entry.goal, slot, None)}
    notes = tuple(note for note in entry.notes if note[0] in slots)
    if fragment.has_bare_number and getattr(goal, "unit", None) not in {None, "gpus"}:
        notes = (*notes, ("unit", say(talk.previous.language, "unit_as_before")))
    return GoalEntry(replace(goal, evidence=talk.said), notes, entry.origin)


def _copied(talk: Conversation, reading: Intent | None = None) -> Amendment:
    """The same for somebody else or at another time.

    A copy of the goal that is meant, or of all without a number.
    """
    fragment = _fragment(talk)
    copies: list[GoalEntry] = []
    for entry in talk.entries:
        goal = put_into(entry.goal, fragment, talk.catalogue, talk.phrase, copied=True)
        if goal is not None and not any(same_wish(goal, copy.goal) for copy in copies):
            copies.append(replace(_changed(talk, entry, goal, fragment), origin=None))
    if not copies:
        return talk.lost()
    reading = reading or translate(talk.follow.text, talk.catalogue)
    if fragment.says(Kind.QUANTITY) and len(copies) > 1:
        return talk.asked([_beside(talk.entries, [copy]) for copy in copies], orders_in(reading))
    return talk.next(_beside(talk.entries, copies), orders_in(reading))


def _beside(entries: Entries, more: Entries) -> list[GoalEntry]:
    """Goals beside the others, or in the place of the one with their subject."""
    result = list(entries)
    for entry in more:
        place = next((n for n, before in enumerate(result) if same_subject(before.goal, entry.goal)), len(result))
        result[place : place + 1] = [replace(entry, origin=result[place].origin if place < len(result) else None)]
    return result


def _dropped(talk: Conversation) -> Amendment | None:
    """Without the goal that is named.

    None where the words do not name goals but say what to bring them to.
    """
    if cue(talk.follow.text, "everything"):
        return talk.next([])
    rest, named = without(talk.follow.text, "goal_noun")
    if not named and any(token.kind in _BOUNDS for token in tokenize(rest, talk.catalogue)):
        return None
    places = [place for place, entry in enumerate(talk.entries) if talk.names(entry.goal, rest)]
    left = [[entry for n, entry in enumerate(talk.entries) if n != place] for place in places]
    parts = _PARTS if named else {**_PARTS, **_WHOM}
    kinds = talk.kinds(rest)
    if places and kinds and kinds <= parts.keys():
        slots = {parts[kind] for kind in kinds}
        opened = [_with(talk.entries, n, _opened(talk.entries[n], slots)) for n in places]
        return talk.asked([*opened, *filter(None, left)], (), "which_dropped")
    if len(left) > 1:
        return talk.asked(left, (), "which_dropped")
    return talk.next(left[0]) if left else talk.lost()


def _opened(entry: GoalEntry, slots: Collection[str]) -> GoalEntry:
    """A goal that does not say for whom and when any more; a statistic it must have."""
    unsaid = {slot: value for slot, value in _UNSAID.items() if slot in slots and hasattr(entry.goal, slot)}
    return replace(entry, goal=replace(entry.goal, **unsaid))


def _with(entries: Entries, place: int, entry: GoalEntry) -> list[GoalEntry]:
    return [*entries[:place], entry, *entries[place + 1 :]]
