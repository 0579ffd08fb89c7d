"""Language models: tinyshakespeare by characters, and public-domain books compared with Hugging Face's GPT-2 of the same size.

    python recipes/language_models.py --data DIR --work DIR --only shakespeare --seeds 1 2 3

nanoGPT publishes a validation loss of 1.4697 on tinyshakespeare. `books` is the bundled language model;
`--out` packs it. Its peer is in books_peer.py.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pack import pack
from pairs import read_lines
from recipe import Run, Scores, carry_out, parser

from seq2see.api import Model
from seq2see.config import DataConfig
from seq2see.data.corpus import plain_text
from seq2see.evaluate.language_model import evaluate_language_model
from seq2see.storage.bundled import BUNDLED, LANGUAGE_MODEL, About

SHAKESPEARE = ("text.tokenizer=character", "text.vocab_size=200", "train.steps=2500")
# 9.5 million parameters, so that they fit in 10 MB at 8 bits with the tokenizer.
BOOKS = (
    "text.vocab_size=8000",
    "model.width=256",
    "model.heads=8",
    "model.decoder_layers=9",
    "model.feed_forward=1024",
    "model.positions=rotary",
    "model.max_positions=256",
    "model.dropout=0.1",
    "model.attention_dropout=0.0",
    "train.batch_tokens=65536",
    "train.steps=5000",
    "train.lr=2e-3",
    "train.warmup_steps=500",
    "train.schedule=cosine",
    "train.weight_decay=0.1",
    "train.label_smoothing=0",
)
SETTINGS = {"shakespeare": SHAKESPEARE, LANGUAGE_MODEL: BOOKS}

ABOUT = About(
    ("en",),
    "Continues English prose in the style of the 18th to early 20th century. It knows few facts and cannot chat.",
    ("Once upon a time", "The old man looked at the", "She opened the door and"),
    ("Public-domain books",),
)


def main() -> None:
    command = parser(__doc__)
    command.add_argument("--out", type=Path, default=BUNDLED, help="directory for the packed model")
    options = command.parse_args()
    for run in runs(options.data, options.work / "language-models", options.only or list(SETTINGS)):
        carry_out("language-models", run, options)
        if run.name == LANGUAGE_MODEL and not options.set:
            trained = options.work / "language-models" / f"{run.name}-{options.seeds[0]}"
            pack(trained, options.out / run.name, ABOUT)


def runs(data: Path, work: Path, names: Sequence[str]) -> Sequence[Run]:
    work.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        if name == "shakespeare":
            plays = (data / "lm" / "tinyshakespeare.txt").read_text(encoding="utf-8")
            split = len(plays) * 9 // 10
            texts = [plays[:split], plays[split:]]
        else:
            texts = ["\n".join(read_lines(data / "lm" / f"books-{part}.txt")) for part in ("train", "valid")]
        files = [work / f"{name}.{part}.txt" for part in ("train", "valid")]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        config = DataConfig(text=(str(files[0]),), valid_text=(str(files[1]),), boundaries="file")
        found.append(Run(name, config, "baby-gpt", SETTINGS[name], {"valid": language_model_test(files[1])}))
    return found


def language_model_test(file: Path) -> Callable[[Model], Scores]:
    def test(model: Model) -> Scores:
        result = evaluate_language_model(model, plain_text([file], "file"))
        return {"loss": round(result.loss, 4), "bits_per_byte": round(result.bits_per_byte, 4), "tokens": result.tokens}

    return test


if __name__ == "__main__":
    main()
