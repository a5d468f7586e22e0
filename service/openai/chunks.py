"""The OpenAI API's answers, formatted by hand: a token's chunk costs a few string joins. Pure."""

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from pydantic import JsonValue

from runtime.engine import Finish
from runtime.stream import Delta, Usage
from service.access.refusals import error_document
from service.openai.calls import CallPart, CallReader, ParsedCall

Numbered = tuple[int, Delta]
"""The index of a choice, and what came for it."""
Kind = Literal["text_completion", "chat.completion"]

Json = dict[str, JsonValue]

DONE = b"data: [DONE]\n\n"
FINISH = {Finish.STOP: '"stop"', Finish.LENGTH: '"length"', Finish.CANCELLED: '"stop"', None: "null"}


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json.dumps(text)


class Labels:
    """What tokens are called in logprobs, each put in words once."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._known: dict[int, tuple[str, str]] = {}

    def name(self, token_id: int) -> str:
        """The token's text as JSON; ``bytes:\\xe2\\x82`` where it is no whole character."""
        return self._label(token_id)[0]

    def entry(self, token_id: int, logprob: float, more: str = "") -> str:
        """The beginning of an entry of a chat answer's logprobs, and ``more``."""
        name, code = self._label(token_id)
        return f'{{"token":{name},"logprob":{logprob},"bytes":{code}{more}}}'

    def _label(self, token_id: int) -> tuple[str, str]:
        if (label := self._known.get(token_id)) is None:
            raw = self._token_bytes(token_id)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
            label = self._known[token_id] = json.dumps(text), json.dumps(list(raw), separators=(",", ":"))
        return label


@dataclass(slots=True)
class Choice:
    """One choice being written: how far it is."""

    index: int
    calls: CallReader | None
    """Reads tool calls out of its text, where tools were offered."""
    offset: int = 0
    """Characters that went out."""
    is_first: bool = True


@dataclass(slots=True)
class CompletionWriter:
    """One answer being written: what stays the same in every chunk, and its choices."""

    id: str
    kind: Kind
    model: str
    created_s: int
    choices: Sequence[Choice]
    """Prompt by prompt."""
    num_prompts: int
    labels: Labels | None
    """None where no logprobs were asked for."""
    include_usage: bool
    _usages: dict[int, Usage] = field(default_factory=dict)
    """Of choices that ended."""
    _fingerprint: str = ""
    _head: str = ""
    """What chunks with this fingerprint begin with."""
    _tail: str = field(init=False)

    def __post_init__(self) -> None:
        self._tail = ',"usage":null}\n\n' if self.include_usage else "}\n\n"

    def chunk(self, numbered: Numbered) -> bytes:
        """The server-sent event of one token, or of an end without a token."""
        index, delta = numbered
        choice = self.choices[index]
        reason = "null"
        if delta.fingerprint != self._fingerprint:
            self._begin(delta.fingerprint)
        content = self._content(choice, delta)
        logprobs = "null" if self.labels is None else self._logprobs(choice, delta)
        if delta.finish is not None:
            reason = self._end(choice, delta)
        return (
            f'{self._head}"choices":[{{"index":{index},{content},"logprobs":{logprobs},'
            f'"finish_reason":{reason}}}]{self._tail}'
        ).encode()

    def usage_chunk(self) -> bytes:
        """The last event of a stream that was asked to tell its usage."""
        facts = json.dumps(usage_document(self.usage))
        return f'{self._head}"choices":[],"usage":{facts}}}\n\n'.encode()

    def _begin(self, fingerprint: str) -> None:
        """From here on another topology makes the tokens."""
        kind = self.kind if self.kind == "text_completion" else "chat.completion.chunk"
        facts = {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}
        prefix = json.dumps(facts | {"system_fingerprint": fingerprint}, separators=(",", ":"))
        self._fingerprint = fingerprint
        self._head = f"data: {prefix[:-1]},"

    def _end(self, choice: Choice, delta: Delta) -> str:
        """Keep what a choice took; the reason of its end, as JSON."""
        if delta.usage is not None:
            self._usages[choice.index] = delta.usage
        if delta.finish is Finish.STOP and choice.calls is not None and choice.calls.num_calls:
            return '"tool_calls"'
        return FINISH[delta.finish]

    def whole(self, deltas: Sequence[Numbered]) -> Json:
        """The answer to a request that is not streamed."""
        by_choice: list[list[Delta]] = [[] for _ in self.choices]
        for index, delta in deltas:
            by_choice[index].append(delta)
        choices: list[JsonValue] = list(map(self._whole_choice, self.choices, by_choice))
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": deltas[-1][1].fingerprint,
            "choices": choices,
            "usage": usage_document(self.usage),
        }

    @property
    def usage(self) -> Usage:
        """Of all choices; a prompt counts once, with what was cached as its first choice began."""
        each = len(self.choices) // self.num_prompts
        prompts = [self._usages[index] for index in range(0, len(self.choices), each)]
        cached = [usage.cached_tokens for usage in prompts if usage.cached_tokens is not None]
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
            completion_tokens=sum(usage.completion_tokens for usage in self._usages.values()),
            cached_tokens=sum(cached) if len(cached) == len(prompts) else None,
        )

    def _content(self, choice: Choice, delta: Delta) -> str:
        if self.kind == "text_completion":
            return f'"text":{_quoted(delta.text)}'
        role = '"role":"assistant",' if choice.is_first else ""
        choice.is_first = False
        if choice.calls is None:
            return f'"delta":{{{role}"content":{_quoted(delta.text)}}}'
        certain = choice.calls.add(delta.text) if delta.finish is None else choice.calls.end(delta.text)
        return f'"delta":{{{(role + _said(certain)).rstrip(",")}}}'

    def _logprobs(self, choice: Choice, delta: Delta) -> str:
        if self.labels is None or delta.token_id is None:
            return "null"
        labels = self.labels
        if self.kind == "text_completion":
            offset = choice.offset
            choice.offset += len(delta.text)
            top = ",".join(f"{labels.name(i)}:{logprob}" for i, logprob in delta.alternatives)
            chances = '"token_logprobs":[null],"top_logprobs":[null]'
            if delta.index >= 0:
                chances = f'"token_logprobs":[{delta.logprob}],"top_logprobs":[{{{top}}}]'
            return f'{{"tokens":[{labels.name(delta.token_id)}],{chances},"text_offset":[{offset}]}}'
        top = ",".join(labels.entry(i, logprob) for i, logprob in delta.alternatives)
        entry = labels.entry(delta.token_id, delta.logprob, f',"top_logprobs":[{top}]')
        return f'{{"content":[{entry}],"refusal":null}}'

    def _whole_choice(self, choice: Choice, deltas: Sequence[Delta]) -> Json:
        text = "".join(delta.text for delta in deltas)
        found: Json = {"index": choice.index, "logprobs": None}
        if self.kind == "text_completion":
            found["text"] = text
        elif choice.calls is None:
            found["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            found["message"] = _message(choice.calls.end(text))
        if self.labels is not None:
            found["logprobs"] = self._join([json.loads(self._logprobs(choice, delta)) for delta in deltas])
        return found | {"finish_reason": json.loads(self._end(choice, deltas[-1]))}

    def _join(self, parts: Sequence[dict[str, list[JsonValue] | None] | None]) -> Json:
        """Per-token logprobs as one object of lists."""
        if self.kind == "text_completion":
            keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            return {key: _joined(key, parts) for key in keys}
        return {"content": _joined("content", parts), "refusal": None}


def _joined(key: str, parts: Sequence[dict[str, list[JsonValue] | None] | None]) -> list[JsonValue]:
    return [value for part in parts if part for value in part[key] or ()]


def _said(call: ParsedCall) -> str:
    """Content and calls as members of a delta, each with a comma after it."""
    content = f'"content":{_quoted(call.content)},' if call.content else ""
    calls = [{"index": part.index} | _call(part) for part in call.calls]
    return content + (f'"tool_calls":{json.dumps(calls)},' if calls else "")


def _message(call: ParsedCall) -> Json:
    """What the assistant said, as a whole."""
    if not call.calls:
        return {"role": "assistant", "content": call.content, "refusal": None}
    calls: list[JsonValue] = [_call(part) for part in call.calls]
    return {"role": "assistant", "content": call.content or None, "refusal": None, "tool_calls": calls}


def _call(part: CallPart) -> Json:
    """A part of a call; what begins one has its id and name."""
    if part.name is None:
        return {"function": {"arguments": part.arguments}}
    function: Json = {"name": part.name, "arguments": part.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def usage_document(usage: Usage) -> Json:
    """Tokens in and out, and how many were in the engine's cache if it tells."""
    document: Json = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        document["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return document


def error_chunk(message: str, kind: str) -> bytes:
    """An error inside a stream that has begun."""
    return f"data: {json.dumps(error_document(message, kind))}\n\n".encode()
