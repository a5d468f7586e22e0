"""What an operator can do.

One protocol, spoken in this process (``inprocess``) and over HTTP (``intentctl.client``).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from pydantic import JsonValue

from intent.models import Intent
from service import documents as docs


class Operator(Protocol):
    """Every method waits for its answer, and raises ``ServiceError`` with the problem where there is none."""

    @property
    def serves(self) -> bool:
        """Whether a service is behind it: what is said is kept, and plans can be applied."""

    def translate(self, text: str, now: str | None = None) -> Intent:
        """Words to a checked intent, at the present or the clock given. Keeps nothing, changes nothing."""

    def keep(self, text: str, now: str | None = None) -> docs.VersionDocument:
        """Words to a checked intent that is kept, as its version 1; it may have a question to answer."""

    def intent(self, intent_id: str, version: int | None = None) -> docs.VersionDocument:
        """An intent that is kept: its latest version, or another."""

    def amend(self, intent: Intent, follow_up: docs.FollowUp) -> docs.AmendmentDocument:
        """What a follow-up makes of an intent. Keeps nothing, changes nothing."""

    def amend_kept(self, intent_id: str, follow_up: docs.VersionedFollowUp) -> docs.VersionDocument:
        """The next version of an intent that is kept."""

    def plan(self, request: docs.PlanRequest) -> docs.PlanAnswer:
        """The best topology of each model that a wish is about, and the models for which there is none.

        Nothing where a question has to be answered first.
        """

    def saved_plan(self, plan_id: str) -> docs.PlanDocument:
        """A plan made before."""

    def simulation(self, plan_id: str) -> docs.SimulationDocument:
        """A plan's target served in virtual time, under its window's workload."""

    def frontiers(self, plan_id: str) -> docs.FrontiersDocument:
        """P99 TTFT and TPOT against the rate of requests for a plan's target, its runner-up and what ran."""

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.OperationDocument:
        """Start the switch to a plan's target. ``acknowledge``: the codes of findings that somebody has seen."""

    def preflight(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.PreflightDocument:
        """What ``apply`` would do now: every reason against it, memory, what a switch takes. Touches nothing."""

    def standing(self, plan_id: str) -> docs.StandingDocument:
        """How a plan stands: who made it, who said what to it, whether something else was applied since."""

    def approvals(self, request: docs.PageRequest) -> docs.ApprovalsDocument:
        """What was said to plans, newest first."""

    def approve(self, plan_id: str, request: docs.ApproveRequest) -> docs.ApprovalDocument:
        """Say yes to what was read of a plan, for a while."""

    def reject(self, plan_id: str, request: docs.RejectRequest) -> docs.ApprovalDocument:
        """Say no to a plan, for good."""

    def operation(self, operation_id: str) -> docs.OperationDocument:
        """How far a switch has come."""

    def cancel(self, operation_id: str, request: docs.CancelRequest) -> docs.OperationDocument:
        """Give up a switch that has not committed; answers at once, while what it took is given back."""

    def undoable(self, operation_id: str) -> docs.UndoDocument:
        """Whether an operation can be undone now, and if not, what to do instead."""

    def undo(self, operation_id: str) -> docs.PlanAnswer:
        """A plan back to where an operation came from. Changes nothing that runs."""

    def watch(self) -> Iterator[docs.Event]:
        """What happens from now on, until the service ends."""

    def intents(self, request: docs.PageRequest) -> docs.IntentsDocument:
        """Intents that are kept, newest first."""

    def plans(self, request: docs.PlansRequest) -> docs.PlansDocument:
        """Plans that were made, newest first."""

    def operations(self, request: docs.OperationsRequest) -> docs.OperationsDocument:
        """Operations, newest first."""

    def models(self) -> docs.ModelsDocument:
        """What runs of each model, on what, and whether it is being changed."""

    def topology(self, model: str | None = None) -> docs.StateDocument:
        """The same of one model, which need not be named where there is one."""

    def devices(self) -> docs.DevicesDocument:
        """All devices: whose each is, whether something runs on it, whether it is out, and why."""

    def take_out(self, device: int, request: docs.OutRequest) -> docs.DeviceDocument:
        """Let no plan and no restart use a device from now on. What runs stays."""

    def take_in(self, device: int) -> docs.DeviceDocument:
        """Let a device be used again."""

    def profiles(self, model: str | None = None) -> docs.ProfilesDocument:
        """A model's sizes and the profile of each of its device kinds, as plans take them."""

    def me(self) -> docs.MeDocument:
        """Who asks, and what they may do."""

    def create_key(self, request: docs.KeyRequest) -> docs.NewKeyDocument:
        """Make a key; the answer is the only one that has the whole of it."""

    def keys(self) -> docs.KeysDocument:
        """All keys, without their secrets."""

    def revoke_key(self, prefix: str) -> docs.KeyDocument:
        """Let a key open nothing any more."""

    def audit(self, page: docs.AuditPage) -> docs.AuditDocument:
        """What was done, newest first."""

    def audit_head(self) -> docs.HeadDocument:
        """The end of the audit's chain, to be kept elsewhere."""

    def verify_audit(self, head: str | None = None) -> docs.VerdictDocument:
        """Whether the audit is what it was, and what it was at a head that was kept."""

    def agenda(self, request: docs.AgendaRequest | docs.AgendaQuery) -> docs.AgendaDocument:
        """The time ahead with what is promised, and with a wish beside it where one is asked about.

        Changes nothing.
        """

    def activate(self, intent_id: str, request: docs.ActivateRequest) -> docs.PromiseDocument:
        """Keep an intent from now on, until it is superseded, retired or expired."""

    def retire(self, intent_id: str) -> docs.PromiseDocument:
        """Keep an intent no longer."""

    def promises(self) -> docs.PromisesDocument:
        """Intents that were activated, newest first."""

    def control(self) -> docs.ControlDocument:
        """How the controller stands to what it is to do."""

    def set_control(self, request: docs.ControlRequest) -> docs.ControlDocument:
        """Change that: its mode, or whether it is paused."""

    def load(self) -> docs.LoadsDocument:
        """What is asked of each model now, and how it is served."""

    def recent_load(self, query: docs.RecentQuery) -> docs.RecentLoadDocument:
        """The last minutes of each model, step by step."""

    def load_history(self, query: docs.ReportQuery) -> docs.LoadHistoryDocument:
        """What was asked of each model, five minutes at a time; kept for 15 days."""

    def report(self, query: docs.ReportQuery) -> docs.ReportDocument:
        """What came of the promises."""

    def export_openslo(self, wish: docs.WishRequest) -> docs.ExportDocument:
        """OpenSLO v1 documents of a wish, and what they leave out of it."""

    def import_openslo(self, documents: Sequence[JsonValue]) -> docs.ImportDocument:
        """The checked intent of OpenSLO v1 documents, and what it leaves out of them. Keeps nothing."""
