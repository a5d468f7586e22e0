"""The loop of a driver process.

VLLM's engine core stepping, with the service's commands between steps.
"""

import queue
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runtime.capabilities import Batching
from runtime.engine import EngineStats, Finish, GenerationRequest, SamplingParams, Token
from runtime.errors import OVER_CONTEXT, RequestError, RuntimeFault
from runtime.process import messages as wire
from runtime.process.channel import BlockingChannel
from runtime.vllm_engine import messages
from runtime.vllm_engine.connector.frontier import UNBOUNDED
from runtime.vllm_engine.connector.hooks import let_blocks_go
from runtime.vllm_engine.driver.requests import FINISHES, core_request, token

WARMING_TOKENS = 64
HARMLESS = wire.Stats | messages.Expose | messages.PageDigests
"""Calls that change nothing: whatever fails in one, the engine goes on."""
COMPUTING = ("WAITING", "RUNNING", "PREEMPTED")
"""What a session is while it computes an input; between two it waits for the next."""


@dataclass(slots=True)
class _Followed:
    """A request whose KV is computed here from its tokens."""

    request: GenerationRequest
    tokens: list[int]
    """Prompt and output."""
    given: int = 0
    """How many of them vLLM has. The last is kept back: the step that computes it is the first of the takeover."""


@dataclass(slots=True)
class _Live:
    """A request that speaks here, now or once it is released."""

    request: GenerationRequest
    epoch: int
    next_index: int = 0


class VllmDriver:
    """Serves one vLLM engine; ``obey`` is what the service may ask for."""

    def __init__(self, llm: Any, channel: BlockingChannel, pids: tuple[int, ...] = ()) -> None:
        """``pids`` are those of the workers, by rank."""
        self.pids = pids
        self.turns = 0
        self.is_idle = True
        self._llm = llm
        self._core = llm.engine_core.engine_core
        self._scheduler = self._core.scheduler
        self._connector = self._scheduler.get_kv_connector().scheduler
        self._channel = channel
        self._live: dict[str, _Live] = {}
        self._followed: dict[str, _Followed] = {}

    def serve(self, inbox: "queue.SimpleQueue[Any]") -> None:
        """Step while there is work, answer between steps."""
        while True:
            self.is_idle = not self._has_work()
            try:
                call = inbox.get(block=self.is_idle)
            except queue.Empty:
                self._step()
            else:
                self.is_idle = False
                self._answer(call)

    def probe(self) -> float:
        """Prefill and decode, so that nothing is done for the first time under load.

        Tokens prefilled per second, of a whole step: with fewer tokens than it has, a GPU's rate would be that of its launches.
        """
        most = int(self._core.vllm_config.scheduler_config.max_num_batched_tokens)
        self._probed(WARMING_TOKENS)
        return self._probed(most)

    def _probed(self, most_tokens: int) -> float:
        length = max(1, min(most_tokens, self.max_tokens - 2))
        request = GenerationRequest("probe", tuple([1] * length), SamplingParams(max_tokens=2), epoch=0)
        started_s = time.monotonic()
        self._add(messages.Parking(request, ()))
        while self._live["probe"].next_index == 0:
            self._step(is_heard=False)
        elapsed_s = time.monotonic() - started_s
        while self._live:
            self._step(is_heard=False)
        self._llm.reset_prefix_cache()
        return length / elapsed_s

    def started(self, pids: tuple[int, ...], shared_memory: set[str], prefill_tokens_s: float) -> messages.VllmStarted:
        """What the service is told of this engine."""
        config = self._core.vllm_config
        free_bytes = self._llm.collective_rpc("intentctl_free_bytes")
        return messages.VllmStarted(
            geometry=self._connector.geometry,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            max_tokens=self.max_tokens,
            pids=pids,
            shared_memory=tuple(sorted(shared_memory)),
            prefill_tokens_s=prefill_tokens_s,
            runner="V2" if config.use_v2_model_runner else "V1",
            free_bytes=min((free for free in free_bytes if free is not None), default=None),
            batching=Batching(config.scheduler_config.max_num_seqs, config.scheduler_config.max_num_batched_tokens),
        )

    def _submit(self, request: GenerationRequest) -> None:
        """Queue a request."""
        if request.request_id in self._live or request.request_id in self._followed:
            raise RequestError(f"request {request.request_id} runs already; submit it again when it has ended")
        total = len(request.prompt) + request.sampling.max_tokens
        if not request.prompt or total > self.max_tokens:
            raise RequestError(
                f"{OVER_CONTEXT} {self.max_tokens} tokens, and {total} of at least 2 are asked for; ask for fewer"
            )
        try:
            self._add(messages.Parking(request, request.past))
        except ValueError as error:
            raise RequestError(f"vLLM refuses the request: {error}") from error

    def _cancel(self, request_id: str) -> None:
        """End a request early."""
        if live := self._live.get(request_id):
            self._forget(request_id)
            ended = Token(request_id, live.epoch, live.next_index, None, finish=Finish.CANCELLED)
            self._channel.send(wire.Tokens([ended]))

    def _stats(self) -> EngineStats:
        """Queues and blocks."""
        running, waiting = self._scheduler.get_request_counts()
        pool = self._scheduler.kv_cache_manager.block_pool
        return EngineStats(running, waiting, pool.get_num_free_blocks(), self.num_blocks)

    def _sync(self, names: tuple[str, ...]) -> messages.SourceState:
        """Tell how far the copies are; once they are done, copy what these requests have computed since."""
        connector = self._connector
        state = messages.SourceState(connector.extents(), connector.copied_bytes, connector.free_slots)
        if not self._connector.is_busy:
            self._connector.aim(names)
        return state

    def _suspend(self, names: tuple[str, ...]) -> messages.SourceState:
        """Stop at a step boundary, everything pinned, and copy the rest of these requests' KV."""
        from vllm.v1.core.sched.interface import PauseState

        self._scheduler.set_pause_state(PauseState.PAUSED_ALL)
        while self._core.batch_queue:
            self._step()
        drained_s = time.monotonic()
        self._connector.aim_at_all(names)
        while self._connector.is_busy:
            self._step()
        patch_s = time.monotonic() - drained_s
        extents = self._connector.extents()
        copied = self._connector.copied_bytes
        return messages.SourceState(extents, copied, self._connector.free_slots, patch_s, self._generators())

    def _resume(self, moved: tuple[str, ...]) -> None:
        """Go on after ``suspend``, without what has moved away; the switch is over on this side."""
        from vllm.v1.core.sched.interface import PauseState

        for request_id in moved:
            self._forget(request_id)
        self._scheduler.set_pause_state(PauseState.UNPAUSED)
        self._commit()

    def _park(self, parkings: list[messages.Parking]) -> None:
        """Take requests of the source in; they wait for their KV and for ``release``."""
        for parking in parkings:
            name = parking.request.request_id
            self._connector.park(name)
            try:
                self._add(parking)
            except ValueError:  # the source refuses it too, and its client hears that
                self._connector.parked.pop(name, None)

    def _follow(self, parkings: list[messages.Parking]) -> None:
        """Begin to compute the KV of these requests here."""
        for parking in parkings:
            request = parking.request
            self._followed[request.request_id] = _Followed(request, [*request.prompt, *parking.emitted])
            self._feed(self._followed[request.request_id])

    def _advance(self, extents: Mapping[str, messages.Extent], news: messages.News) -> messages.TargetState:
        """Hear what was said and how far the source is; tell how far this side is."""
        self._hear(news)
        for name, followed in self._followed.items():
            # inputs that queue would be computed one by one: what is said meanwhile is the next one
            if not self._is_computing(name):
                self._feed(followed)
        for name, extent in extents.items():
            if name in self._connector.parked:
                self._connector.offer(name, extent)
        computed = self._connector.loaded()
        for name in self._followed:
            request = self._connector.requests.get(name)
            computed[name] = request.num_computed_tokens if request else 0
        return messages.TargetState(computed, self._connector.copied_bytes)

    def _take_all_over(self, releases: list[messages.ReleaseRequest], news: messages.News) -> messages.TargetReleased:
        """The cut: these requests go on here. Answers when their KV is here and the first step is done."""
        started_s = time.monotonic()
        copied_bytes = self._connector.copied_bytes
        self._hear(news)
        for release in releases:
            if release.extent is None:
                self._take_over(release)
            elif self._connector.has_nothing_for(release.request_id, release.extent):
                self._begin_again(release.request_id)
            else:
                self._connector.release(release.request_id, release.extent, UNBOUNDED)
            if release.generator:
                self._connector.generators[release.request_id] = release.generator
            live = self._live[release.request_id]
            live.epoch = release.epoch
            live.next_index = release.index
        while self._connector.is_busy:
            self._step()
        loaded_s = time.monotonic()
        # in a pipeline the first results come when it is full
        for _ in range(self._core.batch_queue_size):
            if self._step():
                break
        return messages.TargetReleased(
            loaded_s - started_s, time.monotonic() - loaded_s, self._connector.copied_bytes - copied_bytes
        )

    def _commit(self) -> None:
        """The switch is over on this side."""
        self._connector.detach()
        self._llm.collective_rpc("intentctl_let_go")

    def _digests(self, name: str) -> dict[tuple[int, int, int], str]:
        """Digests of a request's pages by (logical block, layer, head)."""
        request = self._connector.requests[name]
        blocks = list(self._scheduler.kv_cache_manager.get_block_ids(request.request_id)[0])
        blocks = blocks[: -(-request.num_computed_tokens // self.block_size)]
        found: dict[tuple[int, int, int], str] = {}
        for digests in self._llm.collective_rpc("intentctl_digests", args=(blocks,)):
            found |= digests
        return found

    @property
    def num_blocks(self) -> int:
        """KV blocks that requests can have (vLLM keeps one for itself)."""
        return int(self._core.vllm_config.cache_config.num_gpu_blocks) - 1

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        return int(self._core.vllm_config.cache_config.block_size)

    @property
    def max_tokens(self) -> int:
        """Prompt and output of one request at most."""
        return min(int(self._core.vllm_config.model_config.max_model_len), self.num_blocks * self.block_size)

    def _has_work(self) -> bool:
        """Something wants a step; requests that are parked or between two inputs do not."""
        if self._core.batch_queue or self._connector.is_busy or self._scheduler.finished_req_ids:
            return True
        # 0 while suspended
        unfinished = self._scheduler.get_num_unfinished_requests()
        return bool(unfinished and unfinished > self._connector.num_idle)

    def _step(self, *, is_heard: bool = True) -> bool:
        """One step of vLLM; tells whether anything was said."""
        tokens = [token for output in self._llm.step() for token in self._tokens(output)]
        self.turns += 1
        if tokens and is_heard:
            self._channel.send(wire.Tokens(tokens))
        return bool(tokens)

    def _tokens(self, output: Any) -> list[Token]:
        """The new tokens of one request, booked."""
        live = self._live.get(output.request_id)
        completion = output.outputs[0]
        if live is None:
            return []
        tokens = []
        for token_id, chances in zip(completion.token_ids, completion.logprobs or [], strict=True):
            tokens.append(token(live.request, (live.epoch, live.next_index), int(token_id), chances))
            live.next_index += 1
        if completion.finish_reason is not None:
            del self._live[output.request_id]
            finish = FINISHES.get(completion.finish_reason, Finish.ERROR)
            by_grammar = " (its grammar can go no further)" if live.request.sampling.grammar else ""
            tokens = _ended(tokens, live, finish, f"vLLM ended it: {completion.finish_reason}{by_grammar}")
        return tokens

    def _add(self, parking: messages.Parking) -> None:
        request = parking.request
        emitted = parking.emitted
        wanted = core_request(request, request.prompt, request.sampling.max_tokens)
        self._llm.add_request(request.request_id, wanted, wanted.sampling_params)
        self._live[request.request_id] = _Live(request, request.epoch, len(emitted))
        if emitted:
            self._connector.extend(request.request_id, emitted)

    def _hear(self, news: messages.News) -> None:
        for name, tokens in news.items():
            if name in self._followed:
                self._followed[name].tokens.extend(tokens)
            elif name in self._connector.parked:
                self._connector.extend(name, tokens)

    def _feed(self, followed: _Followed) -> None:
        """Give a followed request its next input, which vLLM holds as a session.

        What it samples then is not heard.
        """
        tokens = tuple(followed.tokens[followed.given : -1])
        followed.given += len(tokens)
        if tokens:
            wanted = core_request(replace(followed.request, sampling=SamplingParams(1)), tokens, 1)
            wanted.resumable = True
            self._llm.engine_core.add_request(wanted)

    def _take_over(self, release: messages.ReleaseRequest) -> None:
        """A followed request gets its last input, and what it samples is heard from now on."""
        name = release.request_id
        followed = self._followed.pop(name)
        self._compute((name,))
        request = followed.request
        if self._is_computing(name) or request.sampling.has_memory:
            # no room for it yet, or a session would forget what was output: it begins anew with all its tokens, and
            # finds the whole blocks of them in the prefix cache
            self._forget(name)
            self._add(messages.Parking(request, tuple(followed.tokens[len(request.prompt) :])))
            return
        remaining = request.sampling.max_tokens - release.index
        wanted = core_request(request, tuple(followed.tokens[followed.given :]), remaining)
        wanted.resumable = True
        wanted.external_req_id = name
        self._llm.output_processor.add_request(wanted, None)
        self._live[name] = _Live(request, request.epoch)
        self._llm.engine_core.add_request(wanted)
        # an input that is no session's ends the session with the one before it
        self._llm.engine_core.add_request(core_request(request, (), remaining))

    def _generators(self) -> dict[str, bytes]:
        """The generators' states of requests that have their own.

        Here or on their way to the workers.
        """
        if not any(live.request.sampling.is_seeded for live in self._live.values()):
            return {}
        # noise is drawn by the ranks of the last stage, and theirs are the last answers
        here: dict[str, bytes] = self._llm.collective_rpc("intentctl_generators")[-1]
        known = {name: here.get(request.request_id) for name, request in self._connector.requests.items()}
        there: dict[str, bytes] = self._connector.generators
        return there | {name: state for name, state in known.items() if state}

    def _begin_again(self, name: str) -> None:
        """A parked request computes its KV anew."""
        request = self._live[name].request
        tokens = tuple(self._connector.requests[name].all_token_ids)
        self._forget(name)
        self._add(messages.Parking(request, tokens[len(request.prompt) :]))

    def _compute(self, names: tuple[str, ...]) -> None:
        """Let followed requests finish their inputs, as long as that gets anywhere."""
        before = -1
        while any(self._is_computing(name) for name in names):
            computed = sum(request.num_computed_tokens for request in self._connector.requests.values())
            if computed == before and not self._core.batch_queue:
                return
            before = computed
            self._step()

    def _is_computing(self, name: str) -> bool:
        request = self._connector.requests.get(name)
        return request is not None and request.status.name in COMPUTING

    def _forget(self, request_id: str) -> None:
        self._followed.pop(request_id, None)
        if request := self._connector.requests.get(request_id):
            let_blocks_go(self._scheduler, request)
        if self._live.pop(request_id, None):
            self._llm.abort_request([request_id])
        elif request:
            self._llm.engine_core.abort_requests([request.request_id])

    def _answer(self, call: wire.Call[wire.Command[Any]]) -> None:
        try:
            answer = wire.reply(call.call_id, self.obey(call.command))
            self.turns += 1
        except RuntimeFault as error:
            answer = wire.Reply(call.call_id, trouble=wire.Trouble.of(error))
        except Exception as error:
            if not isinstance(call.command, HARMLESS):
                raise
            traceback.print_exc()
            failed = f"{type(call.command).__name__} failed: {type(error).__name__}: {error}"
            answer = wire.Reply(call.call_id, trouble=wire.Trouble.of(RequestError(failed)))
        self._channel.send(answer)

    def obey(self, command: wire.Command[Any]) -> object:  # noqa: C901, PLR0912 - one list of all that the service asks
        """Do it, between two steps. A class that refines another comes before it."""
        answer: object = None
        match command:
            case wire.Submit(request):
                self._submit(request)
            case wire.CancelStream(request_id):
                self._cancel(request_id)
            case wire.Stats():
                answer = self._stats()
            case messages.ForgetPrefixes():
                self._llm.reset_prefix_cache()
            case messages.Expose():
                answer = _exposition()
            case messages.PageDigests(name):
                answer = self._digests(name)
            case messages.AttachTarget(staging, step_blocks):
                self._connector.attach_target(staging, step_blocks)
            case messages.AttachSource(staging, least_blocks):
                self._connector.attach_source(staging, least_blocks)
            case messages.Suspend(names):
                answer = self._suspend(names)
            case messages.Sync(names):
                answer = self._sync(names)
            case messages.Resume(moved):
                self._resume(moved)
            case messages.Follow(parkings):
                self._follow(parkings)
            case messages.Park(parkings):
                self._park(parkings)
            case messages.Advance(extents, news):
                answer = self._advance(extents, news)
            case messages.Settle():
                self._compute(tuple(self._followed))
            case messages.Takeover(releases, news):
                answer = self._take_all_over(releases, news)
            case messages.Commit():
                self._commit()
            case messages.Abandon(names):
                for name in names:
                    self._forget(name)
        return answer


def _exposition() -> str:
    """vLLM's own metrics, as Prometheus text."""
    from prometheus_client import REGISTRY, generate_latest

    return generate_latest(REGISTRY).decode()


def _ended(tokens: list[Token], live: _Live, finish: Finish, detail: str) -> list[Token]:
    """The tokens with the end on the last one, or on one of its own."""
    detail = detail if finish is Finish.ERROR else ""
    if not tokens or finish is Finish.ERROR:
        end = Token(live.request.request_id, live.epoch, live.next_index, None, finish=finish, detail=detail)
        return [*tokens, end]
    last = tokens[-1]
    return [*tokens[:-1], replace(last, finish=finish)]
