"""One vLLM engine that generates when told to and says how long it took: a side of ``connector_overhead`` and ``engine``.

Reads lines ``FIRST COUNT`` from stdin: generate for the prompts of these numbers. Answers each with a line of JSON
``{"tokens": ..., "seconds": ...}``, after one ``{}`` when the engine is up. Ends with stdin.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from benchmarks.counting import prompt_tokens

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine


def main() -> None:
    """Start the engine and answer until stdin ends."""
    options = parser().parse_args()
    with _answers() as answers:
        engine = start(options)
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            first, count = map(int, line.split())
            found = generate(engine, options, range(first, first + count))
            print(json.dumps(found), file=answers, flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("checkpoint")
    found.add_argument("--context", type=int, required=True)
    found.add_argument("--output", type=int, required=True)
    found.add_argument("--temperature", type=float, default=0.0)
    found.add_argument("--connector", metavar="MODULE:CLASS", help="KV connector to run with, idle")
    return found


@contextmanager
def _answers() -> Iterator[TextIO]:
    """What was stdout; stdout itself goes to stderr, for vLLM writes there too."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        yield answers


def start(options: argparse.Namespace) -> "LLMEngine":
    """An engine in this process, with or without a connector."""
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    connector: dict[str, Any] = {}
    if options.connector:
        module, _, name = options.connector.partition(":")
        transfer = KVTransferConfig(kv_connector=name, kv_connector_module_path=module, kv_role="kv_both")
        connector = {"kv_transfer_config": transfer}
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=options.checkpoint,
            dtype="float32",
            enforce_eager=True,
            max_model_len=options.context + options.output,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            kv_cache_memory_bytes=1 << 30,
            gpu_memory_utilization=0.1,  # only what has to be free at the start: another engine is on this GPU
            **connector,
        )
    )


def generate(engine: "LLMEngine", options: argparse.Namespace, numbers: range) -> dict[str, float]:
    """Generate for these prompts at once, to the end."""
    from vllm import SamplingParams

    asked = {"temperature": options.temperature, "max_tokens": options.output}
    for number in numbers:
        params = SamplingParams(**asked, seed=number, ignore_eos=True, detokenize=False)
        prompt = prompt_tokens(Path(options.checkpoint), number, options.context)
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
    started_s = time.perf_counter()
    tokens = 0
    while engine.has_unfinished_requests():
        tokens += sum(len(one.outputs[0].token_ids) for one in engine.step() if one.finished)
    return {"tokens": tokens, "seconds": time.perf_counter() - started_s}


if __name__ == "__main__":
    main()
