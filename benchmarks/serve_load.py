"""Many clients at once: no accepted request may be lost, and the server's memory must stay where it is.

    python benchmarks/serve_load.py [--clients 50] [--seconds 30] [--model DIR]

Starts `seq2see explore` and lets every client translate, trace, fetch tensors, read and generate, one request after the
other. A 503 is no loss: the client waits as long as it is told to and asks again; nor is the 404 of a trace that newer ones
have pushed out, where there are more clients than traces are kept. Everything else must be complete.
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
from collections.abc import AsyncIterator
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
READINGS = ["alignment", "lens?top=3", "entropies", "contributions?row=0", "alternatives?row=-1"]


@dataclass
class Tally:
    answered: Counter[str] = field(default_factory=Counter)
    refused: int = 0  # 503, to be asked again
    dropped: int = 0  # 404 of a trace that others' newer ones have pushed out
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes, sampled


async def storm(address: str, clients: int, seconds: float, process: int) -> Tally:
    """So many clients for so long, against a server at this address."""
    tally, end = Tally(), time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        watching = asyncio.create_task(_watch(process, tally))
        await asyncio.gather(*(_one(client, number, end, tally) for number in range(clients)))
        watching.cancel()
    return tally


async def _one(client: httpx.AsyncClient, number: int, end: float, tally: Tally) -> None:
    async for kind, method, path, body in _questions(client, number, end, tally):
        await _ask(client, kind, method, path, body, tally)


async def _questions(
    client: httpx.AsyncClient, number: int, end: float, tally: Tally
) -> AsyncIterator[tuple[str, str, str, object]]:
    turn = number
    while time.monotonic() < end:
        turn += 1
        text = TEXTS[turn % len(TEXTS)]
        yield "translate", "POST", "/api/translate", {"text": text, "beam": 1 + turn % 4}
        yield "generate", "POST", "/api/generate", {"prompt": text, "tokens": 20, "seed": turn}
        head = [{"do": "without", "attention": "decoder.1.cross", "head": turn % 2}] if turn % 3 == 0 else []
        traced = await _ask(client, "trace", "POST", "/api/traces", {"text": text, "interventions": head}, tally)
        if traced is not None:
            here = f"/api/traces/{traced.json()['id']}"
            yield "tensor", "GET", f"{here}/tensors/{TENSORS[turn % len(TENSORS)]}", None
            yield "reading", "GET", f"{here}/{READINGS[turn % len(READINGS)]}", None


async def _ask(
    client: httpx.AsyncClient, kind: str, method: str, path: str, body: object, tally: Tally
) -> httpx.Response | None:
    """Asks until it is answered; None if that failed."""
    while True:
        begun = time.monotonic()
        try:
            answer = await client.request(method, path, json=body)
        except httpx.HTTPError as error:
            tally.lost.append(f"{kind}: {error!r}")
            return None
        if answer.status_code == 503:
            tally.refused += 1
            await asyncio.sleep(float(answer.headers["retry-after"]))
            continue
        if answer.status_code == 404:
            tally.dropped += 1
            return None
        complaint = _incomplete(kind, answer)
        if complaint:
            tally.lost.append(f"{kind}: {complaint}")
            return None
        tally.answered[kind] += 1
        tally.seconds.append(time.monotonic() - begun)
        return answer


def _incomplete(kind: str, answer: httpx.Response) -> str:
    if answer.status_code not in (200, 201):
        return f"{answer.status_code} {answer.text[:200]}"
    if kind == "tensor":
        shape = [int(size) for size in answer.headers["x-shape"].split(",")]
        return "" if len(answer.content) == 4 * math.prod(shape) else f"{len(answer.content)} bytes of shape {shape}"
    if kind == "generate":
        last = json.loads(answer.text.splitlines()[-1])
        return "" if last.get("done") else f"ends with {last}"
    return "" if answer.json() else "empty"


async def _watch(process: int, tally: Tally) -> None:
    while True:
        tally.memory.append(memory(process))
        await asyncio.sleep(1)


def memory(process: int) -> int:
    """Bytes that a process has in memory."""
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True)
    return int(told.stdout) << 10


def started(*options: str) -> tuple[subprocess.Popen[str], str]:
    """`seq2see explore` and its address, once it has answered its first question."""
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found, "the server told no address"
    httpx.get(f"{found[0]}/api/models", timeout=120).raise_for_status()
    return process, found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    process, address = started(*(word for model in options.model for word in ("--model", model)))
    try:
        asyncio.run(storm(address, 2, min(3.0, options.seconds / 4), process.pid))  # so that everything is loaded
        before = memory(process.pid)
        tally = asyncio.run(storm(address, options.clients, options.seconds, process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
    for loss in tally.lost[:10]:
        print("lost", loss)
    cuts = quantiles(tally.seconds, n=20)
    result = {
        "clients": options.clients, "seconds": options.seconds, "answered": sum(tally.answered.values()),
        "by kind": dict(tally.answered), "a second": round(sum(tally.answered.values()) / options.seconds, 1),
        "refused": tally.refused, "dropped": tally.dropped, "lost": len(tally.lost), "median ms": round(cuts[9] * 1000),
        "95% ms": round(cuts[18] * 1000), "MiB before": before >> 20, "MiB at most": max(tally.memory) >> 20,
        "MiB at the end": tally.memory[-1] >> 20,
    }  # fmt: skip
    print(json.dumps(result))
    sys.exit(1 if tally.lost else 0)


if __name__ == "__main__":
    main()
