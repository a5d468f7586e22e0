"""Errors of the service.

Each is a problem, whose code the HTTP status and the exit code are looked up by.

ServiceError
    DeploymentError    the deployment file cannot be used
    StoreError         the database cannot be opened or written
    StartError         the service cannot start (port in use, engine)
    RefusedError       a request that was understood and refused
"""

from collections.abc import Callable, Sequence
from typing import Self

from intent.models import Finding, Intent
from runtime.errors import EngineLostError, RuntimeFault
from selector.models import Infeasible
from service.documents.plans import RefusedModel
from service.documents.problems import Code, Detail, Problem


class ServiceError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do.

    ``intent``, ``infeasible``, ``findings`` and ``refused`` are what a program may want to know beside it.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        errors: Sequence[Detail] = (),
        *,
        intent: Intent | None = None,
        infeasible: Infeasible | None = None,
        findings: Sequence[Finding] = (),
        refused: Sequence[RefusedModel] = (),
    ) -> None:
        super().__init__(message)
        facts = {
            "intent": intent,
            "infeasible": infeasible,
            "findings": tuple(findings) or None,
            "refused": tuple(refused) or None,
        }
        self.problem = Problem.of(code, message, errors).model_copy(update=facts)

    @classmethod
    def answered(cls, problem: Problem) -> Self:
        """The error that somebody else's problem is."""
        error = cls(problem.code, problem.detail)
        error.problem = problem
        return error

    def __reduce__(self) -> tuple[Callable[[Problem], "ServiceError"], tuple[Problem]]:
        return type(self).answered, (self.problem,)  # in a pickle the problem is all there is

    @property
    def code(self) -> Code:
        """What went wrong, for programs."""
        return self.problem.code

    @property
    def errors(self) -> tuple[Detail, ...]:
        """Each thing that is wrong."""
        return self.problem.errors


class DeploymentError(ServiceError):
    """The deployment file cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.BAD_DEPLOYMENT, message)


class StoreError(ServiceError):
    """The database cannot be opened or written."""

    def __init__(self, message: str, *, is_unknown: bool = False) -> None:
        """``is_unknown``: what was to be written may be written all the same."""
        super().__init__(Code.STORE, message)
        self.is_unknown = is_unknown


class StartError(ServiceError):
    """The service cannot start."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.START, message)


class RefusedError(ServiceError):
    """A request that was understood and refused; nothing was changed."""


def problem_of(error: ServiceError | RuntimeFault) -> Problem:
    """What is told of an error, of the service or of what it runs."""
    if isinstance(error, ServiceError):
        return error.problem
    return Problem.of(Code.ENGINE_LOST if isinstance(error, EngineLostError) else Code.UNSUPPORTED, str(error))
