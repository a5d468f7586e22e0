from pathlib import Path

import pytest
import yaml

from intent.tables import _LOADER, table


def test_a_table_is_read_once():
    found = table("intent", "messages")
    assert found["nothing"]["en"]
    assert table("intent", "messages") is found


def test_a_table_that_is_not_there_is_told_by_its_name():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        table("intent", "nowhere")


def test_every_table_reads_the_same_without_the_loader_in_c():
    files = sorted((Path(__file__).parents[2] / "intent").rglob("*.yaml"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert yaml.load(text, Loader=yaml.SafeLoader) == yaml.load(text, Loader=_LOADER), file
