"""Wishes beyond what the deployment file allows. Pure; no text can move a limit."""

from collections.abc import Iterator, Sequence

from intent.models import Config, Finding, Goal, PrecisionRule
from validator.intervals import satisfies
from validator.models import Site
from validator.precisions import left_by, named, permitted
from validator.words import Words


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each goal that by itself no allowed topology can meet."""
    for number, goal in enumerate(goals):
        if isinstance(goal, Config):
            yield from _degree(number, goal, site, words)
        elif isinstance(goal, PrecisionRule):
            yield from _format(number, goal, site, words)


def _degree(number: int, goal: Config, site: Site, words: Words) -> Iterator[Finding]:
    allowed = {"tp": site.limits.allowed_tp, "pp": site.limits.allowed_pp}.get(goal.key)
    if allowed is not None and not any(satisfies(degree, goal) for degree in allowed):
        facts = {"setting": words.setting(goal.key), "value": goal.value, "possible": words.listed(allowed)}
        yield words.finding("over_limit", f"/goals/{number}/value", goal, "can_be", **facts)


def _format(number: int, goal: PrecisionRule, site: Site, words: Words) -> Iterator[Finding]:
    """A rule that leaves nothing that is allowed, or allows what is not."""
    allowed = permitted(site.limits)
    wanted = named(goal) if goal.rule == "allow" else left_by(goal)
    if not wanted & allowed:
        listed = words.listed(site.limits.allowed_precisions or ())
        yield words.finding(
            "precision_not_allowed", f"/goals/{number}/value", goal, "formats_allowed", formats=listed
        )
