"""Tool calls in a stream's text, in the Hermes form.

``<tool_call>{"name": …, "arguments": {…}}</tool_call>``. Pure.

Text outside of calls is content; what only looks like a call is content too. Arguments go out as they come.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.text import overlap

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)', re.DOTALL)
"""The usual beginning of a call; its arguments follow."""


@dataclass(slots=True)
class CallPart:
    """A piece of one call."""

    index: int
    """Of the call in the answer, from 0."""
    name: str | None = None
    """With the first piece."""
    arguments: str = ""


@dataclass(slots=True)
class ParsedCall:
    """What became certain with some text."""

    content: str = ""
    calls: list[CallPart] = field(default_factory=list)
    """At most one part for each call."""

    def part(self, index: int) -> CallPart:
        """The part of a call, a new one if there is none yet."""
        if not self.calls or self.calls[-1].index != index:
            self.calls.append(CallPart(index))
        return self.calls[-1]


class CallReader:
    """Divides the text of one choice into content and calls, as it comes."""

    def __init__(self) -> None:
        self.num_calls = 0
        """Whose names are known."""
        self._text = ""
        """What is not decided yet."""
        self._step: Callable[[ParsedCall], bool] = self._outside
        """Takes what it can from the text; False: it needs more."""
        self._arguments = _JsonObject()

    def add(self, text: str) -> ParsedCall:
        """What is certain with this text."""
        self._text += text
        call = ParsedCall()
        while self._step(call):
            pass
        return call

    def end(self, text: str = "") -> ParsedCall:
        """The same for the last text, and for what was held back."""
        call = self.add(text)
        rest = self._text
        self._text = ""
        if self._step == self._name and not self._whole(rest, call):
            call.content += OPEN + rest
        elif self._step == self._outside and (rest.strip() or not self.num_calls):
            call.content += rest
        return call

    def _outside(self, call: ParsedCall) -> bool:
        """Content, up to a call; blanks before and after calls are none where no content follows them."""
        before, opened, after = self._text.partition(OPEN)
        if opened:
            call.content += before.rstrip()
            self._text = after
            self._step = self._name
            return True
        certain = self._text[: len(self._text) - overlap(self._text, OPEN)].rstrip()
        call.content += certain
        self._text = self._text[len(certain) :]
        return False

    def _name(self, call: ParsedCall) -> bool:
        """Up to the arguments; a call in another order is read when it is whole."""
        if head := _HEAD.match(self._text):
            self._begin(json.loads(head[1], strict=False), call)
            self._text = self._text[head.end() :]
            self._step = self._in_arguments
            self._arguments = _JsonObject()
            return True
        whole, closed, after = self._text.partition(CLOSE)
        if not closed:
            return False
        if not self._whole(whole, call):
            call.content += OPEN + whole + CLOSE
        self._text = after
        self._step = self._outside
        return True

    def _in_arguments(self, call: ParsedCall) -> bool:
        size = self._arguments.size_in(self._text)
        if not self._text:
            return False
        call.part(self.num_calls - 1).arguments += self._text[:size]
        self._text = self._text[size:]
        if self._arguments.is_ended:
            self._step = self._after
        return self._arguments.is_ended

    def _after(self, _: ParsedCall) -> bool:
        """Up to the end of the call: nothing there is of use."""
        closed, after = self._text.partition(CLOSE)[1:]
        if closed:
            self._text = after
            self._step = self._outside
        return bool(closed)

    def _whole(self, text: str, parsed: ParsedCall) -> bool:
        """Read a call that is complete; False if it is none."""
        try:
            call = json.loads(text, strict=False)
        except ValueError:
            return False
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return False
        arguments = call.get("arguments", {})
        self._begin(call["name"], parsed)
        parsed.part(self.num_calls - 1).arguments = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        return True

    def _begin(self, name: str, call: ParsedCall) -> None:
        call.part(self.num_calls).name = name
        self.num_calls += 1


class _JsonObject:
    """Follows one JSON object to its end."""

    def __init__(self) -> None:
        self.is_ended = False
        self._depth = 0
        self._is_quoted = self._is_escaped = False

    def size_in(self, text: str) -> int:
        """How many characters of the text belong to it."""
        for place, character in enumerate(text):
            if self._is_quoted:
                self._quoted(character)
            elif character == '"':
                self._is_quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self.is_ended = not self._depth
            elif character == "<":  # no JSON: the call ends with a brace too few
                self.is_ended = True
                return place
            if self.is_ended:
                return place + 1
        return len(text)

    def _quoted(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._is_quoted = False
