"""Between the router's requests and tokens and vLLM's."""

import json
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from runtime.engine import GenerationRequest, SamplingParams
from runtime.vllm_engine.driver.requests import NAME_KEY, name_of, token

ROUND_TRIP = """
import json
from vllm.v1.request import Request as VllmRequest
from runtime.engine import GenerationRequest, SamplingParams
from runtime.vllm_engine.driver.requests import core_request, name_of

def seen(sampling):
    core = core_request(GenerationRequest("the name", (1, 2, 3), sampling, 0), (1, 2, 3, 4), 9)
    core.request_id += "-0a1b"
    request = VllmRequest.from_engine_core_request(core, None)
    params = request.sampling_params
    return {
        "name": name_of(request), "tokens": list(request.prompt_token_ids), "max_tokens": request.max_tokens,
        "temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p, "seed": params.seed,
        "logprobs": params.logprobs, "stop": list(params.stop_token_ids), "detokenize": params.detokenize,
    }

print(json.dumps([
    seen(SamplingParams(50, temperature=0.5, top_p=0.9, top_k=7, seed=3, num_logprobs=2, stop_token_ids=(8,))),
    seen(SamplingParams(50, seed=3)),
]))
"""


@dataclass
class Chance:
    """vLLM's logprob of one token."""

    logprob: float
    rank: int


CHANCES = {5: Chance(-1.5, 3), 9: Chance(-0.1, 1), 7: Chance(-0.9, 2)}


def request(num_logprobs: int) -> GenerationRequest:
    return GenerationRequest("r", (1,), SamplingParams(10, num_logprobs=num_logprobs), epoch=0)


def test_a_token_has_its_own_logprob_and_the_best_alternatives_in_order():
    said = token(request(2), (3, 4), 5, CHANCES)
    assert (said.request_id, said.epoch, said.index, said.token_id, said.logprob) == ("r", 3, 4, 5, -1.5)
    assert said.alternatives == ((9, -0.1), (7, -0.9))
    assert said.finish is None


def test_without_alternatives_asked_for_there_are_none():
    assert token(request(0), (0, 0), 9, CHANCES).alternatives == ()


def test_a_request_is_known_by_the_name_it_carries():
    assert name_of(SimpleNamespace(kv_transfer_params={NAME_KEY: "r", "other": 1})) == "r"
    assert name_of(SimpleNamespace(kv_transfer_params=None)) == ""


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_sees_what_the_router_asked_for():
    done = subprocess.run([sys.executable, "-c", ROUND_TRIP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sampled, greedy = json.loads(done.stdout.splitlines()[-1])
    assert sampled == {
        "name": "the name",
        "tokens": [1, 2, 3, 4],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "seed": 3,
        "logprobs": 2,
        "stop": [8],
        "detokenize": False,
    }
    assert (greedy["temperature"], greedy["seed"], greedy["name"]) == (0.0, None, "the name")
