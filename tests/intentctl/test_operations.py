"""Commands about what is done to the running service."""

import json

import pytest

from runtime.models import Phase
from tests.runtime.scripted import Script
from tests.service.scripted import ScriptedService


@pytest.mark.slow
def test_cancel_gives_up_a_switch_and_shows_how_it_ended(run, tmp_path):
    with ScriptedService(tmp_path, script=Script(silent_while=Phase.WARMING)) as service:
        at = ("--server", service.url)
        code, out, _ = run("plan", "run it with tp=2", "-o", "json", *at)
        plan = json.loads(out)["plan"]["id"]
        code, _, err = run("apply", plan, "--yes", "--timeout", "0", *at)
        assert code == 8
        operation = next(word for word in err.split() if word.startswith("op-"))

        code, out, _ = run("cancel", operation, *at)
        assert code == 0
        assert "aborted" in out
        assert "given up by anybody (cancelled)" in " ".join(out.split())
        assert service.engine.topology.shape == "PP2"

        code, _, err = run("cancel", operation, *at)
        assert (code, "has ended as cancelled" in err) == (1, True)


def test_cancel_of_what_nobody_knows_says_so(run, shared):
    code, _, err = run("cancel", "op-nobody", "--server", shared.url)
    assert (code, "no operation op-nobody" in err) == (1, True)
