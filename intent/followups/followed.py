"""A follow-up as an LLM reads it: which goals are new, different or gone; a question about it waits for the next one."""

from dataclasses import replace

from intent.followups.answers import number_said
from intent.followups.talk import Talk, orders_in
from intent.followups.versions import Amendment, Entry
from intent.models import Finding, Intent, LlmSettings, Outcome, Question
from intent.rules.draft import Draft
from intent.translate import translate

OPEN = "follow_up_open"
"""The finding of a question that a follow-up left, not the words before it."""


def followed(talk: Talk, llm: LlmSettings) -> Amendment:
    """The version that the LLM's answer comes to; as it was, with a question, where the follow-up leaves something open.

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
            (one.pointer.rpartition("/")[2], one.text)
            for one in found.draft.assumptions
            if one.pointer.startswith(f"/goals/{place}/")
        )
        entries.append(Entry(goal, notes, found.replaced[place]))
    said = [one for one in found.draft.findings if one.code != OPEN]
    amendment = talk.next(entries, (*orders, *said), found.draft.language)
    return replace(amendment, intent=replace(amendment.intent, translator=translator(llm)))


def chosen(previous: Intent, said: str) -> str:
    """What is said; of a question that a follow-up left, the option with the number that is said."""
    if not asks_about_follow_up(previous):
        return said
    question = previous.questions[0]
    number = number_said(said, len(question.options))
    return question.stands_for(number - 1) if number is not None and number <= len(question.options) else said


def asks_about_follow_up(previous: Intent) -> bool:
    """Whether the open question is about a follow-up that an LLM read."""
    return bool(previous.questions) and any(one.code == OPEN for one in previous.findings)


def _asked(talk: Talk, draft: Draft, orders: tuple[Finding, ...]) -> Intent:
    """The goals as they are, and the question; its options are what to say next."""
    question = draft.questions[0]
    before = len(" ".join(talk.previous.text.split()))
    made = (_now(question.stands_for(place), talk, before) for place in range(len(question.options)))
    nothing = draft.say("nothing")
    texts = {text: say for text, say in zip(made, question.options, strict=True) if text} | {nothing: nothing}
    texts |= {talk.said: talk.said} if len(texts) == 1 else {}
    offered = list(texts)[:4]
    asked = Question(question.text, tuple(texts[one] for one in offered), texts[offered[0]], tuple(offered))
    return replace(
        talk.previous,
        text=f"{talk.previous.text}\n{talk.said}",
        questions=(asked,),
        findings=tuple(
            dict.fromkeys((*orders_in(talk.previous), *orders, Finding(OPEN, "/text", asked.text, talk.said)))
        ),
        outcome=Outcome.CLARIFY,
    )


def _now(option: str, talk: Talk, before: int) -> str:
    """What an option says beside what was said before; the whole of it, if it stands by itself."""
    earlier = " ".join(talk.previous.text.split())
    return option[before:].strip() if option.startswith(earlier) else option
