import pytest
import yaml

import prompts
from tests.rows import rows


def test_a_prompt_is_loaded_by_name_and_version():
    assert prompts.load("translate", "v3").startswith("You ")
    assert yaml.safe_load(prompts.load("examples", "v3"))


def test_a_missing_prompt_names_those_there_are():
    with pytest.raises(LookupError, match=r"translate\.v9.*examples\.v3, translate\.v3"):
        prompts.load("translate", "v9")


@rows("name", ["../intent/errors", "translate.v3.md", ""])
def test_only_prompts_are_loaded(name):
    with pytest.raises(LookupError):
        prompts.load(name, "v3")
