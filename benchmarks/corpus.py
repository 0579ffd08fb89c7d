"""Text to batches: throughput, memory and fill rate.

Tokenizes 0.1, 1 and 5 million pairs into a store, each size in a separate process, and prints the peak anonymous memory
(RssAnon, which excludes the mapped files) and the MB/s, compared with the bare library on the same text. Then builds the
batches of an epoch from the largest store, and measures the fill rate of batches from real corpora. Ends in one JSON
line.

    python benchmarks/corpus.py [--data DIR] [--pairs 100000 1000000 5000000] [--training]

DIR holds en-hi/hvg-train.{en,hi}.xz and multi30k/train.{en,de}.xz, whose sentences are repeated to the requested size;
without it, sentences are synthetic. With --training, also trains a tokenizer on DIR/lm/books-train.txt.xz (minutes).
"""

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from seq2see.data.batches import Batches, PairBatches, TextBatches
from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.store import TokenStore, store_documents, store_pairs
from seq2see.data.tokenizer import Tokenizer

SIZES = [100_000, 1_000_000, 5_000_000]
BUDGETS = [4_000, 8_000, 16_000, 25_000]
BATCH_TOKENS = 25_000  # when timing how batches are built

Pairs = list[tuple[str, str]]


def read_lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def real_pairs(data: Path, corpus: str) -> Pairs:
    left, right = {
        "hvg": ("en-hi/hvg-train.en", "en-hi/hvg-train.hi"),
        "multi30k": ("multi30k/train.en", "multi30k/train.de"),
    }[corpus]
    return list(zip(read_lines(data / f"{left}.xz"), read_lines(data / f"{right}.xz"), strict=True))


def synthetic_pairs(count: int = 30_000) -> Pairs:
    """Returns sentences of random words with a Zipf distribution, in Latin and in Devanagari."""
    random = np.random.default_rng(0)
    sides = []
    for alphabet in ("abcdefghijklmnoprstuvw", "अआइकखगचजटडतदनपबमयरलवसह\u093e\u093f\u0940\u0947\u094b\u0902"):
        letters = np.array(list(alphabet))
        words = ["".join(random.choice(letters, random.integers(2, 9))) for _ in range(20_000)]
        chosen = np.minimum(random.zipf(1.2, count * 8), len(words)) - 1
        cuts = np.cumsum(random.integers(3, 13, count)).clip(max=len(chosen) - 1)
        sides.append([" ".join(words[w] for w in part) for part in np.split(chosen, cuts)[:count]])
    return list(zip(*sides, strict=True))


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Measures the peak RssAnon of this process in MB, sampled fifty times per second."""
    peak = [0.0]
    done = threading.Event()

    def sample() -> None:
        with open("/proc/self/status") as status:
            kilobytes = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        peak[0] = max(peak[0], kilobytes / 1024)

    def sample_until_done() -> None:
        while not done.wait(0.02):
            sample()

    sampler = threading.Thread(target=sample_until_done, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()
        sample()


def time_iteration(work: Iterable[object]) -> float:
    start = time.perf_counter()
    for _ in work:
        pass
    return time.perf_counter() - start


def tokenize(
    pairs: Pairs, count: int, folder: Path, tokenizer: Tokenizer, dropout: BpeDropout | None = None
) -> dict[str, Any]:
    size = sum(len(text.encode()) for pair in pairs for text in pair) * count / len(pairs) / 1e6
    start = time.perf_counter()
    with peak_memory() as peak:
        store_pairs(folder, islice(cycle(pairs), count), str(count), (tokenizer, tokenizer), dropout)
    seconds = time.perf_counter() - start
    return {
        "pairs": count,
        "MB": round(size, 1),
        "seconds": round(seconds, 1),
        "MB/s": round(size / seconds, 2),
        "peak MB": round(peak[0]),
    }


def bare_library(pairs: Pairs, tokenizer: Tokenizer) -> float:
    """Returns the MB/s of the library itself on batches of 8,192 texts, without converting the tokens."""
    texts = [text for pair in pairs for text in pair]
    batches = (texts[i : i + 8192] for i in range(0, len(texts), 8192))
    seconds = time_iteration(tokenizer._backend.encode_batch_fast(batch) for batch in batches)
    return sum(len(text.encode()) for text in texts) / 1e6 / seconds


def tokenize_in_subprocess(count: int, folder: Path, tokenizer: Path, data: Path | None) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(count), str(folder), str(tokenizer)]
    command += ["--data", str(data)] if data else []
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def tokens_per_second(batches: Batches, tensors: bool) -> float:
    """Builds batches and returns real tokens per second, source and target together."""
    batches.batch(0, 0).to("cpu")  # imports torch before timing
    tokens = 0
    start = time.perf_counter()
    for batch in islice(batches.iterate(0), 400):
        tokens += batch.num_targets + (int(batch.source.lengths[: len(batch.indices)].sum()) if batch.source else 0)
        if tensors:
            batch.to("cpu")
    return tokens / (time.perf_counter() - start)


def measure_batches(store: TokenStore, text: TokenStore, tokenizer: Tokenizer) -> dict[str, Any]:
    start = time.perf_counter()
    with peak_memory() as peak:
        pairs = PairBatches(store, BATCH_TOKENS, tokenizer, max_length=256, too_long="drop")
        count = pairs.num_batches(0)
    result: dict[str, Any] = {
        "plan seconds": round(time.perf_counter() - start, 2),
        "plan peak MB": round(peak[0]),
        "batches": count,
    }
    for static in (False, True):
        pairs.static = static
        for tensors in (False, True):
            name = ("static" if static else "packed") + (" tensors" if tensors else "")
            result[name] = round(tokens_per_second(pairs, tensors) / 1e6, 1)
    for within in (False, True):
        blocks = TextBatches(text, BATCH_TOKENS, tokenizer, context=512, within_documents=within)
        result["text by document" if within else "text"] = round(tokens_per_second(blocks, False) / 1e6, 1)
    return result


def measure_fill(name: str, pairs: Pairs, folder: Path) -> list[dict[str, Any]]:
    tokenizer = Tokenizer.train(text for pair in pairs for text in pair)
    store = store_pairs(folder, pairs, name, (tokenizer, tokenizer))
    rows = []
    for tokens in BUDGETS:
        batches = PairBatches(store, tokens, tokenizer, max_length=256, static=True)
        ratios = [
            float(side.lengths[: len(batch.indices)].mean() / side.lengths[: len(batch.indices)].max())
            for batch in batches.iterate(0)
            for side in (batch.source, batch.inputs)
            if side is not None
        ]
        total = sum(int(side.sum(dtype=np.int64)) for side in batches.lengths)
        capacity = batches.shape.source + batches.shape.target  # of one batch
        fill = float(np.mean([total / (batches.num_batches(epoch) * capacity) for epoch in range(5)]))
        rows.append(
            {
                "corpus": name,
                "tokens": tokens,
                "batches": batches.num_batches(0),
                "fill": round(fill, 4),
                "mean/max": round(float(np.mean(ratios)), 2),
            }
        )
    return rows


def measure_training(data: Path) -> dict[str, Any]:
    start = time.perf_counter()
    with peak_memory() as peak, lzma.open(data / "lm" / "books-train.txt.xz", "rt", encoding="utf-8") as file:
        tokenizer = Tokenizer.train(file)
    return {"seconds": round(time.perf_counter() - start, 1), "peak MB": round(peak[0]), "vocabulary": len(tokenizer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pairs = real_pairs(options.data, "hvg") if options.data else synthetic_pairs()
    if options.one:
        count, folder, path = options.one
        print(json.dumps(tokenize(pairs, int(count), Path(folder), Tokenizer.load(path))))
        return

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenizer = Tokenizer.train(text for pair in pairs for text in pair)
        tokenizer.save(folder / "tokenizer.json")
        result: dict[str, Any] = {"stores": []}
        for count in options.pairs:
            row = tokenize_in_subprocess(count, folder, folder / "tokenizer.json", options.data)
            row["library MB/s"] = round(bare_library(pairs, tokenizer), 2)
            speed = f"{row['MB/s']} MB/s (bare library {row['library MB/s']})"
            print(f"{count:>10,} pairs, {row['MB']:>6,} MB: {speed}, peak {row['peak MB']:,} MB")
            result["stores"].append(row)
        store = store_pairs(folder, [], str(options.pairs[-1]), (tokenizer, tokenizer))  # built by the last subprocess
        with_dropout = tokenize(pairs, len(pairs), folder, tokenizer, BpeDropout(0.1, seed=0, epoch=0))
        print(f"BPE-dropout 0.1: {with_dropout['MB/s']} MB/s")
        text = store_documents(folder, ((source, True) for source, _ in pairs), "text", tokenizer)
        result |= {"dropout MB/s": with_dropout["MB/s"], "batches": measure_batches(store, text, tokenizer)}
        shown = ", ".join(f"{name} {value}" for name, value in result["batches"].items())
        print(f"batches of {BATCH_TOKENS:,} tokens, in million tokens/s: {shown}")
        result["fill"] = []
        for name in ("multi30k", "hvg") if options.data else ("synthetic",):
            corpus = real_pairs(options.data, name) if options.data else pairs
            for row in measure_fill(name, corpus, folder):
                shown = f"{row['batches']} batches, {row['fill']:.1%} full, mean/max {row['mean/max']}"
                print(f"{name} at {row['tokens']:,} tokens: {shown}")
                result["fill"].append(row)
    if options.training:
        result["training"] = measure_training(options.data)
        print("training a tokenizer on 100 MB: {seconds} s, peak {peak MB:,} MB".format(**result["training"]))
    peaks = [row["peak MB"] for row in result["stores"]]
    result["ratios"] = {
        "peak of largest to smallest": round(peaks[-1] / peaks[0], 2),
        "MB/s to bare library": round(result["stores"][-1]["MB/s"] / result["stores"][-1]["library MB/s"], 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
