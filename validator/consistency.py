"""What goals do to one another: placements, formats, devices, priorities, conflicts. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from intent.models import (
    HIGHER_IS_BETTER,
    HOURS_OF_COST,
    LOSSES,
    PER_NODE,
    PHRASED,
    Config,
    DatedWindow,
    Finding,
    FromNowWindow,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    Relative,
    TenantException,
    Window,
)  # fmt: skip
from runtime.capabilities import Limits
from runtime.models import BYTES_PER_VALUE, Cluster
from validator.intervals import ValueInterval, bounded, covers, defined, hard, interval, together
from validator.models import MessageWords, Site

PlacementRules = list[tuple[int, Placement]]


def everywhere(cluster: Cluster) -> frozenset[int]:
    """All devices."""
    return frozenset(gpu.index for gpu in cluster.gpus)


def open_to(goal: Goal, goals: Sequence[Goal], site: Site) -> frozenset[int]:
    """The devices that placements of everything, covering a goal, leave for it."""
    left = everywhere(site.cluster)
    for other_goal in goals:
        if isinstance(other_goal, Placement) and other_goal.workload is None and covers(other_goal, goal, site):
            left &= _left_by(other_goal, site.cluster)
    return left


def check_placements(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each pair of placements that exclude each other.

    Else one for each workload that several placements keep off every device.
    """
    rules = [(n, goal) for n, goal in enumerate(goals) if isinstance(goal, Placement) and hard(goal)]
    rules = [(n, rule) for n, rule in rules if site.cluster.named(rule.selector)]
    excluded = False
    for (first, a), (second, b) in combinations(rules, 2):
        code = _placement_clash(a, b, site.cluster)
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


def _placement_clash(a: Placement, b: Placement, cluster: Cluster) -> str | None:
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


def _no_place(rules: PlacementRules, site: Site, words: MessageWords) -> Iterator[Finding]:
    """Kept off every device by several wishes together."""
    seen: set[int] = set()
    for _, anchor in rules:
        group = [
            (n, rule)
            for n, rule in rules
            if rule.rule != "freeze" and rule.workload in {None, anchor.workload} and covers(rule, anchor, site)
        ]
        last = group[-1][0] if group else -1
        if len(group) > 1 and last not in seen and not _common(group, site.cluster):
            seen.add(last)
            listed = words.listed(f'"{rule.evidence}"' for _, rule in group)
            yield words.finding("no_place_left", f"/goals/{last}", group[-1][1], "drop_one", goals=listed)


def _common(group: PlacementRules, cluster: Cluster) -> frozenset[int]:
    return everywhere(cluster).intersection(*(_left_by(rule, cluster) for _, rule in group))


PrecisionRules = list[tuple[int, PrecisionRule]]


def permitted(limits: Limits) -> frozenset[str]:
    """The formats of the deployment file."""
    allowed = limits.allowed_precisions
    return frozenset(BYTES_PER_VALUE).intersection(BYTES_PER_VALUE if allowed is None else allowed)


def left_for(goal: Goal, goals: Sequence[Goal], site: Site) -> frozenset[str]:
    """The formats that policy and every rule covering a goal leave for it."""
    return _left([rule for _, rule in _covering(goal, _rules(goals), site)], site)


def check_precisions(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each pair that excludes each other, else for each group that leaves nothing."""
    rules = _rules(goals)
    excluded = False
    for (first, a), (second, b) in combinations(rules, 2):
        if _exclude(a, b, site) and together(a, b, site) and _share_layers(a, b, site):
            excluded = True
            yield words.clash("precisions_exclude", (first, a), (second, b))
    if len(rules) > 1 and not excluded:
        yield from _nothing_left(rules, site, words)


def _rules(goals: Sequence[Goal]) -> PrecisionRules:
    return [(number, goal) for number, goal in enumerate(goals) if isinstance(goal, PrecisionRule)]


def _covering(goal: Goal, rules: PrecisionRules, site: Site) -> PrecisionRules:
    return [(n, rule) for n, rule in rules if covers(rule, goal, site) and rule.layers == getattr(goal, "layers", None)]


def _left(rules: Sequence[PrecisionRule], site: Site) -> frozenset[str]:
    return permitted(site.limits).intersection(*(rule.leaves(BYTES_PER_VALUE) for rule in rules))


def _exclude(a: PrecisionRule, b: PrecisionRule, site: Site) -> bool:
    """Whether no format meets both rules, or one allows what the other takes away.

    For the same requests at the same time.
    """
    if "allow" not in {a.rule, b.rule}:
        return not a.leaves(BYTES_PER_VALUE) & b.leaves(BYTES_PER_VALUE)
    allowing, other = (a, b) if a.rule == "allow" else (b, a)
    return not allowing.formats & other.leaves(BYTES_PER_VALUE) and _scope(a, site) == _scope(b, site)


def _share_layers(a: PrecisionRule, b: PrecisionRule, site: Site) -> bool:
    """Whether both are about one layer.

    What is forbidden for a part is taken out of what is said for all.
    """
    if any(part.layers and part.rule == "forbid" and not whole.layers for part, whole in ((a, b), (b, a))):
        return False
    return a.layers == b.layers or any(
        set(a.held(spec.num_layers)) & set(b.held(spec.num_layers)) for spec in site.models.values()
    )


def _scope(rule: PrecisionRule, site: Site) -> tuple[object, ...]:
    return defined(rule.window, site.windows), rule.tenant, rule.model


def _nothing_left(rules: PrecisionRules, site: Site, words: MessageWords) -> Iterator[Finding]:
    """Three and more rules, or two beside the policy, that together leave nothing.

    None of them does alone.
    """
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


_SETTINGS = ("tp", "pp", "replicas")


def check_devices(goals: Mapping[int, Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """``goals`` by number, without those that cannot be by themselves.

    What is made of these proves nothing.
    """
    have = len(site.cluster.gpus)
    most = site.limits.max_gpus
    for number, count in sorted(set(asked_for(goals, site))):
        place = f"/goals/{number}/value"
        goal = goals[number]
        if count > have:
            yield words.finding("too_few_devices", place, goal, "devices_there", devices=count, have=have)
        elif most is not None and count > most:
            yield words.finding("over_device_limit", place, goal, "devices_allowed", devices=count, most=most)


def asked_for(goals: Mapping[int, Goal], site: Site) -> Iterator[tuple[int, int]]:
    """Goal number and the least number of devices that it asks for, with others or as a count.

    Wishes for TP, PP and replicas that hold together multiply. The number is that of the last of them; otherwise the
    order changes nothing.
    """
    for wishes in _together(goals, site):
        yield max(wishes), math.prod(wishes.values())
    for number, goal in goals.items():
        if (count := _count(goal)) is not None:
            yield number, count


def _count(goal: Goal) -> int | None:
    """The least number of GPUs, where a goal is about that."""
    if not isinstance(goal, Objective) or goal.metric != "gpu_count" or goal.op == "<=" or not hard(goal):
        return None
    return None if goal.value is None or not math.isfinite(goal.value) else math.ceil(goal.value)


def _together(goals: Mapping[int, Goal], site: Site) -> Iterator[dict[int, int]]:
    """Goal number to value, at most one wish for each setting.

    Every set that holds together and could not have more.
    """
    wishes = _largest(goals)
    choices = ((None, *(n for n, wish in wishes.items() if wish.key == key)) for key in _SETTINGS)
    sets = {frozenset(n for n in choice if n is not None) for choice in product(*choices)}
    whole = {
        group
        for group in sets
        if group and all(together(wishes[a], wishes[b], site) for a, b in combinations(group, 2))
    }
    for group in whole:
        if not any(group < group | {n} in whole for n in wishes):
            yield {number: wishes[number].value for number in group}


def _largest(goals: Mapping[int, Goal]) -> dict[int, Config]:
    """The wishes for settings; of several for one setting, time and model the largest."""
    found: dict[tuple[str, Window, str | None], tuple[int, Config]] = {}
    for number, goal in goals.items():
        if isinstance(goal, Config) and goal.op != "<=":
            same = goal.key, goal.window, goal.model
            if same not in found or goal.value >= found[same][1].value:
                found[same] = number, goal
    return dict(found.values())


Path = tuple[tuple[int, Priority], ...]


def check_priorities(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each priority that closes a circle with those before it; times overlap pair by pair."""
    earlier: list[tuple[int, Priority]] = []
    for number, goal in enumerate(goals):
        if not isinstance(goal, Priority):
            continue
        near = [(n, priority) for n, priority in earlier if together(priority, goal, site)]
        if goal.higher == goal.lower:
            yield words.finding("over_itself", f"/goals/{number}", goal, side=words.side(goal.higher))
        elif path := _back(goal, near, site):
            circle = words.listed(f'"{priority.evidence}"' for _, priority in (*path, (number, goal)))
            yield words.finding("priority_circle", f"/goals/{number}", goal, "drop_one", goals=circle)
        else:
            earlier.append((number, goal))


def _back(goal: Priority, earlier: Sequence[tuple[int, Priority]], site: Site) -> Path:
    """The shortest way over earlier priorities from what this one puts last to what it puts first.

    () if none.
    """
    ways: list[tuple[Path, str | None]] = [((), goal.lower)]
    seen = {goal.lower}
    for path, side in ways:
        for number, priority in earlier:
            if priority.higher in _meant(side, goal.higher, priority) and all(
                together(priority, p, site) for _, p in path
            ):
                longer = (*path, (number, priority))
                if priority.lower == goal.higher or priority.lower is None:
                    return longer
                if priority.lower not in seen:
                    seen.add(priority.lower)
                    ways.append((longer, priority.lower))
    return ()


def _meant(side: str | None, first: str, priority: Priority) -> set[str]:
    """The sides that stand for ``side``; everything else is each but the one put first."""
    return {side} if side is not None else {priority.higher} - {first}


_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def check_conflicts(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each pair that clashes, at the later of the two."""
    firm = [(number, goal) for number, goal in enumerate(goals) if hard(goal)]
    nodes = len(site.cluster.nodes)
    for (first, a), (second, b) in combinations(firm, 2):
        if (code := _clash(a, b)) and together(a, b, site):
            yield words.clash(code, (first, a), (second, b), **_facts(a, b, words))
        counts = [
            bounded(goal.op, goal.value * (nodes if goal.key == PER_NODE else 1) + (goal.key in LOSSES))
            for goal in (a, b)
            if isinstance(goal, Config) and goal.key in {"replicas", *PHRASED}
        ]  # of replicas in all; one more than may be lost
        if len(counts) == 2 and counts[0].disjoint(counts[1]) and not code and together(a, b, site):
            yield words.clash("replicas_contradict", (first, a), (second, b), nodes=nodes)
    yield from _too_many_devices(goals, site, words)
    yield from _banned_acts(firm, site, words)


def _banned_acts(firm: Sequence[tuple[int, Goal]], site: Site, words: MessageWords) -> Iterator[Finding]:
    """Another topology that is wanted at once, beside a ban on reconfiguration that holds now."""
    for (first, a), (second, b) in combinations(firm, 2):
        ban, wish = (a, b) if isinstance(a, ReconfigRule) else (b, a)
        if isinstance(ban, ReconfigRule) and isinstance(wish, Config) and ban.rule == "forbid":
            lasts = ban.window == "always" or isinstance(ban.window, DatedWindow | FromNowWindow)
            act = replace(wish, window=FromNowWindow(1.0))
            if lasts and wish.op == "==" and wish.window == "always" and together(ban, act, site):
                yield words.clash("banned_act", (first, a), (second, b))


def _facts(a: Goal, b: Goal, words: MessageWords) -> dict[str, str]:
    """What the messages about a pair may name."""
    facts = {}
    if isinstance(a, Config):
        facts["setting"] = words.setting(a.key)
    if isinstance(a, Objective) and isinstance(b, Objective) and a.stat and b.stat:
        lower, higher = sorted((a.stat, b.stat), key=(*_PERCENTILES, "mean").index)
        facts |= {"lower": lower.upper(), "higher": higher.upper()}
    return facts


def _clash(a: Goal, b: Goal) -> str | None:
    """The code of what is wrong with two goals, their times and tenants left aside."""
    rule = _RULES.get((type(a), type(b)))
    if rule is None or getattr(a, "metric", None) != getattr(b, "metric", None):
        return None
    return rule(a, b)


# -- bounds ----------------------------------------------------------------------------------------


def _objectives(a: Objective, b: Objective) -> str | None:
    if {a.op, b.op} == {"minimize", "maximize"}:
        return "opposite_wishes"
    if a.value is None or b.value is None or not _comparable(a.unit, b.unit):
        return None
    if a.stat == b.stat:
        return _same_statistic(a, b)
    if a.stat in _PERCENTILES and b.stat in _PERCENTILES:
        lower, higher = sorted((a, b), key=lambda goal: _PERCENTILES.index(goal.stat or ""))
        return _percentiles(lower, higher)
    return None


def _comparable(a: str | None, b: str | None) -> bool:
    """A price per token and one per hour compare only at a known load."""
    return a == b or "USD/Mtok" not in {a, b}


def _same_statistic(a: Objective, b: Objective) -> str | None:
    if interval(a).disjoint(interval(b)):
        return "disjoint_bounds"
    same = replace(a, value=b.value, unit=b.unit, evidence=b.evidence) == b
    return "bounded_twice" if same and interval(a) != interval(b) else None


def _percentiles(lower: Objective, higher: Objective) -> str | None:
    """A lower percentile is never above a higher one, so its bound should not be either."""
    low = interval(lower)
    high = interval(higher)
    looser = low.high > high.high and low.high != math.inf and lower.metric not in HIGHER_IS_BETTER
    return "percentiles_crossed" if looser or low.low > high.high else None


def _changes(a: Relative, b: Relative) -> str | None:
    """Two changes relative to now: shares with shares, amounts with amounts, else only their directions."""
    if a.stat != b.stat:
        return None
    first = _change(a)
    other = _change(b)
    if (a.factor is None) == (b.factor is None):
        if first.disjoint(other):
            return "disjoint_bounds"
        same = replace(a, factor=b.factor, delta=b.delta, evidence=b.evidence) == b
        return "bounded_twice" if same and first != other else None
    apart = max(first.low, other.low) >= 0 >= min(first.high, other.high)
    return "disjoint_bounds" if apart and max(first.low, other.low) > min(first.high, other.high) else None


def _change(goal: Relative) -> ValueInterval:
    return bounded(goal.op, goal.factor - 1 if goal.factor is not None else goal.delta or 0.0)


# -- exceptions ------------------------------------------------------------------------------------


def _exceptions(a: TenantException, b: TenantException) -> str | None:
    return None if _grants(a) == _grants(b) else "excepted_twice"


def _grants(goal: TenantException) -> tuple[float | None, ...]:
    return _per_hour(goal.limit, goal.unit), goal.factor


def _excepted(exception: TenantException, bound: Objective) -> str | None:
    """Exceptions beside a bound of their own tenant, or that grant less than the bound they relax."""
    if bound.value is None or not _comparable(exception.unit or bound.unit, bound.unit):
        return None
    limit = _per_hour(exception.limit, exception.unit)
    value = _per_hour(bound.value, bound.unit)
    if bound.tenant is not None:
        return None if limit == value else "bound_and_exception"
    if limit is None or value is None:
        return None
    tighter = (bound.op == "<=" and limit < value) or (bound.op == ">=" and limit > value)
    return "exception_tighter" if tighter else None


def _per_hour(value: float | None, unit: str | None) -> float | None:
    return None if value is None else value / HOURS_OF_COST.get(unit or "", 1.0)


# -- settings --------------------------------------------------------------------------------------


def _settings(a: Config, b: Config) -> str | None:
    return "different_settings" if a.key == b.key and interval(a).disjoint(interval(b)) else None


def _reconfigurations(a: ReconfigRule, b: ReconfigRule) -> str | None:
    """Different limits on the very same hours.

    A limit per hour stands beside one per day, as a peak's beside the day's.
    """
    if a.window != b.window or (a.rule == b.rule and a.unit != b.unit):
        return None
    rates = [0.0 if rule.rule == "forbid" else rule.value for rule in (a, b)]
    return "reconfigured_twice" if rates[0] != rates[1] else None


def _too_many_devices(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """Topologies that need more devices than a goal of the same text allows.

    Wherever in the text either stands.
    """
    for n, count in enumerate(goals):
        if not (isinstance(count, Objective) and count.metric == "gpu_count" and hard(count)):
            continue
        beside = {
            number: goal
            for number, goal in enumerate(goals)
            if isinstance(goal, Config) and together(goal, count, site)
        }
        for number, needed in asked_for(beside, site):
            if needed > interval(count).high:
                first, second = sorted((n, number))
                yield words.clash("too_many_for_both", (first, goals[first]), (second, goals[second]), devices=needed)


_RULES: Mapping[tuple[type[Goal], type[Goal]], Callable[[Any, Any], str | None]] = {
    (Config, Config): _settings,
    (Objective, Objective): _objectives,
    (Relative, Relative): _changes,
    (TenantException, TenantException): _exceptions,
    (TenantException, Objective): _excepted,
    (Objective, TenantException): lambda bound, exception: _excepted(exception, bound),
    (ReconfigRule, ReconfigRule): _reconfigurations,
}
