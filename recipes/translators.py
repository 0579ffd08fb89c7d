"""Trains the bundled translators: English to French on Tatoeba, English to Hindi on openly licensed text.

    python recipes/translators.py --data DIR --work DIR [--only en-fr] [--device cuda] [--out DIR]

A large teacher learns from the parallel text, translates it and more English sentences, and the small student learns from both
(sequence-level distillation, Kim and Rush, 2016). Each stage is skipped if its result exists, so a stopped recipe continues.
Held-out Tatoeba sentences choose the weights and give the scores; no source sentence of theirs is trained on. At the end the
student is packed into a directory of `--out`, and translates everyday.txt, thirty sentences chosen before the first training.
"""

import json
import random
from pathlib import Path

from pairs import Pair, hindi_parts, parallel, read_lines, read_tsv, source_key, split_by_source, variants, write_pairs
from recipe import RESULTS, Run, carry_out, parser, translation_test

from seq2see.api import load
from seq2see.bundled_models import BUNDLED, About
from seq2see.config import DataConfig
from seq2see.course.grammar import generate_corpus
from seq2see.train.pack import pack

HELD_OUT = {"en-fr": 1500, "en-hi": 500}
DISTILLED = 300_000  # sentences for the teacher to translate
# Copies of each part per epoch.
HINDI_PARTS = {"tatoeba": 8, "samanantar": 2, "pratham": 4, "gita": 1, "lohelp": 1, "debian-ui": 1, "grammar": 1}
COMMON = (
    "text.vocab_size=8000", "text.bpe_dropout=0.05", "train.warmup_steps=2000", "train.batch_tokens=16384",
    "train.average_checkpoints=8", "train.patience=0", "model.norm_first=true", "train.weight_decay=0.01",
)  # fmt: skip
TEACHER = (
    *COMMON, "model.width=512", "model.heads=8", "model.encoder_layers=6", "model.decoder_layers=6", "model.feed_forward=2048",
    "model.dropout=0.3", "train.lr=1e-3", "train.snapshots=false", "train.steps=4500",
)  # fmt: skip
# 9 million parameters: at 8 bits they fit in 10 MB with the tokenizer. A deep encoder costs no time per word.
STUDENT = (
    *COMMON, "model.width=256", "model.heads=8", "model.encoder_layers=6", "model.decoder_layers=2",
    "model.feed_forward=1024", "model.dropout=0.1", "train.lr=2e-3", "train.steps=12000",
)  # fmt: skip

LIMITS = "Knows everyday sentences of up to about 20 words. Rare words, names of places, technical language and long sentences "
EXAMPLES = (
    "Where is the station?",
    "Where is the library?",
    "How are you?",
    "I like eating ice-cream.",
    "I lost my keys.",
)
ABOUT = {
    "en-fr": About(("en", "fr"), LIMITS + "go wrong.", EXAMPLES, ("Tatoeba",)),
    "en-hi": About(
        ("en", "hi"), LIMITS + "often go wrong: there is little openly licensed English–Hindi text.", EXAMPLES,
        (
            "Tatoeba", "Samanantar", "Pratham Books StoryWeaver", "Bhagavad Gita", "LibreOffice help",
            "Debian interface translations", "Built-in grammar",
        ),
    ),
}  # fmt: skip
EVERYDAY = Path(__file__).parent / "everyday.txt"


def main() -> None:
    command = parser(__doc__)
    command.add_argument("--out", type=Path, default=BUNDLED, help="directory for the packed models")
    options = command.parse_args()
    changes, options.set = options.set, []
    for name in options.only or HELD_OUT:
        work = options.work / "bundled" / name
        prepare(name, options.data, work)
        if name == "en-fr":
            other = {"Multi30k val": translation_test(parallel(options.data / "multi30k" / "val", "en", "fr"))}
        else:
            other = {
                "Hindi Visual Genome dev": translation_test(parallel(options.data / "en-hi" / "hvg-dev", "en", "hi"))
            }
        tests = {"Tatoeba, held-out sources": translation_test(read_tsv(work / "test.tsv")), **other}
        valid = (str(work / "valid.tsv"),)
        teacher = Run(
            f"{name}-teacher", DataConfig(pairs=(str(work / "train.tsv"),), valid_pairs=valid), "small", TEACHER, tests
        )
        carry_out("bundled", teacher, options)
        distill(work, options.work / "bundled" / f"{name}-teacher-{options.seeds[0]}", options.device)
        files = DataConfig(pairs=(str(work / "train.tsv"), str(work / "distilled.tsv")), valid_pairs=valid)
        options.set = changes
        carry_out("bundled", Run(name, files, "small", STUDENT, tests), options)
        if not changes:
            pack(options.work / "bundled" / f"{name}-{options.seeds[0]}", options.out / name, ABOUT[name])
            translate_everyday(options.out / name)


def translate_everyday(model: Path) -> None:
    """Records what a packed model makes of the everyday sentences."""
    sources = read_lines(EVERYDAY)
    pairs = list(zip(sources, load(model).translate(sources, beam=5), strict=True))
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"recipe": "everyday", "run": model.name, "pairs": pairs}, indent=1, ensure_ascii=False)
    (RESULTS / f"everyday-{model.name}.json").write_text(text + "\n", encoding="utf-8")


def prepare(name: str, data: Path, work: Path) -> None:
    """Writes train.tsv, valid.tsv, test.tsv and more.en: English sentences without a translation."""
    if (work / "more.en").exists():
        return
    tatoeba = {code: read_lines(data / "tatoeba" / f"{code}.en") for code in ("en-fr", "en-de")}
    if name == "en-fr":
        pairs = parallel(data / "tatoeba" / "en-fr", "en", "fr")
        training, valid, test = split_by_source(pairs, HELD_OUT[name])
        training = list(variants(training, share=0.5, names=True))
    else:
        training, valid, test = hindi_pairs(data)
    held_out = {source_key(source) for source, _ in (*valid, *test)}
    chance = random.Random(1)
    chance.shuffle(training)
    write_pairs(work / "valid.tsv", valid)
    write_pairs(work / "test.tsv", test)
    write_pairs(work / "train.tsv", (pair for pair in training if source_key(pair[0]) not in held_out))
    seen = {source_key(source) for source, _ in training} | held_out
    more = sorted({line for lines in tatoeba.values() for line in lines if source_key(line) not in seen})
    chance.shuffle(more)
    (work / "more.en").write_text("\n".join(more) + "\n", encoding="utf-8")


def hindi_pairs(data: Path) -> tuple[list[Pair], list[Pair], list[Pair]]:
    parts = hindi_parts(data)
    parts["tatoeba"], valid, test = split_by_source(parts["tatoeba"], HELD_OUT["en-hi"])
    parts["grammar"] = [(pair.source, pair.target) for pair in generate_corpus(8000).train]
    parts["debian-ui"] = [pair for pair in parts["debian-ui"] if is_sentence(pair)]
    training: list[Pair] = []
    for name, copies in HINDI_PARTS.items():
        share = 0.5 if name in ("tatoeba", "grammar") else 0.0
        for seed in range(copies):
            training += variants(parts[name], share, names=False, seed=seed)
    return training, valid, test


def is_sentence(pair: Pair) -> bool:
    """Whether a text of a user interface is a phrase without codes and shortcuts."""
    return len(pair[0].split()) >= 3 and not any(mark in pair[0] for mark in "%_&$<>{}\\|@=/")


def distill(work: Path, teacher: Path, device: str) -> None:
    """Writes the teacher's translations of the training sources and of more English sentences."""
    if (work / "distilled.tsv").exists():
        return
    sources = sorted({source for source, _ in read_tsv(work / "train.tsv")})
    sources += read_lines(work / "more.en")
    sources = [source for source in sources if len(source) < 200]
    random.Random(1).shuffle(sources)
    sources = sources[:DISTILLED]
    translations = load(teacher, device or "cpu").translate(sources, beam=4)
    write_pairs(work / "distilled.tsv", (pair for pair in zip(sources, translations, strict=True) if all(pair)))


if __name__ == "__main__":
    main()
