import io

from intentctl.lines import MAX_LINE_BYTES, texts
from tests.rows import rows


@rows(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\n\n one \n", ["", "", " one "]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("p99 首字延迟\u2028不超过\x85 2 秒\x0b\n".encode(), ["p99 首字延迟\u2028不超过\x85 2 秒\x0b"]),
        (b"a\xffb\na\x00b\n", ["a\udcffb", "a\x00b"]),
    ],
)
def test_every_line_is_a_text_whatever_its_bytes_are(data, expected):
    assert list(texts(io.BytesIO(data))) == expected


@rows("extra", [-1, 0, 1, MAX_LINE_BYTES, 2 * MAX_LINE_BYTES + 5])
def test_an_endless_line_is_cut_and_the_next_one_is_whole(extra):
    first, *rest = texts(io.BytesIO(b"x" * (MAX_LINE_BYTES + extra) + b"\nnext\n"))
    assert len(first) == min(MAX_LINE_BYTES, MAX_LINE_BYTES + extra)
    assert rest == ["next"]


def test_a_line_is_given_before_the_next_one_has_come():
    def arriving():
        yield b"one\n"
        raise AssertionError("the second line was waited for")

    lines = arriving()

    class Pipe:
        def readline(self, _: int) -> bytes:
            return next(lines)

    assert next(texts(Pipe())) == "one"
