import re
import string
from pathlib import Path

import pytest

from intent.messages import say, templates
from tests.rows import rows

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(".".join(file.relative_to(ROOT).parts[:-1]) for file in ROOT.glob("[iv]*/**/messages.yaml"))
EVERY = [(package, key) for package in PACKAGES for key in templates(package)]


def fields(template):
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


@rows(("package", "key"), EVERY)
def test_a_message_says_the_same_facts_in_both_languages_and_chinese_ones_are_chinese(package, key):
    texts = templates(package)[key]
    assert set(texts) == {"en", "zh"}
    assert fields(texts["en"]) == fields(texts["zh"])
    words = re.sub(r"{\w+}", "", texts["zh"])
    assert not re.search("[a-z]", words) or re.search("[\u4e00-\u9fff]", words)


def test_facts_are_filled_in():
    assert say("validator", "en", "at_least", least="1 ms") == "at least 1 ms"
    assert say("validator", "zh", "at_least", least="1 ms") == "至少 1 ms"


def test_a_fact_that_is_missing_is_no_message():
    with pytest.raises(KeyError, match="least"):
        say("validator", "en", "at_least")
