import dataclasses
import json
import re
from dataclasses import asdict

import pytest
import yaml

from runtime.footprint import recipe
from runtime.process.content import PinnedCheckpoint
from runtime.torch_engine.calibrate import Calibration
from selector.profiles import fit_cpu
from selector.profiles import load as shipped
from service.deployment import profiles
from service.deployment.file import load
from service.documents.errors import DeploymentError
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, SAMPLES, read, write_deployment
from validator.models import Speed


def profiles_of(deployment, folder):
    return profiles.load_profiles(deployment, deployment.model(), folder)


@pytest.fixture
def measured(monkeypatch):
    """Counts measurements; the measuring itself is the engine's and tested there."""
    checkpoints = []

    def measure(checkpoint, base):
        checkpoints.append(checkpoint)
        return Calibration(asdict(SAMPLES), rounds=2, apart=0.04, load=0.3, at_s=0.0)

    monkeypatch.setattr("runtime.torch_engine.calibrate.measure", measure)
    return checkpoints


def test_shipped_kinds_have_their_profile_and_another_name_may_be_given(tmp_path):
    text = DEPLOYMENT.replace("kind: CPU", "kind: Big").replace("limits: {", "profiles: {Big: a100-80gb}\nlimits: {")
    found = profiles_of(read(tmp_path, text), tmp_path)

    assert found["Big"].kind == "Big"
    assert found["Big"].memory_bytes_s == pytest.approx(2.039e12)


def with_profile(folder, name, kind="CPU"):
    text = DEPLOYMENT.replace("kind: CPU", f"kind: {kind}")
    return load(write_deployment(folder, text.replace("limits: {", f"profiles: {{{kind}: {name}}}\nlimits: {{")))


def test_a_profile_may_be_a_file_beside_the_deployment(tmp_path, measured):
    deployment = with_profile(tmp_path, "measured/cpu.yaml")
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "cpu.yaml").write_text(yaml.safe_dump(shipped("L4").to_mapping()))
    found = profiles_of(deployment, tmp_path)

    assert (found["CPU"].kind, found["CPU"].memory_bytes_s) == ("CPU", 0.30e12)
    assert measured == []


@rows("kind", ["CPU", "L4"])
def test_a_profile_file_that_cannot_be_used_is_named_with_the_deployment(tmp_path, kind):
    folder = tmp_path / kind
    deployment = with_profile(folder, "mine.yaml", kind)
    with pytest.raises(DeploymentError, match=rf"deployment\.yaml: profiles\.{kind}: .*mine\.yaml cannot be read"):
        profiles_of(deployment, folder)

    (folder / "mine.yaml").write_text(yaml.safe_dump({**shipped("L4").to_mapping(), "kv_share": 1.2}))
    with pytest.raises(DeploymentError, match=r"mine\.yaml: profile of L4: kv_share is 1\.2; a share"):
        profiles_of(deployment, folder)


def test_the_cpu_is_measured_once_and_anew_for_another_model_or_where_what_was_kept_cannot_be_read(tmp_path, measured):
    deployment, kept = read(tmp_path), tmp_path / "data"
    first = profiles_of(deployment, kept)
    assert profiles_of(deployment, kept) == first
    assert measured == [tmp_path / "counting"]

    (file,) = (kept / "profiles").iterdir()
    file.write_text("{")
    assert profiles_of(deployment, kept) == first
    assert len(measured) == 2

    config = tmp_path / "counting" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": 256}))
    profiles_of(deployment, kept)
    assert len(measured) == 3


@rows(("factor", "count"), [(2.0, 2), (1.1, 1), (0.5, 1)])
def test_the_cpu_is_measured_anew_where_it_is_quicker_than_it_was(
    tmp_path, measured, monkeypatch, caplog, factor, count
):
    deployment, kept = read(tmp_path), tmp_path / str(factor)
    measured.clear()
    caplog.clear()
    monkeypatch.setattr(profiles, "pace_s", lambda: 1.0)
    assert profiles_of(deployment, kept)["CPU"].made == (
        "measured on 1970-01-01 00:00Z at a load of 0.3, in 2 rounds of which two differ by 4%"
    )
    monkeypatch.setattr(profiles, "pace_s", lambda: 1 / factor)
    profiles.forget_outdated(deployment.model(), kept)
    profiles_of(deployment, kept)
    assert len(measured) == count
    assert ("predictions promise too much" in caplog.text) is (factor < 1)


@rows(
    ("cores", "devices", "said"),
    [(2, {0, 1}, ""), (2, {0, 1, 2}, "3 CPU slots of local share 2 cores"), (4, {0, 1, 2, 3}, "")],
)
def test_more_slots_than_cores_are_said(tmp_path, monkeypatch, cores, devices, said):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(cores))
    found = profiles.crowded(read(tmp_path), devices)
    assert found.startswith(said) if said else not found


def test_a_folder_that_cannot_be_written_only_costs_the_next_measurement(tmp_path, measured):
    (tmp_path / "file").write_text("")

    assert profiles_of(read(tmp_path), tmp_path / "file")["CPU"].kind == "CPU"


@rows(
    ("cpus", "named", "is_fitted"),
    [("CPU", None, True), ("CPU", "H200", False), ("L4", None, False)],
)
def test_settings_follow_from_a_cpu_where_all_runs_on_one_that_was_measured(tmp_path, measured, cpus, named, is_fitted):
    text = DEPLOYMENT.replace("kind: CPU, count: 4", f"kind: {cpus}, count: 4")
    if cpus != "CPU":
        text = text.replace("gpus: [", "gpus: [{kind: CPU, count: 1, memory_gb: 1}, ").replace("pp2", "L4x2")
    deployment = read(tmp_path, text + (f"profiles: {{CPU: {named}}}\n" if named else ""))
    slow = dataclasses.replace(fit_cpu(SAMPLES), flops_s={"fp32": 1e6})
    model = deployment.model()
    known = {**profiles_of(deployment, tmp_path / "data"), **({} if named else {"CPU": slow})}
    assert (profiles.fitted(model, known, tmp_path) != model) is is_fitted


def test_settings_follow_from_the_format_that_is_computed_in_too(tmp_path):
    text = DEPLOYMENT.replace("fp32", "bf16").replace("start: pp2}", "start: pp2, engine: torch}")
    model = read(tmp_path, text).model()
    slow = dataclasses.replace(fit_cpu(dataclasses.replace(SAMPLES, base="bf16")), flops_s={"bf16": 1e6})
    assert profiles.fitted(model, {"CPU": slow}, tmp_path).engine.torch.max_batch_tokens == 32


def test_speeds_are_peaks_of_the_data_sheet_and_a_measured_kind_has_none(tmp_path):
    text = DEPLOYMENT.replace("kind: CPU", "kind: Big")
    named = text.replace("limits: {", "profiles: {Big: a100-80gb}\nlimits: {")

    assert profiles.speeds(read(tmp_path, named)) == {"Big": Speed(2.039e12, 312e12)}
    assert profiles.speeds(read(tmp_path)) == {}


def test_the_rates_in_a_cpus_file_are_no_peaks(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(shipped("L4").to_mapping()))

    assert profiles.speeds(with_profile(tmp_path, "mine.yaml")) == {}
    assert profiles.speeds(with_profile(tmp_path, "mine.yaml", "L4")) == {"L4": Speed(0.30e12, 242.5e12)}


def measured_quality(deployment, **other):
    """A file of what was measured of a deployment's checkpoint, plausible."""
    model = deployment.model()
    checkpoint = PinnedCheckpoint.of(model.checkpoint).digests
    order = [*range(model.spec.num_layers)]
    lost = {layer: {"loss": 0.01} for layer in order}
    formats = {"int8": {"order": order, "prefixes": {len(order): {"loss": 0.02}}, "singles": lost}}
    return yaml.safe_dump(
        {"checkpoint": checkpoint, "layers": len(order), "recipe": recipe(model.spec), "formats": formats, **other}
    )


def with_quality(folder):
    return read(folder, DEPLOYMENT.replace("precision: fp32", "precision: fp32, quality: mine.yaml"))


def test_the_quality_that_was_kept_is_found_and_one_that_is_named_goes_before_it(tmp_path):
    deployment = read(tmp_path)
    assert profiles.quality_of(deployment.model(), tmp_path) is None
    kept = profiles.keep_quality(deployment.model().checkpoint, tmp_path, measured_quality(deployment))
    assert kept == tmp_path / "profiles" / "quality-counting.yaml"
    found = profiles.quality_of(deployment.model(), tmp_path)
    assert found.loss_of(dict.fromkeys(range(found.num_layers), "int8"), {}) == (0.02, "measured")

    kept.write_text("half")
    (tmp_path / "mine.yaml").write_text(measured_quality(deployment))
    assert profiles.quality_of(with_quality(tmp_path).model(), tmp_path) == found


@rows(
    ("other", "message"),
    [
        ({"checkpoint": {"config.json": "0123"}}, r"it was measured for another checkpoint \(config\.json\)"),
        ({"recipe": {"hidden": 32}}, "it was measured with another recipe of weights"),
        ({"formats": None}, "it is no measured quality, or not all of one"),
        ({"layers": 3}, "the order of int8 does not have each of 3 layers once"),
        ("layers: 8\n", "it lacks 'formats'"),
        ("formats: {int8: [", "while parsing a flow"),
        ("", "it is no measured quality"),
        (None, "No such file or directory"),
    ],
)
def test_a_quality_that_is_none_or_of_another_checkpoint_is_refused_or_left_out(tmp_path, other, message, caplog):
    folder = tmp_path / str(abs(hash(str(other))))
    named = with_quality(folder).model()
    text = measured_quality(read(folder), **other) if isinstance(other, dict) else other
    if text is not None:
        (folder / "mine.yaml").write_text(text)
        profiles.keep_quality(named.checkpoint, folder, text)
        assert profiles.quality_of(read(folder).model(), folder) is None
        assert re.search(message, caplog.text)
    with pytest.raises(DeploymentError, match=rf"deployment\.yaml:.*mine\.yaml: .*{message}.*measures anew"):
        profiles.quality_of(named, folder)
