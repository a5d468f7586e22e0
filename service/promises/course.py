"""The way through the time ahead: where a switch is worth what it takes, and where not. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from intent.models import Goal, Objective
from intent.windows import in_words
from runtime.capabilities import Batching, Capabilities
from runtime.models import Topology
from selector import explain
from selector.explain import topology_words
from selector.models import Infeasible, Plan, SwitchPrediction, Workload
from service import documents as docs
from service.deployment.policy import Rules
from service.documents.plans import leads_to
from service.promises.agenda import DAY, MINUTE, ActiveGoal, Segment
from service.promises.attainment import counted, needed
from service.promises.decide import Ahead, Hold
from service.store.book import GoalKey


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment, and what is to serve it."""

    segment: Segment
    workload: Workload
    answer: Plan | Infeasible
    is_early: bool = False
    """The target holds what is promised before this segment, too, so that the switch to it need not wait for its beginning."""
    share: float = 1.0
    """Of the load that the target holds; less where nothing holds all of it."""
    kept: str = ""
    """Why what runs stays, though another target is better for this segment alone."""

    @property
    def plan(self) -> Plan | None:
        """The plan; None where nothing holds what is promised."""
        return self.answer if isinstance(self.answer, Plan) else None

    @property
    def changes(self) -> bool:
        """Whether a switch leads into it."""
        return self.plan is not None and self.plan.changes

    @property
    def target(self) -> str | None:
        """What the plan leads to, as a text: its topology, or what runs with steps filled otherwise."""
        plan = self.plan
        return leads_to(str(plan.now), str(plan.target), plan.batching if self.changes else None) if plan else None

    def ahead(self, now: datetime) -> Ahead | None:
        """The switch into it, as decisions take it, where one leads into it."""
        if self.plan is None or not self.changes:
            return None
        takes_s = self.plan.switch.latest_s if self.plan.switch else 0.0
        begins_in_s = (self.segment.begins - now.astimezone(UTC)).total_seconds()
        return Ahead(begins_in_s, self.target or "", takes_s, self.is_early)

    @property
    def nearly(self) -> str:
        """How near it comes, in words; empty where it holds the load."""
        if self.plan is None or self.share >= 1:
            return ""
        stays = "" if self.changes else ", which runs,"
        return f"nothing holds this load; {self.plan.target.shape}{stays} serves {self.share:.0%} of it"


class Planning(Protocol):
    """What is asked of who plans."""

    def outlook(
        self, segment: Segment, now: Topology | None, engine: Capabilities | None, *, running: Batching | None = None
    ) -> PlannedSegment:
        """What is to serve a segment."""

    def moved(self, outlook: PlannedSegment, now: Topology, engine: Capabilities | None) -> PlannedSegment:
        """The same from another topology than it was planned from."""

    def change(
        self, now: Topology, target: Topology, load: Workload, engine: Capabilities | None
    ) -> SwitchPrediction | None:
        """What a switch takes under a load; None where nobody can tell."""

    def workload(self, segment: Segment) -> Workload:
        """What is declared for a segment."""


@dataclass(frozen=True)
class Course:
    """Plans segment after segment, each from the one before."""

    planning: Planning
    engine: Capabilities | None
    rules: Rules
    running: Batching | None = None
    """How steps are filled where no engine says it."""
    hold: Hold | None = None
    """What keeps what runs, for now."""

    def through(
        self, segments: Sequence[Segment], now: Topology | None, upto: int | None, since: datetime | None
    ) -> list[PlannedSegment]:
        """What is to serve the first ``upto`` segments; the others are in view. ``since`` the last switch.

        A switch that a hard goal needs is made, to what holds all of the next ``stay_s`` where one topology does. Another has to
        be worth it, and waits until what runs has stayed as long: there the segment is divided.
        """
        found = list[PlannedSegment]()
        ahead = [*segments]
        here = self
        while ahead and (upto is None or len(found) < upto):
            first = ahead[0]
            outlook = here._next(ahead, now, since)
            ahead[:1] = [] if outlook.segment.ends == first.ends else [replace(first, begins=outlook.segment.ends)]
            found.append(outlook)
            now = outlook.plan.target if outlook.plan else now
            here = here._set_as(outlook)
            since = outlook.segment.begins if outlook.changes else since
        return found

    def _set_as(self, outlook: PlannedSegment) -> "Course":
        """From where a plan leads, with its steps filled as it says."""
        steps = outlook.plan.batching if outlook.plan else None
        if self.engine is None or steps is None:
            return replace(self, running=steps or self.running)
        return replace(self, engine=replace(self.engine, running=steps))

    def _next(self, ahead: Sequence[Segment], now: Topology | None, since: datetime | None) -> PlannedSegment:
        """What is to serve the first of these, or a first part of it."""
        segment = ahead[0]
        wished = self.planning.outlook(segment, now, self.engine, running=self.running)
        if now is None or wished.plan is None or not wished.changes:
            return wished
        if self.hold and segment.begins < self.hold.until:
            part = replace(segment, ends=min(segment.ends, self.hold.until))
            same = replace(
                wished.plan,
                target=now,
                batching=wished.plan.now_batching,
                prediction=wished.plan.now_prediction or wished.plan.prediction,
                margins=(),
            )
            return replace(wished, segment=part, answer=same, kept=self.hold.why)
        stay = timedelta(seconds=self.rules.stay_s)
        near = [segment, *(each for each in ahead[1:] if each.begins < segment.begins + stay)]
        stays = self._on(segment, now)
        if stays is None:
            holds_on = all(self._on(each, wished.plan.target) for each in near)
            return wished if holds_on else self._lasting(near, now) or wished
        if since is not None and segment.begins < since + stay:
            part = replace(segment, ends=min(segment.ends, since + stay))
            return replace(stays, segment=part, kept=f"stays for {_minutes(stay)} (promises.stay_s)")
        why = self._against(wished, stays, ahead)
        for span in (near, ahead) if why else ():
            other = self._lasting(span, now)
            if other is not None and other.changes and not self._against(other, stays, ahead):
                return other
        return replace(stays, kept=why) if why else wished

    def _on(self, segment: Segment, topology: Topology) -> PlannedSegment | None:
        """A segment on a topology that holds its hard goals; None where it does not."""
        kept = tuple(goal for goal in segment.promised if not goal.is_wish)
        found = self.planning.outlook(replace(segment, promised=kept), topology, self.engine, running=self.running)
        plan = found.plan
        holds = plan is not None and plan.target == topology and plan.prediction.gpu_util < 1
        return replace(found, segment=segment) if holds else None

    def _lasting(self, span: Sequence[Segment], now: Topology) -> PlannedSegment | None:
        """The first of several segments on what is planned for the busiest, if that holds all of them."""
        busiest = max(span, key=lambda segment: tokens_s(self.planning.workload(segment)))
        plan = self.planning.outlook(busiest, now, self.engine, running=self.running).plan
        served = [self._on(segment, plan.target) for segment in span] if plan else [None]
        first = served[0] if all(served) else None
        return first and self.planning.moved(first, now, self.engine)

    def _against(self, outlook: PlannedSegment, stays: PlannedSegment, ahead: Sequence[Segment]) -> str:
        """Why a switch that no hard goal needs is not worth what it takes, the way back counted; empty: it is.

        Both sides are occupied while it is prepared, and again on the way back.
        """
        assert outlook.plan, "it leads somewhere"
        assert stays.plan, "something runs"
        target = outlook.plan.target
        now = stays.plan.target
        held = [*takewhile(lambda segment: self._on(segment, target), ahead)]
        goes_back = len(held) < len(ahead)
        lasts = held[-1].ends - ahead[0].begins if held else timedelta()
        what = f"a switch to {topology_words(target)} for {_minutes(lasts)}"
        if goes_back and lasts < timedelta(seconds=self.rules.stay_s):
            return f"{what} is for less than promises.stay_s"
        sides = (stays.plan.prediction, outlook.plan.prediction)
        costs, instead = (side.usd_per_hour or side.devices for side in sides)
        ways = (self.planning.change(*way, outlook.workload, self.engine) for way in ((now, target), (target, now)))
        there_s, back_s = (max(change.prepare_s, change.prepare_most_s) if change else 0.0 for change in ways)
        occupied = instead * there_s + goes_back * costs * self.rules.margin * back_s
        saved = (costs - instead) * max(lasts, DAY * (not goes_back)).total_seconds() - occupied
        if instead >= costs or saved > goes_back * self.rules.least_gain * costs * DAY.total_seconds():
            return ""
        share = saved / costs / DAY.total_seconds()
        return f"{what} and back saves {share:.1%} of what a day costs, less than promises.least_gain"


def tokens_s(load: Workload) -> float:
    """Tokens that a load asks for in a second, in and out."""
    return load.rate_rps * (load.input_tokens + load.output_tokens)


def _minutes(span: timedelta) -> str:
    return f"{span / MINUTE:.3g} min"


def words(goal: Goal) -> str:
    """A goal in words, with whose it is."""
    tenant = f" of {goal.tenant}" if isinstance(goal, Objective) and goal.tenant else ""
    return explain.goal_words(goal) + tenant


def goal_document(goal: ActiveGoal) -> docs.GoalDocument:
    """A goal that is promised."""
    return docs.GoalDocument(
        intent_id=goal.intent_id,
        words=words(goal.goal),
        window=in_words(goal.goal.window),
        goal=goal.goal,
        said=goal.said,
    )


def goal_key(model: str, promised: ActiveGoal) -> GoalKey | None:
    """What is counted for a goal of a model; None: nothing that is measured here tells."""
    goal = promised.goal
    if not isinstance(goal, Objective) or (what := counted(goal)) is None:
        return None
    return GoalKey(model, promised.intent_id, words(goal), in_words(goal.window), what, needed(goal))


def segment_document(
    model: str, outlook: PlannedSegment, zone: ZoneInfo, margin: float, earliest: datetime
) -> docs.SegmentDocument:
    """A segment of a model's agenda.

    Where it may, the switch begins ``margin`` times what it takes before it.
    """
    segment = outlook.segment
    plan = outlook.plan
    begins = max(segment.begins, earliest) if plan and outlook.changes else None
    if begins and plan and plan.switch and outlook.is_early:
        begins = max(segment.begins - timedelta(seconds=plan.switch.latest_s * margin), earliest)
    return docs.SegmentDocument(
        model=model,
        begins=segment.begins.astimezone(zone),
        ends=segment.ends.astimezone(zone),
        windows=segment.windows,
        goals=tuple(map(goal_document, segment.promised)),
        load=docs.LoadDocument.model_validate(outlook.workload),
        topology=plan.target if plan else None,
        prediction=plan.prediction if plan else None,
        margins=plan.margins if plan else (),
        switch=plan.switch if plan and outlook.changes else None,
        switch_begins=begins.astimezone(zone) if begins else None,
        infeasible=outlook.answer if isinstance(outlook.answer, Infeasible) else None,
        notes=tuple(f"{left_out.goal}: {left_out.reason}" for left_out in plan.left_out) if plan else (),
        kept=outlook.kept,
    )
