"""Prompts for the checkpoint that counts, of any length."""

from pathlib import Path

import tokenizers


def counting_text(number: int, length: int) -> str:
    """``count by 7 from 23: 30 37 ...``, cut at ``length`` characters; every number has a text of its own.

    The checkpoint takes one token per character and has learnt steps up to 99, modulo 1000.
    """
    step, value = 3 + number % 97, number * 37 % 1000
    text = f"count by {step} from {value}:"
    while len(text) < length:
        value = (value + step) % 1000
        text += f" {value}"
    return text[:length]


def context_tokens(number: int, most: int) -> int:
    """Tokens of a stream's prompt: ``most`` or up to a tenth less, so that streams differ in length."""
    return most - number * 7 % (most // 10 + 1)


def prompt_tokens(checkpoint: Path, number: int, most: int) -> list[int]:
    """The prompt of a stream, by the tokenizer of a checkpoint folder: one token per character."""
    length = context_tokens(number, most)
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(counting_text(number, length)).ids
    return ids[:length]
