"""Word2Vec beside gensim's on the same words with the same settings: how good the vectors are, and how fast they come.

Good is what people say of pairs of words (Spearman's correlation with WordSim-353 and SimLex-999) and the share of Google's
analogies answered right, among the 30,000 most frequent words. Fast is words of the text a second, in wall time and, since
other processes may take turns on the machine, in processor time. The contenders take turns, seed by seed. Ends in one JSON
line. Needs `pip install gensim`; without it only ours runs.

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

from seq2see.course.vectors import Vectors, Word2Vec, fit_word2vec
from seq2see.course.vectors.word_counts import split
from seq2see.text.corpus import plain

try:
    from gensim.models import Word2Vec as Gensim
except ImportError:
    Gensim = None

FREQUENT = 30_000
RUN = 1000  # paragraphs that are taken together from a part of the text
SETTINGS = Word2Vec(width=200, window=5, negatives=5, epochs=5, min_count=5, sample=1e-3, lr=0.025)
MEASURES = ("wordsim", "simlex", "analogies")


def documents(data: Path, megabytes: float) -> list[str]:
    """All paragraphs, or runs of them from all over the books until there is enough."""
    everything = list(plain([data / "lm" / "books-train.txt.xz"]))
    size = sum(map(len, everything))
    step = max(1, round(size / (megabytes * 1e6))) if megabytes else 1
    return [document for i in range(0, len(everything), RUN * step) for document in everything[i : i + RUN]]


def ranks(values: Tensor) -> Tensor:
    """From 0; equal values share the mean of their ranks."""
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0)
    return ((2 * ends - counts - 1).double() / 2)[inverse]


def spearman(left: Tensor, right: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([ranks(left), ranks(right)]))[0, 1])


def judged(vectors: Vectors, path: Path) -> tuple[float, int]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    rows = [row for row in rows if row[0] in vectors and row[1] in vectors]
    left, right = vectors.rows(row[0] for row in rows), vectors.rows(row[1] for row in rows)
    cosines = torch.cosine_similarity(left, right)
    return spearman(cosines, torch.tensor([float(row[2]) for row in rows])), len(rows)


def analogies(vectors: Vectors, path: Path) -> tuple[float, int]:
    lines = [line.lower().split() for line in path.read_text(encoding="utf-8").splitlines() if line[0] != ":"]
    known = set(vectors.words[:FREQUENT])
    places = torch.tensor([[vectors.place(word) for word in line] for line in lines if known.issuperset(line)])
    units = torch.nn.functional.normalize(vectors.matrix[:FREQUENT])
    right = 0
    for a, b, c, d in (part.T for part in places.split(1000)):
        scores = (units[b] - units[a] + units[c]) @ units.T
        for given in (a, b, c):
            scores[torch.arange(len(a)), given] = -torch.inf
        right += int((scores.argmax(1) == d).sum())
    return right / max(1, len(places)), len(places)


def scored(vectors: Vectors, words: Path) -> dict[str, Any]:
    found = {
        "wordsim": judged(vectors, words / "wordsim353.tsv"),
        "simlex": judged(vectors, words / "simlex999.txt"),
        "analogies": analogies(vectors, words / "questions-words.txt"),
    }
    return {name: round(value, 4) for name, (value, _) in found.items()} | {"of": [n for _, n in found.values()]}


def theirs(sentences: list[list[str]], settings: Word2Vec, workers: int) -> Vectors:
    model = Gensim(
        sentences, vector_size=settings.width, window=settings.window, negative=settings.negatives,
        epochs=settings.epochs, min_count=settings.min_count, sample=settings.sample, alpha=settings.lr,
        sg=int(settings.objective == "skip-gram"), seed=settings.seed, workers=workers,
    )  # fmt: skip
    return Vectors(tuple(model.wv.index_to_key), torch.from_numpy(model.wv.vectors), "gensim", True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=0, help="of the text, about; else all of it")
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
    sentences = [split(document) for document in text]
    words = sum(map(len, sentences)) * SETTINGS.epochs
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for seed, name in itertools.product(options.seeds, contenders):
        settings = replace(SETTINGS, seed=seed, objective=options.objective)
        wall, processor = time.perf_counter(), time.process_time()
        if name == "gensim":
            made = theirs(sentences, settings, options.threads)
        else:
            made = fit_word2vec(text, settings, options.device)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        row = scored(made, options.data / "words")
        row |= {"seconds": round(wall, 1), "words_per_second": round(words / wall),
                "words_per_processor_second": round(words / processor)}  # fmt: skip
        rows[name].append(row)
        print(f"{name:8} seed {seed}: {row}", flush=True)
    means = {
        name: {key: round(statistics.mean(row[key] for row in found), 4) for key in found[0] if key != "of"}
        for name, found in rows.items()
    }
    result = {"benchmark": "vectors", "objective": options.objective, "device": options.device,
              "threads": options.threads, "torch": torch.__version__, "words": words // SETTINGS.epochs,
              "seeds": options.seeds, "means": means, "runs": rows}  # fmt: skip
    if len(means) == 2:
        result["difference"] = {key: round(means["seq2see"][key] - means["gensim"][key], 4) for key in MEASURES}
        result["ratio"] = {
            key: round(means["seq2see"][key] / means["gensim"][key], 2)
            for key in ("words_per_second", "words_per_processor_second")
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
