"""The shipped profiles and the loader."""

import json
from pathlib import Path

import pytest
import yaml

from runtime.models import BYTES_PER_VALUE, Precision
from selector import profiles
from selector.errors import ProfileError
from selector.models import Profile


def test_a_profile_is_found_by_its_name_and_by_its_device_kind() -> None:
    assert profiles.load("a100-80gb") == profiles.load("A100")
    assert profiles.load("l40s").kind == "L40S"


def test_an_unknown_profile_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(ProfileError, match=r"'T4'; there are a10 \(kind A10\), .*, l40s \(kind L40S\)"):
        profiles.load("T4")


@pytest.mark.parametrize("name", profiles.available())
def test_every_served_format_computes_in_something_with_figures(name: str) -> None:
    profile = profiles.load(name)
    for weights in profile.precisions:
        assert Precision.named(weights, profile.kind).activations in profile.flops_s
    assert profile.flops_s.keys() == profile.compute_share.keys()
    assert set(profile.extrapolated) <= set(profile.precisions) <= BYTES_PER_VALUE.keys()
    assert set(profile.allreduce_s) == {2, 4, 8}


@pytest.mark.parametrize("name", profiles.available())
def test_no_share_exceeds_its_peak(name: str) -> None:
    profile = profiles.load(name)
    shares = [
        *profile.compute_share.values(),
        *profile.weight_share.values(),
        profile.kv_share,
        profile.expert_share,
    ]
    assert all(0 < share <= 1 for share in shares)


def test_the_a100_does_not_compute_in_fp8_and_the_l40s_does() -> None:
    assert "fp8" not in profiles.load("A100").flops_s
    assert "fp8" in profiles.load("L40S").flops_s


def test_the_kinds_that_people_have_are_there() -> None:
    kinds = {profiles.load(name).kind for name in profiles.available()}
    assert kinds == {"A10", "A100", "A100-40GB", "A100-PCIE", "H100", "H200", "L4", "L40S", "RTX5090"}


def test_what_nobody_measured_says_so() -> None:
    sources = {profiles.load(name).kind: profiles.load(name).source for name in profiles.available()}
    assert {kind for kind, source in sources.items() if source == "extrapolated"} == {
        "A10",
        "A100-40GB",
        "L4",
        "RTX5090",
    }


@pytest.mark.parametrize("name", profiles.available())
def test_a_profile_survives_json(name: str) -> None:
    profile = profiles.load(name)
    assert Profile.from_mapping(json.loads(json.dumps(profile.to_mapping()))) == profile


@pytest.mark.parametrize("name", ["mine.yaml", "mine.yml"])
def test_a_profile_is_read_from_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(yaml.safe_dump(profiles.load("L4").to_mapping()))
    assert profiles.load(str(tmp_path / name)) == profiles.load("L4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory; `intentctl profile --out` writes one"),
        ("{", "is no YAML: "),
        ("[1]", "a profile is a mapping of keys to figures"),
        ("kind: L4", "profile of L4: .*kv_share.* missing"),
        (b"\xff\xfe\xff", "cannot be read: "),
    ],
)
def test_a_file_that_is_no_profile_is_named_with_what_is_wrong(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProfileError, match=f"mine.yaml:? {message}"):
        profiles.load(str(file))
