import json

import pytest

from service import profiles
from service.deployment import load
from service.errors import DeploymentError
from service.testing import DEPLOYMENT, SAMPLES, write_deployment
from validator.models import Speed


@pytest.fixture
def measured(monkeypatch):
    """Counts measurements; the measuring itself is the engine's and tested there."""
    checkpoints = []

    def measure(checkpoint):
        from dataclasses import asdict

        checkpoints.append(checkpoint)
        return asdict(SAMPLES)

    monkeypatch.setattr("runtime.torch_engine.calibrate.measure", measure)
    return checkpoints


def test_shipped_kinds_have_their_profile_and_another_name_may_be_given(tmp_path):
    text = DEPLOYMENT.replace("kind: CPU", "kind: Big").replace(
        "limits: {", "profiles: {Big: a100-80gb}\nlimits: {"
    )
    found = profiles.load_profiles(load(write_deployment(tmp_path, text)), tmp_path)

    assert found["Big"].kind == "Big"
    assert found["Big"].memory_bytes_s == pytest.approx(2.039e12)


def test_the_cpu_is_measured_once_and_the_result_kept(tmp_path, measured):
    deployment = load(write_deployment(tmp_path))
    first = profiles.load_profiles(deployment, tmp_path / "data")
    second = profiles.load_profiles(deployment, tmp_path / "data")

    assert measured == [tmp_path / "counting"]
    assert first == second


def test_another_model_is_measured_again(tmp_path, measured):
    deployment = load(write_deployment(tmp_path))
    profiles.load_profiles(deployment, tmp_path / "data")
    config = tmp_path / "counting" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": 256}))
    profiles.load_profiles(deployment, tmp_path / "data")

    assert len(measured) == 2


def test_a_kept_profile_that_cannot_be_read_is_measured_again(tmp_path, measured):
    deployment = load(write_deployment(tmp_path))
    profiles.load_profiles(deployment, tmp_path / "data")
    (kept,) = (tmp_path / "data" / "profiles").iterdir()
    kept.write_text("{")
    profiles.load_profiles(deployment, tmp_path / "data")

    assert len(measured) == 2


def test_a_folder_that_cannot_be_written_only_costs_the_next_measurement(tmp_path, measured):
    (tmp_path / "file").write_text("")

    assert profiles.load_profiles(load(write_deployment(tmp_path)), tmp_path / "file")["CPU"].kind == "CPU"


def test_a_kind_without_a_profile_is_named(tmp_path):
    text = DEPLOYMENT.replace("kind: CPU", "kind: H900")

    with pytest.raises(DeploymentError, match=r"profiles\.H900"):
        profiles.load_profiles(load(write_deployment(tmp_path, text)), tmp_path)


def test_speeds_are_peaks_of_the_data_sheet_and_a_measured_kind_has_none(tmp_path):
    text = DEPLOYMENT.replace("kind: CPU", "kind: Big")
    named = text.replace("limits: {", "profiles: {Big: a100-80gb}\nlimits: {")

    assert profiles.speeds(load(write_deployment(tmp_path, named))) == {"Big": Speed(2.039e12, 312e12)}
    assert profiles.speeds(load(write_deployment(tmp_path, text))) == {}
    assert profiles.speeds(load(write_deployment(tmp_path))) == {}
