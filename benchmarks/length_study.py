"""BLEU by sentence length of the architectures of 2014, 2015 and 2017, with equal parameters, data and training time.

English to German, everyday sentences (Tatoeba) and captions (Multi30k). Few are longer than 25 words, so sentences are also
joined, up to 60 words: in training, so that no model meets long sentences for the first time in the test, and in the test set,
which has `--sentences` per band of ten source words, joined ones only where real ones are too few. Test sentences are held
out. Each model trains for `--minutes`. BLEU by source length is printed, drawn, and written as JSON in the last line.

    python benchmarks/length_study.py --data DIR --minutes 20 --device cuda --parallel --out study    # study/length.png

DIR holds tatoeba/en-de.{en,de}.xz and multi30k/{train.{en,de}.xz,val.{en,de},test_2017.{en,de}}.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

import torch

from seq2see.api import Model, load
from seq2see.config import DataConfig
from seq2see.data.corpus import parallel_files
from seq2see.evaluate.metrics import bleu_and_chrf, score
from seq2see.model.summary import summarize
from seq2see.train import start as run
from seq2see.views.plots import new_figure, save

MODELS = {"rnn-2014": "RNN, 2014", "rnn-2015": "RNN with attention, 2015", "small": "Transformer, 2017"}
BAND_WIDTH, MAX_LENGTH = 10, 60  # source words
HELD_OUT = 4000  # everyday sentences excluded from training
MIN_SENTENCES = 30  # per band, to report a score

Pair = tuple[str, str]
TestBands = list[tuple[int, list[Pair], list[Pair]]]  # per band: shortest length, real sentences, joined sentences


@dataclass(frozen=True)
class Band:
    low: int
    high: int
    real: int  # sentences as they are in the corpus
    joined: int
    bleu: float
    bleu_real: float | None  # real sentences only, if there are enough
    ratio: float  # length ratio of translations to references, in words


def count_words(text: str) -> int:
    return len(text.split())


def read(folder: Path, name: str, ending: str = "") -> list[Pair]:
    return list(parallel_files([folder / f"{name}.en{ending}"], [folder / f"{name}.de{ending}"]))


def join(pairs: Sequence[Pair], low: int, high: int, random: Random) -> Pair:
    """Joins random sentences until the source has `low` to `high` words."""
    while True:
        length, chosen = 0, list[Pair]()
        while length < low or len(chosen) < 2:
            chosen.append(random.choice(pairs))
            length += count_words(chosen[-1][0])
        if length <= high:
            return " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


def load_data(data: Path, limit: int, random: Random) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Returns training, validation and test pairs. Half of the training words are in joined sentences."""
    everyday, captions = read(data / "tatoeba", "en-de", ".xz"), read(data / "multi30k", "train", ".xz")
    random.shuffle(everyday)
    # Tatoeba has several translations of some sentences: exclude all of a held-out sentence.
    held_out = dict(everyday[:HELD_OUT])
    kept = [pair for pair in everyday[HELD_OUT:] + captions if pair[0] not in held_out]
    random.shuffle(kept)
    kept = kept[:limit] if limit else kept
    words_left, joined = sum(count_words(source) for source, _ in kept), list[Pair]()
    while words_left > 0:
        joined.append(join(kept, random.randrange(2 * BAND_WIDTH, MAX_LENGTH), MAX_LENGTH, random))
        words_left -= count_words(joined[-1][0])
    valid = list(held_out.items())[:300] + read(data / "multi30k", "val")[:300]
    valid += [join(valid, random.randrange(2 * BAND_WIDTH, MAX_LENGTH), MAX_LENGTH, random) for _ in range(200)]
    return kept + joined, valid, list(held_out.items())[300:] + read(data / "multi30k", "test_2017")


def make_bands(test: Sequence[Pair], per_band: int, random: Random) -> TestBands:
    bands = []
    for low in range(1, MAX_LENGTH, BAND_WIDTH):
        high = low + BAND_WIDTH - 1
        real = [pair for pair in test if low <= count_words(pair[0]) <= high]
        real = random.sample(real, min(per_band, len(real)))
        bands.append((low, real, [join(test, low, high, random) for _ in range(per_band - len(real))]))
    return bands


def study(
    name: str, data: DataConfig, test_bands: TestBands, settings: Sequence[str], out: Path, device: str
) -> tuple[dict[str, object], list[Band]]:
    """Trains one model and measures it."""
    run.train(data, out / name, preset=name, settings=settings, device=device)
    model = load(out / name, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    training = {key: model.scores["training"][key] for key in ("steps", "epochs")}
    return {"parameters": summarize(model.config.model, name).parameters, **training}, measure(model, test_bands)


def measure(model: Model, test_bands: TestBands) -> list[Band]:
    bands = []
    for low, real, joined in test_bands:
        pairs = real + joined
        translations = model.translate_sentences([source for source, _ in pairs], beam=4)
        references = [target for _, target in pairs]
        bleu_real = bleu(translations[: len(real)], references[: len(real)]) if len(real) >= MIN_SENTENCES else None
        ratio = sum(map(count_words, translations)) / max(sum(map(count_words, references)), 1)
        bleu_all, high = bleu(translations, references), low + BAND_WIDTH - 1
        bands.append(Band(low, high, len(real), len(joined), bleu_all, bleu_real, round(ratio, 3)))
    return bands


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    return round(score(translations, [[reference] for reference in references], bleu_and_chrf())[0].value, 2)


def draw(results: dict[str, list[Band]], path: Path) -> None:
    figure = new_figure((6.4, 4))
    axis = figure.subplots()
    for name, bands in results.items():
        middles = [(band.low + band.high) / 2 for band in bands]
        axis.plot(middles, [band.bleu for band in bands], marker="o", label=MODELS[name])
    axis.set(xlabel="source words", ylabel="BLEU", xlim=(0, MAX_LENGTH))
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    # Above the axes: there is no room inside.
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(results), frameon=False)
    save(figure, path)


def write(folder: Path, name: str, pairs: Sequence[Pair]) -> tuple[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.en"), str(folder / f"{name}.de")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with the corpora")
    parser.add_argument("--out", type=Path, default=Path("length-study"), help="empty output directory")
    parser.add_argument("--minutes", type=float, default=20, help="training time per model")
    parser.add_argument("--device", default="", help="cpu, cuda or mps; default: the best available")
    parser.add_argument("--parallel", action="store_true", help="train all models at the same time")
    parser.add_argument(
        "--pairs", type=int, default=0, help="maximum number of sentence pairs, for a quick trial; 0: all"
    )
    parser.add_argument("--sentences", type=int, default=400, help="test sentences per band")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting for all models")
    options = parser.parse_args()
    random = Random(1)
    train, valid, test = load_data(options.data, options.pairs, random)
    test_bands = make_bands(test, options.sentences, random)
    (src, tgt), (valid_src, valid_tgt) = (
        write(options.out, name, pairs) for name, pairs in (("train", train), ("valid", valid))
    )
    data = DataConfig(src=(src,), tgt=(tgt,), valid_src=(valid_src,), valid_tgt=(valid_tgt,))
    settings = [f"train.minutes={options.minutes}", "train.steps=0", "train.patience=0", *options.set]
    study_one = partial(
        study, data=data, test_bands=test_bands, settings=settings, out=options.out, device=options.device
    )
    with ProcessPoolExecutor(len(MODELS) if options.parallel else 1, get_context("spawn")) as pool:
        trainings, bands = zip(*pool.map(study_one, MODELS), strict=True)
    results: dict[str, list[Band]] = dict(zip(MODELS, bands, strict=True))
    print(f"{'words':>9}" + "".join(f"{MODELS[name]:>28}" for name in results))
    for row in zip(*results.values(), strict=True):
        print(f"{row[0].low:>4} – {row[0].high:<2}" + "".join(f"{band.bleu:28.1f}" for band in row))
    draw(results, options.out / "length.png")
    report = {
        name: {**training, "bands": [asdict(band) for band in results[name]]}
        for name, training in zip(MODELS, trainings, strict=True)
    }
    environment = {"minutes": options.minutes, "pairs": len(train), "torch": torch.__version__}
    print(json.dumps({"benchmark": "length_study", **environment, "results": report}))


if __name__ == "__main__":
    main()
