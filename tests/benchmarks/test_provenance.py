import json
import os
from datetime import datetime

from benchmarks.provenance import cpu_model, provenance, stolen_s, versions


def test_a_measurement_says_where_and_of_what_it_is():
    found = provenance()
    assert datetime.fromisoformat(found["date"]).tzinfo is not None
    assert found["hardware"]["cores"] >= 1
    assert found["hardware"]["memory_bytes"] > 1 << 28
    assert found["hardware"]["cpu"]
    assert {"python", "torch", "intentctl"} <= set(found["versions"])
    assert {"commit", "has_local_changes"} <= set(found)
    json.dumps(found)
    lines = ["processor\t: 0", "model name\t: A CPU @ 2.5: fast", "model name\t: another"]
    assert cpu_model(lines) == "A CPU @ 2.5: fast"
    assert cpu_model(["processor\t: 0"]) is None
    assert list(versions(["torch", "no-such-distribution"])) == ["torch"]
    ticks = os.sysconf("SC_CLK_TCK")
    assert stolen_s([f"cpu  1 2 3 4 5 6 7 {9 * ticks} 0 0", "cpu0 1 2 3 4 5 6 7 8 0 0"]) == 9.0
    assert stolen_s(["cpu  1 2 3"]) is None
    assert stolen_s([]) is None
