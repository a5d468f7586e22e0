"""What people did beside what is promised, and the controller heeds.

Topologies applied, rejected, cancelled. Blocks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from service import documents as docs
from service.access.approvals import Approvals
from service.documents.access import CONTROLLER, RECOVERY
from service.documents.plans import leads_to
from service.documents.state import Page
from service.promises.active import Active
from service.promises.decide import LEARNED_S, Hold
from service.store.store import Store

LATELY = Page(200)
"""Of people's words and of switches that are looked at, the newest."""
NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of what holds until `resume`."""


@dataclass(frozen=True, slots=True)
class Term:
    """The segment in force, as people's acts are seen from it. Unix seconds."""

    now_s: float
    began_s: float
    """Since when acts are of this segment: it began, the newest promise was activated."""
    ends_s: float | None
    """None: nothing is known to come after it."""
    resumed_s: float
    """What was done until then is heeded no longer."""

    def until_s(self, at_s: float, said_s: float | None) -> float:
        """How long a no holds: as long as was said, else until the segment ends, for four hours at most.

        0: no longer.
        """
        if said_s is None and at_s >= self.began_s:
            said_s = min(at_s + LEARNED_S, self.ends_s or math.inf)
        return said_s if said_s is not None and at_s > self.resumed_s and self.now_s < said_s else 0.0


@dataclass(frozen=True, slots=True)
class People:
    """Those who act on one model; times are shown in a zone."""

    store: Store
    approvals: Approvals
    model: str
    zone: tzinfo

    def override(self, term: Term) -> docs.OverrideDocument | None:
        """The last switch, where somebody made it in this segment by naming a topology."""
        (found,) = self.store.operations(Page(1), self.model, done=True).items or (None,)
        if found is None or found.result is None or found.applied_by in {CONTROLLER.name, RECOVERY.name}:
            return None
        saved = self.store.plan(found.plan_id)
        is_act = saved is not None and saved.kind == "act"
        if not is_act or found.phases[-1].at <= max(term.began_s, term.resumed_s):
            return None
        until = None if term.ends_s is None else datetime.fromtimestamp(term.ends_s, self.zone)
        return docs.OverrideDocument(operation=found.id, topology=found.target or "", by=found.applied_by, until=until)

    def refusals(self, term: Term) -> tuple[docs.RefusalDocument, ...]:
        """The no's to topologies that hold: plans that were rejected, switches that were cancelled."""
        return (*self._rejected(term), *self._cancelled(term))

    def _rejected(self, term: Term) -> Iterator[docs.RefusalDocument]:
        for no in self.approvals.page(LATELY).items:
            until_s = term.until_s(no.at_s, no.barred_until_s) if no.verdict == "rejected" else 0.0
            saved = self.store.plan(no.plan_id) if until_s else None
            if saved and saved.model == self.model:
                target = leads_to(saved.now.text if saved.now else None, saved.target.text, saved.batching)
                yield self._refusal("rejected", no.plan_id, target, no.by, until_s)

    def _cancelled(self, term: Term) -> Iterator[docs.RefusalDocument]:
        for ended in self.store.operations(LATELY, self.model, done=True).items:
            by = ended.cancelled_by
            target = leads_to(ended.source, ended.target or "", ended.batching)
            is_no = by and target and ended.result is None
            if is_no and (until_s := term.until_s(ended.phases[-1].at, ended.barred_until_s)):
                yield self._refusal("cancelled", ended.id, target, by or "", until_s)

    def _refusal(
        self, act: Literal["rejected", "cancelled"], about: str, target: str, by: str, until_s: float
    ) -> docs.RefusalDocument:
        until = datetime.fromtimestamp(until_s, self.zone)
        return docs.RefusalDocument(model=self.model, target=target, by=by, act=act, about=about, until=until)


def against(target: str, who: People, active: Active, now: datetime) -> list[str]:
    """What a promise that asks for another topology than what runs contradicts, in words."""
    term = Term(now.timestamp(), 0.0, None, active.control.resumed_s)
    found = list[str]()
    if pin := active.pin(now):
        found.append(f"{in_words(pin)}, and this asks for {target}")
    if act := who.override(term):
        applied = f"{act.by} applied {act.topology} ({act.operation})"
        found.append(f"{applied} before; this asks for {target}, and that act does not stand against it")
    return found + [no_in_words(refusal) for refusal in who.refusals(term) if refusal.target == target]


def hold(active: Active, override: docs.OverrideDocument | None, now: datetime) -> Hold | None:
    """What keeps the controller from switching: a pause, a pin, or a topology that somebody applied."""
    if active.control.paused:
        return Hold("the controller is paused; `intentctl resume` lets it go on", NEVER)
    kept = active.pin(now) or override
    return Hold(in_words(kept), kept.until or NEVER) if kept else None


def in_words(kept: docs.PinDocument | docs.OverrideDocument) -> str:
    """Why what runs is left alone."""
    match kept:
        case docs.PinDocument(by=by, until=until):
            return f"{by} pinned what runs; it is kept until {_until(until)}"
        case docs.OverrideDocument(by=by, topology=topology, until=until):
            return f"{by} applied {topology}; the controller will not change it until {_until(until)}"


def no_in_words(no: docs.RefusalDocument) -> str:
    """Why a target is left alone."""
    return f"{no.by} {no.act} {no.about}; not switched to until {_until(no.until)}, or `intentctl resume`"


def _until(moment: datetime | None) -> str:
    return f"{moment:%a %d %b %H:%M %Z}" if moment else "`intentctl resume`"
