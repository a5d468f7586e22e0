"""The one entry: an intent in, the same intent with outcome, findings and read-back out. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from intent.models import Finding, Intent, Outcome
from runtime.models import Cluster, Limits, ModelSpec
from validator import bounds, conflicts, inventory, schema
from validator import limits as allowed
from validator.readback import render


def validate(intent: Intent, limits: Limits, cluster: Cluster, models: Mapping[str, ModelSpec]) -> Intent:
    """Check an intent against schema, physics, itself, the deployment's limits and its inventory.

    What was unclear stays a question, whatever else is found: rules applied to an uncertain reading prove nothing.
    Checking twice changes nothing.
    """
    checked = _checked(intent, limits, cluster, models)
    new = tuple(finding for _, finding in checked if finding not in intent.findings)
    outcome = intent.understood
    if outcome is Outcome.OK and checked:
        outcome = checked[0][0]
    result = replace(intent, outcome=outcome, findings=(*intent.findings, *new))
    return replace(result, readback=render(result))


def _checked(
    intent: Intent, limits: Limits, cluster: Cluster, models: Mapping[str, ModelSpec]
) -> list[tuple[Outcome, Finding]]:
    """Findings with the outcome each brings, the one that decides first."""
    if broken := list(schema.check(intent)):
        return [(Outcome.OUT_OF_SCOPE, finding) for finding in broken]
    goals = intent.goals
    clashes = conflicts.check(goals)
    impossible = [
        *bounds.check(goals),
        *inventory.check(goals, cluster, models),
        *allowed.check(goals, limits),
    ]
    return [
        *((Outcome.CONFLICT, finding) for finding in clashes),
        *((Outcome.INFEASIBLE, finding) for finding in _first_per_place(impossible)),
    ]


def _first_per_place(findings: list[Finding]) -> list[Finding]:
    """One finding for one place: what is impossible anywhere need not be called over the limit as well."""
    return list({finding.pointer: finding for finding in reversed(findings)}.values())[::-1]
