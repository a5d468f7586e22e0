import pytest

from intent.tables import table


def test_a_table_is_read_once():
    found = table("intent", "messages")
    assert found["nothing"]["en"]
    assert table("intent", "messages") is found


def test_a_table_that_is_not_there_is_told_by_its_name():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        table("intent", "nowhere")
