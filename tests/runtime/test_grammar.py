"""What an output must match, token by token, and what is refused before anything is generated."""

import json
import random
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from runtime import grammar
from runtime.errors import RequestError
from runtime.grammar import Matcher, Vocabulary
from runtime.tokenizer import Tokenizer
from tests.rows import rows
from tests.tries import tries

CHECKPOINT = Path(__file__).parents[2] / "examples" / "counting"
VOCAB_SIZE, EOS = 98, 1
TOKENIZER = Tokenizer.load(CHECKPOINT)
VOCABULARY = Vocabulary(TOKENIZER, VOCAB_SIZE)
NESTED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 4},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "sizes", "next"],
    "additionalProperties": False,
}


def optional(count: int) -> dict[str, JsonValue]:
    """A schema with so many fields, none of them required."""
    fields: dict[str, JsonValue] = {f"field_{number}": {"type": "string"} for number in range(count)}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def allowed(matcher: Matcher) -> list[int]:
    mask = matcher.mask()
    return [token for token in range(VOCAB_SIZE) if mask[token // 32] >> (token % 32) & 1]


def generated(text: str, chance: random.Random, most: int = 400) -> tuple[list[int], Matcher]:
    """Tokens chosen at random among those allowed, until the end; the end is taken as soon as it may be, if told."""
    matcher, output = Matcher(text, VOCABULARY), list[int]()
    while len(output) < most:
        choices = allowed(matcher)
        if EOS in choices and (len(choices) == 1 or len(output) > most // 2):
            break
        output.append(chance.choice([token for token in choices if token != EOS]))
        assert matcher.advance(output[-1:])
    return output, matcher


@tries(30)
@given(st.integers())
def test_whatever_is_chosen_among_what_is_allowed_is_valid_when_it_may_end(seed):
    output, matcher = generated(grammar.json_schema(NESTED), random.Random(seed))
    if matcher.is_whole:
        jsonschema.validate(json.loads(TOKENIZER.decode(output)), NESTED)


@rows(
    ("text", "matches"),
    [
        (grammar.json_object(), lambda said: isinstance(json.loads(said), dict)),
        (grammar.regex(r"[0-9]{3}-[a-f]{2}"), lambda said: said[3] == "-" and len(said) == 6),
        (grammar.choice(["red", 'gr"een', "blue"]), lambda said: said in {"red", 'gr"een', "blue"}),
        (grammar.context_free('start: "a" b\nb: /[0-9]{2}/'), lambda said: said[0] == "a" and len(said) == 3),
        (grammar.context_free('root ::= "a" [0-9] "z"'), lambda said: said[0] + said[2] == "az"),
    ],
)
def test_each_form_allows_what_matches_and_nothing_else(text, matches):
    ends = [generated(text, random.Random(seed)) for seed in range(10)]
    said = [TOKENIZER.decode(output) for output, matcher in ends if matcher.is_whole]
    assert len(said) > 2, "the others were cut off"
    assert all(map(matches, said))


@tries(30)
@given(st.integers(), st.integers(0, 60))
def test_a_matcher_is_made_anew_from_the_output_alone(seed, cut):
    text = grammar.json_schema(NESTED)
    output, matcher = generated(text, random.Random(seed), most=120)
    there = Matcher(text, VOCABULARY, output[:cut])
    there.advance(output[cut:])
    assert allowed(there) == allowed(matcher)


def test_a_token_that_does_not_match_is_an_error_and_stays_one():
    matcher = Matcher(grammar.choice(["red"]), VOCABULARY)
    assert not matcher.advance(TOKENIZER.encode("x"))
    assert matcher.error
    assert not matcher.advance(TOKENIZER.encode("r"))


def test_only_the_end_may_follow_what_is_over():
    matcher = Matcher(grammar.choice(["red"]), VOCABULARY)
    assert (matcher.is_over, matcher.is_whole) == (False, False)
    matcher.advance(TOKENIZER.encode("red"))
    assert (matcher.is_whole, allowed(matcher)) == (True, [EOS])


@rows(
    ("make", "said"),
    [
        (lambda: grammar.json_schema({"type": "integer", "minimum": 5, "maximum": 3}), "minimum .5. is greater"),
        (lambda: grammar.json_schema({"allOf": [{"type": "string"}, {"type": "null"}]}), "incompatible types"),
        (lambda: grammar.json_schema({"$ref": "https://example.org/schema"}), "not present in a registry"),
        (lambda: grammar.json_schema({"$ref": "#"}), "no text of the model's tokens"),
        (lambda: grammar.json_schema({"type": "object", "dependentSchemas": {"a": {}}}), "dependentSchemas"),
        (lambda: grammar.json_schema({"enum": ["x" * 99] * 900}), "longer than 64 kB"),
        (lambda: grammar.json_schema(optional(900)), "Current row has .* max is 2000"),
        (lambda: grammar.json_schema({"allOf": [{"type": "string", "pattern": f"(.*a){{{n}}}"} for n in range(9)]}), "regex"),
        (lambda: grammar.regex("([a-z"), "invalid regex"),
        (lambda: grammar.regex("(?=a)b"), "invalid regex"),
        (lambda: grammar.choice([]), "at least one text"),
        (lambda: grammar.choice(["日本"]), "no text of the model's tokens"),
        (lambda: grammar.context_free("start: %%%"), "lexer error"),
        (lambda: grammar.context_free('start: start "a"'), "no text of the model's tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(make, said):
    with pytest.raises(RequestError, match=said) as refusal:
        grammar.check(make(), VOCABULARY)
    assert "\n" not in str(refusal.value)


@rows(
    "text",
    [
        grammar.regex("(((a{1,100}){1,100}){1,100}){1,100}"),
        grammar.context_free('start: e\ne: e e | e e e | "a"'),
    ],
)
def test_what_explodes_later_ends_with_an_error(text):
    grammar.check(text, VOCABULARY)
    matcher = Matcher(text, VOCABULARY)
    a = TOKENIZER.encode("a")
    while matcher.advance(a):
        matcher.mask()
    assert matcher.error


@rows(
    "text",
    [
        grammar.json_schema(NESTED),
        grammar.json_schema(optional(300)),
        grammar.json_object(),
        grammar.regex(""),
        grammar.choice(["a", "ab"]),
    ],
)
def test_what_can_be_is_not_refused(text):
    grammar.check(text, VOCABULARY)


def test_a_vocabulary_of_bytes_is_read_as_bytes():
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    vocabulary = Vocabulary(Tokenizer(made, eos_ids=(256,)), 300)
    matcher = Matcher(grammar.choice(["日本"]), vocabulary)
    assert matcher.advance(made.encode("日本").ids)
    assert matcher.is_whole
    assert len(matcher.mask()) == 10


@rows("vocab_size", [96, 98, 128, 1000, 32_000])
def test_a_mask_has_a_bit_for_each_id_of_the_model_and_no_word_more(vocab_size):
    """A model may have more ids than its tokenizer, and as many as fill the last word."""
    vocabulary = Vocabulary(TOKENIZER, max(vocab_size, TOKENIZER.size))
    mask = Matcher(grammar.json_schema({"type": "integer"}), vocabulary).mask()
    assert len(mask) == -(-max(vocab_size, TOKENIZER.size) // 32)
    allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
    assert set(allowed) <= set(range(TOKENIZER.size))
