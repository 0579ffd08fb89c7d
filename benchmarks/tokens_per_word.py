"""Tokens per word: byte-level BPE with our pre-tokenizer against GPT-2's, trained on the same text.

    python benchmarks/tokens_per_word.py --data DIR      # DIR/en-hi/{hvg-train.*.xz, hvg-dev.*, train.tsv.xz}

Words are separated by whitespace. Ends in one JSON line.
"""

import argparse
import json
import lzma
import random
from collections.abc import Sequence
from pathlib import Path

import tokenizers as hf
from tokenizers import models, pre_tokenizers, trainers

from seq2see.data.tokenizer import Tokenizer

VOCAB_SIZE = 8000
HELD_OUT = 5000


def read_lines(path: Path) -> list[str]:
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return content.decode().removesuffix("\n").split("\n")


def train_gpt2_style(texts: Sequence[str]) -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=["<pad>", "<start>", "<end>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokens_per_word(tokens: int, texts: Sequence[str]) -> float:
    return round(tokens / sum(len(text.split()) for text in texts), 3)


def compare(name: str, train: Sequence[str], tests: dict[str, list[str]]) -> list[dict[str, object]]:
    tokenizer, gpt2 = Tokenizer.train(train, vocab_size=VOCAB_SIZE), train_gpt2_style(train)
    rows = []
    for language, texts in tests.items():
        ours = tokens_per_word(len(tokenizer.encode_batch(texts).tokens), texts)
        theirs = tokens_per_word(sum(len(encoding.ids) for encoding in gpt2.encode_batch(texts)), texts)
        ratio = round(theirs / ours, 2)
        print(f"{name:<28} {language:<8} seq2see {ours:.3f}   GPT-2's regex {theirs:.3f}   ratio {ratio:.2f}")
        rows.append({"text": name, "language": language, "seq2see": ours, "gpt2": theirs, "ratio": ratio})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data / "en-hi"
    sides = {"English": "en", "Hindi": "hi"}
    hvg = [line for side in sides.values() for line in read_lines(folder / f"hvg-train.{side}.xz")]
    rows = compare(
        "Hindi Visual Genome, dev", hvg, {name: read_lines(folder / f"hvg-dev.{x}") for name, x in sides.items()}
    )

    pairs = [line.split("\t")[1:] for line in read_lines(folder / "train.tsv.xz")]
    random.Random(0).shuffle(pairs)
    held_out, train = pairs[:HELD_OUT], [text for pair in pairs[HELD_OUT:] for text in pair]
    tests = {name: [pair[i] for pair in held_out] for i, name in enumerate(sides)}
    rows += compare(f"all the data, {HELD_OUT:,} held out", train, tests)
    print(json.dumps({"vocab_size": VOCAB_SIZE, "tokens per word": rows}))


if __name__ == "__main__":
    main()
