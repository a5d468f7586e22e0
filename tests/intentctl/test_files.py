"""Files that people hand over are read without trust: every hostile one is one message with its place."""

import io

import pytest

from intentctl.files import MAX_BYTES, documents
from intentctl.status import CommandError
from tests.rows import rows

BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(12)
)


@pytest.fixture
def file(tmp_path):
    def write(data: str | bytes) -> str:
        path = tmp_path / "file.yaml"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    return write


@rows(
    ("data", "expected"),
    [
        ("a: 1\n---\nb: [x, 2.5, null, true]\n", [{"a": 1}, {"b": ["x", 2.5, None, True]}]),
        ('{"a": {"b": "c"}}', [{"a": {"b": "c"}}]),
        ("day: 2026-01-05\n", [{"day": "2026-01-05"}]),
        (b"\xef\xbb\xbfa: 1\r\n", [{"a": 1}]),
        ("---\n---\na: 1\n", [{"a": 1}]),
    ],
)
def test_plain_values_are_read(file, data, expected):
    assert documents(file(data)) == expected


def test_standard_input_is_a_file_too(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))
    assert documents("-") == [{"a": 1}]


@pytest.mark.slow
@rows(
    ("data", "said"),
    [
        (BOMB, ":2: aliases are not read"),
        ("a: &a [*a]", ":1: aliases are not read"),
        ("a: !!python/object/apply:os.system [x]", ":1: the tag"),
        ("a: !!set {x}", ":1: the tag"),
        ("a: !!binary eA==", ":1: the tag"),
        ("a: 1\na: 2\n", ":2: the key 'a' stands here for the second time"),
        ("a: [", ":1:"),
        ("a: \x07", "special characters"),
        (b"a: \xff", "no UTF-8"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("[" * 50_000, "nested too deeply"),
        ("? [a]\n: b\n", "unhashable"),
        ("a: " + "9" * 10_000, ""),
        ("x" * (MAX_BYTES + 1), "more than 256,000 bytes"),
    ],
)
def test_anything_else_is_one_message_that_names_the_place(file, data, said):
    with pytest.raises(CommandError, match=r"file\.yaml") as refused:
        documents(file(data))
    assert said in str(refused.value)


@rows("name", ["nowhere.yaml", "", "\0", "/"])
def test_a_file_that_cannot_be_read_is_named(name):
    with pytest.raises(CommandError, match="cannot be read"):
        documents(name)
