"""The surge of the demo: how long requests wait is what it is about."""

import json
import subprocess
import sys

import pytest

from benchmarks.day import SMALLEST


@pytest.mark.exhaustive
@pytest.mark.timeout(600)  # it lives two surges
def test_the_controller_rescues_a_surge_and_fewer_requests_wait_too_long():
    command = [sys.executable, "-m", "benchmarks.day", "--surge", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    causes = [switch["cause"] for switch in document["switches"]]
    assert "rescue" in causes
    assert "roll_back" not in causes
    assert document["streams"] == document["streams_equal"]
    assert document["over_bound"] < document["static_over_bound"][SMALLEST]
