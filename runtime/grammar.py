"""What an output must match: grammars by llguidance, the same for every engine.

A grammar travels as text. Whoever chooses tokens has a ``Matcher`` for each request, whose state follows from the output alone.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark
from numpy.typing import NDArray
from pydantic import JsonValue

from runtime.errors import RequestError
from runtime.process.content import PinnedCheckpoint
from runtime.tokenizer import Tokenizer

LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=100_000,
    step_max_items=20_000,
    max_lexer_states=50_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""What llguidance refuses or gives up at; schemas with some hundred optional fields are within."""
ALLOWED_S = 0.25
ALLOWED_PER_TOKEN_S = 0.002
"""CPU time that the grammar of one output may take: then it is given up, for steps of others wait for it."""
MAX_BYTES = 64 << 10
"""Of a grammar's text."""
PROBED_TOKENS = 4
"""Of an output, to see whether a grammar can be begun: what follows a brace may be more than the limits allow."""
DEAD_END = "NoExtensionBias"
"""llguidance's word where nothing can follow."""
ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How JSON documents are laid out: where a model may write as much white space as it likes, some write nothing else."""


def json_schema(schema: Mapping[str, JsonValue]) -> str:
    """A JSON document on one line that is valid under a JSON Schema.

    Raises:
        RequestError: it is too large.
    """
    return _bounded(_json(schema))


def json_object() -> str:
    """Any JSON object."""
    return _json({"type": "object"})


def embedded(schema: Mapping[str, JsonValue]) -> str:
    """The same as it stands in a grammar in Lark's form, after ``%json``."""
    return json.dumps({**schema, "x-guidance": ONE_LINE})


def regex(pattern: str) -> str:
    """Text that matches a regular expression (Rust's syntax) as a whole.

    Raises:
        RequestError: it is too large.
    """
    return _bounded(llguidance.LLMatcher.grammar_from_regex(pattern))


def choice(options: Sequence[str]) -> str:
    """One of these texts.

    Raises:
        RequestError: there are none, or they are too large together.
    """
    if not options or not all(options):
        raise RequestError("a choice needs at least one text, and none of them may be empty")
    return _bounded(
        llguidance.LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(text) for text in options))
    )


def lark(text: str) -> str:
    """Text of a grammar in Lark's form.

    Raises:
        RequestError: it is too large.
    """
    return llguidance.LLMatcher.grammar_from_lark(_bounded(text))


def context_free(text: str) -> str:
    """Text of a context-free grammar, in Lark's form or in GBNF (an EBNF).

    Raises:
        RequestError: it is in neither form, or too large.
    """
    _bounded(text)
    try:
        return llguidance.LLMatcher.grammar_from_lark(any_to_lark(text))
    except Exception as problem:  # the converter raises what it likes
        raise RequestError(f"the grammar is neither Lark nor GBNF: {problem}") from problem


class Vocabulary:
    """The tokens of a model as bytes, which is what grammars are about."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """``vocab_size`` is the model's, which may have more than its tokenizer."""
        ends = list(tokenizer.eos_ids) or None
        self.num_words = -(-vocab_size // 32)
        """Of a mask."""
        source: str | llguidance.TokenizerWrapper = tokenizer.as_json()
        if tokenizer.has_added_text:  # as <tool_call>, which it would take for special, whatever the tokenizer says
            source = llguidance.TokenizerWrapper(_GrammarTokenizer(tokenizer, vocab_size))
        try:
            self.tokens = llguidance.LLTokenizer(source, vocab_size, ends)
        except ValueError:
            # it knows tokenizers by the form of their bytes; of others it is told token by token
            source = llguidance.TokenizerWrapper(_GrammarTokenizer(tokenizer, vocab_size))
            self.tokens = llguidance.LLTokenizer(source, vocab_size, ends)

    @classmethod
    def of(cls, checkpoint: PinnedCheckpoint, vocab_size: int) -> Self:
        """That of a checkpoint's tokenizer.

        Raises:
            CheckpointError: it cannot be read, or is not what was served first.
        """
        read = cls(Tokenizer.load(checkpoint.folder), vocab_size)
        checkpoint.verified()
        return read


class _GrammarTokenizer:
    """A tokenizer as llguidance asks for one."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_ids[0] if tokenizer.eos_ids else 0
        self.bos_token_id = None
        self.special_token_ids = tokenizer.special_ids
        # ids that the model has more are no text; without them a mask would be shorter than the model's logits
        self.tokens = [tokenizer.token_bytes(n) if n < tokenizer.size else b"" for n in range(vocab_size)]

    def __call__(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [number for number in ids if number not in self.special_token_ids]


class Matcher:
    """Where a grammar stands after an output."""

    def __init__(self, grammar: str, vocabulary: Vocabulary, output: Sequence[int] = ()) -> None:
        self._matcher = llguidance.LLMatcher(vocabulary.tokens, grammar, log_level=0, limits=LIMITS)
        self._num_words = vocabulary.num_words
        self._left_s = ALLOWED_S
        if output:
            self.advance(output)

    @property
    def error(self) -> str:
        """Why it can go no further: a token that does not match, or a limit that was passed.

        Empty while it can.
        """
        if self._left_s < 0:
            return "it takes too long to follow; make it simpler"
        return _plain(self._matcher.get_error())

    @property
    def is_over(self) -> bool:
        """Nothing but the end may follow."""
        return bool(self._matcher.is_stopped())

    @property
    def is_whole(self) -> bool:
        """The output matches as it is."""
        return bool(self._matcher.is_accepting())

    def mask(self) -> NDArray[np.int32]:
        """What may come next: a bit for each token, the first in the lowest bit.

        ``[vocabulary / 32, rounded up]``.
        """
        with self._timed():
            # where the vocabulary fills its last word, llguidance has one more
            return np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)[: self._num_words]

    def advance(self, tokens: Iterable[int]) -> bool:
        """Take in tokens of the output; tells whether all of them match."""
        new = list(tokens)
        self._left_s += ALLOWED_PER_TOKEN_S * len(new)
        with self._timed():
            matches = bool(self._matcher.consume_tokens(new))
        return matches and not self.error

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.thread_time()
        yield
        self._left_s -= time.thread_time() - began_s


def check(grammar: str, vocabulary: Vocabulary) -> None:
    """Compile a grammar to see whether it can be.

    Raises:
        RequestError: a mistake in it, something that is not supported, no output that matches, or a limit that it passes.
    """
    wrong = llguidance.LLMatcher.validate_grammar(grammar, vocabulary.tokens, limits=LIMITS)
    if wrong and not wrong.startswith("WARNING"):
        raise RequestError(_plain(wrong))
    matcher = Matcher(grammar, vocabulary)
    begins = bool(matcher.mask().any()) and not (matcher.is_over and not matcher.is_whole)
    if matcher.error in ("", DEAD_END) and (matcher.error or not begins):
        raise RequestError("no text of the model's tokens matches it")
    for _ in range(PROBED_TOKENS):
        if matcher.error:
            raise RequestError(matcher.error)
        if matcher.is_over:
            return
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        matcher.advance([int(bits.argmax())])


def _json(schema: Mapping[str, JsonValue]) -> str:
    text: str = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(schema),
        defaults=ONE_LINE,  # type: ignore[arg-type]
    )
    return text


def _bounded(text: str) -> str:
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise RequestError(f"it is longer than {MAX_BYTES >> 10} kB; make it smaller")
    return text


def _plain(error: str) -> str:
    """llguidance's words on one line, without where in its code they come from."""
    first = next((line.strip() for line in error.splitlines() if line.strip()), "")
    return first.removeprefix("ERROR: ")[:300]
