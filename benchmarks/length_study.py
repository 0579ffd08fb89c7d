"""What length does to the models of 2014, 2015 and 2017, at equal parameters, on the same sentences, in the same time.

English to German, everyday sentences (Tatoeba) and captions (Multi30k). Few are longer than 25 words, so sentences are joined
as well, up to 60 words, in training, so that no model meets long ones for the first time in the test, and in the test: up to
`--sentences` of every band of ten words, real ones first and joined ones to fill it up. What is tested is held out.
Each model trains for `--minutes`; BLEU by the length of the source is printed, drawn and, as one JSON line, told.

    python benchmarks/length_study.py --data DIR --minutes 20 --device cuda --together --out study    # study/length.png

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
from seq2see.inspect.plots import pyplot, save
from seq2see.metrics.translation import bleu_and_chrf, score
from seq2see.model.summary import structure
from seq2see.text.corpus import parallel
from seq2see.train import run

MODELS = {"rnn-2014": "RNN, 2014", "rnn-2015": "RNN with attention, 2015", "small": "Transformer, 2017"}
BAND, LONGEST = 10, 60  # words of the source
HELD = 4000  # everyday sentences that are not trained on
FEWEST = 30  # in a band, for a score

Pair = tuple[str, str]
Tested = list[tuple[int, list[Pair], list[Pair]]]  # for each band its first length, real sentences and joined ones


@dataclass(frozen=True)
class Band:
    low: int
    high: int
    real: int  # sentences that somebody wrote as they are
    joined: int
    bleu: float
    bleu_real: float | None  # of the real ones alone, where they are enough
    ratio: float  # words written for each word of the references


def words(text: str) -> int:
    return len(text.split())


def read(folder: Path, name: str, ending: str = "") -> list[Pair]:
    return list(parallel([folder / f"{name}.en{ending}"], [folder / f"{name}.de{ending}"]))


def join(some: Sequence[Pair], low: int, high: int, random: Random) -> Pair:
    """Sentences one after the other until there are so many words."""
    while True:
        length, chosen = 0, list[Pair]()
        while length < low or len(chosen) < 2:
            chosen.append(random.choice(some))
            length += words(chosen[-1][0])
        if length <= high:
            return " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


def material(data: Path, limit: int, random: Random) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """To train on, joined ones included, as many words of them as of the others; to validate; and to test."""
    everyday, captions = read(data / "tatoeba", "en-de", ".xz"), read(data / "multi30k", "train", ".xz")
    random.shuffle(everyday)
    # An English sentence may have several translations there: none of those is on both sides.
    held = dict(everyday[:HELD])
    kept = [pair for pair in everyday[HELD:] + captions if pair[0] not in held]
    random.shuffle(kept)
    kept = kept[:limit] if limit else kept
    left, joined = sum(words(source) for source, _ in kept), list[Pair]()
    while left > 0:
        joined.append(join(kept, random.randrange(2 * BAND, LONGEST), LONGEST, random))
        left -= words(joined[-1][0])
    valid = list(held.items())[:300] + read(data / "multi30k", "val")[:300]
    valid += [join(valid, random.randrange(2 * BAND, LONGEST), LONGEST, random) for _ in range(200)]
    return kept + joined, valid, list(held.items())[300:] + read(data / "multi30k", "test_2017")


def bands(test: Sequence[Pair], each: int, random: Random) -> Tested:
    made = []
    for low in range(1, LONGEST, BAND):
        high = low + BAND - 1
        real = [pair for pair in test if low <= words(pair[0]) <= high]
        real = random.sample(real, min(each, len(real)))
        made.append((low, real, [join(test, low, high, random) for _ in range(each - len(real))]))
    return made


def study(
    name: str, data: DataConfig, tested: Tested, settings: Sequence[str], out: Path, device: str
) -> tuple[dict[str, object], list[Band]]:
    """Trains one of the models and measures it."""
    run.train(data, out / name, preset=name, settings=settings, device=device)
    model = load(out / name, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    about = {key: model.scores["training"][key] for key in ("steps", "epochs")}
    return {"parameters": structure(model.config.model, name).parameters, **about}, measure(model, tested)


def measure(model: Model, tested: Tested) -> list[Band]:
    found = []
    for low, real, joined in tested:
        both = real + joined
        made = model.translate([source for source, _ in both], beam=4)
        rights = [target for _, target in both]
        alone = bleu(made[: len(real)], rights[: len(real)]) if len(real) >= FEWEST else None
        ratio = sum(map(words, made)) / max(sum(map(words, rights)), 1)
        found.append(Band(low, low + BAND - 1, len(real), len(joined), bleu(made, rights), alone, round(ratio, 3)))
    return found


def bleu(made: Sequence[str], rights: Sequence[str]) -> float:
    return round(score(made, [[right] for right in rights], bleu_and_chrf())[0].value, 2)


def draw(results: dict[str, list[Band]], path: Path) -> None:
    figure, axis = pyplot().subplots(figsize=(6.4, 4))
    for name, found in results.items():
        middles = [(band.low + band.high) / 2 for band in found]
        axis.plot(middles, [band.bleu for band in found], marker="o", label=MODELS[name])
    axis.set(xlabel="words of the source", ylabel="BLEU", xlim=(0, LONGEST))
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    # Above, for the lines leave no room inside.
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(results), frameon=False)
    save(figure, path)


def write(folder: Path, name: str, some: Sequence[Pair]) -> tuple[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in some)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.en"), str(folder / f"{name}.de")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("length-study"), help="an empty folder for all that is made")
    parser.add_argument("--minutes", type=float, default=20, help="of training, of each model")
    parser.add_argument("--device", default="", help="cpu, cuda or mps; else the best there is")
    parser.add_argument("--together", action="store_true", help="all at once, on a machine that is large enough")
    parser.add_argument("--pairs", type=int, default=0, help="real sentence pairs at most, to try it out; 0: all")
    parser.add_argument("--sentences", type=int, default=400, help="tested in each band")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all three models")
    options = parser.parse_args()
    random = Random(1)
    train, valid, test = material(options.data, options.pairs, random)
    tested = bands(test, options.sentences, random)
    (src, tgt), (valid_src, valid_tgt) = (
        write(options.out, name, some) for name, some in (("train", train), ("valid", valid))
    )
    data = DataConfig(src=(src,), tgt=(tgt,), valid_src=(valid_src,), valid_tgt=(valid_tgt,))
    settings = [f"train.minutes={options.minutes}", "train.steps=0", "train.patience=0", *options.set]
    one = partial(study, data=data, tested=tested, settings=settings, out=options.out, device=options.device)
    with ProcessPoolExecutor(len(MODELS) if options.together else 1, get_context("spawn")) as pool:
        abouts, found = zip(*pool.map(one, MODELS), strict=True)
    results: dict[str, list[Band]] = dict(zip(MODELS, found, strict=True))
    print(f"{'words':>9}" + "".join(f"{MODELS[name]:>28}" for name in results))
    for row in zip(*results.values(), strict=True):
        print(f"{row[0].low:>4} – {row[0].high:<2}" + "".join(f"{band.bleu:28.1f}" for band in row))
    draw(results, options.out / "length.png")
    told = {
        name: {**about, "bands": [asdict(band) for band in results[name]]}
        for name, about in zip(MODELS, abouts, strict=True)
    }
    minutes = {"minutes": options.minutes, "pairs": len(train), "torch": torch.__version__}
    print(json.dumps({"benchmark": "length_study", **minutes, "results": told}))


if __name__ == "__main__":
    main()
