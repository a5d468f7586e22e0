"""Intents that are kept: every version of them, what was said for it and what is different.

Blocks; the store is a disk.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from intent.followups.amend import amend as amend_intent
from intent.followups.conversation import NO_CHANGE, Amendment
from intent.models import Goal, Intent, LlmSettings, Outcome
from intent.readback import render
from service.deployment.file import Deployment
from service.documents.errors import RefusedError
from service.documents.plans import AmendmentDocument, FollowUp, VersionDocument, VersionedFollowUp
from service.documents.problems import Code, Detail
from service.planning.lifecycle import check, new_id, refuse_damaged

if TYPE_CHECKING:  # a database is not needed to amend a file
    from service.store.store import Store


@dataclass(frozen=True, slots=True)
class IntentStorage:
    """Where intents are kept, how, and what follow-ups to them are read with."""

    store: "Store"
    save: Callable[[VersionDocument], bool]
    """Keeps a next version; False if somebody else has made it."""
    deployment: Deployment
    llm: LlmSettings | None
    said_by: str | None
    """Whose key follows up."""
    amend: Callable[..., Amendment]
    """``amend``, wherever it is done."""


def amend(
    previous: Intent,
    follow_up: FollowUp,
    deployment: Deployment,
    now: datetime,
    llm: LlmSettings | None = None,
) -> Amendment:
    """The next version of an intent, checked; may ask the LLM and then blocks until it answers.

    Raises:
        RefusedError: ``out_of_scope`` if the words cannot be tied to a goal, ``no_change`` if they change nothing.
    """
    refuse_damaged(follow_up.text)
    catalogue = deployment.catalogue(now)
    amendment = amend_intent(previous, follow_up.text, catalogue, render, follow_up.mode, llm)
    intent = amendment.intent
    if not amendment.diff and intent.outcome is Outcome.OUT_OF_SCOPE:
        same = any(finding.code == NO_CHANGE for finding in intent.findings)
        details = [Detail(finding.pointer, finding.message, finding.code) for finding in intent.findings]
        message = " ".join(dict.fromkeys(finding.message for finding in intent.findings))
        raise RefusedError(Code.NO_CHANGE if same else Code.OUT_OF_SCOPE, message, details, intent=intent)
    return replace(amendment, intent=check(intent, deployment, now))


def create(intent: Intent, store: "Store", said_by: str | None = None) -> VersionDocument:
    """Keep a checked intent as version 1, and whose key said it.

    Raises:
        RefusedError: it says nothing about the service.
    """
    if intent.outcome is Outcome.OUT_OF_SCOPE:
        details = [Detail(finding.pointer, finding.message, finding.code) for finding in intent.findings]
        message = " ".join(dict.fromkeys(finding.message for finding in intent.findings)) or "nothing was asked for"
        raise RefusedError(Code.OUT_OF_SCOPE, message, details, intent=intent)
    intent_id = new_id("intent")
    store.save_intent(intent_id, intent, said_by)
    return version_of(store, intent_id, None)


def version_of(store: "Store", intent_id: str, version: int | None) -> VersionDocument:
    """One version of an intent, the latest without a number.

    Raises:
        RefusedError: there is none.
    """
    found = store.intent(intent_id, version)
    if found is None:
        which = intent_id if version is None else f"version {version} of {intent_id}"
        raise RefusedError(Code.NOT_FOUND, f"there is no intent {which}")
    return found


def settled(store: "Store", intent_id: str) -> VersionDocument:
    """The latest version of an intent that has no question; the latest of all where each has one.

    Raises:
        RefusedError: there is no such intent.
    """
    latest = version_of(store, intent_id, None)
    for number in range(latest.version, 0, -1):
        found = version_of(store, intent_id, number)
        if found.intent.outcome is not Outcome.CLARIFY:
            return found
    return latest


def first_said(store: "Store", intent_id: str, goals: Sequence[Goal]) -> list[datetime]:
    """When each goal of an intent that is kept was said first.

    A time from then on is not begun anew by what is said later.
    """
    latest = version_of(store, intent_id, None)
    versions = [version_of(store, intent_id, number) for number in range(1, latest.version)]

    def said_s(goal: Goal) -> float:
        return next((version.created_s for version in versions if goal in version.intent.goals), latest.created_s)

    return [datetime.fromtimestamp(said_s(goal), UTC) for goal in goals]


def follow(kept: IntentStorage, intent_id: str, follow_up: VersionedFollowUp, now: datetime) -> VersionDocument:
    """Keep the next version of an intent.

    Raises:
        RefusedError: there is no such intent, the words change nothing, or it is another version already.
    """
    store = kept.store
    latest = version_of(store, intent_id, None)
    if follow_up.version not in {None, latest.version}:
        raise _stale(intent_id, latest.version, f"version {follow_up.version}")
    amendment = kept.amend(latest.intent, follow_up, kept.deployment, now, kept.llm)
    version = VersionDocument(
        **dict(AmendmentDocument.model_validate(amendment)),
        id=intent_id,
        version=latest.version + 1,
        supersedes=latest.version,
        text=follow_up.text,
        created_s=time.time(),
        said_by=kept.said_by,
    )
    if not kept.save(version):
        raise _stale(intent_id, version.version, "another version")
    return version_of(store, intent_id, None)


def _stale(intent_id: str, latest: int, text: str) -> RefusedError:
    message = f"{intent_id} is at version {latest}, and this was said about {text}; read it again"
    return RefusedError(Code.STALE_INTENT, message, [Detail("/version", message)])
