"""Trains the bundled translators: English to French on Tatoeba, English to Hindi on openly licensed text.

    python recipes/translators.py --data DIR --work DIR [--only en-fr] [--device cuda] [--out DIR]

One large teacher learns to translate English into French, German and Hindi; the target language stands before the sentence.
What it learns about English from the larger corpora helps where there is little text, in Hindi (Kocmi and Bojar, 2018). It
translates the training sentences and more English ones, and a small student per language learns from the corpus and from the
teacher (sequence-level distillation, Kim and Rush, 2016). Each stage is skipped if its result exists, so a stopped recipe
continues. Held-out Tatoeba sentences choose the weights and give the scores; no source sentence of theirs is trained on. At the
end a student is packed into a directory of `--out`, and translates everyday.txt, thirty sentences chosen before any training.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pack import pack
from pairs import Pair, hindi_parts, parallel, read_lines, read_tsv, source_key, split_by_source, variants, write_pairs
from recipe import RESULTS, Run, carry_out, parser, translate_lines, translation_test

from seq2see.api import load
from seq2see.config import DataConfig
from seq2see.course.sample_corpus import load_corpus
from seq2see.storage.bundled import BUNDLED, About

HELD_OUT = {"en-fr": 1500, "en-hi": 500}
DISTILLED = 300_000  # sentences for the teacher to translate
BOOK_LINES = 100_000  # lines of the books, of which sentences of 6 to 20 words are translated too
# Copies of each part per epoch.
HINDI_PARTS = {"tatoeba": 8, "samanantar": 2, "pratham": 4, "gita": 1, "lohelp": 1, "debian-ui": 1, "grammar": 1}
COMMON = (
    "train.warmup_steps=2000",
    "train.batch_tokens=16384",
    "train.patience=0",
    "model.norm_first=true",
    "train.weight_decay=0.01",
)
TEACHER = (
    *COMMON,
    "text.bpe_dropout=0.05",
    "train.average_checkpoints=8",
    "train.validate_every=500",
    "text.vocab_size=16000",
    "model.width=512",
    "model.heads=8",
    "model.encoder_layers=6",
    "model.decoder_layers=6",
    "model.feed_forward=2048",
    "model.dropout=0.25",
    "train.lr=1e-3",
    "train.snapshots=false",
    "train.steps=9000",
)
# 9 million parameters: at 8 bits they fit in 10 MB with the tokenizer. A deep encoder costs no time per word.
STUDENT = (
    *COMMON,
    "train.average_checkpoints=5",
    "train.validate_every=1000",
    "text.vocab_size=8000",
    "model.width=256",
    "model.heads=8",
    "model.encoder_layers=6",
    "model.decoder_layers=2",
    "model.feed_forward=1024",
    "model.dropout=0.1",
    "train.lr=2e-3",
    "train.steps=12000",
)

LIMITS = "Knows everyday sentences of up to about 20 words. Rare words, names of places, technical language and long sentences "
EXAMPLES = (
    "I like eating ice-cream.",
    "I like eating apples.",
    "Where is the library?",
    "The children are playing in the garden.",
    "Are you busy this evening?",
    "My brother lives in London.",
)
# The students learn from Tatoeba and from the translations of a teacher that learned from all of these.
SOURCES = (
    "Tatoeba",
    "Samanantar",
    "Pratham Books StoryWeaver",
    "Bhagavad Gita",
    "LibreOffice help",
    "Debian interface translations",
    "Built-in grammar",
    "Public-domain books",
)
ABOUT = {
    "en-fr": About(("en", "fr"), LIMITS + "go wrong.", EXAMPLES, SOURCES),
    "en-hi": About(
        ("en", "hi"),
        LIMITS + "often go wrong: there is little openly licensed English–Hindi text.",
        EXAMPLES,
        SOURCES,
    ),
}
EVERYDAY = Path(__file__).parent / "everyday.txt"


def main() -> None:
    command = parser(__doc__)
    command.add_argument("--out", type=Path, default=BUNDLED, help="directory for the packed models")
    options = command.parse_args()
    work, changes, options.set = options.work / "bundled", options.set, []
    prepare(options.data, work)
    carry_out("bundled", teacher_run(options.data, work), options)
    for name in options.only or HELD_OUT:
        distill(name, options.data, work, work / f"teacher-{options.seeds[0]}", options.device)
        options.set = changes
        carry_out("bundled", student_run(name, options.data, work), options)
        if not changes:
            pack(work / f"{name}-{options.seeds[0]}", options.out / name, ABOUT[name])
            translate_everyday(options.out / name)


def teacher_run(data: Path, work: Path) -> Run:
    files = DataConfig(pairs=(str(work / "teacher.train.tsv"),), valid_pairs=(str(work / "teacher.valid.tsv"),))
    tests = {
        f"{name}: {test}": translation_test(tagged(pairs, name))
        for name in HELD_OUT
        for test, pairs in test_sets(name, data, work).items()
    }
    return Run("teacher", files, "small", TEACHER, tests)


def student_run(name: str, data: Path, work: Path) -> Run:
    files = DataConfig(
        pairs=tuple(str(work / f"{name}.{part}.tsv") for part in ("train", "distilled")),
        valid_pairs=(str(work / f"{name}.valid.tsv"),),
    )
    return Run(name, files, "small", STUDENT, {k: translation_test(v) for k, v in test_sets(name, data, work).items()})


def test_sets(name: str, data: Path, work: Path) -> dict[str, list[Pair]]:
    if name == "en-fr":
        other = {"Multi30k val": parallel(data / "multi30k" / "val", "en", "fr")}
    else:
        other = {"Hindi Visual Genome dev": parallel(data / "en-hi" / "hvg-dev", "en", "hi")}
    return {"Tatoeba, held-out sources": read_tsv(work / f"{name}.test.tsv"), **other}


def tagged(pairs: Sequence[Pair], name: str) -> list[Pair]:
    """Puts the target language before each source, as the teacher needs it."""
    return [(f"{name[3:]}: {source}", target) for source, target in pairs]


def translate_everyday(model: Path) -> None:
    """Records what a packed model makes of the everyday sentences."""
    sources = read_lines(EVERYDAY)
    pairs = list(zip(sources, load(model).translate(sources, beam=5), strict=True))
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"recipe": "everyday", "run": model.name, "pairs": pairs}, indent=1, ensure_ascii=False)
    (RESULTS / f"everyday-{model.name}.json").write_text(text + "\n", encoding="utf-8")


def prepare(data: Path, work: Path) -> None:
    """Writes train, valid and test pairs of each student and of the teacher."""
    if (work / "teacher.train.tsv").exists():
        return
    french = split_by_source(parallel(data / "tatoeba" / "en-fr", "en", "fr"), HELD_OUT["en-fr"])
    parts = hindi_parts(data)
    hindi = split_by_source(parts["tatoeba"], HELD_OUT["en-hi"])
    held_out = {source_key(source) for sets in (french, hindi) for pairs in sets[1:] for source, _ in pairs}

    def allowed(pairs: Sequence[Pair]) -> list[Pair]:
        return [pair for pair in pairs if source_key(pair[0]) not in held_out]

    german = parallel(data / "tatoeba" / "en-de", "en", "de")
    training = {
        "en-fr": list(variants(allowed(french[0]), share=0.5, names=True)),
        "en-de": list(variants(allowed(german), share=0.5, names=True)),
        "en-hi": hindi_training({name: allowed(pairs) for name, pairs in (parts | {"tatoeba": hindi[0]}).items()}),
    }
    chance, all_languages = random.Random(1), []
    for name, pairs in training.items():
        chance.shuffle(pairs)
        write_pairs(work / f"{name}.train.tsv", pairs)
        all_languages += tagged(pairs, name)
    chance.shuffle(all_languages)
    for name, (_, valid, test) in (("en-fr", french), ("en-hi", hindi)):
        write_pairs(work / f"{name}.valid.tsv", valid)
        write_pairs(work / f"{name}.test.tsv", test)
    write_pairs(work / "teacher.valid.tsv", [*tagged(french[1][:500], "en-fr"), *tagged(hindi[1], "en-hi")])
    write_pairs(work / "teacher.train.tsv", all_languages)


def hindi_training(parts: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    parts = {
        **parts,
        "grammar": [(pair.source, pair.target) for pair in load_corpus().train[:8000]],
        "debian-ui": [pair for pair in parts["debian-ui"] if is_sentence(pair)],
    }
    training: list[Pair] = []
    for name, copies in HINDI_PARTS.items():
        share = 0.5 if name in ("tatoeba", "grammar") else 0.0
        for seed in range(copies):
            training += variants(parts[name], share, names=False, seed=seed)
    return training


def is_sentence(pair: Pair) -> bool:
    """Whether a text of a user interface is a phrase without codes and shortcuts."""
    return len(pair[0].split()) >= 3 and not any(mark in pair[0] for mark in "%_&$<>{}\\|@=/")


def distill(name: str, data: Path, work: Path, teacher: Path, device: str) -> None:
    """Writes the teacher's translations of the training sources and of more English sentences."""
    distilled = work / f"{name}.distilled.tsv"
    if distilled.exists():
        return
    held_out = {source_key(source) for part in ("valid", "test") for source, _ in read_tsv(work / f"{name}.{part}.tsv")}
    sources = {source for source, _ in read_tsv(work / f"{name}.train.tsv")}
    sources |= {line for code in ("en-fr", "en-de") for line in read_lines(data / "tatoeba" / f"{code}.en")}
    sources |= set(book_sentences(data))
    chosen = sorted(source for source in sources if len(source) < 200 and source_key(source) not in held_out)
    random.Random(1).shuffle(chosen)
    chosen = chosen[:DISTILLED]
    tagged_sources = [f"{name[3:]}: {source}" for source in chosen]
    translations = translate_lines(load(teacher, device or "cpu"), tagged_sources, beam=4)
    write_pairs(distilled, (pair for pair in zip(chosen, translations, strict=True) if all(pair)))


def book_sentences(data: Path) -> list[str]:
    """Returns sentences of moderate length from the public-domain books, for words that everyday sentences do not have."""
    text = " ".join(read_lines(data / "lm" / "books-train.txt")[:BOOK_LINES])
    sentences = re.findall(r"(?<=[.!?] )[A-Z][^.!?\"_;:()\[\]]+[.!?](?= [A-Z\"])", text)
    return [sentence for sentence in sentences if 6 <= len(sentence.split()) <= 20]


if __name__ == "__main__":
    main()
