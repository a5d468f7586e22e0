"""What a deployment says of its clients: read, checked, and by default as large as the longest context needs."""

from runtime.recovery import RECOVERY_TIMEOUT_S
from service.deployment.policy import LEAST_BODY_BYTES, ClientLimits
from tests.rows import rows
from tests.service.scripted import CONFIG, DEPLOYMENT, read, refused


def test_every_setting_is_read(tmp_path):
    said = """\
clients:
  {max_body_mb: 1.5, max_connections: 7, max_connections_per_address: 5, max_requests_per_key: 4, head_timeout_s: 1,
   body_timeout_s: 2, unread_timeout_s: 3, keep_alive_s: 4, recovery_timeout_s: 5, stop_timeout_s: 0}
"""
    assert read(tmp_path, DEPLOYMENT + said).clients == ClientLimits(1_500_000, 7, 5, 4, 1, 2, 3, 4, 5, 0)


def test_one_client_may_have_three_quarters_unless_the_file_says_otherwise(tmp_path):
    limits = read(tmp_path, DEPLOYMENT + "clients: {max_connections: 10, max_requests_per_key: 2}\n").clients
    assert (limits.max_connections_per_address, limits.max_requests_per_key) == (8, 2)


@rows(("context_tokens", "most_bytes"), [(1024, LEAST_BODY_BYTES), (16_384, 262_144), (131_072, 2_097_152)])
def test_a_body_may_have_what_the_longest_context_needs(tmp_path, monkeypatch, context_tokens, most_bytes):
    monkeypatch.setitem(CONFIG, "max_position_embeddings", context_tokens)
    assert read(tmp_path).clients == ClientLimits(max_body_bytes=most_bytes)


@rows(
    ("said", "why"),
    [
        ("{max_body_mb: 0}", ":14: clients.max_body_mb: 0 is less than or equal"),
        ("{stop_timeout_s: -1}", "clients.stop_timeout_s: -1 is less than the minimum of 0"),
        ("{max_connection: 3}", "clients.max_connection: unknown key; did you mean 'max_connections'"),
    ],
)
def test_what_cannot_be_is_refused_by_line_and_key(tmp_path, said, why):
    assert why in refused(tmp_path, f"{DEPLOYMENT}clients: {said}\n")


def test_a_service_waits_for_a_lost_engine_as_long_as_a_router_alone():
    assert ClientLimits().recovery_timeout_s == RECOVERY_TIMEOUT_S
