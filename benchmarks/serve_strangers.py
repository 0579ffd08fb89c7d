"""Load test of `seq2see serve`: clients without a key, each with a large body, must not delay the others or fill the memory.

    python benchmarks/serve_strangers.py [--strangers 500] [--megabytes 8] [--seconds 20] [--repeat]

Probes `/health`, over one connection and over new ones in turn, first alone, then while the strangers send, all at once: to
every endpoint that takes a body, with a length, in chunks, as JSON and as a form, and some that never end. With --repeat, each
begins again as soon as it is answered. Ends in one JSON line with the latencies in milliseconds, the memory of the front
process in MiB, and how often each status was answered.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from multiprocessing import Process, Queue
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

from seq2see.server.service.keys import new_key
from seq2see.storage.bundled import GRAMMAR

PATHS = ("/translate", "/v1/chat/completions", "/translate_file", "/detect", "/v1/embeddings")
PIECE = 1 << 16
HELD = 0.1  # share of the strangers that stop sending in the middle and wait


def pieces(size: int, kind: int) -> list[bytes]:
    """Returns a body in pieces: many small JSON values, or a form with one long field."""
    text = b'{"q": [' + b"[]," * (size // 3) if kind % 2 else b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n'
    text = text.ljust(size, b" ")
    return [text[i : i + PIECE] for i in range(0, size, PIECE)]


async def send_bodies(
    host: str, port: int, number: int, bodies: list[list[bytes]], end: float, repeat: bool
) -> Counter[str]:
    statuses: Counter[str] = Counter()
    while time.monotonic() < end and (repeat or not statuses):
        number += 1
        body, chunked, held = bodies[number % 2], number % 3 == 0, number % int(1 / HELD) == 0
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            kind = "application/json" if number % 2 else "multipart/form-data; boundary=b"
            length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {sum(map(len, body))}"
            head = f"POST {PATHS[number % len(PATHS)]} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n"
            writer.write(head.encode())
            answer = asyncio.ensure_future(reader.readline())
            try:
                with suppress(OSError):  # closed after an answer
                    for piece in body[: 3 if held else None]:
                        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                        await writer.drain()
                        if answer.done():
                            break
                status = await asyncio.wait_for(answer, max(end - time.monotonic(), 0.1))
                statuses[status[9:12].decode() or "closed"] += 1
            except TimeoutError:
                statuses["held"] += 1
            except OSError:
                statuses["reset"] += 1
            finally:
                answer.cancel()
                writer.close()
    return statuses


def run_strangers(
    host: str, port: int, strangers: int, size: int, seconds: float, repeat: bool, results: "Queue[Counter[str]]"
) -> None:
    async def run() -> Counter[str]:
        bodies, end = [pieces(size, kind) for kind in range(2)], time.monotonic() + seconds
        counts = await asyncio.gather(*(send_bodies(host, port, i, bodies, end, repeat) for i in range(strangers)))
        return sum(counts, Counter())

    results.put(asyncio.run(run()))


def resident_memory(pid: int) -> int:
    """Returns the resident memory of a process in MiB; 0 if it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20
    return 0


def probe(url: str, pid: int, seconds: float) -> dict[str, Any]:
    """Asks for /health every 5 ms, over one connection and a new one in turn."""
    address, memory, end = urlsplit(url), list[int](), time.monotonic() + seconds
    kept = HTTPConnection(address.hostname or "", address.port, timeout=60)
    times: dict[str, list[float]] = {"kept": [], "new": []}
    while time.monotonic() < end:
        for kind, found in times.items():
            start = time.perf_counter()
            connection = kept if kind == "kept" else HTTPConnection(address.hostname or "", address.port, timeout=60)
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            found.append((time.perf_counter() - start) * 1000)
            memory.append(resident_memory(pid))
            time.sleep(0.005)
    return {"mib": max(memory), **{kind: describe(found) for kind, found in times.items()}}


def describe(times: list[float]) -> dict[str, float]:
    percentiles = quantiles(times, n=100)
    found = {f"p{n}": round(percentiles[n - 1], 2) for n in (50, 95, 99)}
    return {"probes": len(times), **found, "max": round(max(times), 1)}


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, str, Path]]:
    """Runs the service; yields its process, address and log."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        command = [sys.executable, "-m", "seq2see", "serve", "--port", "0", *options]
        process, log = subprocess.Popen(command, stdout=file, stderr=file), Path(file.name)
        try:
            while not (found := re.search(r"http://\S+", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield process.pid, found[0], log
        finally:
            process.terminate()
            process.wait(120)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys.toml"
        keys.write_text(new_key("own")[1])
        with serving("--workers", "1", "--key-file", str(keys), "--model", f"en-hi={GRAMMAR}") as (pid, url, log):
            address = urlsplit(url)
            results: Queue[Counter[str]] = Queue()
            probe(url, pid, 1)
            alone = probe(url, pid, min(options.seconds, 5))
            arguments = (address.hostname, address.port, options.strangers, options.megabytes << 20, options.seconds)
            strangers = Process(target=run_strangers, args=(*arguments, options.repeat, results))
            strangers.start()
            beside = probe(url, pid, options.seconds)
            statuses = results.get(timeout=120)
            strangers.join()
            tracebacks = log.read_text().count("Traceback")
    return {
        "strangers": options.strangers,
        "alone": alone,
        "beside": beside,
        "growth_mib": beside["mib"] - alone["mib"],
        "statuses": statuses,
        "tracebacks": tracebacks,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strangers", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--repeat", action="store_true")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
