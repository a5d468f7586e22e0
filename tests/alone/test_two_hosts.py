"""The demo over two hosts of this machine: its streams are to keep pace while it switches."""

import json
import subprocess
import sys

import pytest

from tests.runtime.hosts.machines import namespaces as as_root

__all__ = ["as_root"]
COMMAND = [sys.executable, "-m", "benchmarks.two_hosts", "-o", "json"]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_requests_move_to_the_other_host_and_back_and_every_stream_counts_on(as_root):
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (document["streams"], document["streams_equal"]) == (8, 8)
    assert (document["tokens_lost"], document["tokens_duplicated"]) == (0, 0)
    assert [(switch["from"], switch["to"]) for switch in document["switches"]] == [("1x1", "TP2"), ("TP2", "PP2")]
    for switch in document["switches"]:
        assert (switch["transport"], switch["paths"]) == ("nixl", {"patch": 8})
        assert (
            0 < switch["bytes_before"] + switch["bytes_inside"] <= switch["bytes_between_hosts"] <= switch["link_bytes"]
        )
