"""``intentctl profile`` as a person types it, and the profile that it writes."""

import json
import re
import urllib.request

import pytest
import yaml

from intentctl.client import Client
from intentctl.profile import ProfileOptions, Subject, find_subject, profile_text, report
from intentctl.status import CommandError
from intentctl.steps import Design, Point, Readings, StepRun
from selector.models import Profile
from selector.performance.fit import Running, StepSample
from selector.profiles import load
from service.deployment import file as deployment
from service.deployment import profiles
from tests.intentctl.real import TorchService, real_text
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow

STEPS = [(1, tokens, 0) for tokens in (64, 256, 1024)] + [(n, 1, c) for n in (1, 4, 8) for c in (64, 1024)]


def readings_of(subject: Subject) -> Readings:
    """An engine that is a tenth slower than the profile it starts from."""
    times = subject.running.predicted_s([StepSample(*step, seconds=1.0) for step in STEPS], subject.start)
    taken = {
        Point(n, new if new > 1 else cached, is_decode=new == 1): [StepRun(1.1 * time, cached)]
        for (n, new, cached), time in zip(STEPS, times, strict=True)
    }
    return Readings(taken, {Point(16, 64, is_decode=True): "too many"})


@pytest.fixture
def timed(monkeypatch):
    """The command, with an engine whose steps take what is said: the scripted one outruns its client."""

    class Bench:
        def __init__(self, client, *_):
            self._subject = find_subject(client, ProfileOptions())

        async def run(self, design, kv_tokens):
            assert kv_tokens > 0
            return readings_of(self._subject)

    monkeypatch.setattr("intentctl.profile.Bench", Bench)


def predicted(document: dict, profile: Profile, running: Running) -> list[float]:
    """What a profile says of the steps that a document lists."""
    steps = [
        StepSample(
            entry["sequences"],
            *((entry["tokens"], 0) if entry["step"] == "prefill" else (1, entry["tokens"])),
            seconds=entry["measured_s"],
        )
        for entry in document["samples"]
    ]
    return list(running.predicted_s(steps, profile))


def test_the_profile_is_written_and_explained(run, there, timed, tmp_path):
    code, out, err = run("profile", "--out", tmp_path / "cpu.yaml", *there)
    text = (tmp_path / "cpu.yaml").read_text()
    assert code == 0
    assert err == ""
    for expected in (
        "before",
        "as before",
        "allreduce_s",
        "prefill 256",
        "decode 4 at",
        "error band",
        "written",
    ):
        assert expected in out
    assert load(str(tmp_path / "cpu.yaml")).source == "measured"
    assert re.match(r"# CPU, measured by `intentctl profile` on 20\d\d-\d\d-\d\d: counting as CPU\[0\]", text)
    assert "# As before: " in text


def test_as_json_it_is_one_document_with_the_profile_in_it(run, there, timed, shared):
    code, out, _ = run("profile", "-o", "json", *there)
    document = json.loads(out)
    assert (code, document["file"]) == (0, None)
    profile = Profile.from_mapping(document["profile"])
    subject = find_subject(Client(shared.url), ProfileOptions())
    measured = [entry["measured_s"] for entry in document["samples"]]
    found = predicted(document, profile, subject.running)
    assert found == pytest.approx([entry["predicted_s"] for entry in document["samples"]])
    residuals = [abs(a / b - 1) for a, b in zip(found, measured, strict=True)]
    assert max(residuals) <= profile.error_band == document["error_band"]
    assert {entry["figure"] for entry in document["figures"]}.isdisjoint(document["kept"])


def test_a_named_profile_can_be_the_start(run, there, timed, shared, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump(
            {**find_subject(Client(shared.url), ProfileOptions()).start.to_mapping(), "p2p_latency_s": 0.125}
        )
    )
    _, out, _ = run("profile", "--like", tmp_path / "mine.yaml", "-o", "json", *there)
    assert json.loads(out)["profile"]["p2p_latency_s"] == 0.125


def test_no_file_is_left_without_a_service_and_none_is_overwritten(run, tmp_path, there):
    code, out, err = run("profile", "--out", tmp_path / "cpu.yaml", "--server", "http://127.0.0.1:9")
    assert (code, out) == (7, "")
    assert "no service answers" in err
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "cpu.yaml"
    file.write_text("mine")
    code, _, err = run("profile", "--out", file, *there)
    assert code == 1
    assert "exists; name another file, or remove it first" in err
    assert file.read_text() == "mine"


def test_an_engine_that_is_lost_is_said(run, new_service, tmp_path):
    service = new_service()

    async def lose():
        service.engine.lose("rank 1 was lost")

    service.call(lose())
    code, _, err = run("profile", "--out", tmp_path / "cpu.yaml", "--server", service.url)
    assert code == 1
    assert "no model can serve: counting is failed" in err
    assert not (tmp_path / "cpu.yaml").exists()


@rows(
    ("name", "message"),
    [("missing/cpu.yaml", "cannot be written: No such file or directory"), ("cpu.json", "write .yaml")],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(run, tmp_path, name, message):
    code, _, err = run("profile", "--out", tmp_path / name, "--server", "http://127.0.0.1:9")
    assert code == 1
    assert message in err


def test_a_start_that_does_not_exist_or_lacks_the_format_is_refused(run, there, timed):
    assert "no profile for 'T4'; there are" in run("profile", "--like", "T4", *there)[2]
    code, _, err = run("profile", "--like", "a100-80gb", *there)
    assert code == 1
    assert "no figure for computing in fp32" in err


@rows(
    ("gpus", "start", "said"),
    [
        (
            "[{kind: Abacus, count: 4, memory_gb: 1}]",
            "pp2",
            "no profile of Abacus to start from; name a similar device with --like: a10, ",
        ),
        (
            "[{kind: Harp, count: 4, memory_gb: 1}, {kind: Abacus, memory_gb: 1}]",
            "'Harp[0]:0-4@fp32 > Abacus[4]:4-8@fp32'",
            "spans Abacus, Harp on local; switch to one kind on one machine",
        ),
    ],
)
def test_a_kind_without_a_profile_asks_for_a_similar_one_and_several_are_refused(
    run, timed, tmp_path, gpus, start, said
):
    text = DEPLOYMENT.replace("[{kind: CPU, count: 4, memory_gb: 1}]", gpus).replace("start: pp2", f"start: {start}")
    known = ", ".join(f"{kind}: a100-80gb" for kind in ("Abacus", "Harp") if kind in gpus)
    text = text.replace("limits: {", f"profiles: {{{known}}}\nlimits: {{")
    with ScriptedService(tmp_path / start[:3], text) as service:
        code, _, err = run("profile", "--server", service.url)
    assert code == 1
    assert said in err


def test_a_service_in_use_is_refused(run, timed, new_service):
    service = new_service()
    body = {"model": "counting", "prompt": "count", "max_tokens": 4000, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(
        f"{service.url}/openai/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    async def hold():
        service.engine.hold()

    with opener.open(request) as stream:
        stream.readline()
        service.call(hold())
        code, _, err = run("profile", "--server", service.url)
    assert code == 1
    assert "is in use (1 streams); measure when nothing else runs" in err


def test_the_file_says_what_was_fitted_and_what_stayed_and_too_few_readings_are_refused(shared):
    subject = find_subject(Client(shared.url), ProfileOptions())
    document = report(subject, readings_of(subject))
    header = profile_text(document).splitlines()[:3]
    figures = ", ".join(entry["figure"] for entry in document["figures"])
    assert header[1] == f"# Fitted to 9 step times: {figures}."
    assert header[2] == f"# As before: {', '.join(document['kept'])}."
    assert document["error_band"] < 0.1
    readings = Readings({}, {Point(1, 64, is_decode=False): "too long"})
    few = r"0 prefills and 0 decodes are too few.*; prefill of 64 tokens: too long"
    with pytest.raises(CommandError, match=few):
        report(subject, readings)


def test_a_real_engine_is_predicted_within_the_band_of_the_profile_that_was_measured(run, tmp_path, monkeypatch):
    small = Design(input_tokens=(256, 384, 512, 640), batches=(1, 4), contexts=(64, 256), rounds=1)
    monkeypatch.setattr("intentctl.steps.Design", lambda rounds: small)
    with TorchService(tmp_path, real_text().replace("start: pp2", "start: tp1")) as service:
        client = Client(service.url, service.admin_key)
        subject = find_subject(client, ProfileOptions())
        monkeypatch.setenv("INTENTCTL_KEY", service.admin_key)
        monkeypatch.setenv("INTENTCTL_SERVER", service.url)
        code, out, err = run("profile", "--out", tmp_path / "measured.yaml", "-o", "json", "--server", service.url)
    assert code == 0, err

    document = json.loads(out)
    text = service.deployment_file.read_text()
    (tmp_path / "deployment.yaml").write_text(text.replace("CPU: cpu.yaml", "CPU: measured.yaml"))
    read = deployment.load(tmp_path / "deployment.yaml")
    loaded = profiles.load_profiles(read, read.model(), tmp_path)["CPU"]
    assert loaded.source == "measured"
    found = predicted(document, loaded, subject.running)
    for entry, seconds in zip(document["samples"], found, strict=True):
        assert abs(seconds / entry["measured_s"] - 1) <= loaded.error_band, entry
    assert {entry["sequences"] for entry in document["samples"]} == {1, 4}
