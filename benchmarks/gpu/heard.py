"""An engine that is listened to: every token with its time, and switches whose KV is compared byte by byte."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

from runtime.engine import Cut, GenerationRequest, Moved, Token
from runtime.models import Cluster, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.messages import KvDigests

TIMEOUT_S = 100
"""For tokens that do not come."""


class ChangedError(Exception):
    """A byte or a token is not what it has to be; the message says which."""


class Heard:
    """An engine and what it said."""

    def __init__(self, engine: TorchEngine, cluster: Cluster) -> None:
        self.engine, self._cluster = engine, cluster
        self._requests: Sequence[GenerationRequest] = ()
        self.tokens: dict[str, list[Token]] = {}
        self.arrivals_s: dict[str, list[float]] = {}
        """Of each token, ``time.perf_counter``."""
        self.compared = 0
        """Digests of KV that was there on both sides of a switch."""
        self.epoch = 1
        """Under which requests are submitted."""
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self.engine.outputs():
            now_s = time.perf_counter()
            for item in batch:
                if not isinstance(item, Moved):
                    self.tokens.setdefault(item.request_id, []).append(item)
                    self.arrivals_s.setdefault(item.request_id, []).append(now_s)
            async with self._news:
                self._news.notify_all()

    async def said(self, count: int) -> None:
        """Each request has so many tokens."""
        async with asyncio.timeout(TIMEOUT_S), self._news:
            await self._news.wait_for(
                lambda: all(len(self.tokens.get(r.request_id, ())) >= count for r in self._requests)
            )

    async def more(self, count: int) -> None:
        """Each request that goes on has so many more tokens."""
        names = [request.request_id for request in self._requests]
        enough = {name: len(self.tokens.get(name, ())) + count for name in names}
        async with asyncio.timeout(TIMEOUT_S), self._news:
            await self._news.wait_for(
                lambda: all(len(self.tokens[name]) >= enough[name] or self._is_over(name) for name in names)
            )

    def _is_over(self, name: str) -> bool:
        return self.tokens[name][-1].finish is not None

    async def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Listen to these from now on."""
        self._requests = requests
        for request in requests:
            await self.engine.submit(request)

    async def switch(self, text: str, requests: Sequence[GenerationRequest] = ()) -> Cut:
        """Under what runs, or under requests that begin when the target is up.

        Raises:
            ChangedError: KV is not what it was before.
        """
        shadow = await self.engine.prepare(self._topology(text))
        await shadow.ready()
        if requests:
            await self.submit(requests)
            await self.said(2)
        while (await shadow.lag()).tokens > 8:
            pass
        before = await self.engine.digests()
        self.epoch += 1
        cut = await shadow.cut(self.epoch, deadline_s=60)
        await self.compare(before)
        await shadow.release()
        return cut

    async def compare(self, before: KvDigests) -> None:
        """Hold the KV of what still runs against what it was.

        Raises:
            ChangedError: it is not the same.
        """
        after = await self.engine.digests(before.positions)
        still = (await self.engine.digests()).positions  # what ended meanwhile gave its blocks back
        kept = {key: digest for key, digest in after.digests.items() if key[0] in still}
        self.compared += len(kept)
        if wrong := [key for key, digest in kept.items() if before.digests[key] != digest]:
            raise ChangedError(f"{len(wrong)} of {len(kept)} digests of KV differ, the first at {wrong[0]}")

    def gaps_ms(self, since_s: float, until_s: float) -> list[float]:
        """Waits of the requests for a token that went on between two moments."""
        return [
            1000 * (after - before)
            for request in self._requests
            for before, after in pairwise(self.arrivals_s[request.request_id])
            if after >= since_s and before <= until_s
        ]

    def _topology(self, text: str) -> Topology:
        model = self.engine.model
        return parse_topology(text, self._cluster, model.num_layers, "fp32")


def worst_logprob(got: Sequence[Token], want: Sequence[Token]) -> float:
    """The largest difference of two logprobs, where the tokens are the same.

    Raises:
        ChangedError: they are not.
    """
    ids, wanted = [one.token_id for one in got], [one.token_id for one in want]
    if ids != wanted:
        pairs = zip(ids, wanted, strict=False)
        at = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(wanted)))
        raise ChangedError(f"tokens differ from number {at} on, of {len(wanted)}")
    return max(abs(a.logprob - b.logprob) for a, b in zip(got, want, strict=True))
