"""Promises as documents: goals, segments of the agenda, loads. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from intent.models import Goal, Objective
from intent.windows import in_words
from selector import explain
from service import documents as docs
from service.promises.agenda import ActiveGoal
from service.promises.course import PlannedSegment


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


def segment_documents(
    model: str, outlooks: Sequence[PlannedSegment], timezone: str, margin: float, now: datetime
) -> list[docs.SegmentDocument]:
    """A model's agenda; where it may, a switch begins ``margin`` times what it takes before its segment."""
    return [_segment(model, outlook, ZoneInfo(timezone), margin, now) for outlook in outlooks]


def _segment(model: str, outlook: PlannedSegment, zone: ZoneInfo, margin: float, now: datetime) -> docs.SegmentDocument:
    segment = outlook.segment
    plan = outlook.plan
    begins = max(segment.begins, now) if plan and outlook.changes else None
    if begins and plan and plan.switch and outlook.is_early:
        begins = max(segment.begins - timedelta(seconds=plan.switch.latest_s * margin), now)
    return docs.SegmentDocument(
        model=model,
        begins=segment.begins.astimezone(zone),
        ends=segment.ends.astimezone(zone),
        windows=segment.windows,
        goals=tuple(map(goal_document, segment.promised)),
        load=docs.LoadDocument.model_validate(outlook.workload),
        topology=docs.TopologyDocument.model_validate(plan.target) if plan else None,
        prediction=docs.PredictionDocument.model_validate(plan.prediction) if plan else None,
        margins=tuple(map(docs.MarginDocument.model_validate, plan.margins)) if plan else (),
        switch=docs.SwitchDocument.model_validate(plan.switch) if plan and plan.switch and outlook.changes else None,
        switch_begins=begins.astimezone(zone) if begins else None,
        infeasible=None if plan else docs.InfeasibleDocument.model_validate(outlook.answer),
        notes=tuple(f"{left_out.goal}: {left_out.reason}" for left_out in plan.left_out) if plan else (),
        kept=outlook.kept,
    )
