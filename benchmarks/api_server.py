"""The OpenAI API over an engine that computes nothing and speaks at a steady pace; a process for ``benchmarks.api_cost``.

Run by its path, so that the packages may be those of another commit: ``PYTHONPATH=TREE python benchmarks/api_server.py PACE_S``.
It prints the port it listens on.
"""

import asyncio
import dataclasses
import socket
import sys
from typing import Any

import tokenizers
import uvicorn
from tokenizers import Regex, decoders, models, pre_tokenizers

from runtime.router import Router
from runtime.tokenizer import Tokenizer
from service.openai.api import Endpoint, openai_app
from tests.runtime.scripted import ScriptedEngine, topology

TEMPLATE = """\
{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}{% endfor %}"""
VOCAB_SIZE, MAX_TOKENS = 98, 4096


def character_tokenizer() -> Tokenizer:
    """One token per printable ASCII character."""
    vocabulary = {"<eos>": 0, "\n": 96} | {chr(code): code - 31 for code in range(32, 127)}
    plain = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))  # noqa: S106 - a token of text
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    plain.decoder = decoders.Fuse()
    return Tokenizer(plain, eos_ids=(0,), chat_template=TEMPLATE)


async def serve(pace_s: float) -> None:
    """Serve until the process is ended."""
    engine = ScriptedEngine(topology(1, 1), max_running=256, max_tokens=MAX_TOKENS)
    engine.hold()
    async with Router(engine, character_tokenizer()) as router:
        facts: dict[str, Any] = {"router": router, "context_tokens": MAX_TOKENS, "vocab_size": VOCAB_SIZE}
        known = {field.name for field in dataclasses.fields(Endpoint)}
        app = openai_app({"m": Endpoint(**{name: fact for name, fact in facts.items() if name in known})})
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(_admitted(app), log_level="error"))
        print(listener.getsockname()[1], flush=True)
        await asyncio.gather(server.serve(sockets=[listener]), speak(engine, pace_s))


async def speak(engine: ScriptedEngine, pace_s: float) -> None:
    """A step now and then."""
    while True:
        await asyncio.sleep(pace_s)
        engine.turn()


def _admitted(app: Any) -> Any:
    """The app with a caller for every request, where the commit asks for one."""
    try:
        from service.access.gate import OpenGate
        from service.documents.access import CALLER
    except ImportError:
        return app

    async def admitted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})[CALLER] = OpenGate().admit(scope)
        await app(scope, receive, send)

    return admitted


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
