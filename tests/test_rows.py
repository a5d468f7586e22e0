import pytest

from tests.rows import rows


def failing(test, **fixtures):
    with pytest.raises(pytest.fail.Exception) as failed:
        test(**fixtures)
    return str(failed.value)


def test_each_failing_row_is_reported_with_its_values():
    @rows("a, b", [(1, 1), (1, 2), pytest.param(3, 4)])
    def test(a, b):
        assert a == b

    told = failing(test)
    assert told.startswith("2 of 3 rows failed")
    assert "[1, 2]" in told
    assert "[3, 4]" in told


def test_tables_can_be_stacked_and_rows_named():
    @rows("a", [1, 2])
    @rows("b", [2, 3], ids=["two", "three"])
    def test(a, b):
        assert a < b

    assert "[2] " in failing(test)
    assert "[two]" in failing(test)


def test_what_does_not_raise_is_a_failing_row():
    @rows("text", ["1", "x"])
    def test(text):
        with pytest.raises(ValueError, match="invalid"):
            int(text)

    assert failing(test).startswith("1 of 2 rows failed")


@rows("number", [1, 2])
async def test_fixtures_are_those_of_one_test(number, tmp_path):
    (tmp_path / str(number)).touch()
    assert len([*tmp_path.iterdir()]) == number
