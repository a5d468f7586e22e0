"""The tokenizer and chat template of a checkpoint folder in Hugging Face format."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Never, Self

import tokenizers
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.errors import CheckpointError, RequestError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a text at a time: a pool of threads only adds hops

_HERMES_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_characters() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies.

    Printable ones for themselves, others from U+0100 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()


class Tokenizer:
    """Text to token ids and back, with the tokens that end a text."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        eos_ids: tuple[int, ...] = (),
        chat_template: str | None = None,
        special: Mapping[str, str] | None = None,
        max_new_tokens: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._special = dict(special or {})
        self.eos_ids = eos_ids
        """Token ids that end a generation."""
        self.max_new_tokens = max_new_tokens
        """Of a generation for which nobody says it, by the checkpoint."""
        self._template = None if chat_template is None else _environment().from_string(chat_template)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``tokenizer.json`` and, where they exist, its configuration, chat template and end tokens.

        Raises:
            CheckpointError: a file is missing or cannot be read; the message names it.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path}: no such file; a checkpoint folder in Hugging Face format has one")
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as problem:  # the library raises bare Exception for a broken file
            raise CheckpointError(f"{path}: not a tokenizer: {problem}") from problem
        config = _read_json(folder / "tokenizer_config.json")
        template = _chat_template(folder, config)
        special = _special_tokens(config)
        try:
            return cls(
                tokenizer,
                eos_ids=_eos_ids(folder),
                chat_template=template,
                special=special,
                max_new_tokens=_max_new_tokens(folder),
            )
        except TemplateError as problem:
            raise CheckpointError(f"{folder}: its chat template cannot be read: {problem}") from problem

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a text; special tokens are what the tokenizer itself puts around it.

        Other threads run meanwhile: of the library's ways to encode, those for batches alone let go of the interpreter.

        Raises:
            RequestError: the text has halves of characters.
        """
        try:
            (encoded,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except TypeError as problem:
            raise RequestError(
                "the text has half of a character (a surrogate without its other half); leave it out"
            ) from problem
        return tuple(encoded.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    @property
    def size(self) -> int:
        """Tokens it has."""
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def special_ids(self) -> list[int]:
        """Tokens that are no text."""
        added = self._tokenizer.get_added_tokens_decoder()
        return [number for number, token in added.items() if token.special]

    def as_json(self) -> str:
        """As ``tokenizer.json`` has it."""
        return str(self._tokenizer.to_str())

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text, special or not; it may be part of a character."""
        token = self._tokenizer.id_to_token(token_id) or ""
        if token_id in self._added:
            return token.encode()
        if "ByteLevel" in self._decoders and _BYTES.keys() >= set(token):
            return bytes(_BYTES[character] for character in token)
        if "ByteFallback" in self._decoders and (code := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(code[1], 16)])
        if {"Replace", "Metaspace"} & self._decoders:
            token = token.replace("\u2581", " ")
        return token.encode()

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._tokenizer.get_added_tokens_decoder())

    @cached_property
    def _decoders(self) -> frozenset[str]:
        """Names of what turns tokens into text."""
        return frozenset(re.findall(r'"type":"(\w+)"', _decoder_of(self._tokenizer)))

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()
    ) -> tuple[int, ...]:
        """Token ids of a conversation up to where the assistant answers, told of tools it may call.

        Raises:
            RequestError: the model has no chat template, or its template refuses the messages.
        """
        return self.encode(self._rendered(messages, tools), add_special_tokens=False)

    @cached_property
    def why_no_tools(self) -> str:
        """Why the model cannot be offered tools.

        Empty where its chat template knows them, and calls in the Hermes form.
        """
        tool = {"type": "function", "function": {"name": "probe_tool", "parameters": {"type": "object"}}}
        call = {"type": "function", "function": {"name": "probe_call", "arguments": {"probe": 1}}}
        message = {"role": "user", "content": "?"}
        try:
            text = self._rendered([message], [tool])
            called = self._rendered([message, {"role": "assistant", "content": "", "tool_calls": [call]}], [tool])
        except RequestError as problem:
            return str(problem)
        if "probe_tool" not in text:
            return "the model's chat template has no place for tools"
        calls = _HERMES_CALL.findall(self.decode(self.encode(called, add_special_tokens=False)))
        if {"name": "probe_call", "arguments": {"probe": 1}} not in map(_json_or_none, calls):
            return "the model's chat template writes calls in another form than <tool_call>{…}</tool_call>"
        return ""

    def _rendered(self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]) -> str:
        if self._template is None:
            raise RequestError("the model has no chat template; use /completions with a prompt")
        try:
            return self._template.render(
                messages=messages, tools=list(tools) or None, add_generation_prompt=True, **self._special
            )
        except (TemplateError, TypeError, ValueError) as problem:
            raise RequestError(f"the model's chat template refuses them: {problem}") from problem


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates expect to find; sandboxed, for a checkpoint is data from elsewhere."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    return environment


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> Never:
    raise TemplateError(message)


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise CheckpointError(f"{path}: not JSON: {problem}") from problem
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: should hold a JSON object")
    return content


def _json_or_none(text: str) -> object:
    """The JSON value of a text; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _decoder_of(tokenizer: tokenizers.Tokenizer) -> str:
    """What turns tokens into text, as JSON."""
    return "" if tokenizer.decoder is None else str(tokenizer.decoder.__getstate__(), "utf-8")


def _max_new_tokens(folder: Path) -> int | None:
    found = _read_json(folder / "generation_config.json").get("max_new_tokens")
    return found if isinstance(found, int) and found > 0 else None


def _eos_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        found = _read_json(folder / name).get("eos_token_id")
        if found is not None:
            return tuple(found) if isinstance(found, list) else (int(found),)
    return ()


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default")
    return template


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and the like, which templates use by name; a string or an object with ``content``."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    tokens = {name: config[name] for name in names if config.get(name)}
    return {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}
