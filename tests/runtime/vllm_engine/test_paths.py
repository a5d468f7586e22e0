"""How each request comes over: its KV copied, computed on the target, or not at all."""

from dataclasses import replace

from runtime.engine import GenerationRequest, SamplingParams
from runtime.vllm_engine.connector.frontier import Terms, counted, path_of
from runtime.vllm_engine.models import Stay
from tests.rows import rows

TERMS = Terms(
    wanted="auto",
    difference="",
    kv_bytes_per_token=1000,
    link_bytes_s=10e6,
    prefill_tokens_s=5000.0,
    seeds_travel=True,
    drain_tokens=4,
)
"""A token's KV takes 0.1 ms to copy and 0.2 ms to compute."""


def request(max_tokens: int = 100, temperature: float = 0.0, seed: int | None = None) -> GenerationRequest:
    return GenerationRequest("r", tuple(range(50)), SamplingParams(max_tokens, temperature, seed=seed), epoch=0)


@rows(
    ("change", "path"),
    [
        ({}, "patch"),
        ({"link_bytes_s": 1e6}, "follow"),
        ({"prefill_tokens_s": 50_000.0}, "follow"),
        ({"kv_bytes_per_token": 10_000}, "follow"),
        ({"kv_bytes_per_token": 2000}, "patch"),
    ],
)
def test_the_faster_of_copying_and_computing_is_chosen(change, path):
    assert path_of(request(), 10, replace(TERMS, **change)) == path  # type: ignore[arg-type]


@rows("wanted", ["patch", "follow"])
@rows("link_bytes_s", [1e3, 1e12])
def test_a_path_that_is_wanted_is_taken_whatever_it_costs(wanted, link_bytes_s):
    assert path_of(request(), 10, replace(TERMS, wanted=wanted, link_bytes_s=link_bytes_s)) == wanted


@rows("wanted", ["auto", "patch", "follow"])
def test_kv_that_means_nothing_to_the_target_is_never_copied(wanted):
    assert path_of(request(), 10, replace(TERMS, wanted=wanted, difference="dtype")) == "follow"


@rows("wanted", ["auto", "patch", "follow"])
def test_a_request_close_to_its_end_stays(wanted):
    terms = replace(TERMS, wanted=wanted)
    assert path_of(request(max_tokens=20), 16, terms) is Stay.NEARLY_DONE
    assert path_of(request(max_tokens=20), 15, terms) in ("patch", "follow")


@rows("wanted", ["auto", "patch", "follow"])
@rows("seed", [None, 5])
@rows("temperature", [0.0, 0.7])
def test_a_request_stays_only_where_its_seed_means_other_noise_to_the_target(wanted, seed, temperature):
    terms, asked = replace(TERMS, wanted=wanted), request(temperature=temperature, seed=seed)
    assert path_of(asked, 10, terms) in ("patch", "follow")
    stays = path_of(asked, 10, replace(terms, seeds_travel=False)) is Stay.SEED
    assert stays is (temperature > 0 and seed is not None)


def test_what_requests_did_is_counted():
    assert counted(["patch", "follow", Stay.SEED, "patch", Stay.SEED]) == {
        "follow": 1, "patch": 2, "the target's model runner draws other noise from a seed": 2,
    }  # fmt: skip
    assert counted([]) == {}
