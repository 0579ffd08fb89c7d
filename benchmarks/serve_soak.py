"""Soak test of `seq2see serve`: mixed requests for minutes, while workers are killed, keys change and models are reloaded.

    python benchmarks/serve_soak.py [--minutes 10] [--clients 8] [--workers 2]

Clients translate sentences, lists, HTML, glossaries and documents and complete prompts, at once and as streams, and compare
every answer with the offline model; a 503 is retried after Retry-After. Beside them are clients that send a byte a second or
leave in the middle of a body or of an answer, with a key and without. Every 20 seconds a worker is killed, or stopped, or the
models are reloaded with other keys. Ends in one JSON line: how many requests of each kind were answered, retried, lost, wrong
and late, their latencies in seconds, and the memory of the front process and of its workers in MiB.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import httpx
from serve_strangers import resident_memory, serving

import seq2see
from seq2see.server.service.keys import new_key
from seq2see.storage.bundled import bundled_model

TIMEOUT = 60.0  # of the service
FAULT_SECONDS = 20.0
SUBJECTS = ["The girl", "My old friend", "A man in a blue shirt", "Nobody", "The children of our teacher"]
ENDS = ["reads a book.", "is looking for the big dog.", "does not want to buy water.", "has seen two red apples."]
SENTENCES = [f"{subject} {end}" for subject in SUBJECTS for end in ENDS]
PROMPTS = ["Once upon a time", "The king said", "She opened the door and", "In the morning the ship"]


class LostError(Exception):
    """An answer that should not be."""


@dataclass
class Counts:
    kinds: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: list[float] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)  # of what went wrong
    faults: Counter[str] = field(default_factory=Counter)
    memory: list[list[int]] = field(default_factory=list)  # of the front process and its workers


class Expected:
    """What the models say offline."""

    def __init__(self) -> None:
        translator, writer = seq2see.load("en-fr"), seq2see.load("books")
        self.translations = dict(zip(SENTENCES, translator.translate(SENTENCES, beam=4), strict=True))
        self.completions = {prompt: writer.generate(prompt, max_new_tokens=30)[0] for prompt in PROMPTS}
        self.glossary = translator.translate("I like tea.", beam=4, glossary={"tea": "tisane"})


@dataclass
class Soak:
    url: str
    keys: Path
    pid: int
    key: str
    entry: str
    expected: Expected
    end: float
    counts: Counts = field(default_factory=Counts)

    # Each kind of request returns whether its answer is right.

    async def sentence(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        text = pick.choice(SENTENCES)
        return await self.translate(client, q=text) == self.expected.translations[text]

    async def texts(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        texts = pick.choices(SENTENCES, k=pick.randint(1, 40))
        return await self.translate(client, q=texts) == [self.expected.translations[text] for text in texts]

    async def html(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        texts = pick.choices(SENTENCES, k=5)
        page = "".join(f"<p>{text}</p>\n" for text in texts)
        right = "".join(f"<p>{self.expected.translations[text]}</p>\n" for text in texts)
        return await self.translate(client, q=page, format="html") == right

    async def glossary(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        terms = {f"word {number}": "mot" for number in range(pick.randint(0, 900))}
        found = await self.translate(client, q="I like tea.", glossary={**terms, "tea": "tisane"})
        return bool(found == self.expected.glossary)

    async def translate(self, client: httpx.AsyncClient, **body: Any) -> Any:
        response = await client.post("/translate", json={"source": "en", "target": "fr", **body})
        return _answer(response)["translatedText"]

    async def document(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        texts = pick.choices(SENTENCES, k=8)
        upload = {"file": ("a.txt", "\n\n".join(texts))}
        found = _answer(await client.post("/translate_file", files=upload, data={"source": "en", "target": "fr"}))
        file = await client.get(found["translatedFileUrl"])
        return file.text == "\n\n".join(self.expected.translations[text] for text in texts)

    async def completion(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        prompt = pick.choice(PROMPTS)
        found = _answer(await client.post("/v1/completions", json=_completion(prompt)))
        return bool(found["choices"][0]["text"] == self.expected.completions[prompt])

    async def stream(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        prompt, text = pick.choice(PROMPTS), ""
        async with client.stream("POST", "/v1/completions", json={**_completion(prompt), "stream": True}) as response:
            if response.status_code != 200:
                await response.aread()
                _answer(response)
            async for event in _events(response):
                if "error" in event:
                    raise httpx.HTTPStatusError("", request=response.request, response=httpx.Response(503))
                text += event["choices"][0]["text"]
        return text == self.expected.completions[prompt]

    async def leave(self, client: httpx.AsyncClient, pick: random.Random) -> bool:
        """Leaves while its answer is computed."""
        with suppress(httpx.TimeoutException):
            await client.post(
                "/v1/completions", json={**_completion(PROMPTS[0]), "n": 8, "max_tokens": 400}, timeout=0.3
            )
        return True

    async def run_client(self, number: int) -> None:
        pick = random.Random(number)
        kinds = [self.sentence, self.sentence, self.texts, self.html, self.glossary, self.document]
        kinds += [self.completion, self.stream, self.leave]
        headers = {"authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=2 * TIMEOUT) as client:
            while time.monotonic() < self.end:
                await self.send(client, pick.choice(kinds), pick)

    async def send(
        self,
        client: httpx.AsyncClient,
        kind: Callable[[httpx.AsyncClient, random.Random], Awaitable[bool]],
        pick: random.Random,
    ) -> None:
        counts, state, start = self.counts.kinds[kind.__name__], pick.getstate(), time.monotonic()
        while True:
            begun = time.monotonic()
            pick.setstate(state)  # the same request again
            try:
                outcome = "right" if await kind(client, pick) else "wrong"
            except httpx.HTTPStatusError as error:
                counts["retried"] += 1
                await asyncio.sleep(float(error.response.headers.get("retry-after", 1)))
                continue
            except (httpx.HTTPError, LostError, KeyError) as error:
                outcome = "lost"
                self.counts.examples.append(f"{kind.__name__}: {error!r}"[:300])
            counts[outcome] += 1
            counts["late"] += time.monotonic() - begun > TIMEOUT + 5
            self.counts.seconds.append(time.monotonic() - start)
            return

    async def run_slow_client(self, number: int) -> None:
        """Sends a byte a second, or some of a body and leaves; without a key, or with one."""
        address, pick = urlsplit(self.url), random.Random(-1 - number)
        while time.monotonic() < self.end:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(address.hostname, address.port)
                key = f"Authorization: Bearer {self.key}\r\n" if pick.random() < 0.5 else ""
                path, size = pick.choice(["/translate", "/v1/completions"]), pick.choice([100, 100_000, 8_000_000])
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}Content-Length: {size}\r\n\r\n".encode()
                if pick.random() < 0.5:
                    for byte in head[:20]:
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await asyncio.sleep(1)
                else:
                    writer.write(head + b"{" * pick.randint(1, 90))
                    await asyncio.sleep(pick.random() * 10)
                writer.close()
            self.counts.faults["slow clients"] += 1

    async def disturb(self) -> None:
        """Kills or stops a worker, or changes the keys and reloads, in turn."""
        pick, old_key = random.Random(0), ""
        for fault in cycle(["kill", "reload", "stop", "kill"]):
            await asyncio.sleep(FAULT_SECONDS)
            if time.monotonic() + FAULT_SECONDS > self.end:
                return
            self.counts.faults[fault] += 1
            if fault == "reload":
                other_key, entry = new_key("other")
                self.keys.write_text(self.entry + entry)
                os.kill(self.pid, signal.SIGHUP)
                await self.require(other_key, 200)
                if old_key:
                    await self.require(old_key, 403)
                old_key = other_key
            elif workers := _children(self.pid):
                os.kill(pick.choice(workers), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)

    async def require(self, key: str, status: int) -> None:
        """Waits until a key is answered so."""
        headers, deadline = {"authorization": f"Bearer {key}"}, time.monotonic() + TIMEOUT
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=TIMEOUT) as client:
            while (await client.post("/detect", data={"q": "Hello"})).status_code != status:
                if time.monotonic() > deadline:
                    self.counts.examples.append(f"a key is not answered with {status}")
                    return
                await asyncio.sleep(0.1)

    async def watch(self) -> None:
        while time.monotonic() < self.end:
            self.counts.memory.append(memory_of(self.pid))
            await asyncio.sleep(1)

    async def run(self, clients: int) -> None:
        await asyncio.gather(
            *(self.run_client(number) for number in range(clients)),
            *(self.run_slow_client(number) for number in range(clients)),
            self.disturb(),
            self.watch(),
        )


def _completion(prompt: str) -> dict[str, Any]:
    return {"model": "books", "prompt": prompt, "temperature": 0, "max_tokens": 30}


def _answer(response: httpx.Response) -> Any:
    if response.status_code in (429, 503):
        response.raise_for_status()
    if response.status_code != 200:
        raise LostError(f"{response.status_code}: {response.text[:200]}")
    return response.json()


async def _events(response: httpx.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return
        if line:
            yield json.loads(line.removeprefix("data: "))
    raise LostError("the stream has no end")


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory_of(pid: int) -> list[int]:
    return [resident_memory(pid), sum(map(resident_memory, _children(pid)))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    expected = Expected()
    key, entry = new_key("soak")
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys.toml"
        keys.write_text(entry)
        models = [f"--model={model}={bundled_model(model)}" for model in ("en-fr", "books")]
        arguments = ["--key-file", str(keys), "--workers", str(options.workers), "--timeout", str(TIMEOUT), *models]
        with serving(*arguments) as (pid, url, log):
            headers = {"authorization": f"Bearer {key}"}
            httpx.post(f"{url}/detect", data={"q": "Hello"}, headers=headers, timeout=TIMEOUT).raise_for_status()
            before = memory_of(pid)
            soak = Soak(url, keys, pid, key, entry, expected, time.monotonic() + 60 * options.minutes)
            asyncio.run(soak.run(options.clients))
            time.sleep(10)
            after, tracebacks = memory_of(pid), log.read_text().count("Traceback")
    counts, cuts = soak.counts, quantiles(soak.counts.seconds, n=100)
    total = sum(counts.kinds.values(), Counter())
    return {
        "minutes": options.minutes,
        "clients": options.clients,
        "total": {name: total[name] for name in ("right", "retried", "lost", "wrong", "late")},
        "kinds": counts.kinds,
        "faults": counts.faults,
        "seconds": {f"p{n}": round(cuts[n - 1], 2) for n in (50, 95, 99)},
        "mib_of_front_and_workers": {
            "before": before,
            "most": [max(each) for each in zip(*counts.memory, strict=True)],
            "after": after,
        },
        "tracebacks": tracebacks,
        "examples": counts.examples[:10],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    result = measure(parser.parse_args())
    print(json.dumps(result))
    sys.exit(bool(result["total"]["lost"] or result["total"]["wrong"] or result["total"]["late"]))


if __name__ == "__main__":
    main()
