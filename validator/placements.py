"""Where workloads may run, and wishes that leave them no place. Pure."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from intent.models import Finding, Goal, Placement
from runtime.models import Cluster
from validator.intervals import covers, hard, together
from validator.models import Site
from validator.words import Words

Rules = list[tuple[int, Placement]]


def everywhere(cluster: Cluster) -> frozenset[int]:
    """All devices."""
    return frozenset(gpu.index for gpu in cluster.gpus)


def open_to(goal: Goal, goals: Sequence[Goal], site: Site) -> frozenset[int]:
    """The devices that placements of everything, covering a goal, leave for it."""
    left = everywhere(site.cluster)
    for one in goals:
        if isinstance(one, Placement) and one.workload is None and covers(one, goal, site):
            left &= _left_by(one, site.cluster)
    return left


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each pair that excludes each other, else for each workload that several keep off every device."""
    rules = [(n, goal) for n, goal in enumerate(goals) if isinstance(goal, Placement) and hard(goal)]
    rules = [(n, rule) for n, rule in rules if site.cluster.named(rule.selector)]
    excluded = False
    for (first, a), (second, b) in combinations(rules, 2):
        code = _clash(a, b, site.cluster)
        if code and together(a, b, site):
            excluded = True
            yield words.clash(code, (first, a), (second, b))
    if not excluded:
        yield from _no_place(rules, site, words)


def _left_by(rule: Placement, cluster: Cluster) -> frozenset[int]:
    match rule.rule:
        case "require":
            return cluster.named(rule.selector)
        case "forbid":
            return everywhere(cluster) - cluster.named(rule.selector)
    return everywhere(cluster)


def _clash(a: Placement, b: Placement, cluster: Cluster) -> str | None:
    """Two places for one workload, a place that is forbidden, or one where nothing may change."""
    rules = {a.rule, b.rule}
    if "freeze" in rules:
        moved, frozen = (a, b) if b.rule == "freeze" else (b, a)
        within = cluster.named(moved.selector) <= cluster.named(frozen.selector)
        return "frozen_place" if moved.rule == "require" and within else None
    if "require" not in rules or not _share(a.workload, b.workload):
        return None
    return None if _left_by(a, cluster) & _left_by(b, cluster) else "no_common_place"


def _share(a: str | None, b: str | None) -> bool:
    """Whether one request can belong to both workloads; two names are two workloads."""
    return a is None or b is None or a == b


def _no_place(rules: Rules, site: Site, words: Words) -> Iterator[Finding]:
    """Kept off every device by several wishes together."""
    seen: set[int] = set()
    for _, anchor in rules:
        group = [
            (n, rule)
            for n, rule in rules
            if rule.rule != "freeze"
            and rule.workload in {None, anchor.workload}
            and covers(rule, anchor, site)
        ]
        last = group[-1][0] if group else -1
        if len(group) > 1 and last not in seen and not _common(group, site.cluster):
            seen.add(last)
            listed = words.listed(f'"{rule.evidence}"' for _, rule in group)
            yield words.finding("no_place_left", f"/goals/{last}", group[-1][1], "drop_one", goals=listed)


def _common(group: Rules, cluster: Cluster) -> frozenset[int]:
    return everywhere(cluster).intersection(*(_left_by(rule, cluster) for _, rule in group))
