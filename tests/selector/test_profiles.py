"""The shipped profiles and the loader."""

import json

import pytest
import yaml

from runtime.models import BYTES_PER_VALUE, Precision
from selector import profiles
from selector.models import Profile, ProfileError
from tests.rows import rows


def test_a_profile_is_found_by_its_name_and_by_its_device_kind():
    assert profiles.load("a100-80gb") == profiles.load("A100")
    assert profiles.load("l40s").kind == "L40S"


def test_an_unknown_profile_is_refused_and_the_known_ones_named():
    with pytest.raises(ProfileError, match=r"'T4'; there are a10 \(kind A10\), .*, l40s \(kind L40S\)"):
        profiles.load("T4")


@rows("name", profiles.available())
def test_every_served_format_computes_in_something_with_figures(name):
    profile = profiles.load(name)
    for weights in profile.precisions:
        assert Precision.named(weights, profile.kind).activations in profile.flops_s
    assert profile.flops_s.keys() == profile.compute_share.keys()
    assert set(profile.extrapolated) <= set(profile.precisions) <= BYTES_PER_VALUE.keys()
    assert set(profile.allreduce_s) == {2, 4, 8}


@rows("name", profiles.available())
def test_no_share_exceeds_its_peak(name):
    profile = profiles.load(name)
    shares = [
        *profile.compute_share.values(),
        *profile.weight_share.values(),
        profile.kv_share,
        profile.expert_share,
    ]
    assert all(0 < share <= 1 for share in shares)


@rows("name", profiles.available())
def test_a_profile_survives_json(name):
    profile = profiles.load(name)
    assert Profile.from_mapping(json.loads(json.dumps(profile.to_mapping()))) == profile


@rows("name", ["mine.yaml", "mine.yml"])
def test_a_profile_is_read_from_a_file(tmp_path, name):
    (tmp_path / name).write_text(yaml.safe_dump(profiles.load("L4").to_mapping()))
    assert profiles.load(str(tmp_path / name)) == profiles.load("L4")


@rows(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory; `intentctl profile --out` writes one"),
        ("{", "is no YAML: "),
        ("[1]", "a profile is a mapping of keys to figures"),
        ("kind: L4", "profile of L4: .*kv_share.* missing"),
        (b"\xff\xfe\xff", "cannot be read: "),
    ],
)
def test_a_file_that_is_no_profile_is_named_with_what_is_wrong(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProfileError, match=f"mine.yaml:? {message}"):
        profiles.load(str(file))
