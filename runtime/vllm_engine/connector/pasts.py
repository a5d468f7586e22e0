"""What a request brings to vLLM's workers that did not see it begin.

Its output, and where its generator stands.

A worker keeps both itself and learns neither from the scheduler. Penalties count the output; noise goes on from the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

DRAW = 4
"""By how much vLLM turns a generator's offset back to undo one draw."""


@dataclass(frozen=True, slots=True)
class RequestPast:
    """One request's, sent with the step that schedules it for the first time."""

    request_id: str
    """vLLM's."""
    output: tuple[int, ...]
    generator: bytes = b""
    """Its state; empty where the request has none or has drawn nothing."""


class Requests(dict[str, Any]):
    """A model runner's requests by vLLM's ids; a new one gets its past before the runner looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.pasts: dict[str, RequestPast] = {}
        """Of requests that the step under way makes."""

    def __setitem__(self, request_id: str, request: Any) -> None:
        past = self.pasts.pop(request_id, RequestPast(request_id, ()))
        request.output_token_ids.extend(past.output)
        if request.generator is not None and request.generator.device.type == "cpu":
            request.generator = CpuGenerator.of(request.generator.initial_seed(), request.output_token_ids)
        elif request.generator is not None and past.output and not past.generator:
            request.generator.set_offset(DRAW * len(past.output))
        if past.generator:
            request.generator.set_state(torch.frombuffer(bytearray(past.generator), dtype=torch.uint8))
        super().__setitem__(request_id, request)

    def generators(self) -> dict[str, bytes]:
        """The state of each request's own generator."""
        return {
            request_id: request.generator.get_state().numpy().tobytes()
            for request_id, request in self.items()
            if request.generator is not None
        }


class CpuGenerator(torch.Generator):
    """A CPU generator whose last draw can be undone by an offset, as vLLM does it.

    vLLM draws for half-computed prompts too, and takes that back. On a CPU it draws one number for each token, so the
    state follows from the seed and the output.
    """

    output: Sequence[int] = ()

    @classmethod
    def of(cls, seed: int, output: Sequence[int]) -> "CpuGenerator":
        """As it stands after ``output``, which the runner goes on to fill."""
        made = cls(device="cpu")
        made.output = output
        made.manual_seed(seed)
        made._draw()
        return made

    def get_offset(self) -> int:
        """Far enough from 0 to be turned back by one draw."""
        return DRAW

    def set_offset(self, offset: int) -> torch.Generator:
        """Undo the last draw, whose token was not kept.

        Raises:
            ValueError: another offset.
        """
        if offset != 0:
            raise ValueError(f"only the last draw can be undone, not an offset of {offset} set")
        self.manual_seed(self.initial_seed())
        self._draw()
        return self

    def _draw(self) -> None:
        torch.randint(0, 2**31, (len(self.output),), generator=self, dtype=torch.long)
