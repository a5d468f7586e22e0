import ast
import re
import string
from pathlib import Path

import pytest

from intent.messages import say, templates
from intent.models import METRIC_LABELS, NAMED_WINDOWS
from intent.readback.words import OPS

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(".".join(file.relative_to(ROOT).parts[:-1]) for file in ROOT.glob("[iv]*/**/messages.yaml"))
EVERY = [(package, key) for package in PACKAGES for key in templates(package)]

COMPUTED = {
    "intent": {
        *(f"wish_{one}" for one in ("fast", "cheap", "good")),
    },
    "intent.readback": {
        *OPS.values(),
        *(f"metric.{one}" for one in METRIC_LABELS),
        *(f"window.{one}" for one in (*NAMED_WINDOWS, "other")),
        *(f"side.{one}" for one in ("latency", "throughput", "cost", "quality")),
        *(f"place.{one}" for one in ("gpu_type", "gpu", "node")),
    },
    "validator": {f"unknown_{one}" for one in ("tenant", "model", "window", "gpu_type", "gpu", "node")},
}
"""Keys that are put together of a kind and a name."""


def literals(package):
    """Every text that stands in the code of a package."""
    for file in ROOT.joinpath(*package.split(".")).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def fields(template):
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


def test_these_packages_speak():
    assert sorted(COMPUTED) == PACKAGES


@pytest.mark.parametrize(("package", "key"), EVERY)
def test_a_message_says_the_same_facts_in_both_languages(package, key):
    texts = templates(package)[key]
    assert set(texts) == {"en", "zh"}
    assert fields(texts["en"]) == fields(texts["zh"])


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_each_message_is_used_and_each_computed_key_is_there(package):
    messages = set(templates(package))
    assert COMPUTED[package] - messages == set()
    assert messages - COMPUTED[package] - set(literals(package)) == set()


@pytest.mark.parametrize(("package", "key"), EVERY)
def test_chinese_messages_are_chinese(package, key):
    words = re.sub(r"{\w+}", "", templates(package)[key]["zh"])
    assert not re.search("[a-z]", words) or re.search("[\u4e00-\u9fff]", words)


def test_facts_are_filled_in():
    assert say("validator", "en", "at_least", least="1 ms") == "at least 1 ms"
    assert say("validator", "zh", "at_least", least="1 ms") == "至少 1 ms"


def test_a_fact_that_is_missing_is_no_message():
    with pytest.raises(KeyError, match="least"):
        say("validator", "en", "at_least")
