"""From text to batches: how fast, how much memory, how full.

Tokenizes 0.1, 1 and 5 million pairs into a store, each size in a process of its own, and prints the peak of anonymous
memory (RssAnon, which the mapped files are no part of) and the MB/s beside those of the bare library on the same text.
Then builds the batches of an epoch from the largest store, and those of real corpora for how full they are. Ends in one
JSON line.

    python benchmarks/corpus.py [--data DIR] [--pairs 100000 1000000 5000000] [--training]

DIR holds en-hi/hvg-train.{en,hi}.xz and multi30k/train.{en,de}.xz, whose sentences are repeated to the size asked for;
without it sentences are made up. With --training, a tokenizer is trained on DIR/lm/books-train.txt.xz too (minutes).
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

from seq2see.text.batches import Batches, PairBatches, TextBatches
from seq2see.text.bpe_dropout import Dropout
from seq2see.text.store import Store, store_pairs, store_texts
from seq2see.text.tokenizer import Tokenizer

SIZES = [100_000, 1_000_000, 5_000_000]
BUDGETS = [4_000, 8_000, 16_000, 25_000]
TOKENS = 25_000  # of a batch whose building is timed

Pairs = list[tuple[str, str]]


def lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def real_pairs(data: Path, corpus: str) -> Pairs:
    left, right = {
        "hvg": ("en-hi/hvg-train.en", "en-hi/hvg-train.hi"),
        "multi30k": ("multi30k/train.en", "multi30k/train.de"),
    }[corpus]
    return list(zip(lines(data / f"{left}.xz"), lines(data / f"{right}.xz"), strict=True))


def made_up_pairs(count: int = 30_000) -> Pairs:
    """Sentences of made-up words, some much more frequent than others, in Latin and in Devanagari."""
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
    """The highest RssAnon of this process, in MB, looked up fifty times a second."""
    peak = [0.0]
    done = threading.Event()

    def look() -> None:
        with open("/proc/self/status") as status:
            kilobytes = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        peak[0] = max(peak[0], kilobytes / 1024)

    def watch() -> None:
        while not done.wait(0.02):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        look()


def timed(work: Iterable[object]) -> float:
    start = time.perf_counter()
    for _ in work:
        pass
    return time.perf_counter() - start


def tokenize(
    pairs: Pairs, count: int, folder: Path, tokenizer: Tokenizer, dropout: Dropout | None = None
) -> dict[str, Any]:
    size = sum(len(text.encode()) for pair in pairs for text in pair) * count / len(pairs) / 1e6
    start = time.perf_counter()
    with peak_memory() as peak:
        store_pairs(folder, islice(cycle(pairs), count), str(count), (tokenizer, tokenizer), dropout)
    seconds = time.perf_counter() - start
    return {"pairs": count, "MB": round(size, 1), "seconds": round(seconds, 1), "MB/s": round(size / seconds, 2),
            "peak MB": round(peak[0])}  # fmt: skip


def bare_library(pairs: Pairs, tokenizer: Tokenizer) -> float:
    """MB/s of the library itself, thousands of lines at a time, the tokens left where they are."""
    texts = [text for pair in pairs for text in pair]
    portions = (texts[i : i + 8192] for i in range(0, len(texts), 8192))
    inner = tokenizer._inner
    return sum(len(text.encode()) for text in texts) / 1e6 / timed(inner.encode_batch_fast(part) for part in portions)


def in_own_process(count: int, folder: Path, tokenizer: Path, data: Path | None) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(count), str(folder), str(tokenizer)]
    command += ["--data", str(data)] if data else []
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def built(batches: Batches, tensors: bool) -> float:
    """Real tokens a second, source and target together."""
    batches.batch(0, 0).to("cpu")  # importing torch takes its time
    tokens = 0
    start = time.perf_counter()
    for batch in islice(batches.share(0), 400):
        tokens += batch.count + (int(batch.source.lengths[: len(batch.sentences)].sum()) if batch.source else 0)
        if tensors:
            batch.to("cpu")
    return tokens / (time.perf_counter() - start)


def building(store: Store, text: Store, tokenizer: Tokenizer) -> dict[str, Any]:
    start = time.perf_counter()
    with peak_memory() as peak:
        pairs = PairBatches(store, TOKENS, tokenizer, longest=256, too_long="drop")
        count = pairs.count(0)
    result: dict[str, Any] = {
        "plan seconds": round(time.perf_counter() - start, 2), "plan peak MB": round(peak[0]), "batches": count
    }  # fmt: skip
    for static in (False, True):
        pairs.static = static
        for tensors in (False, True):
            name = ("static" if static else "packed") + (" tensors" if tensors else "")
            result[name] = round(built(pairs, tensors) / 1e6, 1)
    for within in (False, True):
        blocks = TextBatches(text, TOKENS, tokenizer, context=512, within_documents=within)
        result["text by document" if within else "text"] = round(built(blocks, False) / 1e6, 1)
    return result


def fullness(name: str, pairs: Pairs, folder: Path) -> list[dict[str, Any]]:
    tokenizer = Tokenizer.train(text for pair in pairs for text in pair)
    store = store_pairs(folder, pairs, name, (tokenizer, tokenizer))
    rows = []
    for tokens in BUDGETS:
        batches = PairBatches(store, tokens, tokenizer, longest=256, static=True)
        alike = [
            float(side.lengths[: len(batch.sentences)].mean() / side.lengths[: len(batch.sentences)].max())
            for batch in batches.share(0) for side in (batch.source, batch.inputs) if side is not None
        ]  # fmt: skip
        fill = float(np.mean([batches.fill(epoch) for epoch in range(5)]))
        rows.append({"corpus": name, "tokens": tokens, "batches": batches.count(0), "fill": round(fill, 4),
                     "mean/longest": round(float(np.mean(alike)), 2)})  # fmt: skip
    return rows


def training(data: Path) -> dict[str, Any]:
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
    pairs = real_pairs(options.data, "hvg") if options.data else made_up_pairs()
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
            row = in_own_process(count, folder, folder / "tokenizer.json", options.data)
            row["library MB/s"] = round(bare_library(pairs, tokenizer), 2)
            speed = f"{row['MB/s']} MB/s (bare library {row['library MB/s']})"
            print(f"{count:>10,} pairs, {row['MB']:>6,} MB: {speed}, peak {row['peak MB']:,} MB")
            result["stores"].append(row)
        store = store_pairs(folder, [], str(options.pairs[-1]), (tokenizer, tokenizer))  # made by the last process
        sampled = tokenize(pairs, len(pairs), folder, tokenizer, Dropout(0.1, seed=0, epoch=0))
        print(f"with BPE-dropout of 0.1: {sampled['MB/s']} MB/s")
        text = store_texts(folder, ((source, True) for source, _ in pairs), "text", tokenizer)
        result |= {"sampled MB/s": sampled["MB/s"], "batches": building(store, text, tokenizer)}
        shown = ", ".join(f"{name} {value}" for name, value in result["batches"].items())
        print(f"batches of {TOKENS:,} tokens, in million tokens/s: {shown}")
        result["fill"] = []
        for name in ("multi30k", "hvg") if options.data else ("made up",):
            corpus = real_pairs(options.data, name) if options.data else pairs
            for row in fullness(name, corpus, folder):
                shown = f"{row['batches']} batches, {row['fill']:.1%} full, mean/longest {row['mean/longest']}"
                print(f"{name} at {row['tokens']:,} tokens: {shown}")
                result["fill"].append(row)
    if options.training:
        result["training"] = training(options.data)
        print("a tokenizer from 100 MB: {seconds} s, peak {peak MB:,} MB".format(**result["training"]))
    peaks = [row["peak MB"] for row in result["stores"]]
    result["ratios"] = {
        "peak of largest to smallest": round(peaks[-1] / peaks[0], 2),
        "MB/s to bare library": round(result["stores"][-1]["MB/s"] / result["stores"][-1]["library MB/s"], 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
