"""The use cases in this process, from a deployment file: for when no service answers. Cannot apply."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intentctl.arguments import EngineName
from intentctl.status import CommandError

if TYPE_CHECKING:
    from service.deployment import Deployment

Document = dict[str, Any]

_FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = {EngineName.TORCH: _FOLDER / "local-cpu.yaml", EngineName.VLLM: _FOLDER / "local-vllm.yaml"}
"""The deployments of a source checkout, by engine."""
EXAMPLE = EXAMPLES[EngineName.TORCH]
"""Used when none is named."""


class Local:
    """Translates and plans without a service. Every method raises ``CommandError``."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def translate(self, text: str, now: str | None = None) -> Document:
        """Words to a checked intent document, at the present or the clock given."""
        from intent.document import to_document
        from service import usecases

        with as_problems():
            moment = usecases.clock(now, self._deployment)
            return to_document(usecases.translate(text, self._deployment, self._llm(), moment))

    def amend(self, intent: Document, follow_up: Document) -> Document:
        """What a follow-up makes of an intent document; keeps nothing."""
        from service import intents, usecases

        with as_problems():
            moment = usecases.clock(follow_up.get("now"), self._deployment)
            previous = intents.read_intent(intent, self._deployment, moment)
            said = intents.FollowUp(follow_up["text"], follow_up.get("mode"))
            amendment = intents.amend(previous, said, self._deployment, moment, self._llm())
            return intents.amendment_document(amendment)

    def export_openslo(self, intent: Document) -> Document:
        """The OpenSLO documents of an intent document, and what they leave out of it."""
        from service import intents, openslo

        with as_problems():
            checked = intents.read_intent(intent, self._deployment, datetime.now(UTC))
            return openslo.exported(checked, self._deployment)

    def import_openslo(self, documents: list[Any]) -> Document:
        """The intent of OpenSLO documents, and what it leaves out of them."""
        from service import openslo

        with as_problems():
            return openslo.imported(documents, self._deployment, datetime.now(UTC))

    def plan(self, intent: Document, when: Document) -> Document:
        """A plan from the deployment's ``start`` topology; applies nothing and is kept nowhere."""
        from intent.document import from_document
        from service import engines, usecases
        from service.documents import plan_document

        with as_problems():
            can = engines.capabilities(self._deployment)
            situation = usecases.Situation(self._deployment.model.start, 0, can)
            time = usecases.When(**when)
            made = usecases.plan(from_document(intent), self._deployment, situation, self._profiles, time)
            return plan_document(made)

    def simulation(self, plan: Document) -> Document:
        """A plan's target in the simulator."""
        from service import engines, outlook

        with as_problems():
            can = engines.capabilities(self._deployment)
            return outlook.simulation(plan, self._deployment, self._profiles, can)

    def frontiers(self, plan: Document) -> Document:
        """Latency against load of what a plan compares."""
        from service import engines, outlook

        with as_problems():
            can = engines.capabilities(self._deployment)
            return outlook.frontiers(plan, self._deployment, self._profiles, can)

    @cached_property
    def _profiles(self) -> Any:
        from service.profiles import load_profiles
        from service.settings import read_settings

        return load_profiles(self._deployment, read_settings().folder)

    @cached_property
    def _deployment(self) -> "Deployment":
        from service.deployment import load

        return load(self.file)

    def _llm(self) -> Any:
        if self._deployment.llm is None:
            return None
        from service.settings import llm_settings

        return llm_settings(self._deployment.llm)


@contextmanager
def as_problems() -> Iterator[None]:
    """The service's errors as the command line's."""
    from service.errors import ServiceError
    from service.problems import problem_of

    try:
        yield
    except ServiceError as error:
        raise CommandError(problem_of(error)) from error
