"""Two people are two: every order of acts on the pure rule, and random ones over HTTP."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

import selector.planning
from service.access.people import Actors, IntentAuthors, folded, lacks_another
from service.documents.access import RIGHTS, Right, Role
from service.serving.worker_process import WorkerProcess
from tests.rows import rows
from tests.service.asking import end_of
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow

ACTS = ("say", "activate", "plan", "approve", "apply")
PEOPLE = ("ada", "bob", "carl")


@dataclass
class World:
    """Who acted on the words at hand, and on the plan at hand, as somebody who only watches writes it down."""

    said: str | None = None
    activated: str | None = None
    plan: Actors | None = None
    on_plan: frozenset[str] = frozenset()

    def may(self, who: str, act: str, *, is_within: bool) -> bool:
        """Whether the rule lets somebody act who has every right."""
        match act:
            case "activate":
                acted = Actors([IntentAuthors("intent-1", self.said, who)])
                return not lacks_another("another", acted, is_within=True)
            case "approve":
                return not lacks_another("another", replace(self.plan, approved_by=who), is_within=False)
            case "apply":
                return not lacks_another("another", replace(self.plan, applied_by=who), is_within=is_within)
        return True

    def does(self, who: str, act: str) -> None:
        """Somebody acts."""
        match act:
            case "say":
                self.said, self.activated = who, None
            case "activate":
                self.activated = who
            case "plan":
                words = IntentAuthors("intent-1", self.said, self.activated)
                self.plan, self.on_plan = Actors([words], who), frozenset({self.said, who})
            case "approve":
                self.plan, self.on_plan = replace(self.plan, approved_by=who), self.on_plan | {who}


def is_possible(world: World, act: str) -> bool:
    return {"activate": world.said, "plan": world.said, "approve": world.plan, "apply": world.plan}.get(
        act, True
    ) is not None


@pytest.mark.parametrize("is_within", [False, True])
@pytest.mark.parametrize("people", [PEOPLE[:2], PEOPLE])
def test_in_every_order_nobody_acts_alone_and_two_can_do_everything(people, is_within):
    applied = refused = 0
    for order in itertools.product(itertools.product(people, ACTS), repeat=4):
        world = World()
        for who, act in order:
            if not is_possible(world, act):
                continue
            may = world.may(who, act, is_within=is_within)
            if act == "activate":
                assert may is (who != world.said), order
            if act == "apply":
                behind = world.on_plan | {who}
                activated = world.plan.words[0].activated_by
                behind |= {activated} if is_within and activated else set()
                assert may is (len(behind) > 1), order
                applied, refused = applied + may, refused + (not may)
            if may:
                world.does(who, act)
        if world.plan is not None:
            assert any(world.may(who, "apply", is_within=is_within) for who in people), order
        if world.said is not None:
            assert any(world.may(who, "activate", is_within=is_within) for who in people), order
    assert min(applied, refused) > 50


def test_a_plan_of_the_controller_is_of_those_who_said_its_intents():
    one, two = IntentAuthors("intent-1", "ada", "bob"), IntentAuthors("intent-2", "ada", "carl")
    made = Actors([one, two], applied_by="the controller")
    assert not lacks_another("another", made, is_within=True)
    assert lacks_another("another", made, is_within=False).startswith(
        "only ada would have acted (said intent-1); another person"
    )
    assert lacks_another("another", replace(made, applied_by="ada"), is_within=False)
    assert not lacks_another("another", replace(made, applied_by="bob"), is_within=False)
    alone = replace(made, words=[one, replace(two, activated_by="ada")])
    assert "only ada would have acted (said intent-2, activated it);" in lacks_another("another", alone, is_within=True)
    assert not lacks_another("person", alone, is_within=True)


@rows("name", ["the controller", "policy", "anybody", None])
def test_what_is_no_person_is_no_second_person(name):
    said = Actors([IntentAuthors("intent-1", "ada", name)], name, name, name)
    assert lacks_another("another", said, is_within=True).startswith(
        "only ada would have acted (said intent-1); another"
    )
    nobodys = lacks_another("another", replace(said, words=[IntentAuthors("intent-1", name)]), is_within=True)
    assert nobodys == "only somebody unknown would have acted (); another person has to (approval.by: another)"


def test_names_are_compared_as_they_look():
    assert folded("  ＡDA   Lovelace ") == folded("ada lovelace") != folded("ada.lovelace")


TWO = DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 10000000}\napproval: {by: another}\nmode: observe")


@pytest.fixture
def planned_once(monkeypatch):
    """What is planned for the same goals once more is the same plan by another name: who may apply it is asked here."""
    made, plans = selector.planning.planned_within, dict[tuple[str, ...], object]()

    def planned(goals, problem, profiles, ticket):
        wanted = (
            str(problem.now),
            *sorted(str((one.metric, one.value) if hasattr(one, "metric") else one) for one in goals),
        )
        plan = plans.get(wanted) or plans.setdefault(wanted, made(goals, problem, profiles, ticket))
        return replace(plan, id=ticket.plan_id, intent_id=ticket.intent_id, generation=ticket.generation)

    monkeypatch.setattr(selector.planning, "planned_within", planned)
    monkeypatch.setattr(WorkerProcess, "do", lambda _, work, *arguments, **__: work(*arguments))


@contextmanager
def crowded(folder: Path) -> Iterator[tuple[ScriptedService, Mapping[tuple[str, Role], httpx.Client]]]:
    """A service, and a client of each person with a key of each role."""
    with ExitStack() as stack:
        service = stack.enter_context(ScriptedService(folder, TWO + "tenants: [{name: gold}]\n"))
        found = dict[tuple[str, Role], httpx.Client]()
        for who, role in itertools.product(PEOPLE, Role):
            tenant = "gold" if role is Role.TENANT else None
            made = service.parts.access.keys.create(f"{who}-{role}", role, tenant, "test", person=who)
            found[who, role] = stack.enter_context(service.client(made[0]))
        yield service, found


SEEN = {"acknowledge": ["breaks_promise"]}
"""What was activated on the way may be against the next plan."""
AT_ONE = 100
"""Walks with one service: the longer its history is, the longer takes what looks back."""


class Walk:
    """Some acts on one intent and its newest plan, and what was done, as far as the answers tell."""

    def __init__(self, service: ScriptedService, crowd: Mapping[tuple[str, Role], httpx.Client]) -> None:
        self.service, self.crowd = service, crowd
        self.intent = self.plan = ""
        self.author: str | None = None
        self.behind = frozenset[str]()
        self.done = list[tuple[str, str]]()

    def act(self, who: str, role: Role, act: str) -> int:
        """Try something; the status of the answer, 0 where there is nothing to do it to."""
        client, target = (
            self.crowd[who, role],
            "tp2" if self.service.serving.engine.topology.shape == "PP2" else "pp2",
        )
        text = f"keep P99 TTFT < {random.Random(len(self.done)).randrange(100, 104)}s at peak and run it with {target[:2]}=2"
        match act:
            case "say" if not self.intent:
                answer = client.post("/v1/intents", json={"text": text})
            case "say":
                answer = client.post(f"/v1/intents/{self.intent}:amend", json={"text": text, "mode": "replace"})
            case "plan" if self.intent:
                answer = client.post("/v1/plans", json={"intent_id": self.intent})
            case "activate" if self.intent:
                answer = client.post(f"/v1/intents/{self.intent}:activate", json={})
            case "approve" if self.plan:
                digest = client.get(f"/v1/plans/{self.plan}").json().get("digest", "")
                answer = client.post(f"/v1/plans/{self.plan}:approve", json={"digest": digest, **SEEN})
            case "apply" if self.plan:
                answer = client.post(f"/v1/plans/{self.plan}:apply", json=SEEN)
            case _:
                return 0
        assert answer.status_code < 500, answer.text
        if answer.status_code in {201, 202}:
            self._note(who, act, answer.json())
        return answer.status_code

    def _note(self, who: str, act: str, answer: dict[str, object]) -> None:
        names = {
            "plan": "plan.create",
            "activate": "intent.activate",
            "approve": "plan.approve",
            "apply": "plan.apply",
        }
        self.done.append((names.get(act, "intent.amend" if self.intent else "intent.create"), who))
        if act == "say":
            self.intent, self.author = str(answer["id"]), who
        elif act == "plan":
            self.plan, self.behind = str(answer["plan"]["id"]), frozenset({self.author, who})
        elif act in {"approve", "apply"}:
            self.behind |= {who}
        if act == "activate":
            assert who != self.author
        if act == "apply":
            assert len(self.behind) > 1, self.done
            end_of(self.crowd["carl", Role.ADMIN], str(answer["id"]))
            self.plan = ""


def walk(service: ScriptedService, crowd: Mapping[tuple[str, Role], httpx.Client], dice: random.Random) -> Walk:
    """Eight acts with five keys of two or three people; then two of them, who may approve, bring it to its end."""
    people = dice.sample(PEOPLE, dice.choice((2, 3)))
    keys: Sequence[tuple[str, Role]] = [(dice.choice(people), dice.choice([*Role, Role.APPROVER])) for _ in range(5)]
    going = Walk(service, crowd)
    for _ in range(8):
        who, role = dice.choice(keys)
        act = dice.choice(["say", *["plan", "activate"] * bool(going.intent), *["approve", "apply"] * bool(going.plan)])
        status = going.act(who, role, act)
        needed = {"say": Right.SAY, "plan": Right.SAY, "apply": Right.APPLY}.get(act, Right.APPROVE)
        assert status in {0, 403} or needed in RIGHTS[role], (act, role, status)
    first, second = dice.sample(people, 2)
    tried = {going.act(who, Role.APPROVER, "apply") for who in (first, second)}
    assert tried != {403}, "one of two may apply any plan"
    if 202 not in tried:  # there is no plan, or it is for what runs
        for act in ("say", "plan"):
            assert going.act(first, Role.APPROVER, act) == 201
        tried = {going.act(who, Role.APPROVER, "apply") for who in (first, second)}
    assert 202 in tried
    crowd["carl", Role.ADMIN].post(f"/v1/intents/{going.intent}:retire")
    return going


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(8, 20, marks=pytest.mark.slow),
        *(pytest.param(1000, seed, marks=pytest.mark.exhaustive) for seed in range(5)),
    ],
)
def test_random_acts_over_http_apply_nothing_alone_and_are_in_the_audit(tmp_path, planned_once, count, seed):
    dice, done = random.Random(seed), 0
    while done < count:
        with crowded(tmp_path / str(done)) as (service, crowd):
            for _ in range(min(AT_ONE, count - done)):
                walked(service, crowd, dice)
                done += 1
            assert crowd["carl", Role.ADMIN].get("/v1/audit/verdict").json()["is_whole"]


def walked(service: ScriptedService, crowd: Mapping[tuple[str, Role], httpx.Client], dice: random.Random) -> None:
    """A walk, and the audit has its acts as they happened."""
    admin = crowd["carl", Role.ADMIN]
    before = admin.get("/v1/audit/head").json()["seq"]
    going = walk(service, crowd, dice)
    entries = admin.get("/v1/audit", params={"limit": 50}).json()["entries"]
    told = [(one["act"], one["who"]) for one in reversed(entries) if one["seq"] > before]
    assert [one for one in told if one[0] not in {"switch.end", "intent.retire"}] == going.done
