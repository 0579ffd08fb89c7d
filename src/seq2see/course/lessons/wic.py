"""Words in context (WiC): does a word mean the same in two sentences?

A cosine above a threshold says yes. The threshold is chosen on one set and tried on the other, at every place of the model
that has a vector of each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.text.token_spans import Span
from seq2see.text.word_spans import spaced

BATCH = 64  # sentences that go through the model at a time

Marked = tuple[str, Span]  # a sentence, and where the word stands in it


@dataclass(frozen=True)
class WiC:
    places: tuple[str, ...]
    thresholds: tuple[float, ...]  # chosen on train
    train: tuple[float, ...]  # accuracies
    dev: tuple[float, ...]
    pairs: int  # of dev
    yes: float  # share of the larger answer on dev: what always saying it gives


@dataclass(frozen=True)
class _Pairs:
    first: list[Marked]
    second: list[Marked]
    same: Tensor  # [pairs] bool


def wic_accuracy(model: Model, folder: Path, places: Sequence[str]) -> WiC:
    """On the files train.data.txt, train.gold.txt, dev.data.txt and dev.gold.txt of a folder."""
    train, dev = _read(folder, "train"), _read(folder, "dev")
    near, near_dev = _cosines(model, train, places), _cosines(model, dev, places)  # [places, pairs]
    found = [_threshold(row, train.same) for row in near]
    on_dev = [float(((row > t) == dev.same).float().mean()) for row, (t, _) in zip(near_dev, found, strict=True)]
    yes = float(dev.same.float().mean())
    return WiC(
        tuple(places),
        tuple(t for t, _ in found),
        tuple(a for _, a in found),
        tuple(on_dev),
        len(dev.same),
        max(yes, 1 - yes),
    )


def _read(folder: Path, name: str) -> _Pairs:
    try:
        lines, answers = (
            (folder / f"{name}.{kind}.txt").read_text(encoding="utf-8").splitlines() for kind in ("data", "gold")
        )
    except OSError as error:
        raise UserError(f"cannot read WiC from {folder}: {error.strerror} ({error.filename})") from error
    if len(lines) != len(answers):
        raise UserError(
            f"{folder}: {len(lines)} pairs in {name}.data.txt, but {len(answers)} answers in {name}.gold.txt"
        )
    first, second = [], []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) != 5:
            raise UserError(f"{folder}/{name}.data.txt, line {number}: {len(cells)} columns, expected 5")
        one, other = cells[2].split("-")
        first.append((cells[3], spaced(cells[3])[int(one)]))
        second.append((cells[4], spaced(cells[4])[int(other)]))
    return _Pairs(first, second, torch.tensor([answer.strip() == "T" for answer in answers]))


def _cosines(model: Model, pairs: _Pairs, places: Sequence[str]) -> Tensor:
    one, other = (_vectors(model, side, places) for side in (pairs.first, pairs.second))
    return F.cosine_similarity(one, other, dim=-1)


@torch.no_grad()
def _vectors(model: Model, marked: Sequence[Marked], places: Sequence[str]) -> Tensor:
    """The mean vector of the pieces of each marked word, [places, sentences, width]."""
    tokenizer, has_encoder = model.tokenizers[0], model.config.model.has_encoder
    made = []
    for start in range(0, len(marked), BATCH):
        chosen = marked[start : start + BATCH]
        pieces = [tokenizer.pieces(sentence) for sentence, _ in chosen]
        ids = [[piece.id for piece in own] for own in pieces]
        with trace(model.network, only=places) as t:
            if has_encoder:
                packed = Packed.of([[*own, tokenizer.end] for own in ids])
                model.network.encode(packed, model.network.taps())
            else:
                model.network(Packed.of([[tokenizer.start, *own] for own in ids]))
        for number, (_, (a, b)) in enumerate(chosen):
            rows = [i + (not has_encoder) for i, p in enumerate(pieces[number]) if p.start < b and a < p.end]
            made.append(torch.stack([t[place, number][rows].mean(0) for place in places]))
    return torch.stack(made, dim=1)


def _threshold(near: Tensor, same: Tensor) -> tuple[float, float]:
    """The cosine that parts the two answers best, and its accuracy."""
    ordered, index = near.sort()
    yes = same[index].float()
    # With the threshold after the i-th, all before are answered no and all behind yes.
    right = (
        torch.cat([yes.new_zeros(1), (1 - yes).cumsum(0)]) + yes.sum() - torch.cat([yes.new_zeros(1), yes.cumsum(0)])
    )
    best = int(right.argmax())
    threshold = ordered[best - 1] if best else ordered[0] - 1
    return float(threshold), float(right[best] / len(near))
