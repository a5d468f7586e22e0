"""What share of each class of requests each replica gets: a small linear program. Pure.

A class is a part of the lengths of prompts, of one tenant. Lengths of answers are no part of it: they do not depend on the
prompt's here, and no router knows them.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from selector.performance.simulator import Values, Whole

LENGTHS = 8
"""Classes of prompts, with as many requests in each."""
_NOTHING = 1e-9


def edges_of(inputs: Whole) -> tuple[int, ...]:
    """The longest prompt of each class; one class where they are all alike."""
    quantiles = np.quantile(inputs, np.arange(1, LENGTHS + 1) / LENGTHS)
    return tuple(dict.fromkeys(np.ceil(quantiles).astype(int).tolist()))


def dealt_evenly(costs: Values, weights: Values, alike: Sequence[int]) -> Values:
    """Shares of classes (rows) for replicas (columns) that make the busiest as little busy as can be.

    ``costs`` are seconds of one request of a class on a replica, infinite where it may not be served there; ``weights`` how many
    there are; ``alike`` numbers replicas that are the same, which get the same. NaN where a class may not be served.

    Exact: minimise t with the busy seconds of each group of replicas at most t times their number, by the simplex method from
    every class on the first replica that may serve it. No solver comes with what this project needs, and there are at most 16
    classes and a few kinds of replicas.
    """
    groups = sorted(set(alike))
    firsts = [list(alike).index(group) for group in groups]
    sizes = np.array([list(alike).count(group) for group in groups], dtype=float)
    part = costs[:, firsts]
    classes, kinds = part.shape
    barred = ~np.isfinite(part)
    busy = np.where(barred, 0.0, part) * weights[:, None]
    scale = busy.max() or 1.0
    # columns: a share of each class on each kind, t, and what each kind has to spare
    matrix = np.zeros((classes + kinds, classes * kinds + 1 + kinds))
    for kind in range(classes):
        matrix[kind, kind * kinds : (kind + 1) * kinds] = 1.0
    for kind in range(kinds):
        matrix[classes + kind, kind : classes * kinds : kinds] = busy[:, kind] / scale
        matrix[classes + kind, classes * kinds] = -sizes[kind]
        matrix[classes + kind, classes * kinds + 1 + kind] = 1.0
    first = [int(np.flatnonzero(~row)[0]) for row in barred]
    loads = [busy[[kind == at for at in first], kind].sum() / scale / sizes[kind] for kind in range(kinds)]
    fullest = int(np.argmax(loads))
    spare = [classes * kinds + 1 + kind for kind in range(kinds)]
    basis = [kind * kinds + at for kind, at in enumerate(first)]
    basis += [classes * kinds if kind == fullest else spare[kind] for kind in range(kinds)]
    usable = np.append(~barred.ravel(), np.ones(1 + kinds, dtype=bool))
    aim = np.zeros(matrix.shape[1])
    aim[classes * kinds] = 1.0
    right = np.append(np.ones(classes), np.zeros(kinds))
    values = _least(matrix[:, usable], right, aim[usable], [int(usable[:column].sum()) for column in basis])
    found = np.full(matrix.shape[1], np.nan)
    found[usable] = values
    by_kind = found[: classes * kinds].reshape(classes, kinds) / sizes
    return np.asarray(by_kind[:, [groups.index(group) for group in alike]])


def _least(matrix: Values, right: Values, aim: Values, basis: list[int]) -> Values:
    """Where ``aim`` is least of what is at least 0 and solves the equations, from a basis that does.

    Bland's rule: the first column that helps comes in, the first row that bars it goes out, so it ends.
    """
    while True:
        inverse = np.linalg.inv(matrix[:, basis])
        values = inverse @ right
        helps = np.flatnonzero(aim - aim[basis] @ inverse @ matrix < -_NOTHING)
        if not helps.size:
            found = np.zeros(matrix.shape[1])
            found[basis] = np.maximum(0.0, values)
            return found
        direction = inverse @ matrix[:, helps[0]]
        rows = np.flatnonzero(direction > _NOTHING)
        limits = values[rows] / direction[rows]
        ties = rows[limits <= limits.min() + _NOTHING]
        basis[min(ties, key=lambda row: basis[row])] = int(helps[0])


def words_of(edges: Sequence[int]) -> tuple[str, ...]:
    """Classes of prompts for people: ``up to 512 tokens``, ``513 to 900 tokens``."""
    first, *others = edges
    return (f"up to {first} tokens", *(f"{low + 1} to {high} tokens" for low, high in pairwise([first, *others])))
