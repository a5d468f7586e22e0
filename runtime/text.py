"""From token ids to text, token by token, and where a stop string ends it.

Pure but for the decoder given.
"""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What a decoder gives for bytes that are no character (yet)."""


class Detokenizer:
    """Incremental decoding: the pieces joined are the text of all tokens; none ends inside a character.

    Tokens are decoded with those of the piece before them, because some decoders (SentencePiece) treat the
    first token of a text in another way.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        """Tokens of the last piece, then those not yet given out."""
        self._num_given = 0
        self._given = ""
        """The text of the first ``_num_given`` tokens of the window."""

    def begin(self, token_ids: Sequence[int]) -> str:
        """The same for many tokens at once."""
        self._window += token_ids[:-1]
        return self.add(token_ids[-1]) if token_ids else ""

    def add(self, token_id: int) -> str:
        """The text that became certain with this token, often empty for part of a multi-byte character."""
        self._window.append(token_id)
        text = self._decode(self._window)
        if text.endswith(REPLACEMENT):
            return ""
        return self._give(text)

    def flush(self) -> str:
        """The text of what was held back, when no more tokens come."""
        return self._give(self._decode(self._window))

    def _give(self, text: str) -> str:
        piece = text[len(self._given) :]
        self._window = self._window[self._num_given :]
        self._num_given = len(self._window)
        self._given = self._decode(self._window)
        return piece


class StopStrings:
    """Holds back text that may be the start of a stop string, and ends the text before the first one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(filter(None, stops))
        self._held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """The text that may go out, and whether a stop string ended it."""
        if not self._stops:
            return piece, False
        text = self._held + piece
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            self._held = ""
            return text[: min(starts)], True
        safe = len(text) - max(overlap(text, stop) for stop in self._stops)
        self._held = text[safe:]
        return text[:safe], False

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held = self._held
        self._held = ""
        return held


class TextStream:
    """The text of one generation as its tokens come: detokenising, then stop strings."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(decode)
        self._stops = StopStrings(stops)

    def begin(self, token_ids: Sequence[int]) -> str:
        """Text before, in which no stop string is looked for; a character that is not whole comes later."""
        return self._detokenizer.begin(token_ids)

    def add(self, token_id: int) -> tuple[str, bool]:
        """The text that may go out with this token, and whether a stop string ended it."""
        return self._stops.add(self._detokenizer.add(token_id))

    def end(self) -> tuple[str, bool]:
        """The same for what was held back, when no more tokens come."""
        text, stopped = self._stops.add(self._detokenizer.flush())
        return (text, True) if stopped else (text + self._stops.flush(), False)


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
