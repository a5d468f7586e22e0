"""The one entry: an intent in, the same intent with outcome, findings and read-back out. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from intent.models import Finding, Goal, Intent, Outcome
from intent.readback import render
from validator import consistency, feasibility, schema, values
from validator.models import MessageWords, Site


def validate(intent: Intent, site: Site) -> Intent:
    """Check an intent against schema, physics, itself, the deployment's limits and its inventory.

    A document without the right form is out of scope. What was unclear stays a question, whatever else is found: rules
    applied to an uncertain reading prove nothing. A name that nobody has becomes the question, if there is none yet.
    Then a conflict outweighs what is infeasible. Checking twice changes nothing.
    """
    words = MessageWords(intent.language)
    if broken := tuple(schema.check(intent, words)):
        return replace(_with(intent, broken), outcome=Outcome.OUT_OF_SCOPE, readback="")
    site = replace(site, windows={**site.windows, **intent.windows})
    missing = tuple(values.unknown(intent.goals, site))
    question = values.question(intent, missing, words)
    unnamed = tuple(values.findings(missing, intent.goals, words))
    clashes = tuple(_conflicts(intent.goals, site, words))
    impossible = tuple(_impossible(intent.goals, site, words))
    questions = intent.questions or ((question,) if question else ())
    checked = replace(_with(intent, (*unnamed, *clashes, *impossible)), questions=questions)
    outcome = checked.understood
    if outcome is Outcome.OK and (unnamed or clashes or impossible):
        outcome = Outcome.CONFLICT if clashes else Outcome.INFEASIBLE
    return replace(checked, outcome=outcome, readback=render(checked))


def _with(intent: Intent, found: Sequence[Finding]) -> Intent:
    """With what is new."""
    new = tuple(finding for finding in found if finding not in intent.findings)
    return replace(intent, findings=(*intent.findings, *new)) if new else intent


def _conflicts(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """What the goals do to one another."""
    rules = (
        consistency.check_conflicts,
        consistency.check_precisions,
        consistency.check_placements,
        consistency.check_priorities,
    )
    return chain.from_iterable(rule(goals, site, words) for rule in rules)


def _impossible(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """What cannot be at all.

    One finding for one place, what is impossible anywhere before what is not allowed here.

    What goals ask for together comes last, of those that can be by themselves.
    """
    rules = (
        values.check_windows,
        feasibility.check_inventory,
        feasibility.check_limits,
        feasibility.check_memory,
        feasibility.check_capacity,
    )
    found = chain(values.check_bounds(goals, words), *(rule(goals, site, words) for rule in rules))
    alone: dict[str, Finding] = {}
    for finding in found:
        alone.setdefault(finding.pointer, finding)
    possible = {n: goal for n, goal in enumerate(goals) if f"/goals/{n}/value" not in alone}
    yield from alone.values()
    yield from consistency.check_devices(possible, site, words)
