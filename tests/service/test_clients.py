"""What a deployment says of its clients: read, checked, and by default as large as the longest context needs."""

import pytest

from service.clients import LEAST_BODY_BYTES, ClientLimits
from service.deployment import load
from service.errors import DeploymentError
from tests.service.scripted import CONFIG, DEPLOYMENT, write_deployment


def read(folder, said: str = "") -> ClientLimits:
    return load(write_deployment(folder, DEPLOYMENT + said)).clients


def test_every_setting_is_read(tmp_path):
    said = """\
clients:
  {max_body_mb: 1.5, max_connections: 7, head_timeout_s: 1, body_timeout_s: 2, unread_timeout_s: 3, stop_timeout_s: 0}
"""
    assert read(tmp_path, said) == ClientLimits(1_500_000, 7, 1, 2, 3, 0)


@pytest.mark.parametrize(
    ("context_tokens", "most_bytes"), [(1024, LEAST_BODY_BYTES), (16_384, 262_144), (131_072, 2_097_152)]
)
def test_a_body_may_have_what_the_longest_context_needs(tmp_path, monkeypatch, context_tokens, most_bytes):
    monkeypatch.setitem(CONFIG, "max_position_embeddings", context_tokens)
    assert read(tmp_path) == ClientLimits(max_body_bytes=most_bytes)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{max_body_mb: 0}", ":14: clients.max_body_mb: 0 is less than or equal"),
        ("{stop_timeout_s: -1}", "clients.stop_timeout_s: -1 is less than the minimum of 0"),
        ("{max_connection: 3}", "clients.max_connection: unknown key; did you mean 'max_connections'"),
    ],
)
def test_what_cannot_be_is_refused_by_line_and_key(tmp_path, said, why):
    with pytest.raises(DeploymentError) as caught:
        read(tmp_path, f"clients: {said}\n")
    assert why in str(caught.value)
