"""Metrics for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"seq2see_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"seq2see_{name}", text, labels, registry=self.registry)

        self.requests = counter("requests", "Answered requests", "path", "status")
        self.seconds = Histogram(
            "seq2see_request_seconds",
            "Time from a request's arrival to the end of its answer",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.tokens = counter("tokens", "Tokens read and generated", "model", "kind")
        self.running = gauge("requests_running", "Requests that run or wait")
        self.waiting = gauge("sentences_waiting", "Sentences that wait for a row of a batch", "model")
        self.decoding = gauge("sentences_decoding", "Sentences in the running batches", "model")
        self.steps = gauge("decoding_steps", "Decoding steps of the workers that run now", "model")
        self.fill = gauge("batch_rows", "Mean number of sentences per decoding step", "model")
        self.memory = gauge("worker_memory_bytes", "Resident memory of each worker process", "worker")
        self.restarts = gauge("worker_restarts", "Workers that died and were replaced")

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def count_tokens(self, model: str, read: int, generated: int) -> None:
        self.tokens.labels(model, "read").inc(read)
        self.tokens.labels(model, "generated").inc(generated)

    def render(self, running: int, restarts: int, workers: list[dict[str, Any]]) -> bytes:
        """Returns the metrics as Prometheus reads them, with what the workers report now."""
        self.running.set(running)
        self.restarts.set(restarts)
        self.memory.clear()
        for number, worker in enumerate(workers):
            self.memory.labels(str(number)).set(worker["bytes"])
        for name in {name for worker in workers for name in worker["models"]}:
            found = [worker["models"][name] for worker in workers if name in worker["models"]]
            steps = sum(each["steps"] for each in found)
            self.waiting.labels(name).set(sum(each["waiting"] for each in found))
            self.decoding.labels(name).set(sum(each["running"] for each in found))
            self.steps.labels(name).set(steps)
            self.fill.labels(name).set(sum(each["row_steps"] for each in found) / max(steps, 1))
        return generate_latest(self.registry)
