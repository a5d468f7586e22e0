"""Routes about who asks, and about who said what to plans."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.rights import Right
from service.documents.access import MeDocument
from service.documents.operations import StandingDocument
from service.documents.problems import Code
from service.documents.state import ApprovalsDocument, PageRequest
from service.repeatable import RepeatableRoute
from service.routes import READING, OperatorDep, call

access_routes = APIRouter(route_class=RepeatableRoute)


@access_routes.get("/v1/me", **call("keys", Right.LOOK))
def me(operator: OperatorDep) -> MeDocument:
    """Whose key this is and what it may do; the service's clock, time zone and version."""
    return operator.me()


@access_routes.get("/v1/approvals", **call("plans", Right.LOOK, *READING))
def approvals(page: Annotated[PageRequest, Query()], operator: OperatorDep) -> ApprovalsDocument:
    """The last word to each plan, newest first; those whose time is over are among them."""
    return operator.approvals(page)


@access_routes.get("/v1/plans/{plan_id:id}/standing", **call("plans", Right.LOOK, *READING, Code.NOT_FOUND))
def standing(plan_id: str, operator: OperatorDep) -> StandingDocument:
    """How a plan stands now: who made it, the yes or no that holds, what applied it, what runs."""
    return operator.standing(plan_id)
