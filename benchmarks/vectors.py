"""Word2Vec beside gensim's on the same words with the same settings: quality of the vectors and speed.

Quality is Spearman's correlation with human judgements (WordSim-353 and SimLex-999) and the accuracy on Google's analogies
among the 30,000 most frequent words. Speed is words of text per second of wall time and, since other processes may share the
machine, of CPU time. The contenders alternate, seed by seed. Ends in one JSON line. Needs `pip install gensim`; without it
only seq2see runs.

    python benchmarks/vectors.py --data DIR [--megabytes 10] [--seeds 1 2 3] [--objective cbow] [--device cuda]

DIR holds lm/books-train.txt.xz, words/wordsim353.tsv, words/simlex999.txt and words/questions-words.txt.
"""

import argparse
import itertools
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_word2vec
from seq2see.course.vectors.corpus import split_words
from seq2see.data.corpus import plain_text

try:
    from gensim.models import Word2Vec as Gensim
except ImportError:
    Gensim = None

FREQUENT = 30_000
PARAGRAPHS_PER_RUN = 1000
CONFIG = Word2VecConfig(width=200, window=5, negatives=5, epochs=5, min_count=5, sample=1e-3, lr=0.025)
MEASURES = ("wordsim", "simlex", "analogies")


def documents(data: Path, megabytes: float) -> list[str]:
    """Returns all paragraphs, or runs of consecutive ones from all over the books that add up to the given size."""
    paragraphs = list(plain_text([data / "lm" / "books-train.txt.xz"]))
    size = sum(map(len, paragraphs))
    step = max(1, round(size / (megabytes * 1e6))) if megabytes else 1
    return [
        document
        for i in range(0, len(paragraphs), PARAGRAPHS_PER_RUN * step)
        for document in paragraphs[i : i + PARAGRAPHS_PER_RUN]
    ]


def ranks(values: Tensor) -> Tensor:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0)
    return ((2 * ends - counts - 1).double() / 2)[inverse]


def spearman(left: Tensor, right: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([ranks(left), ranks(right)]))[0, 1])


def correlation(vectors: WordVectors, path: Path) -> tuple[float, int]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    rows = [row for row in rows if row[0] in vectors and row[1] in vectors]
    left, right = vectors.lookup(row[0] for row in rows), vectors.lookup(row[1] for row in rows)
    cosines = torch.cosine_similarity(left, right)
    return spearman(cosines, torch.tensor([float(row[2]) for row in rows])), len(rows)


def analogies(vectors: WordVectors, path: Path) -> tuple[float, int]:
    lines = [line.lower().split() for line in path.read_text(encoding="utf-8").splitlines() if line[0] != ":"]
    known = set(vectors.words[:FREQUENT])
    indices = torch.tensor([[vectors.index(word) for word in line] for line in lines if known.issuperset(line)])
    units = torch.nn.functional.normalize(vectors.matrix[:FREQUENT])
    correct = 0
    for a, b, c, d in (part.T for part in indices.split(1000)):
        scores = (units[b] - units[a] + units[c]) @ units.T
        for word in (a, b, c):
            scores[torch.arange(len(a)), word] = -torch.inf
        correct += int((scores.argmax(1) == d).sum())
    return correct / max(1, len(indices)), len(indices)


def evaluate(vectors: WordVectors, words: Path) -> dict[str, Any]:
    scores = {
        "wordsim": correlation(vectors, words / "wordsim353.tsv"),
        "simlex": correlation(vectors, words / "simlex999.txt"),
        "analogies": analogies(vectors, words / "questions-words.txt"),
    }
    return {name: round(value, 4) for name, (value, _) in scores.items()} | {"counts": [n for _, n in scores.values()]}


def fit_gensim(sentences: list[list[str]], config: Word2VecConfig, workers: int) -> WordVectors:
    model = Gensim(
        sentences,
        vector_size=config.width,
        window=config.window,
        negative=config.negatives,
        epochs=config.epochs,
        min_count=config.min_count,
        sample=config.sample,
        alpha=config.lr,
        sg=int(config.objective == "skip-gram"),
        seed=config.seed,
        workers=workers,
    )
    return WordVectors(tuple(model.wv.index_to_key), torch.from_numpy(model.wv.vectors), "gensim", True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=0, help="approximate size of the text to use; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--objective", default="skip-gram")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", choices=["seq2see", "gensim"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    contenders = [name for name in ("seq2see", "gensim") if options.only in (None, name)]
    if Gensim is None and "gensim" in contenders:
        print("gensim is not installed: pip install gensim")
        contenders.remove("gensim")

    text = documents(options.data, options.megabytes)
    sentences = [split_words(document) for document in text]
    words = sum(map(len, sentences)) * CONFIG.epochs
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for seed, name in itertools.product(options.seeds, contenders):
        config = replace(CONFIG, seed=seed, objective=options.objective)
        wall, cpu = time.perf_counter(), time.process_time()
        if name == "gensim":
            vectors = fit_gensim(sentences, config, options.threads)
        else:
            vectors = fit_word2vec(text, config, options.device)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row = evaluate(vectors, options.data / "words")
        row |= {
            "seconds": round(wall, 1),
            "words_per_second": round(words / wall),
            "words_per_cpu_second": round(words / cpu),
        }
        rows[name].append(row)
        print(f"{name:8} seed {seed}: {row}", flush=True)
    means = {
        name: {key: round(statistics.mean(row[key] for row in found), 4) for key in found[0] if key != "counts"}
        for name, found in rows.items()
    }
    result = {
        "benchmark": "vectors",
        "objective": options.objective,
        "device": options.device,
        "threads": options.threads,
        "torch": torch.__version__,
        "words": words // CONFIG.epochs,
        "seeds": options.seeds,
        "means": means,
        "runs": rows,
    }
    if len(means) == 2:
        result["difference"] = {key: round(means["seq2see"][key] - means["gensim"][key], 4) for key in MEASURES}
        result["ratio"] = {
            key: round(means["seq2see"][key] / means["gensim"][key], 2)
            for key in ("words_per_second", "words_per_cpu_second")
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
