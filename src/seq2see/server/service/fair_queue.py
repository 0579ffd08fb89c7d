"""The waiting jobs of a server, in an order that is fair between clients and between the requests of a client."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class HasFlow(Protocol):
    flow: tuple[str, str]  # client and request


J = TypeVar("J", bound=HasFlow)


class FairQueue(Generic[J]):
    """Waiting jobs: clients take turns, and so do the requests of a client."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[str, deque[J]]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, job: J) -> None:
        client, request = job.flow
        self._clients.setdefault(client, OrderedDict()).setdefault(request, deque()).append(job)
        self._size += 1

    def take(self, accepts: Callable[[J], bool]) -> Iterator[J]:
        """Yields accepted jobs in turn; a job that is not accepted holds back only its own request."""
        refused: set[tuple[str, str]] = set()
        found = True
        while found:
            found = False
            for client in list(self._clients):
                job = self._next_of(client, refused, accepts)
                if job is not None:
                    found = True
                    yield job

    def _next_of(self, client: str, refused: set[tuple[str, str]], accepts: Callable[[J], bool]) -> J | None:
        requests = self._clients[client]
        for request in list(requests):
            if (client, request) in refused:
                continue
            if not accepts(requests[request][0]):
                refused.add((client, request))
                continue
            job = requests[request].popleft()
            self._size -= 1
            self._clients.move_to_end(client)
            requests.move_to_end(request)
            if not requests[request]:
                del requests[request]
            if not requests:
                del self._clients[client]
            return job
        return None

    def remove(self, is_over: Callable[[J], bool]) -> None:
        """Removes the jobs that are over."""
        for client, requests in list(self._clients.items()):
            for request, jobs in list(requests.items()):
                kept = deque(job for job in jobs if not is_over(job))
                self._size -= len(jobs) - len(kept)
                requests[request] = kept
                if not kept:
                    del requests[request]
            if not requests:
                del self._clients[client]
