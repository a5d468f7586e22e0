"""The contract with vLLM: what is relied on is there, and what is not is named. In a process that imports vLLM."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CONTRACT = """
import json
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request
from runtime.vllm_engine.connector.hooks import missing

found = {"as it is": missing()}
del KVConnectorBase_V1.has_pending_push_work
del KVCacheManager.get_block_ids
found["moved methods"] = missing()

def renamed(self):
    self.num_computed_tokens = self.tokens = None

Request.__init__ = renamed
found["a renamed attribute"] = missing()
print(json.dumps(found))
"""


def run(script: str, folder: Path) -> Any:
    # a file, so that what it defines has a source to look into
    (folder / "script.py").write_text(script)
    done = subprocess.run([sys.executable, folder / "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_this_vllm_has_what_is_relied_on_and_what_a_new_one_moves_is_named(tmp_path):
    found = run(CONTRACT, tmp_path)
    assert found["as it is"] == []
    methods = [
        "vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnectorBase_V1.has_pending_push_work",
        "vllm.v1.core.kv_cache_manager.KVCacheManager.get_block_ids",
    ]
    assert sorted(found["moved methods"]) == methods
    (attribute,) = [name for name in found["a renamed attribute"] if name not in methods]
    assert attribute.endswith("renamed: self.output_token_ids")
