"""What a worker keeps of a request goes on where the request was before."""

from dataclasses import dataclass, field

import pytest
import torch

from runtime.vllm_engine.connector.pasts import CpuGenerator, RequestPast, Requests
from tests.rows import rows


@dataclass
class RunnerRequest:
    """What of the model runner's own request is used."""

    generator: torch.Generator | None = None
    output_token_ids: list[int] = field(default_factory=list)


def seeded(seed: int) -> RunnerRequest:
    generator = torch.Generator(device="cpu")
    generator.manual_seed(seed)
    return RunnerRequest(generator)


def draw(request: RunnerRequest) -> int:
    """The number that vLLM draws for a token."""
    return int(torch.randint(0, 2**31, (1,), generator=request.generator, dtype=torch.long).item())


def say(request: RunnerRequest, count: int) -> list[int]:
    """Draw and output so many tokens."""
    numbers = []
    for _ in range(count):
        numbers.append(draw(request))
        request.output_token_ids.append(numbers[-1] % 98)
    return numbers


def test_a_request_without_a_past_is_as_the_runner_made_it():
    requests, alone, plain = Requests(), seeded(7), RunnerRequest()
    requests["a"], requests["b"] = seeded(7), plain
    assert say(requests["a"], 5) == say(alone, 5)
    assert (plain.generator, plain.output_token_ids) == (None, [])


def test_a_request_that_moves_says_what_it_would_have_said():
    source, target, alone = Requests(), Requests(), seeded(7)
    wanted = say(alone, 60)
    source["a"] = seeded(7)
    assert say(source["a"], 40) == wanted[:40]
    (state,) = source.generators().values()
    target.pasts["b"] = RequestPast("b", tuple(source["a"].output_token_ids), state)
    target["b"] = seeded(7)
    assert target["b"].output_token_ids == alone.output_token_ids[:40]
    assert say(target["b"], 20) == wanted[40:]
    assert target.pasts == {}


def test_states_are_told_of_requests_with_a_generator_of_their_own():
    requests = Requests()
    requests["a"], requests["b"] = seeded(7), RunnerRequest()
    assert requests.generators().keys() == {"a"}


@rows("said", [0, 1, 33])
def test_a_draw_for_a_half_computed_prompt_is_undone(said):
    requests, alone = Requests(), seeded(7)
    requests["a"] = seeded(7)
    assert say(requests["a"], said) == say(alone, said)
    for _ in range(3):
        draw(requests["a"])
        generator = requests["a"].generator
        generator.set_offset(generator.get_offset() - 4)
    assert say(requests["a"], 5) == say(alone, 5)


def test_what_came_with_the_request_is_undone_to_that():
    source, target = Requests(), Requests()
    source["a"] = seeded(7)
    say(source["a"], 12)
    target.pasts["a"] = RequestPast("a", tuple(source["a"].output_token_ids), source.generators()["a"])
    target["a"] = seeded(7)
    draw(target["a"])
    target["a"].generator.set_offset(0)
    assert say(target["a"], 5) == say(source["a"], 5)


def test_no_more_than_the_last_draw_can_be_undone():
    generator = CpuGenerator.of(7, [])
    with pytest.raises(ValueError, match="only the last draw"):
        generator.set_offset(generator.get_offset())
