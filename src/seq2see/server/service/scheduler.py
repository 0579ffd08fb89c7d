"""Continuous batching for a server: jobs arrive at any time, from any thread, and join the running batches.

One thread per model decodes. Before every step, waiting jobs take the free rows, cancelled and late ones leave. Jobs share a
batch, and so a forward pass, if they have the same beam and similar lengths; each has its own sampling, seed, stop
condition and limit. Batches take turns, one step each, so a long text does not block a short one. Rows do not depend on
each other: the results are those of `decode_requests`.
"""

import ctypes
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch

from seq2see.data.framing import Framing
from seq2see.decode.cache import CacheSize
from seq2see.decode.constraints import Constraints
from seq2see.decode.engine_model import engine_of
from seq2see.decode.engine_session import EngineSession, engine_for, is_plain
from seq2see.decode.generate import check_beam, require_output
from seq2see.decode.request import Request
from seq2see.decode.sampling import RowOptions
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import Session, TorchSession, device_profile
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.server.service.fair_queue import FairQueue

SHORTEST = 64  # positions of the smallest batch; larger ones have twice, four times, … as many
LONG = 256  # positions from which on jobs are long
MAX_BATCHES = 6  # at a time, with their caches
MAX_LONG_BATCHES = 4  # of them, so that short jobs never have to wait for long ones
MAX_BLOCKED_SECONDS = 0.5  # that a job without a batch waits before one of another kind must make room
MIN_ALTERNATIVES = 20  # computed if a job asks for any, so that jobs with different numbers share a batch
PATIENCE = 8  # steps that a job waits at most for others to join with it
TRIM_SECONDS = 1.0  # of idleness after which memory that is free is returned to the system
CHECK_SECONDS = 0.1  # between checks for waiting jobs that are cancelled or late
PREFILL_TOKENS = 4096  # source and prompt tokens that join a batch before the next step


class QueueFullError(UserError):
    """Too many jobs are waiting."""


class DeadlineError(UserError):
    """The time of a job is over."""


@dataclass(eq=False, kw_only=True)
class Job(Request):
    """A request with a search of its own. Cancelling its future removes it from the batch before the next step."""

    search: Search
    special_tokens: Framing
    constraints: Constraints | None = None  # of the output; beam > 1 only
    flow: tuple[str, str] = ("", "")  # client and request, between which the queue is fair
    deadline: float = float("inf")  # by time.monotonic()
    on_tokens: Callable[[Hypothesis], None] | None = None  # called with the output so far; beam = 1 only
    future: "Future[list[Hypothesis]]" = field(default_factory=Future)
    key: "BatchKey | None" = None  # of the batch it joins
    streamed: int = 0  # number of tokens that `on_tokens` has seen
    waited: int = 0  # steps for which there was a row, but others were awaited
    blocked_at: float = 0.0  # when there was no room for a batch of its kind; 0: never

    @classmethod
    def of(cls, request: Request, search: Search, special_tokens: Framing) -> Self:
        return cls(**vars(request), search=search, special_tokens=special_tokens)

    def batch_key(self, by_row_options: bool, vocab_size: int) -> "BatchKey":
        """Returns what the jobs of a batch have in common."""
        search = self.search
        positions = max(len(self.source), len(self.prompt) + self.max_new_tokens, SHORTEST)
        # Limits and seeds belong to rows; of the hypotheses and alternatives that a batch keeps, each job takes its n best.
        alternatives = min(max(search.alternatives, MIN_ALTERNATIVES), vocab_size) if search.alternatives else 0
        shared = replace(search, seed=0, max_new_tokens=0, samples=1, nbest=search.beam, alternatives=alternatives)
        if not by_row_options:
            shared = replace(shared, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
        constrained = by_row_options and self.constraints is not None
        return BatchKey(shared, self.special_tokens, 1 << (positions - 1).bit_length(), constrained)


@dataclass(frozen=True)
class BatchKey:
    search: Search
    special_tokens: Framing
    positions: int  # at least as many as the source, or the prompt with the output, of any job
    constrained: bool = False  # decoded without CUDA graphs: constraints are met on the host
    engine: Literal["", "search", "logits"] = ""  # what the engine computes; the rest runs on torch

    @property
    def is_long(self) -> bool:
        return self.positions > LONG


@dataclass(frozen=True)
class Claim:
    """A job that was blocked for too long, and the batch that makes room for it."""

    job: Job
    closing: BatchKey  # admits no more jobs


class BatchPool:
    """The open batches of a model, one per kind of job. They are few, because each has a cache.

    Long jobs may have only some of them. If there is no room for a batch of another kind, and for a while none becomes idle,
    one stops admitting jobs, ends, and makes room.
    """

    def __init__(self, open_batch: Callable[[BatchKey], Session[Job]]) -> None:
        self._open_batch = open_batch
        self._batches: OrderedDict[BatchKey, Session[Job]] = OrderedDict()  # least recently used first
        self._claims: dict[bool, Claim] = {}  # by whether the job is long

    def __getitem__(self, key: BatchKey) -> Session[Job]:
        return self._batches[key]

    @property
    def running(self) -> int:
        return sum(len(batch.rows) for batch in list(self._batches.values()))

    def busy(self) -> list[tuple[BatchKey, Session[Job]]]:
        return [(key, batch) for key, batch in self._batches.items() if batch.rows]

    def find(self, job: Job, joining: Container[BatchKey], now: float) -> Session[Job] | None:
        """Returns the batch of a job's kind, opened if there is room; not in place of one that jobs are about to join."""
        key = job.key
        assert key is not None
        self._claims = {is_long: claim for is_long, claim in self._claims.items() if not claim.job.future.done()}
        if any(key == claim.closing for claim in self._claims.values()):
            return None
        if key not in self._batches:
            if not self._make_room(job, key, joining, now):
                return None
            self._batches[key] = self._open_batch(key)
        self._batches.move_to_end(key)
        return self._batches[key]

    def _make_room(self, job: Job, key: BatchKey, joining: Container[BatchKey], now: float) -> bool:
        claim = self._claims.get(key.is_long)
        if claim is not None and claim.job.key == key:
            if not self._has_room(key, joining):
                return False
            del self._claims[key.is_long]
        elif any(self._has_room(other.job.key, joining) for other in self._claims.values() if other.job.key):
            return False  # the room is for that job
        elif not self._has_room(key, joining):
            job.blocked_at = job.blocked_at or now
            if claim is None and now - job.blocked_at > MAX_BLOCKED_SECONDS:
                # The one with the shortest jobs, and then with the fewest, ends soonest.
                rivals = self._rivals(key)
                closing = min(rivals, key=lambda other: (other.positions, len(self._batches[other].rows)))
                self._claims[key.is_long] = Claim(job, closing)
            return False
        if self._rivals(key):
            self.close(self._idle(key, joining)[0])
        return True

    def _has_room(self, key: BatchKey, joining: Container[BatchKey]) -> bool:
        return not self._rivals(key) or bool(self._idle(key, joining))

    def _idle(self, key: BatchKey, joining: Container[BatchKey]) -> list[BatchKey]:
        return [other for other in self._rivals(key) if not self._batches[other].rows and other not in joining]

    def _rivals(self, key: BatchKey) -> list[BatchKey]:
        """Returns the batches of which one must make room for a batch of this kind; none if there is room."""
        if key.is_long:
            long = [other for other in self._batches if other.is_long]
            if len(long) >= MAX_LONG_BATCHES:
                return long
        return list(self._batches) if len(self._batches) >= MAX_BATCHES else []

    def close(self, key: BatchKey) -> list[Job]:
        """Drops a batch with its cache; returns the jobs that were in it."""
        return [row.request for row in self._batches.pop(key).rows]

    def close_idle(self) -> None:
        for key in [key for key, batch in self._batches.items() if not batch.rows]:
            self.close(key)


class Scheduler:
    """Decodes jobs with one model in a thread of its own."""

    def __init__(self, model: Network, max_waiting: int = 10_000, token_budget: int = 0) -> None:
        self.model, self.max_waiting = model, max_waiting
        self.profile = device_profile(model)
        self.token_budget = token_budget or self.profile.token_budget
        self._arrived: deque[Job] = deque()  # not yet in the queue, which belongs to the thread
        self._queue: FairQueue[Job] = FairQueue()
        self._batches = BatchPool(self._open)
        self._wake = threading.Event()
        self._stopped, self._next_check = False, 0.0
        self.steps, self.row_steps = 0, 0  # for the fill of the batches
        self._thread = threading.Thread(target=self._run, name="decoding", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._arrived)

    @property
    def running(self) -> int:
        return self._batches.running

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues jobs; their futures get the hypotheses, best first. Jobs with equal inputs should follow each other."""
        for job in jobs:
            check_beam(self.model, job.search.beam)
        if self.waiting + len(jobs) > self.max_waiting:
            raise QueueFullError(
                f"{self.waiting:,} sentences are waiting and {len(jobs):,} more exceed {self.max_waiting:,}"
            )
        if self._stopped:
            raise QueueFullError("the model is being unloaded: send the request again")
        for job in jobs:
            job.options = RowOptions.of(job.search, job.constraints)
            job.key = self._key(job)
        self._arrived.extend(jobs)
        self._wake.set()

    def _key(self, job: Job) -> BatchKey:
        # A captured CUDA graph treats all rows alike.
        key = job.batch_key(self.profile.cuda_graphs, self.model.config.vocab_size)
        if engine_for(self.model, [job]) is None:
            return key
        return replace(key, engine="search" if is_plain(job.search, job.special_tokens, [job.options]) else "logits")

    def stop(self) -> None:
        """Finishes what runs or waits, then ends the thread."""
        self._stopped = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        with torch.inference_mode():
            while not (self._stopped and not self.waiting and not self.running):
                if not self.running and not self.waiting:
                    if not self._wake.wait(TRIM_SECONDS):
                        trim_memory()
                        self._wake.wait()
                    self._wake.clear()
                self._turn()

    def _turn(self) -> None:
        """Admits waiting jobs, then runs one step of every batch."""
        while self._arrived:
            self._queue.put(self._arrived.popleft())
        now = time.monotonic()
        if now >= self._next_check:  # not before every step: thousands may be waiting
            self._queue.remove(lambda job: _is_over(job, now))
            self._next_check = now + CHECK_SECONDS
        self._admit(now)
        for key, batch in self._batches.busy():
            try:
                batch.remove([i for i, row in enumerate(batch.rows) if _is_over(row.request, now)])
                if batch.rows:
                    self.steps += 1
                    self.row_steps += len(batch.rows)
                    batch.run()
                    self._deliver(batch)
            except Exception as error:  # fails the jobs of this batch only
                self._drop(key, error)
        if not self.profile.cuda_graphs:  # a batch is opened in 0.1 ms, but captured graphs are worth their memory
            self._batches.close_idle()

    def _admit(self, now: float) -> None:
        """Lets waiting jobs join the batches, several at a time."""
        joining: dict[BatchKey, list[Job]] = {}
        tokens = 0

        def accepts(job: Job) -> bool:
            assert job.key is not None
            batch, others = self._batches.find(job, joining, now), joining.get(job.key, [])
            if batch is None or batch.free == len(others) or tokens >= PREFILL_TOKENS:
                return False
            job.waited += 1
            return batch.should_fill or job.waited > PATIENCE or bool(others)

        for job in self._queue.take(accepts):
            assert job.key is not None
            joining.setdefault(job.key, []).append(job)
            tokens += len(job.source) + len(job.prompt)
        for key, jobs in joining.items():
            try:
                self._batches[key].add(jobs)
                self._deliver(self._batches[key])
            except Exception as error:
                self._drop(key, error)
                for job in jobs:  # they may not have joined
                    _fail(job, error)

    def _open(self, key: BatchKey) -> Session[Job]:
        beam, positions = key.search.beam, key.positions
        rows = max(1, min(self.profile.max_hypotheses, self.token_budget // positions) // beam)
        has_source = self.model.encoder is not None
        limit = positions if has_source else min(positions, self.model.config.max_positions)
        size = CacheSize(rows, positions, limit, positions if has_source else 0)
        if key.engine and (engine := engine_of(self.model)):
            plain = key.engine == "search"
            return EngineSession(engine, self.model, key.search, key.special_tokens, size, plain, max_steps=1)
        profile = replace(self.profile, cuda_graphs=self.profile.cuda_graphs and not key.constrained)
        return TorchSession(self.model, key.search, key.special_tokens, size, profile)

    def _deliver(self, batch: Session[Job]) -> None:
        streaming = [i for i, row in enumerate(batch.rows) if row.request.on_tokens is not None]
        if streaming:
            for i, (output, *_) in zip(streaming, batch.outputs(streaming), strict=True):
                job = batch.rows[i].request
                _stream(job, _with_alternatives(output, job.search.alternatives))
        for job, hypotheses in batch.take_finished():
            try:
                require_output(job, hypotheses)
            except UserError as error:
                _fail(job, error)
                continue
            with suppress(InvalidStateError):  # cancelled
                best = hypotheses[: job.search.nbest]
                job.future.set_result([_with_alternatives(each, job.search.alternatives) for each in best])

    def _drop(self, key: BatchKey, error: Exception) -> None:
        for job in self._batches.close(key):
            _fail(job, error)


def _with_alternatives(hypothesis: Hypothesis, count: int) -> Hypothesis:
    """Returns a hypothesis with the `count` most likely tokens of each step."""
    if not hypothesis.alternatives:
        return hypothesis
    return replace(hypothesis, alternatives=tuple(step[:count] for step in hypothesis.alternatives))


def _stream(job: Job, output: Hypothesis) -> None:
    if len(output.tokens) > job.streamed and job.on_tokens is not None:
        job.streamed = len(output.tokens)
        job.on_tokens(output)


def _is_over(job: Job, now: float) -> bool:
    """Whether a job was cancelled or is late; a late one fails."""
    if now > job.deadline:
        _fail(job, DeadlineError("not finished in time: shorten the text, or use a narrower beam"))
    return job.future.done()


def trim_memory() -> None:
    """Returns the memory of closed batches to the system: the allocator of glibc keeps most of it. Elsewhere does nothing."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _fail(job: Job, error: Exception) -> None:
    with suppress(InvalidStateError):
        job.future.set_exception(error)
