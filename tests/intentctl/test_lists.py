"""`intentctl get intents|plans|operations`."""

import json

from tests.service.scripted import ScriptedService


def test_what_there_was_is_listed(run, tmp_path):
    with ScriptedService(tmp_path) as service:
        here = ("--server", service.url)
        assert run("run it with tp=2", "--yes", *here)[0] == 0
        for kind, said in (
            ("plans", "counting: PP2 to TP2; applied by op-"),
            ("operations", "anybody: CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32 to CPU[0,1]:0-8@fp32; done"),
            ("intents", "ok: "),
        ):
            code, out, _ = run("get", kind, *here)
            assert (code, said in " ".join(out.split())) == (0, True), out
        assert len(json.loads(run("get", "plans", *here, "-o", "json")[1])["plans"]) == 1
