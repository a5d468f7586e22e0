"""The tokenizer and chat template of a checkpoint folder in Hugging Face format."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Never, Self

import tokenizers
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.errors import CheckpointError, RequestError


class Tokenizer:
    """Text to token ids and back, with the tokens that end a text."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        eos_ids: tuple[int, ...] = (),
        chat_template: str | None = None,
        special: Mapping[str, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._special = dict(special or {})
        self.eos_ids = eos_ids
        """Token ids that end a generation."""
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
            return cls(tokenizer, eos_ids=end_tokens(folder), chat_template=template, special=special)
        except TemplateError as problem:
            raise CheckpointError(f"{folder}: its chat template cannot be read: {problem}") from problem

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a text; special tokens are what the tokenizer itself puts around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    def token_text(self, token_id: int) -> str:
        """Text of one token on its own, special or not, as logprobs are labelled."""
        return str(self._tokenizer.decode([token_id], skip_special_tokens=False))

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a conversation up to where the assistant answers.

        Raises:
            RequestError: the model has no chat template, or its template refuses the messages.
        """
        if self._template is None:
            raise RequestError("the model has no chat template; use /completions with a prompt")
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, **self._special)
        except (TemplateError, TypeError, ValueError) as problem:
            raise RequestError(f"messages: the model's chat template refuses them: {problem}") from problem
        return self.encode(text, add_special_tokens=False)


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates expect to find; sandboxed, for a checkpoint is data from elsewhere."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
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


def end_tokens(folder: Path) -> tuple[int, ...]:
    """Token ids that end a text, from a checkpoint folder."""
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
