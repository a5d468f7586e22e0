"""Which numeric formats the rules of precision leave, and rules that leave none. Pure."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from intent.models import Finding, Goal, PrecisionRule
from runtime.capabilities import Limits
from runtime.models import BYTES_PER_VALUE
from validator.intervals import covers, together
from validator.models import Site
from validator.overlap import defined
from validator.words import Words

FULL = frozenset({"fp32", "bf16", "fp16"})
"""What ``full`` precision means: nothing is quantised."""
EVERY = frozenset(BYTES_PER_VALUE)

Rules = list[tuple[int, PrecisionRule]]


def named(rule: PrecisionRule) -> frozenset[str]:
    """The formats a rule speaks of."""
    return FULL if rule.value == "full" else frozenset({rule.value})


def left_by(rule: PrecisionRule) -> frozenset[str]:
    """The formats a rule leaves; ``allow`` takes none away."""
    match rule.rule:
        case "require":
            return named(rule)
        case "forbid":
            return EVERY - named(rule)
        case "min":
            least = min(BYTES_PER_VALUE[name] for name in named(rule))
            return frozenset(name for name in EVERY if BYTES_PER_VALUE[name] >= least)
    return EVERY


def permitted(limits: Limits) -> frozenset[str]:
    """The formats of the deployment file."""
    return EVERY if limits.allowed_precisions is None else EVERY & frozenset(limits.allowed_precisions)


def left_for(goal: Goal, goals: Sequence[Goal], site: Site) -> frozenset[str]:
    """The formats that policy and every rule covering a goal leave for it."""
    return _left([rule for _, rule in _covering(goal, _rules(goals), site)], site)


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each pair that excludes each other, else for each group that leaves nothing."""
    rules = _rules(goals)
    excluded = False
    for (first, a), (second, b) in combinations(rules, 2):
        if _exclude(a, b, site) and together(a, b, site):
            excluded = True
            yield words.clash("precisions_exclude", (first, a), (second, b))
    if len(rules) > 1 and not excluded:
        yield from _nothing_left(rules, site, words)


def _rules(goals: Sequence[Goal]) -> Rules:
    return [(number, goal) for number, goal in enumerate(goals) if isinstance(goal, PrecisionRule)]


def _covering(goal: Goal, rules: Rules, site: Site) -> Rules:
    return [(number, rule) for number, rule in rules if covers(rule, goal, site)]


def _left(rules: Sequence[PrecisionRule], site: Site) -> frozenset[str]:
    return permitted(site.limits).intersection(*map(left_by, rules))


def _exclude(a: PrecisionRule, b: PrecisionRule, site: Site) -> bool:
    """Whether no format meets both, or one allows, for the same requests at the same time, what the other takes away."""
    if "allow" not in {a.rule, b.rule}:
        return not left_by(a) & left_by(b)
    allowing, other = (a, b) if a.rule == "allow" else (b, a)
    return not named(allowing) & left_by(other) and _scope(a, site) == _scope(b, site)


def _scope(rule: PrecisionRule, site: Site) -> tuple[object, ...]:
    return defined(rule.window, site.windows), rule.tenant, rule.model


def _nothing_left(rules: Rules, site: Site, words: Words) -> Iterator[Finding]:
    """Three and more rules, or two beside the policy, that together leave nothing; none of them does alone."""
    seen: set[int] = set()
    for _, anchor in rules:
        group = [(n, rule) for n, rule in _covering(anchor, rules, site) if _left([rule], site)]
        last = group[-1][0] if group else -1
        if len(group) > 1 and last not in seen and not _left([rule for _, rule in group], site):
            seen.add(last)
            listed = words.listed(f'"{rule.evidence}"' for _, rule in group)
            formats = words.listed(sorted(permitted(site.limits)))
            yield words.finding(
                "no_precision_left", f"/goals/{last}", group[-1][1], "drop_one", goals=listed, formats=formats
            )
