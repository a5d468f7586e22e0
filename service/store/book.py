"""What outlives the process: promises, how the controller stands, what came of it. Blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from sqlalchemy import delete, func, select

from service import documents as docs
from service.store.store import Store
from service.store.tables import AttainmentRow, ControlRow, LoadRow, OutcomeRow, PromiseRow

HOUR_S = 3600.0
KEPT_S = 15 * 86_400.0
"""Of loads."""


@dataclass(frozen=True, slots=True)
class Control:
    """How the controller stands to what it is to do."""

    mode: docs.Mode
    paused: bool = False
    resumed_s: float = 0.0
    """Unix seconds: what was applied by somebody until then is no override any more."""
    pinned_by: str | None = None
    """Who wants what runs to be kept."""
    pinned_until_s: float | None = None
    """Unix seconds; None: without end."""


class Counted(Protocol):
    """How many of how many met a goal."""

    @property
    def met(self) -> int:
        """Those that did."""

    @property
    def total(self) -> int:
        """All."""


@dataclass(frozen=True, slots=True)
class GoalKey:
    """What is counted: a goal of an intent in a window."""

    model: str
    intent_id: str
    words: str
    window: str
    counted: docs.Counting
    needed: float


class Book:
    """Over a store; methods raise ``StoreError`` where that fails, and join its transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def promise(self, intent_id: str) -> docs.PromiseDocument | None:
        """What became of an intent that was activated; None: it never was."""
        with self._store.transaction() as session:
            row = session.get(PromiseRow, intent_id) if intent_id.isprintable() else None
            return docs.PromiseDocument.model_validate(row.document) if row else None

    def promises(self, *, active: bool) -> list[docs.PromiseDocument]:
        """Intents that were activated, newest first: those that are active, or all of them."""
        wanted = select(PromiseRow).order_by(PromiseRow.activated_s.desc(), PromiseRow.intent_id)
        if active:
            wanted = wanted.where(PromiseRow.state == "active")
        with self._store.transaction() as session:
            return [docs.PromiseDocument.model_validate(row.document) for row in session.scalars(wanted)]

    def keep(self, promise: docs.PromiseDocument) -> None:
        """Write what became of a promise over what was known of it."""
        row = PromiseRow(
            intent_id=promise.intent_id,
            state=promise.state,
            document=promise.model_dump(mode="json"),
            activated_s=promise.activated_s,
        )
        with self._store.transaction() as session:
            session.merge(row)

    def control(self, usual: docs.Mode) -> Control:
        """How the controller stands; ``usual`` is the mode where nobody said one."""
        with self._store.transaction() as session:
            row = session.get(ControlRow, 1)
            if row is None:
                return Control(usual)
            mode: docs.Mode = row.mode  # type: ignore[assignment] # as it was written
            return Control(mode, row.paused, row.resumed_s, row.pinned_by, row.pinned_until_s)

    def set_control(self, control: Control) -> None:
        """Write how it stands."""
        with self._store.transaction() as session:
            session.merge(ControlRow(id=1, **asdict(control)))

    def keep_outcome(self, outcome: docs.OutcomeDocument) -> None:
        """Write what is known of a switch."""
        document = outcome.model_dump(mode="json")
        with self._store.transaction() as session:
            session.merge(OutcomeRow(operation_id=outcome.operation, at_s=outcome.at_s, document=document))

    def outcomes(self, since_s: float) -> list[docs.OutcomeDocument]:
        """Switches since a moment, oldest first."""
        wanted = select(OutcomeRow).where(OutcomeRow.at_s >= since_s).order_by(OutcomeRow.at_s)
        with self._store.transaction() as session:
            return [docs.OutcomeDocument.model_validate(row.document) for row in session.scalars(wanted)]

    def keep_load(self, load: docs.PastLoadDocument) -> None:
        """Keep what was asked for a while, and forget what is older than that."""
        document = load.model_dump(mode="json")
        with self._store.transaction() as session:
            session.merge(LoadRow(model=load.model, begins_s=load.begins_s, document=document))
            session.execute(delete(LoadRow).where(LoadRow.begins_s < load.begins_s - KEPT_S))

    def loads(self, since_s: float) -> list[docs.PastLoadDocument]:
        """What was asked since a moment, oldest first."""
        wanted = select(LoadRow).where(LoadRow.begins_s >= since_s).order_by(LoadRow.begins_s, LoadRow.model)
        with self._store.transaction() as session:
            return [docs.PastLoadDocument.model_validate(row.document) for row in session.scalars(wanted)]

    def count(self, tallies: Mapping[GoalKey, Counted], at_s: float) -> None:
        """Add to what was counted in the hour of a moment."""
        hour_s = at_s // HOUR_S * HOUR_S
        with self._store.transaction() as session:
            for goal, tally in tallies.items():
                key = (goal.model, goal.intent_id, goal.words, goal.window, hour_s)
                row = session.get(AttainmentRow, key)
                if row is None:
                    row = AttainmentRow(
                        model=goal.model,
                        intent_id=goal.intent_id,
                        words=goal.words,
                        window=goal.window,
                        hour_s=hour_s,
                        counted=goal.counted,
                        needed=goal.needed,
                        met=0,
                        total=0,
                    )
                    session.add(row)
                row.met += tally.met
                row.total += tally.total

    def attainments(self, since_s: float) -> Sequence[docs.AttainmentDocument]:
        """How far goals were kept, in whole hours from that of a moment on."""
        row = AttainmentRow
        goal = (row.model, row.intent_id, row.words, row.window, row.counted, row.needed)
        wanted = select(*goal, func.sum(row.met).label("met"), func.sum(row.total).label("total"))
        wanted = wanted.where(row.hour_s >= since_s // HOUR_S * HOUR_S).group_by(*goal).order_by(*goal)
        with self._store.transaction() as session:
            return [docs.AttainmentDocument.model_validate(found) for found in session.execute(wanted)]
