"""The wire contract against vLLM's own OpenAI server: structured output over our schema, with models that know nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.misbehaving_llm import TEXT
from intent.errors import ExtractionError, Failure
from intent.llm import extract
from intent.models import LlmSettings, Outcome
from intent.translate import translate

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]

SERVER = """
import asyncio, socket, sys, warnings
warnings.simplefilter("ignore")
from vllm.entrypoints.launchers.api_server.entry import run_server_worker
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    print(f"port {port}", flush=True)
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
    asyncio.run(run_server_worker(f"http://127.0.0.1:{port}", sock, args))
"""
TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}assistant: "


def write_checkpoint(folder: Path, *, terse: bool) -> Path:
    """A two-layer model that reads bytes and has learnt nothing.

    A terse one finds every byte equally likely and so takes the first that the schema allows; its vocabulary begins with what
    closes a string and a list. The other one goes on and on.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    first = '"{]}'
    alphabet = [*first, *sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(first))]
    vocabulary = {"<end>": 0} | {character: n for n, character in enumerate(alphabet, 1)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(vocabulary), hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=32_768, eos_token_id=0, tie_word_embeddings=False,
        )
    )  # fmt: skip
    if terse:
        torch.nn.init.zeros_(model.lm_head.weight)
    model.save_pretrained(folder)
    return folder


@contextmanager
def serving(checkpoint: Path, folder: Path) -> Iterator[LlmSettings]:
    """vLLM's server over a checkpoint, on a port that the system chose."""
    script = folder / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script), "--model", str(checkpoint), "--served-model-name", "bytes"]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "32768", "--max-num-seqs", "2"]
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as server:
        try:
            said: list[str] = []
            assert server.stdout is not None
            for line in server.stdout:
                said.append(line)
                if "Application startup complete" in line:
                    break
            port = next(line.split()[1] for line in said if line.startswith("port "))
            assert "Application startup complete" in said[-1], "".join(said[-30:])
            yield LlmSettings(f"http://127.0.0.1:{port}/v1", "bytes", "none", timeout_s=120.0)
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_an_answer_that_vllm_held_to_the_schema_passes_the_schema_and_nothing_invented_passes_the_text(
    tmp_path, catalogue
):
    with serving(write_checkpoint(tmp_path / "terse", terse=True), tmp_path) as settings:
        with pytest.raises(ExtractionError) as failure:
            extract(TEXT, catalogue, settings)
        assert failure.value.failure in {Failure.NOT_IN_TEXT, Failure.NOT_IN_SCHEMA}
        assert all(problem.pointer.startswith("/goals/0/") for problem in failure.value.problems)
        unknown = LlmSettings(settings.base_url, "another", "none", timeout_s=60.0)
        intent = translate(TEXT, catalogue, unknown)
        assert (intent.translator.reason or "").startswith(f"{Failure.NOT_FOUND}: ")


@pytest.mark.exhaustive
def test_a_model_that_runs_on_is_cut_off_and_the_rules_answer_and_say_so(tmp_path, catalogue):
    with serving(write_checkpoint(tmp_path / "endless", terse=False), tmp_path) as settings:
        intent = translate(TEXT, catalogue, settings)
    assert (intent.translator.name, intent.outcome) == ("rules", Outcome.OK)
    assert (intent.translator.reason or "").startswith(f"{Failure.CUT_OFF}: ")
    assert intent.goals == translate(TEXT, catalogue).goals
