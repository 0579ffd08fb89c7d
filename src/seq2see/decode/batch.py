"""The running batch of a session: which job each row belongs to, and which rows have finished.

The engine for a list of requests and the scheduler of a server both decode through here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from seq2see.decode.search import Hypothesis
from seq2see.decode.session import Request, Session

StopCondition = Callable[[Sequence[int]], bool]  # whether generation may stop after these tokens


@dataclass(eq=False)
class Job:
    """A request and what ends it, besides `<end>` and its length limit."""

    request: Request
    should_stop: StopCondition | None = None


J = TypeVar("J", bound=Job)


class Batch(Generic[J]):
    """Jobs that run together. Finished ones leave, the last rows take their places, and new ones join at the end."""

    def __init__(self, session: Session, rows: int) -> None:
        self.session, self.rows = session, rows
        self.jobs: list[J] = []  # of each row

    @property
    def free(self) -> int:
        return self.rows - len(self.jobs)

    @property
    def should_fill(self) -> bool:
        """Whether waiting jobs should join now: encoding a few sources together is faster than one by one."""
        return self.free * 4 >= self.rows or not self.jobs

    def add(self, jobs: Sequence[J]) -> None:
        """Adds jobs and generates their first tokens."""
        self.jobs += jobs
        self.session.add([job.request for job in jobs])

    def run(self) -> None:
        """Generates tokens until the next check for finished rows: one per row on a CPU."""
        self.session.run()

    def take_finished(self) -> list[tuple[J, list[Hypothesis]]]:
        """Removes the jobs that have finished and returns them with their hypotheses, which are empty if none exists."""
        done = self.session.selector.done[: len(self.jobs)].tolist()
        candidates = [row for row, job in enumerate(self.jobs) if done[row] or job.should_stop is not None]
        if not candidates:
            return []
        finished = {}
        found = self.session.selector.hypotheses(torch.tensor(candidates, device=self.session.tokens.device))
        for row, hypotheses in zip(candidates, found, strict=True):
            should_stop = self.jobs[row].should_stop
            stop = first_stop(hypotheses[0].tokens, should_stop) if should_stop is not None and hypotheses else None
            if stop is not None:
                finished[row] = [_truncate(hypotheses[0], stop)]
            elif done[row]:
                finished[row] = hypotheses
        result = [(self.jobs[row], hypotheses) for row, hypotheses in finished.items()]
        self.remove(list(finished))
        return result

    def remove(self, rows: Sequence[int]) -> None:
        """Removes the jobs of these rows, in ascending order, finished or not."""
        if not rows:
            return
        for origin, row in self.session.remove(rows):
            self.jobs[row] = self.jobs[origin]
        del self.jobs[len(self.jobs) - len(rows) :]


def first_stop(tokens: Sequence[int], should_stop: StopCondition) -> int | None:
    """Returns the length of the shortest prefix that meets the stop condition, or None."""
    if not should_stop(tokens):
        return None
    return next(count for count in range(1, len(tokens) + 1) if should_stop(tokens[:count]))


def _truncate(hypothesis: Hypothesis, count: int) -> Hypothesis:
    logprobs = hypothesis.logprobs[:count]
    alternatives = hypothesis.alternatives[:count]
    return Hypothesis(hypothesis.tokens[:count], logprobs, sum(logprobs) / count, True, alternatives)
