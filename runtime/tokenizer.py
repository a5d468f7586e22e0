"""The tokenizer and chat template of a checkpoint folder in Hugging Face format."""

import ctypes
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Never, Self

import tokenizers
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
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
        tool_template: str | None = None,
        special: Mapping[str, object] | None = None,
        max_new_tokens: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._special = dict(special or {})
        self.eos_ids = eos_ids
        """Token ids that end a generation."""
        self.max_new_tokens = max_new_tokens
        """Of a generation for which nobody says it, by the checkpoint."""
        self._template = None if chat_template is None else _environment().from_string(chat_template)
        self._tool_template = None if tool_template is None else _environment().from_string(tool_template)

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
        templates = _chat_templates(folder, config)
        special = _special_tokens(folder, config)
        _refuse_disagreement(folder, tokenizer, special)
        try:
            found = cls(
                tokenizer,
                eos_ids=_eos_ids(folder, tokenizer, special),
                chat_template=templates.get("default"),
                tool_template=templates.get("tool_use"),
                special=special,
                max_new_tokens=_max_new_tokens(folder),
            )
        except TemplateError as problem:
            raise CheckpointError(f"{folder}: its chat template cannot be read: {problem}") from problem
        if not _ends(lambda: found.why_no_tools):
            raise CheckpointError(
                f"{folder}: its chat template takes over {PROBE_S:g} s for one message; it never ends"
            )
        return found

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

    @property
    def has_added_text(self) -> bool:
        """Whether tokens were added to it that are text, and not special."""
        return len(self._added) > len(self.special_ids)

    @cached_property
    def special_by_text(self) -> dict[str, int]:
        """The tokens that are no text, by what stands for them."""
        return {str(self._tokenizer.id_to_token(number)): number for number in self.special_ids}

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
        return self.encode(self.rendered(messages, tools), add_special_tokens=False)

    @cached_property
    def why_no_tools(self) -> str:
        """Why the model cannot be offered tools.

        Empty where its chat template knows them, and calls in the Hermes form.
        """
        tool = {"type": "function", "function": {"name": "probe_tool", "parameters": {"type": "object"}}}
        call = {"type": "function", "function": {"name": "probe_call", "arguments": {"probe": 1}}}
        message = {"role": "user", "content": "?"}
        try:
            text = self.rendered([message], [tool])
            called = self.rendered([message, {"role": "assistant", "content": "", "tool_calls": [call]}], [tool])
        except RequestError as problem:
            return str(problem)
        if "probe_tool" not in text:
            return "the model's chat template has no place for tools"
        calls = _HERMES_CALL.findall(self.decode(self.encode(called, add_special_tokens=False)))
        if {"name": "probe_call", "arguments": {"probe": 1}} not in map(_json_or_none, calls):
            return "the model's chat template writes calls in another form than <tool_call>{…}</tool_call>"
        return ""

    def rendered(self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]) -> str:
        """A conversation as the model's chat template writes it.

        Raises:
            RequestError: the model has no chat template, or its template refuses the messages.
        """
        template = self._tool_template if tools and self._tool_template else self._template
        if template is None:
            raise RequestError("the model has no chat template; use /completions with a prompt")
        known = {"messages": messages, "tools": list(tools) or None, "documents": None, "add_generation_prompt": True}
        try:
            return template.render(**known | self._special)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as problem:
            raise RequestError(f"the model's chat template refuses them: {problem}") from problem
        except RecursionError:
            raise RequestError("the model's chat template refuses them: it calls itself without end") from None


PROBE_S = 10.0
"""For one message through a chat template, when it is loaded."""
TOLD_AT_MOST = 50
"""A thread, to end."""


def _ends(work: Callable[[], object]) -> bool:
    """Whether something ends in time; if not, its thread is told to."""

    def run() -> None:
        with suppress(SystemExit):  # it is told to end by that
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PROBE_S)
    if not thread.is_alive():
        return True
    for _ in range(TOLD_AT_MOST):  # once may be lost: what runs in a callback passes it over
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        thread.join(0.1)
        if not thread.is_alive():
            break
    return False


class _Generation(Extension):
    """What transformers marks for training: its body is text like any other."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's declared form

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own as there."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates expect to find; sandboxed, for a checkpoint is data from elsewhere.

    All that transformers gives them (``apply_chat_template``).
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


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


def _eos_ids(folder: Path, tokenizer: tokenizers.Tokenizer, special: Mapping[str, object]) -> tuple[int, ...]:
    """Of all files that name end tokens: fine-tuned models have another one in each."""
    ids = dict[int, None]()
    for name in ("generation_config.json", "config.json"):
        found = _read_json(folder / name).get("eos_token_id")
        ids |= dict.fromkeys(map(int, found if isinstance(found, list) else [] if found is None else [found]))
    own = tokenizer.token_to_id(str(special["eos_token"])) if "eos_token" in special else None
    return tuple(ids if own is None else ids | {own: None})


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by their names: ``default``, and perhaps ``tool_use`` for conversations with tools."""
    named = config.get("chat_template") or {}
    if isinstance(named, str):
        named = {"default": named}
    elif isinstance(named, list):
        named = {entry["name"]: entry["template"] for entry in named}
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (path := folder / "chat_template.jinja").is_file():
        files["default"] = path
    return {**named, **{name: path.read_text(encoding="utf-8") for name, path in files.items()}}


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, object]:
    """``bos_token`` and the like, which templates use by name; a string or an object with ``content``."""
    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    known = {**_read_json(folder / "special_tokens_map.json"), **config}
    found: dict[str, object] = {name: _content(known[name]) for name in names if known.get(name)}
    more = known.get("additional_special_tokens")
    return found | ({"additional_special_tokens": [_content(token) for token in more]} if more else {})


def _content(token: Any) -> Any:
    return token["content"] if isinstance(token, dict) else token


def _refuse_disagreement(folder: Path, tokenizer: tokenizers.Tokenizer, special: Mapping[str, object]) -> None:
    """Refuse files of which one names what another has not.

    Raises:
        CheckpointError: naming both, and the key.
    """
    for name in ("bos_token", "eos_token"):
        if name in special and tokenizer.token_to_id(str(special[name])) is None:
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'}: {name} is {special[name]!r}, which is no token of tokenizer.json"
            )
    most = _read_json(folder / "config.json").get("vocab_size")
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if isinstance(most, int) and highest >= most:
        raise CheckpointError(
            f"{folder / 'config.json'}: vocab_size is {most}, but tokenizer.json has a token {highest}"
        )
