"""What is promised now: a mirror of the book in memory, read at every tick and at every switch."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime

from intent.models import DatedWindow, FromNowWindow, ReconfigRule, Window
from intent.windows import span
from selector.models import Plan
from service.deployment.file import Deployment
from service.documents.errors import StoreError
from service.documents.promises import AttainmentDocument, ControlRequest, PinDocument, PromiseDocument
from service.documents.state import Page
from service.promises import limits
from service.promises.admission import local, of_document
from service.promises.agenda import ActiveGoal, in_force
from service.store.book import Book, Control
from service.store.clock import wall_s
from service.store.store import Store

DAY_S = 86_400.0


class Active:
    """Active intents and the controller's settings; what changes is written first."""

    def __init__(self, store: Store, deployment: Deployment) -> None:
        self._store = store
        self._deployment = deployment
        self.book = Book(store)
        self.changing = threading.RLock()
        """Held while it is decided what is active: what two people say at once is not looked at apart."""
        self.version = 0
        """Rises with every change of what is promised."""
        self.is_stale = False
        """Something was written, and the store has not said yet what is active."""
        self.attained: Sequence[AttainmentDocument] = ()
        """How far goals were kept in the last four weeks, when it was weighed last."""
        self.refresh()
        store.calls.on_return.append(self.refresh)

    def refresh(self) -> None:
        """Read again what is active, and how the controller stands."""
        with self.changing:
            self.control = self.kept_control()
            self.promises = tuple(self.book.promises(active=True))
            self.promised = _goals(self.promises)
            self.version += 1
            self.is_stale = False

    @contextmanager
    def written(self) -> Iterator[None]:
        """Around a transaction that changes what is active: it is read again then, or at the next look."""
        self.is_stale = True
        yield
        with suppress(StoreError):  # what was written is written
            self.refresh()

    def kept(self) -> tuple[ActiveGoal, ...]:
        """What is promised by the book: for who may not overlook what was promised a moment ago. Blocks."""
        return _goals(self.book.promises(active=True))

    def kept_control(self) -> Control:
        """How the controller stands by the book. Blocks."""
        return self.book.control(self._deployment.mode)

    def controlled(self, request: ControlRequest, who: str) -> Control:
        """How the controller is to stand; going on ends overrides, refusals and pins.

        ``refresh`` reads what was written.
        """
        made = self.control
        now_s = wall_s()
        if request.mode is not None:
            made = replace(made, mode=request.mode)
        if request.paused is not None:
            made = replace(made, paused=request.paused)
        if request.paused is False:
            made = replace(made, resumed_s=now_s)
        if request.pinned is False or request.paused is False:
            made = replace(made, pinned_by=None, pinned_until_s=None)
        if request.pinned or (request.pinned_s and request.pinned is None):
            until_s = None if request.pinned_s is None else now_s + request.pinned_s
            made = replace(made, pinned_by=who, pinned_until_s=until_s)
        return made

    def pin(self, now: datetime) -> PinDocument | None:
        """Who wants what runs to be kept, and until when."""
        by = self.control.pinned_by
        until_s = self.control.pinned_until_s
        if by is None or (until_s is not None and now.timestamp() >= until_s):
            return None
        until = None if until_s is None else local(datetime.fromtimestamp(until_s, UTC), self._deployment)
        return PinDocument(by=by, until=until)

    def weigh(self) -> None:
        """See anew how far what is promised now was kept, in the period of exported OpenSLO documents. Blocks."""
        promised = {promise.intent_id for promise in self.promises}
        self.attained = [each for each in self.book.attainments(wall_s() - 28 * DAY_S) if each.intent_id in promised]

    def in_force(self, now: datetime) -> list[ActiveGoal]:
        """The goals that hold at a moment."""
        return in_force(self.promised, self._deployment.windows, now)

    @property
    def limited(self) -> bool:
        """Whether anything is promised about how often the service is reshaped."""
        return any(isinstance(goal.goal, ReconfigRule) for goal in self.promised)

    def barred(self, model: str, now: datetime, promised: Sequence[ActiveGoal]) -> str:
        """Why what is promised forbids a switch of a model now; empty: it does not."""
        held = [
            goal for goal in in_force(promised, self._deployment.windows, now) if isinstance(goal.goal, ReconfigRule)
        ]
        return limits.barred(held, self.switched_s(model, now.timestamp()), now) if held else ""

    def unchecked(self, plan: Plan, now: datetime) -> str:
        """Why a plan was not held against what is promised now, by the book; empty: it was. Blocks."""
        is_then = self._deployment.is_in_force(plan.window, now)
        if plan.kind == "promise" and not is_then:
            return ""  # whoever applies it then has to mean that
        own = (plan.intent_id, plan.intent_version)
        others = [each for each in self.book.promises(active=True) if (each.intent_id, each.version) != own]
        held = limits.binding(in_force(_goals(others), self._deployment.windows, now), plan.model)
        missing = {limits.called(goal) for goal in held}.difference(plan.promised if is_then else ())
        words = f"{plan.id} was made for {plan.window} and not held against what is promised now"
        return f"{words} ({', '.join(sorted(missing))}); make a new plan" if missing else ""

    def switched_s(self, model: str, now_s: float) -> Sequence[float]:
        """Unix seconds of a model's switches of the last day."""
        found = self._store.operations(Page(200), model, done=True).items
        return [
            operation.phases[-1].at
            for operation in found
            if operation.result and operation.phases[-1].at > now_s - DAY_S
        ]

    def over(self, now: datetime) -> list[PromiseDocument]:
        """Active intents that can hold at no moment from now on."""
        return [
            promise
            for promise in self.promises
            if promise.goals and all(_is_over(goal.goal.window, goal.said, now) for goal in promise.goals)
        ]


def _goals(promises: Iterable[PromiseDocument]) -> tuple[ActiveGoal, ...]:
    return tuple(goal for promise in promises for goal in of_document(promise))


def _is_over(window: Window, said_at: datetime, now: datetime) -> bool:
    match window:
        case FromNowWindow(duration_s):
            return (now - said_at).total_seconds() >= duration_s
        case DatedWindow():
            return span(window, date.fromisoformat(window.date))[1] <= now
    return False
