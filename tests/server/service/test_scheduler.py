"""Continuous batching: jobs that join and leave a running batch get the results of decoding them alone."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from weakref import WeakSet

import pytest
import torch

from seq2see.decode.constraints import Constraints, progress_of
from seq2see.decode.generate import build_requests, decode_requests
from seq2see.decode.request import Request
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import DeviceProfile, Session, TorchSession
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.server.service import scheduler as scheduling
from seq2see.server.service.fair_queue import FairQueue
from seq2see.server.service.scheduler import (
    LONG,
    MAX_BATCHES,
    BatchKey,
    BatchPool,
    DeadlineError,
    Job,
    QueueFullError,
    Scheduler,
)
from tests.decoders import LANGUAGE_MODEL, SPECIAL_TOKENS, START, TRANSLATORS, exact_model, random_sentences
from tests.waiting import HANG, wait_until

SEARCHES = [
    Search(),
    Search(beam=4, nbest=2),
    Search(temperature=0.8, seed=3),
    Search(temperature=1.3, top_k=7, seed=4),
    Search(temperature=1.0, top_p=0.8, seed=5, max_new_tokens=70),
    Search(beam=3, length_penalty=0.6, max_new_tokens=9),
    Search(alternatives=2),
]


def jobs_for(model: Network, sequences: Sequence[Sequence[int]], searches: Sequence[Search]) -> list[Job]:
    jobs = []
    for i, sequence in enumerate(sequences):
        search = searches[i % len(searches)]
        source, prompt = ([], [START, *sequence[:-1]]) if model.encoder is None else (sequence, [START])
        (request,) = build_requests(model, i, source, prompt, search)
        job = Job.of(request, search, SPECIAL_TOKENS)
        job.flow = (f"client {i % 3}", str(i))
        jobs.append(job)
    return jobs


def decode_alone(model: Network, job: Job) -> list[Hypothesis]:
    request = Request(job.sequence_id, job.source, job.prompt, job.max_new_tokens, job.seed)
    return decode_requests(model, [request], job.search, SPECIAL_TOKENS)[0]


def require_as_alone(
    model: Network, jobs: Sequence[Job], found: Sequence[Sequence[Hypothesis]], tolerance: float | None = None
) -> None:
    """Fails unless each job has the hypotheses that decoding it alone gives."""
    for job, hypotheses in zip(jobs, found, strict=True):
        expected = decode_alone(model, job)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        for one, other in zip(hypotheses, expected, strict=True):
            logprobs = torch.tensor(one.logprobs), torch.tensor(other.logprobs)
            torch.testing.assert_close(*logprobs, atol=tolerance, rtol=tolerance)
            assert [len(step) for step in one.alternatives] == [len(step) for step in other.alternatives]


@contextmanager
def scheduler_of(model: Network, **options: int) -> Iterator[Scheduler]:
    scheduler = Scheduler(model, **options)
    yield scheduler
    scheduler.stop()


@pytest.mark.parametrize("config", [*TRANSLATORS.values(), LANGUAGE_MODEL], ids=[*TRANSLATORS, "language model"])
def test_jobs_that_share_batches_get_the_results_of_decoding_alone(config: object) -> None:
    model = exact_model(config)  # type: ignore[arg-type]
    jobs = jobs_for(model, random_sentences(60), SEARCHES)
    with scheduler_of(model, token_budget=512) as scheduler:
        for job in jobs:  # while earlier ones run
            scheduler.submit([job])
            time.sleep(0.001)
        found = [job.future.result(HANG) for job in jobs]
    assert scheduler.row_steps > scheduler.steps, "every job ran alone"
    require_as_alone(model, jobs, found)


def test_rows_with_static_shapes_sample_each_in_their_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = DeviceProfile(
        static_shapes=True, cuda_graphs=False, max_hypotheses=64, token_budget=8192, check_interval=8
    )
    monkeypatch.setattr(scheduling, "device_profile", lambda model: profile)
    model = exact_model(LANGUAGE_MODEL)
    jobs = jobs_for(model, random_sentences(20), SEARCHES)
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)
        found = [job.future.result(HANG) for job in jobs]
    assert [h[0].tokens for h in found] == [decode_alone(model, job)[0].tokens for job in jobs]


def test_jobs_of_more_kinds_than_there_are_batches() -> None:
    model = exact_model(LANGUAGE_MODEL)
    searches = [Search(beam=beam, max_new_tokens=5) for beam in range(1, MAX_BATCHES + 3)]
    jobs = jobs_for(model, random_sentences(2 * len(searches)), searches)
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)  # at once, so that all batches are asked for in the same turn
        found = [job.future.result(HANG) for job in jobs]
    require_as_alone(model, jobs, found)


def test_a_short_job_does_not_wait_for_long_ones_of_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "MAX_BLOCKED_SECONDS", 0.0)  # a long job waits for another one to end
    model = exact_model(end_bias=-9)
    beams = [Search(beam=beam, max_new_tokens=20 * LONG) for beam in range(2, MAX_BATCHES + 4)]
    endless = jobs_for(model, random_sentences(len(beams)), beams)
    (short,) = jobs_for(model, random_sentences(1), [Search(max_new_tokens=5)])
    with scheduler_of(model) as scheduler:
        scheduler.submit(endless)
        wait_until(lambda: scheduler.steps > 20)
        scheduler.submit([short])
        assert short.future.result(HANG) == decode_alone(model, short)
        cancelled = [job.future.cancel() for job in endless]
    assert all(cancelled), "long jobs had ended"


def test_a_stream_of_other_kinds_does_not_keep_a_job_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "MAX_BLOCKED_SECONDS", 0.0)
    model = exact_model(end_bias=-9)
    # Of different lengths, so that those of a beam do not all end at the same step.
    searches = [Search(beam=beam, max_new_tokens=n) for beam in range(2, MAX_BATCHES + 2) for n in range(11, 19)]
    (waiting,) = jobs_for(model, random_sentences(1), [Search(max_new_tokens=5)])
    with scheduler_of(model) as scheduler:

        def keep_busy(search: Search) -> None:
            """Submits a job, and another one like it when it is done."""
            if not waiting.future.done():
                (job,) = jobs_for(model, random_sentences(1), [search])
                job.flow = ("another client", str(search))
                job.future.add_done_callback(lambda _: keep_busy(search))
                scheduler.submit([job])

        for search in searches:
            keep_busy(search)
        wait_until(lambda: scheduler.steps > 30)
        scheduler.submit([waiting])
        assert waiting.future.result(HANG) == decode_alone(model, waiting)


def test_jobs_share_a_batch_whatever_number_of_alternatives_they_ask_for() -> None:
    model = exact_model(LANGUAGE_MODEL)
    jobs = jobs_for(model, random_sentences(5), [Search(alternatives=n) for n in (1, 2, 3, 4, 5)])
    assert len({job.batch_key(False, model.config.vocab_size) for job in jobs}) == 1
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)
        found = [job.future.result(HANG) for job in jobs]
    for job, (output,) in zip(jobs, found, strict=True):
        assert {len(step) for step in output.alternatives} == {job.search.alternatives}
    require_as_alone(model, jobs, found)


def test_idle_batches_leave_no_cache_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: WeakSet[Session[Job]] = WeakSet()
    opened = Scheduler._open

    def open_batch(scheduler: Scheduler, key: BatchKey) -> Session[Job]:
        session = opened(scheduler, key)
        sessions.add(session)
        return session

    monkeypatch.setattr(Scheduler, "_open", open_batch)
    model = exact_model()
    jobs = jobs_for(model, random_sentences(6), [Search(beam=beam) for beam in (1, 2, 3)])
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)
        assert all(job.future.result(HANG) for job in jobs)
        wait_until(lambda: not sessions)


@pytest.mark.parametrize("beam", [1, 3, 4])
def test_a_batch_has_as_many_rows_as_its_limits_allow(beam: int) -> None:
    model = exact_model()
    (job,) = jobs_for(model, random_sentences(1), [Search(beam=beam, max_new_tokens=9)])
    with scheduler_of(model, token_budget=9600) as scheduler:
        key, most = job.batch_key(True, model.config.vocab_size), scheduler.profile.max_hypotheses
        for limit in (most, 10**9):
            scheduler.profile = replace(scheduler.profile, max_hypotheses=limit)
            hypotheses = min(limit, 9600 // key.positions)
            assert scheduler._open(key).capacity == hypotheses // beam > 1


def test_the_batch_that_ends_soonest_makes_room() -> None:
    """The one with the shortest jobs and, among these, with the fewest."""
    model = exact_model()
    sizes = [(200, 1), (9, 5), (9, 2), (9, 3), (100, 1), (200, 7)]  # new tokens and rows
    jobs = jobs_for(model, random_sentences(7), [Search(temperature=1.0, top_p=0.5)])
    for i, (job, (tokens, _)) in enumerate(zip(jobs, [*sizes, (9, 0)], strict=True)):
        job.max_new_tokens = tokens
        job.search = replace(job.search, length_penalty=i / 10)  # a kind of its own
        job.key = job.batch_key(True, model.config.vocab_size)
    *running, waiting = jobs
    assert len({job.key for job in jobs}) == len(jobs) and len(running) == MAX_BATCHES
    rows = {job.key: count for job, (_, count) in zip(running, sizes, strict=True)}
    pool = BatchPool(lambda key: SimpleNamespace(rows=[None] * rows[key]))  # type: ignore[arg-type, return-value]
    assert all(pool.find(job, (), 0.0) for job in running)
    for now in (1.0, 1.0 + 2 * scheduling.MAX_BLOCKED_SECONDS):
        assert pool.find(waiting, (), now) is None
    assert [pool.find(job, (), 9.0) is None for job in running] == [False, False, True, False, False, False]


def test_stop_condition_ends_one_job_only() -> None:
    model = exact_model(LANGUAGE_MODEL, end_bias=-9)
    stopping, other = jobs_for(model, random_sentences(2), [Search(max_new_tokens=12)])
    stop_token = decode_alone(model, stopping)[0].tokens[4]
    stopping.should_stop = lambda tokens: stop_token in tokens
    with scheduler_of(model) as scheduler:
        scheduler.submit([stopping, other])
        (stopped,), (complete,) = stopping.future.result(HANG), other.future.result(HANG)
    assert stopped.tokens[-1] == stop_token and stopped.tokens.count(stop_token) == 1 and stopped.finished
    assert [complete] == decode_alone(model, other)


def test_tokens_are_streamed_as_they_are_generated() -> None:
    model = exact_model(LANGUAGE_MODEL)
    jobs = jobs_for(model, random_sentences(6), [Search(max_new_tokens=15)])
    seen: dict[int, list[Hypothesis]] = {i: [] for i in range(len(jobs))}
    for i, job in enumerate(jobs):
        job.on_tokens = seen[i].append
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)
        for i, job in enumerate(jobs):
            tokens = list(job.future.result(HANG)[0].tokens)
            assert [list(output.tokens) for output in seen[i]] == [tokens[:n] for n in range(1, len(tokens) + 1)]


def test_cancelled_and_late_jobs_leave_while_others_finish() -> None:
    model = exact_model(LANGUAGE_MODEL, end_bias=-9)
    endless = Search(max_new_tokens=1_000_000)
    cancelled, late, finite = jobs_for(model, random_sentences(3), [endless, endless, Search(max_new_tokens=5)])
    started = threading.Event()
    cancelled.on_tokens = lambda tokens: started.set()
    late.deadline = time.monotonic() + 0.2
    with scheduler_of(model) as scheduler:
        scheduler.submit([cancelled, late, finite])
        assert started.wait(HANG)
        cancelled.future.cancel()
        assert finite.future.result(HANG) == decode_alone(model, finite)
        with pytest.raises(DeadlineError, match="not finished in time"):
            late.future.result(HANG)
    assert scheduler.running == 0  # `stop` would wait for the cancelled one


def test_full_queue_and_too_wide_beam_are_refused() -> None:
    model = exact_model()
    jobs = jobs_for(model, random_sentences(4), [Search(), Search(beam=40)])
    with scheduler_of(model, max_waiting=1) as scheduler:
        with pytest.raises(QueueFullError, match="2 more exceed 1"):
            scheduler.submit([jobs[0], jobs[2]])
        with pytest.raises(UserError, match="needs 80 candidate tokens"):
            scheduler.submit([jobs[1]])
        scheduler.submit([jobs[2]])
        assert jobs[2].future.result(HANG)


def test_failure_of_a_step_fails_its_jobs_and_no_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = exact_model()
    broken, later = jobs_for(model, random_sentences(2), [Search()])
    with scheduler_of(model) as scheduler:
        with monkeypatch.context() as patch:
            patch.setattr(TorchSession, "add", lambda *_: 1 / 0)
            scheduler.submit([broken])
            with pytest.raises(ZeroDivisionError):
                broken.future.result(HANG)
        scheduler.submit([later])
        assert later.future.result(HANG) == decode_alone(model, later)


def test_queue_is_fair_between_clients_and_between_their_requests() -> None:
    model = exact_model()
    queue: FairQueue[Job] = FairQueue()
    flows = [("a", "document")] * 4 + [("a", "short")] + [("b", "one")] * 2 + [("c", "blocked")]
    for job, flow in zip(jobs_for(model, random_sentences(len(flows)), [Search()]), flows, strict=True):
        job.flow = flow
        queue.put(job)
    order = [job.flow for job in queue.take(lambda job: job.flow != ("c", "blocked"))]
    assert order[:4] == [("a", "document"), ("b", "one"), ("a", "short"), ("b", "one")]
    assert order[4:] == [("a", "document")] * 3
    assert len(queue) == 1
    queue = FairQueue()
    for client in "aabb":
        (job,) = jobs_for(model, random_sentences(1), [Search()])
        job.flow = (client, "request")
        queue.put(job)
    assert [next(queue.take(lambda job: True)).flow[0] for _ in range(4)] == ["a", "b", "a", "b"]  # one at a time, too


def test_constrained_outputs_contain_their_phrases_and_others_are_unchanged() -> None:
    model = exact_model()
    searches = [Search(beam=4, max_new_tokens=25), Search(beam=4, max_new_tokens=25, nbest=3)]
    jobs = jobs_for(model, random_sentences(24), searches)
    for i, job in enumerate(jobs[::2]):
        job.constraints = Constraints(((10 + i, 11, 12),) if i % 2 else ((40, 41), (10 + i,)))
    with scheduler_of(model) as scheduler:
        scheduler.submit(jobs)
        found = [job.future.result(HANG) for job in jobs]
    for job, hypotheses in zip(jobs, found, strict=True):
        if not job.constraints:
            assert [h.tokens for h in hypotheses] == [h.tokens for h in decode_alone(model, job)]
        for phrase in job.constraints.phrases if job.constraints else ():
            for h in hypotheses:
                assert any(h.tokens[i : i + len(phrase)] == phrase for i in range(len(h.tokens))), (phrase, h.tokens)


def test_a_constrained_output_begins_with_its_prefix_and_then_soon_with_its_phrase() -> None:
    model = exact_model()
    prefix, phrase = (33, 9, 21), (40, 41)
    continuations = frozenset(range(10, 60)) - set(phrase)
    for within in (None, 0, 1, 3):
        jobs = jobs_for(model, random_sentences(8), [Search(beam=4, max_new_tokens=25, nbest=2)])
        for job in jobs:
            job.constraints = Constraints((phrase,), prefix, within, continuations)
        with scheduler_of(model) as scheduler:
            scheduler.submit(jobs)
            found = [job.future.result(HANG)[0].tokens for job in jobs]
        for tokens in found:
            rest = tokens[len(prefix) :]
            assert tokens[: len(prefix)] == prefix and rest[0] not in continuations
            starts = [i for i in range(len(rest)) if rest[i : i + len(phrase)] == phrase]
            assert starts and all(rest[i + len(phrase)] not in continuations for i in starts if i + 2 < len(rest))
            assert within is None or (starts[0] == 0 if within == 0 else 1 <= starts[0] <= within)
    for job, tokens in zip(jobs, found, strict=True):
        assert tokens[: len(prefix)] != decode_alone(model, job)[0].tokens[: len(prefix)]


def test_progress_of_an_output_through_its_phrases() -> None:
    phrases = ((1, 2, 3), (5,))
    for output, missing in {
        (): 4,
        (1, 2): 2,
        (1, 2, 3): 1,
        (1, 2, 9): 4,
        (1, 1, 2, 3): 1,
        (5, 1, 2): 1,
        (1, 5, 2): 3,
        (1, 2, 3, 5): 0,
    }.items():
        assert progress_of(output, phrases).tokens_missing == missing, output
