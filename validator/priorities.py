"""Orders of priority that run in a circle. Pure."""

from collections.abc import Iterator, Sequence

from intent.models import Finding, Goal, Priority
from validator.intervals import together
from validator.models import Site
from validator.words import Words

Path = tuple[tuple[int, Priority], ...]


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each priority that closes a circle with those before it; times overlap pair by pair."""
    earlier: list[tuple[int, Priority]] = []
    for number, goal in enumerate(goals):
        if not isinstance(goal, Priority):
            continue
        near = [(n, one) for n, one in earlier if together(one, goal, site)]
        if goal.higher == goal.lower:
            yield words.finding("over_itself", f"/goals/{number}", goal, side=words.side(goal.higher))
        elif path := _back(goal, near, site):
            circle = words.listed(f'"{one.evidence}"' for _, one in (*path, (number, goal)))
            yield words.finding("priority_circle", f"/goals/{number}", goal, "drop_one", goals=circle)
        else:
            earlier.append((number, goal))


def _back(goal: Priority, earlier: Sequence[tuple[int, Priority]], site: Site) -> Path:
    """The shortest way over earlier priorities from what this one puts last to what it puts first; () if none."""
    ways: list[tuple[Path, str | None]] = [((), goal.lower)]
    seen = {goal.lower}
    for path, side in ways:
        for number, one in earlier:
            if one.higher in _meant(side, goal.higher, one) and all(together(one, p, site) for _, p in path):
                longer = (*path, (number, one))
                if one.lower == goal.higher or one.lower is None:
                    return longer
                if one.lower not in seen:
                    seen.add(one.lower)
                    ways.append((longer, one.lower))
    return ()


def _meant(side: str | None, first: str, one: Priority) -> set[str]:
    """The sides that stand for ``side``; everything else is each but the one put first."""
    return {side} if side is not None else {one.higher} - {first}
