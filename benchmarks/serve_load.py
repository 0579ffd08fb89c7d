"""Load test of `seq2see serve`, beside Hugging Face's generate and CTranslate2 behind FastAPI with the same weights.

    python benchmarks/serve_load.py [--clients 1 16 100 500] [--sentences FILE] [--model en-fr] [--beam 4]
    python benchmarks/serve_load.py --memory 100000

Every client sends one sentence after another; a 503 is retried after Retry-After. The model is exported for both peers. Every
answer is compared with the offline translation; where they differ, the two best candidates must lie within a margin. Offline
speeds, ours and that of CTranslate2's batch translator, are measured before and after each row. --memory only sends that many
sentences to grammar-en-hi and shows the memory meanwhile. Ends in one JSON line.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import torch
import transformers

import seq2see
from seq2see.storage.bundled import GRAMMAR

PEERS = ("huggingface", "ctranslate2")
MEMORY_SAMPLES = 20
MARGIN = 1e-4  # between the scores of two candidates that may swap with the batch
SUBJECTS = [
    "The girl",
    "My old friend from the village",
    "A man in a blue shirt",
    "Nobody",
    "The children of our teacher",
]
VERBS = ["reads", "is looking for", "does not want to buy", "has seen", "writes about"]
OBJECTS = [
    "a book",
    "the big dog that sleeps near the river every day",
    "water",
    "two red apples and a small cup of tea",
]


def default_sentences() -> list[str]:
    """Returns sentences of 4 to 25 words."""
    return [f"{s} {v} {o}." for s in SUBJECTS for v in VERBS for o in OBJECTS]


def export(model: str, folder: Path) -> None:
    """Writes a model in the formats of the peers that are installed."""
    for peer in PEERS:
        if peer == "huggingface" or find_spec(peer):
            command = [sys.executable, "-m", "seq2see", "export", model, "--to", peer, "--out", str(folder / peer)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def length_limit(source: Sequence[object]) -> int:
    return int(len(source) * 1.5) + 10


class HuggingFace:
    """One request after another through generate."""

    def __init__(self, folder: Path, model: str, beam: int) -> None:
        self.tokenizer = seq2see.load(model).tokenizers[0]
        self.model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.beam, self.lock = beam, threading.Lock()

    def translate(self, text: str) -> str:
        source = self.tokenizer.frame_source(self.tokenizer.encode(text))
        with self.lock, torch.inference_mode():
            output = self.model.generate(
                input_ids=torch.tensor([source]),
                num_beams=self.beam,
                max_new_tokens=length_limit(source),
                do_sample=False,
            )
        return self.tokenizer.decode(output[0, 1:].tolist())


class CTranslate2:
    """Each request is a batch of one in CTranslate2's queue, with one worker per core."""

    def __init__(self, folder: Path, model: str, beam: int) -> None:
        import ctranslate2

        self.tokenizer, self.beam = seq2see.load(model).tokenizers[0], beam
        self.names = json.loads((folder / "shared_vocabulary.json").read_text())
        self.ids = {name: id for id, name in enumerate(self.names)}
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=os.cpu_count() or 1, intra_threads=1
        )

    def translate(self, text: str) -> str:
        return self.translate_batch([text])[0]

    def translate_batch(self, texts: Sequence[str]) -> list[str]:
        sources = [[self.names[id] for id in self.tokenizer.encode(text)] for text in texts]
        limit = max(map(length_limit, sources)) + 1  # one for a batch
        found = self.translator.translate_batch(
            sources, beam_size=self.beam, max_decoding_length=limit, max_batch_size=1024, batch_type="tokens"
        )
        return [self.tokenizer.decode([self.ids[name] for name in result.hypotheses[0]]) for result in found]


def run_peer(name: str, folder: Path, model: str, listener: socket.socket, beam: int) -> None:
    """A plain service of another library."""
    import uvicorn
    from fastapi import FastAPI

    peer = (HuggingFace if name == "huggingface" else CTranslate2)(folder, model, beam)
    app = FastAPI()

    @app.post("/translate")
    def translate(body: dict[str, str]) -> dict[str, str]:
        return {"translatedText": peer.translate(body["q"])}

    @app.get("/health")
    def health() -> str:
        return "ok"

    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


def start(command: list[str]) -> tuple["subprocess.Popen[str]", str]:
    log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)  # noqa: SIM115
    process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    while not (found := re.search(r"http://\S+", Path(log.name).read_text())):
        assert process.poll() is None, Path(log.name).read_text()
        time.sleep(0.1)
    while True:
        try:
            httpx.get(f"{found[0]}/health", timeout=60).raise_for_status()
            return process, found[0]
        except httpx.HTTPError:
            time.sleep(0.2)


async def run_clients(
    url: str, sentences: list[str], clients: int, requests: int, target: str = "fr"
) -> dict[str, Any]:
    answers: list[tuple[int, str]] = []
    latencies: list[float] = []
    retried, lost = 0, 0
    todo = iter(range(requests))

    async def run_client(client: httpx.AsyncClient) -> None:
        nonlocal retried, lost
        for number in todo:
            body = {"q": sentences[number % len(sentences)], "source": "en", "target": target}
            start = time.perf_counter()
            while True:
                try:
                    response = await client.post("/translate", json=body)
                except httpx.HTTPError:
                    lost += 1
                    break
                if response.status_code in (429, 503):
                    retried += 1
                    await asyncio.sleep(float(response.headers["retry-after"]))
                    continue
                if response.status_code != 200:
                    lost += 1
                    break
                latencies.append(time.perf_counter() - start)
                answers.append((number % len(sentences), response.json()["translatedText"]))
                break

    async with AsyncExitStack() as stack:
        # One each, with a connection of its own: the shared pool of hundreds would cost more time than the server.
        each = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=600, verify=False))
            for _ in range(clients)
        ]
        start = time.perf_counter()
        await asyncio.gather(*map(run_client, each))
        seconds = time.perf_counter() - start
    percentiles = quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    return {
        "clients": clients,
        "requests": requests,
        "per_second": round(len(answers) / seconds, 2),
        "retried": retried,
        "lost": lost,
        **{f"p{n}": round(percentiles[n - 1], 3) for n in (50, 95, 99)},
        "answers": answers,
    }


def count_differences(
    model: seq2see.Model, sentences: list[str], answers: list[tuple[int, str]], beam: int
) -> dict[str, int]:
    """Compares answers with the offline translations: equal, tied within the margin, or wrong."""
    offline = model.hypotheses(sentences, beam=beam, nbest=2)
    counts = {"equal": 0, "tied": 0, "wrong": 0}
    for i, answer in answers:
        best, second = offline[i]
        if model.text(best).replace("\n", " ").strip() == answer:
            counts["equal"] += 1
        else:
            counts["tied" if best.score - second.score < MARGIN else "wrong"] += 1
    return counts


def measure_offline(model: seq2see.Model, sentences: list[str], beam: int) -> float:
    """Returns the sentences per second of the engine by itself, with one thread or all, whichever is faster now."""
    rates = []
    for threads in (1, os.cpu_count() or 1):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        model.hypotheses(sentences, beam=beam)
        rates.append(len(sentences) / (time.perf_counter() - start))
    return max(rates)


def measure_ctranslate2(peer: CTranslate2, sentences: list[str]) -> float:
    """Returns the sentences per second of CTranslate2's batch translator, sorted by length so that limits fit."""
    ordered = sorted(sentences, key=lambda text: len(peer.tokenizer.encode(text)))
    start = time.perf_counter()
    for first in range(0, len(ordered), 32):
        peer.translate_batch(ordered[first : first + 32])
    return len(ordered) / (time.perf_counter() - start)


def resident_memory(pid: int) -> int:
    """Returns the resident memory of a process and its children in MiB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in (pid, *children))
    return pages * 4096 >> 20


def measure_memory(requests: int) -> dict[str, Any]:
    """Sends sentences to the model of the built-in grammar, and returns the memory of its processes on the way."""
    from seq2see.course.sample_corpus import load_corpus

    sentences = [pair.source for pair in load_corpus().train[:5000]]
    options = ["--port", "0", "--model", f"en-hi={GRAMMAR}", "--beam", "1", "--no-access-log"]
    process, url = start([sys.executable, "-m", "seq2see", "serve", *options])
    mebibytes, lost = [], 0
    try:
        for _ in range(MEMORY_SAMPLES):
            row = asyncio.run(run_clients(url, sentences, 32, requests // MEMORY_SAMPLES, "hi"))
            lost += row["lost"]
            mebibytes.append(resident_memory(process.pid))
            print(f"{len(mebibytes) * requests // MEMORY_SAMPLES:,} requests: {mebibytes[-1]} MiB", flush=True)
    finally:
        process.terminate()
        process.wait(60)
    return {"requests": requests, "lost": lost, "mib": mebibytes}


def measure_load(options: argparse.Namespace) -> dict[str, Any]:
    sentences = options.sentences.read_text().splitlines()[:200] if options.sentences else default_sentences()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(options.model, folder)
        model, peers = seq2see.load(options.model).for_inference(), [each.name for each in folder.iterdir()]
        batch_translator = None
        if "ctranslate2" in peers:
            batch_translator = CTranslate2(folder / "ctranslate2", options.model, options.beam)
        common = ["--model", options.model, "--beam", str(options.beam)]
        commands = {
            "seq2see": [
                sys.executable,
                "-m",
                "seq2see",
                "serve",
                "--port",
                "0",
                "--model",
                f"en-fr={options.model}",
                "--beam",
                str(options.beam),
                "--timeout",
                "600",
            ],
            **{peer: [sys.executable, __file__, "--peer", peer, str(folder / peer), *common] for peer in peers},
        }
        for peer, command in commands.items():
            result[peer] = []
            process, url = start(command)
            try:
                asyncio.run(run_clients(url, sentences, 2, 10))  # loads everything
                for clients in options.clients:
                    if peer != "seq2see" and clients > 100:
                        continue
                    requests = options.peer_requests if peer == "huggingface" else max(options.requests, 4 * clients)
                    offline = [measure_offline(model, sentences, options.beam)] if peer == "seq2see" else []
                    row = asyncio.run(run_clients(url, sentences, clients, max(requests, clients)))
                    answers = row.pop("answers")
                    row["mib"] = resident_memory(process.pid)
                    if peer == "seq2see":
                        offline.append(measure_offline(model, sentences, options.beam))
                        row["offline_per_second"] = round(sum(offline) / 2, 2)
                        row["share_of_offline"] = round(row["per_second"] / row["offline_per_second"], 3)
                        row["p99_over_p50"] = round(row["p99"] / row["p50"], 2)
                        row.update(count_differences(model, sentences, answers, options.beam))
                        if batch_translator is not None:
                            row["ctranslate2_offline_per_second"] = round(
                                measure_ctranslate2(batch_translator, sentences), 2
                            )
                    result[peer].append(row)
                    print(peer, json.dumps(row), flush=True)
            finally:
                process.terminate()
                process.wait(60)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 100, 500])
    parser.add_argument("--sentences", type=Path, help="one sentence per line; by default made up")
    parser.add_argument("--requests", type=int, default=200, help="per number of clients, and at least four per client")
    parser.add_argument("--peer-requests", type=int, default=30, help="of Hugging Face, and at least one per client")
    parser.add_argument("--model", default="en-fr", help="a translator from English")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument(
        "--memory", type=int, default=0, metavar="REQUESTS", help="only the memory over so many requests"
    )
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        listener = socket.socket(proto=socket.IPPROTO_TCP)  # so that asyncio sends answers without delay
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        run_peer(options.peer[0], Path(options.peer[1]), options.model, listener, options.beam)
        return
    print(json.dumps(measure_memory(options.memory) if options.memory else measure_load(options)))


if __name__ == "__main__":
    main()
