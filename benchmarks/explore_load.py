"""Load test of the server: no accepted request may be lost, and memory must not grow.

    python benchmarks/explore_load.py [--clients 50] [--seconds 30] [--model DIR]

Starts `seq2see explore`; every client translates, generates, traces and fetches tensors and analyses, one request after
another. A 503 is not a loss: the client retries after Retry-After. Nor is the 404 of a trace that newer ones have evicted,
with more clients than stored traces. Every other response must be complete.
"""

import argparse
import asyncio
import json
import math
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import quantiles

import httpx

TEXTS = ["How are you?", "I like tea.", "The girl reads a book.", "He does not go to the market.", "We are friends."]
TENSORS = [
    "decoder.1.cross.weights",
    "decoder.0.masked.masked?index=0",
    "logits?index=0",
    "encoder.vectors?index=:,0:8",
]
ANALYSES = [
    "alignment",
    "logit-lens?top=3",
    "attention-entropy",
    "logit-attribution?row=0",
    "alternatives?row=-1",
]


@dataclass
class Stats:
    completed: Counter[str] = field(default_factory=Counter)
    retried: int = 0  # 503 responses
    evicted: int = 0  # 404 responses for traces evicted by newer ones
    lost: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)  # seconds
    memory: list[int] = field(default_factory=list)  # resident bytes, sampled once per second


async def run_clients(address: str, clients: int, seconds: float, pid: int) -> Stats:
    """Runs concurrent clients against a server for a time."""
    stats, deadline = Stats(), time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        sampler = asyncio.create_task(_sample_memory(pid, stats))
        await asyncio.gather(*(_run_client(client, number, deadline, stats) for number in range(clients)))
        sampler.cancel()
    return stats


async def _run_client(client: httpx.AsyncClient, number: int, deadline: float, stats: Stats) -> None:
    i = number
    while time.monotonic() < deadline:
        i += 1
        text = TEXTS[i % len(TEXTS)]
        await _request(client, "translate", "POST", "/api/translate", {"text": text, "beam": 1 + i % 4}, stats)
        generate = {"prompt": text, "max_new_tokens": 20, "seed": i}
        await _request(client, "generate", "POST", "/api/generate", generate, stats)
        ablation = [{"type": "ablate_head", "attention": "decoder.1.cross", "head": i % 2}] if i % 3 == 0 else []
        body = {"text": text, "interventions": ablation}
        trace = await _request(client, "trace", "POST", "/api/traces", body, stats)
        if trace is not None:
            path = f"/api/traces/{trace.json()['id']}"
            await _request(client, "tensor", "GET", f"{path}/tensors/{TENSORS[i % len(TENSORS)]}", None, stats)
            await _request(client, "analysis", "GET", f"{path}/{ANALYSES[i % len(ANALYSES)]}", None, stats)


async def _request(
    client: httpx.AsyncClient, kind: str, method: str, path: str, body: object, stats: Stats
) -> httpx.Response | None:
    """Sends a request, retrying while the server is overloaded; returns None if it failed."""
    while True:
        start = time.monotonic()
        try:
            response = await client.request(method, path, json=body)
        except httpx.HTTPError as error:
            stats.lost.append(f"{kind}: {error!r}")
            return None
        if response.status_code == 503:
            stats.retried += 1
            await asyncio.sleep(float(response.headers["retry-after"]))
            continue
        if response.status_code == 404:
            stats.evicted += 1
            return None
        problem = _find_problem(kind, response)
        if problem:
            stats.lost.append(f"{kind}: {problem}")
            return None
        stats.completed[kind] += 1
        stats.latencies.append(time.monotonic() - start)
        return response


def _find_problem(kind: str, response: httpx.Response) -> str:
    if response.status_code not in (200, 201):
        return f"{response.status_code} {response.text[:200]}"
    if kind == "tensor":
        shape = [int(size) for size in response.headers["x-shape"].split(",")]
        size = len(response.content)
        return "" if size == 4 * math.prod(shape) else f"{size} bytes for shape {shape}"
    if kind == "generate":
        last = json.loads(response.text.splitlines()[-1])
        return "" if last.get("done") else f"ends with {last}"
    return "" if response.json() else "empty"


async def _sample_memory(pid: int, stats: Stats) -> None:
    while True:
        stats.memory.append(resident_memory(pid))
        await asyncio.sleep(1)


def resident_memory(pid: int) -> int:
    """Returns the resident set size of a process in bytes."""
    result = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(result.stdout) << 10


def start_server(*options: str) -> tuple[subprocess.Popen[str], str]:
    """Starts `seq2see explore`; returns the process and its address once it responds."""
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address, "the server printed no address"
    httpx.get(f"{address[0]}/api/models", timeout=120).raise_for_status()
    return process, address[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    process, address = start_server(*(argument for model in options.model for argument in ("--model", model)))
    try:
        warmup = min(3.0, options.seconds / 4)  # loads every model and module
        asyncio.run(run_clients(address, 2, warmup, process.pid))
        before = resident_memory(process.pid)
        stats = asyncio.run(run_clients(address, options.clients, options.seconds, process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
    for loss in stats.lost[:10]:
        print("lost", loss)
    percentiles = quantiles(stats.latencies, n=20)
    completed = sum(stats.completed.values())
    result = {
        "clients": options.clients,
        "seconds": options.seconds,
        "completed": completed,
        "completed_by_kind": dict(stats.completed),
        "requests_per_second": round(completed / options.seconds, 1),
        "retried": stats.retried,
        "evicted": stats.evicted,
        "lost": len(stats.lost),
        "median_ms": round(percentiles[9] * 1000),
        "p95_ms": round(percentiles[18] * 1000),
        "mib_before": before >> 20,
        "mib_max": max(stats.memory) >> 20,
        "mib_after": stats.memory[-1] >> 20,
    }
    print(json.dumps(result))
    sys.exit(1 if stats.lost else 0)


if __name__ == "__main__":
    main()
