"""Text that comes in pieces is the text of the whole, and a stop string is never seen."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from runtime.text import Detokenizer, StopStrings, TextStream
from tests.rows import rows

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def decode_bytes(token_ids: Sequence[int]) -> str:
    """One token per byte: every multi-byte character is split."""
    return bytes(token_ids).decode("utf-8", errors="replace")


def decode_words(token_ids: Sequence[int]) -> str:
    """Like SentencePiece: words carry a leading space that a text does not begin with."""
    return "".join(f" w{token_id}" for token_id in token_ids).removeprefix(" ")


def pieces(text: str, stops: Sequence[str] = ()) -> tuple[list[str], bool]:
    """What a client sees of a text that comes byte by byte, and whether a stop string ended it."""
    stream, seen = TextStream(decode_bytes, stops), []
    for byte in text.encode():
        piece, is_stopped = stream.add(byte)
        seen.append(piece)
        if is_stopped:
            return seen, True
    rest, is_stopped = stream.end()
    return [*seen, rest], is_stopped


def test_a_character_comes_with_its_last_byte():
    seen, _ = pieces("a你🙂")
    assert seen == ["a", "", "", "你", "", "", "", "🙂", ""]


@given(st.binary(max_size=40))
def test_the_pieces_of_any_bytes_make_the_decoded_whole(data):
    detokenizer = Detokenizer(decode_bytes)
    seen = [detokenizer.add(byte) for byte in data]
    assert "".join(seen) + detokenizer.flush() == decode_bytes(data)


@given(st.lists(st.integers(0, 255), max_size=40))
def test_a_byte_level_tokenizer_agrees(token_ids):
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(ALPHABET)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    detokenizer = Detokenizer(tokenizer.decode)
    seen = [detokenizer.add(token_id) for token_id in token_ids]
    assert "".join(seen) + detokenizer.flush() == tokenizer.decode(token_ids)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_text_goes_on_where_what_comes_before_it_ends(data, begins):
    for tokens, decode in ((data, decode_bytes), ([*data], decode_words)):
        stream = TextStream(decode, [])
        seen = [stream.begin(tokens[:begins]), *(stream.add(token)[0] for token in tokens[begins:]), stream.end()[0]]
        assert "".join(seen) == decode(tokens)


def test_the_space_before_a_word_is_kept_between_pieces_and_not_at_the_start():
    detokenizer = Detokenizer(decode_words)
    assert [detokenizer.add(token_id) for token_id in (1, 2, 3)] == ["w1", " w2", " w3"]


@rows(
    ("text", "stops", "seen", "is_stopped"),
    [
        ("one END two", ["END"], "one ", True),
        ("one EN two", ["END"], "one EN two", False),
        ("one EN", ["END"], "one EN", False),
        ("ababc", ["abc"], "ab", True),
        ("first second", ["second", "first"], "", True),
        ("a你b", ["你"], "a", True),
        ("as said", [""], "as said", False),
    ],
)
def test_a_stop_string_ends_the_text_before_itself(text, stops, seen, is_stopped):
    got, stopped = pieces(text, stops)
    assert ("".join(got), stopped) == (seen, is_stopped)


def test_of_two_stop_strings_in_one_piece_the_earlier_ends_the_text():
    assert StopStrings(["second", "first"]).add("a first second") == ("a ", True)


def test_text_that_may_begin_a_stop_string_is_held_back():
    stops = StopStrings(["###"])
    assert stops.add("a#") == ("a", False)
    assert stops.add("#b") == ("##b", False)


def test_a_stop_string_that_the_last_held_bytes_complete_is_found():
    stream = TextStream(decode_bytes, ["a\ufffd"])
    assert stream.add(ord("a")) == ("", False)
    assert stream.add(0xE4) == ("", False)
    assert stream.end() == ("", True)


@given(st.text("ab#", max_size=30), st.lists(st.text("ab#", min_size=1, max_size=4), max_size=3))
def test_any_cutting_into_pieces_gives_the_text_up_to_the_first_stop(text, stops):
    got, is_stopped = pieces(text, stops)
    ends = [text.index(stop) for stop in stops if stop in text]
    assert is_stopped == bool(ends)
    if ends:
        # several stops may complete at the same character: the earliest start wins, as long as it is complete
        completed = min(text.index(stop) + len(stop) for stop in stops if stop in text)
        starts = [text.index(stop) for stop in stops if stop in text and text.index(stop) + len(stop) <= completed]
        assert "".join(got) == text[: min(starts)]
    else:
        assert "".join(got) == text
