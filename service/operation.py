"""A long-running change: one switch, from its plan to its result. Pure: times come in."""

from dataclasses import dataclass, field
from typing import Any

from runtime.models import CutoverReport, Phase, Progress
from service.documents import report_document
from service.errors import Code
from service.problems import problem


@dataclass(slots=True)
class Operation:
    """How far the switch of one plan has come; ends with exactly one of result and error."""

    id: str
    plan_id: str
    phases: list[dict[str, Any]] = field(default_factory=list)
    """``{phase, at}``, ``at`` in unix seconds."""
    copied_bytes: int = 0
    lag_bytes: int = 0
    lag_tokens: int = 0
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.result is not None or self.error is not None

    def enter(self, phase: Phase, at_s: float) -> bool:
        """Note a phase; False when it was noted before."""
        if self.phases and self.phases[-1]["phase"] == phase.value:
            return False
        self.phases.append({"phase": phase.value, "at": at_s})
        return True

    def advance(self, progress: Progress) -> bool:
        """Take in progress; True when the phase changed."""
        self.copied_bytes, self.lag_bytes, self.lag_tokens = (
            progress.copied_bytes, progress.lag_bytes, progress.lag_tokens,
        )  # fmt: skip
        return self.enter(progress.phase, progress.at_s)

    def finish(self, report: CutoverReport) -> None:
        """End with the coordinator's report: a result when it is done, an error when it was aborted."""
        document = report_document(report)
        if report.phase is Phase.DONE:
            self.result = document
            return
        reason = report.reason.value if report.reason else "unknown"
        detail = f"the switch was given up ({reason}): {report.detail}; {report.source} goes on"
        self.error = problem(Code.SWITCH_ABORTED, detail, members={"reason": reason, "report": document})

    def fail(self, code: Code, detail: str) -> None:
        """End with an error that came from outside the protocol."""
        self.error = problem(code, detail)

    def document(self) -> dict[str, Any]:
        """Its JSON form."""
        outcome = {"result": self.result} if self.error is None else {"error": self.error}
        return {
            "id": self.id,
            "plan_id": self.plan_id,
            "done": self.done,
            "phase": self.phases[-1]["phase"] if self.phases else Phase.PLANNED.value,
            "progress": {
                "copied_bytes": self.copied_bytes,
                "lag": {"bytes": self.lag_bytes, "tokens": self.lag_tokens},
            },
            "phases": list(self.phases),
            **(outcome if self.done else {}),
        }
