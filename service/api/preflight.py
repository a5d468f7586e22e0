"""What applying a plan would do now.

Every reason against it, and what memory and streams have to bear.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from intent.models import Finding
from runtime.footprint import block_bytes, blocks, blocks_beside, peak_bytes, weight_bytes
from runtime.models import Topology
from selector.models import Plan
from service import documents as docs
from service.access import consent as consents
from service.deployment.policy import Approval
from service.documents.access import Caller
from service.documents.errors import RefusedError
from service.planning import lifecycle, targets


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand for a plan and whoever asks."""

    applied_by: str | None
    rule: Approval
    known: consents.PlanFacts
    caller: Caller
    acknowledged: Collection[str]
    operation: str | None
    """The switch under way."""
    streams: int
    num_blocks: int
    """KV blocks of what runs."""
    barred: str
    """Why what is promised forbids a switch now."""
    to_acknowledge: Sequence[Finding]
    """Of the plan's, without what is promised no more."""
    unchecked: str
    """Why the plan was not held against what is promised now."""


def preflight(plan: Plan, place: targets.ModelContext, standing: Standing) -> docs.PreflightDocument:
    """What would happen if the plan were applied."""
    consent = _consent(plan, standing)
    has_seen = standing.acknowledged if isinstance(consent, RefusedError) else consent.acknowledged
    refusals = list(_refusals(plan, place, standing, consent, has_seen))
    counts, memory = _memory(plan.target, place, standing.num_blocks)
    return docs.PreflightDocument(
        plan_id=plan.id,
        digest=plan.digest,
        would_apply=not refusals,
        refusals=tuple(docs.ReasonDocument(code=refusal.code, detail=str(refusal)) for refusal in refusals),
        to_acknowledge=tuple(finding for finding in standing.to_acknowledge if finding.code not in has_seen),
        approved_by=None if isinstance(consent, RefusedError) else consent.by,
        operation=standing.operation,
        barred=targets.target_blocker(plan.target, place, plan.window) or None,
        switch=plan.switch,
        streams=standing.streams,
        blocks=counts,
        memory=memory,
    )


def _consent(plan: Plan, standing: Standing) -> consents.Consent | RefusedError:
    """The yes that the plan has, or why it has none."""
    try:
        return consents.consent(plan, standing.rule, standing.known, standing.caller, standing.acknowledged)
    except RefusedError as refusal:
        return refusal


def _refusals(
    plan: Plan,
    place: targets.ModelContext,
    standing: Standing,
    consent: consents.Consent | RefusedError,
    has_seen: Collection[str],
) -> Iterator[RefusedError]:
    """Every reason for which applying is refused, in the order in which it is."""
    given = consent
    if isinstance(given, RefusedError):
        yield given
        given = consents.Consent("nobody", dict.fromkeys(has_seen, standing.caller.name))
    yield from lifecycle.staleness(plan, standing.applied_by, place.situation, standing.unchecked)
    for refuse in (
        partial(consents.refuse_unseen, standing.to_acknowledge, has_seen, "the plan, then apply"),
        partial(lifecycle.refuse_untimely, plan, place.deployment, has_seen),
        partial(consents.refuse_barred, plan, standing.barred, given),
    ):
        try:
            refuse()
        except RefusedError as refusal:
            yield refusal
    if standing.operation is not None:
        yield lifecycle.another_switch(standing.operation)


def _memory(
    target: Topology, place: targets.ModelContext, num_blocks: int
) -> tuple[docs.BlocksDocument, tuple[docs.DeviceMemoryDocument, ...]]:
    """KV blocks and bytes on each device: now, side by side, and then."""
    spec = place.model.spec
    cluster = place.model.cluster
    size = place.model.engine.block_tokens
    now = place.situation.topology
    assert now is not None, "a service runs something"
    beside = max(0, blocks_beside(now, target, spec, cluster, size))
    counts = docs.BlocksDocument(now=num_blocks, beside=beside, target=blocks(target, spec, cluster, size))
    running = weight_bytes(now, spec)
    coming = weight_bytes(target, spec)
    per_block = block_bytes(now, spec, size)
    peak = peak_bytes(now, target, spec, min(num_blocks, beside), size)
    memory = (
        docs.DeviceMemoryDocument(
            device=device,
            kind=cluster.gpu(device).kind,
            total_bytes=cluster.gpu(device).memory_bytes,
            weights_now_bytes=running.get(device, 0),
            kv_now_bytes=num_blocks * per_block.get(device, 0),
            weights_target_bytes=coming.get(device, 0),
            beside_bytes=size_bytes,
        )
        for device, size_bytes in sorted(peak.items())
    )
    return counts, tuple(memory)
