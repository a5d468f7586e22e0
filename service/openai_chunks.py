"""The OpenAI API's answers, formatted by hand: a token's chunk costs a few string joins. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from pydantic import JsonValue

from runtime.engine import Finish
from runtime.router import Delta, Usage

Kind = Literal["text_completion", "chat.completion"]

Json = dict[str, JsonValue]

DONE = b"data: [DONE]\n\n"
FINISH = {Finish.STOP: '"stop"', Finish.LENGTH: '"length"', Finish.CANCELLED: '"stop"', None: "null"}

TokenText = Callable[[int], str]


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json.dumps(text)


@dataclass(slots=True)
class Answer:
    """One answer being written: what stays the same in every chunk, and how much text went out."""

    id: str
    kind: Kind
    model: str
    created_s: int
    token_text: TokenText
    """Text of one token id, as logprobs are labelled."""
    logprobs: bool
    include_usage: bool
    _offset: int = 0
    _first: bool = True
    _head: str = field(init=False)

    def __post_init__(self) -> None:
        kind = self.kind if self.kind == "text_completion" else "chat.completion.chunk"
        facts = {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}
        self._head = f"data: {json.dumps(facts, separators=(',', ':'))[:-1]},"

    def chunk(self, delta: Delta) -> bytes:
        """The server-sent event of one token, or of an end without a token."""
        tail = ',"usage":null}\n\n' if self.include_usage else "}\n\n"
        return (
            f'{self._head}"system_fingerprint":{_quoted(delta.fingerprint)},"choices":[{{"index":0,'
            f'{self._content(delta.text)},"logprobs":{self._logprobs(delta)},'
            f'"finish_reason":{FINISH[delta.finish]}}}]{tail}'
        ).encode()

    def usage_chunk(self, usage: Usage, fingerprint: str) -> bytes:
        """The last event of a stream that was asked to tell its usage."""
        facts = json.dumps(usage_document(usage))
        return f'{self._head}"system_fingerprint":{_quoted(fingerprint)},"choices":[],"usage":{facts}}}\n\n'.encode()

    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The answer to a request that is not streamed."""
        text, last = "".join(delta.text for delta in deltas), deltas[-1]
        choice: Json = {
            "index": 0,
            "finish_reason": json.loads(FINISH[last.finish]),
            "logprobs": None,
        }
        if self.kind == "text_completion":
            choice["text"] = text
        else:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        if self.logprobs:
            choice["logprobs"] = self._join([json.loads(self._logprobs(delta)) for delta in deltas])
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": last.fingerprint,
            "choices": [choice],
            "usage": usage_document(last.usage) if last.usage else None,
        }

    def _content(self, text: str) -> str:
        if self.kind == "text_completion":
            return f'"text":{_quoted(text)}'
        role = '"role":"assistant",' if self._first else ""
        self._first = False
        return f'"delta":{{{role}"content":{_quoted(text)}}}'

    def _logprobs(self, delta: Delta) -> str:
        if not self.logprobs or delta.token_id is None:
            return "null"
        text = self.token_text(delta.token_id)
        if self.kind == "text_completion":
            offset, self._offset = self._offset, self._offset + len(delta.text)
            top = ",".join(f"{_quoted(self.token_text(i))}:{logprob}" for i, logprob in delta.alternatives)
            return (
                f'{{"tokens":[{_quoted(text)}],"token_logprobs":[{delta.logprob}],'
                f'"top_logprobs":[{{{top}}}],"text_offset":[{offset}]}}'
            )
        top = ",".join(_entry(self.token_text(i), logprob) for i, logprob in delta.alternatives)
        return f'{{"content":[{_entry(text, delta.logprob, top)}],"refusal":null}}'

    def _join(self, parts: Sequence[dict[str, list[JsonValue] | None] | None]) -> Json:
        """Per-token logprobs as one object of lists."""
        if self.kind == "text_completion":
            keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            return {key: _joined(key, parts) for key in keys}
        return {"content": _joined("content", parts), "refusal": None}


def _joined(key: str, parts: Sequence[dict[str, list[JsonValue] | None] | None]) -> list[JsonValue]:
    return [value for part in parts if part for value in part[key] or ()]


def _entry(token: str, logprob: float, top: str | None = None) -> str:
    """One entry of a chat answer's logprobs; ``top`` are its formatted alternatives."""
    tail = "" if top is None else f',"top_logprobs":[{top}]'
    return f'{{"token":{_quoted(token)},"logprob":{logprob},"bytes":{list(token.encode())}{tail}}}'


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


def error_document(message: str, kind: str, param: str | None = None, code: str | None = None) -> Json:
    """An error as OpenAI clients expect it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_chunk(message: str, kind: str) -> bytes:
    """An error inside a stream that has begun."""
    return f"data: {json.dumps(error_document(message, kind))}\n\n".encode()
