"""What the cross-attention heads of a model look like and what they are worth: the table in docs/explaining.md.

    python recipes/heads.py [MODEL]

On the built-in corpus's test set: the alignment error rate of each head, and how much of ln P of the right translation is
lost without it, a sentence. A head is taken out twice, by zeros and by its own mean on the validation set: where the two
agree, what was lost is what the head found, not a constant that the layers after it had come to expect.
"""

import hashlib
import sys

import torch
from torch.nn import functional as F

import seq2see
from seq2see import Packed, Where, intervene, patching, trace, without
from seq2see.api import Model
from seq2see.course.grammar import Pair, sample
from seq2see.directory import BUNDLED
from seq2see.evaluate.translation import alignment_by_view
from seq2see.inspect.alignment import align_by, best_heads
from seq2see.metrics.alignment import Gold, GoldPairs, alignment_scores
from seq2see.text.word_spans import marks_apart

Batch = tuple[Packed, Packed, torch.Tensor]


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else str(BUNDLED)
    model, corpus = seq2see.load(folder), sample()
    with open(f"{folder}/model.safetensors", "rb") as file:
        print("weights", hashlib.file_digest(file, "sha256").hexdigest()[:12])
    test, valid = gold(corpus.test), gold(corpus.valid)
    for row in alignment_by_view(model, test):
        name = "mean" if row.view.head is None else f"head {row.view.head}"
        print(f"layer {row.view.layer}, {name}: AER {100 * row.scores.aer:.1f}%")
    views, on_valid = best_heads(model, valid)
    on_test = alignment_scores(align_by(model, test.pairs, [views], test.split)[0], test.golds).aer
    print(
        "best heads",
        [(view.layer, view.head) for view in views],
        f"AER {100 * on_valid:.1f}%, test {100 * on_test:.1f}%",
    )
    batch, other = packed(model, corpus.test), packed(model, corpus.valid)
    whole = logprob(model, batch)
    print(f"ln P of a sentence {whole:.2f}")
    for layer in range(model.config.model.decoder_layers):
        place = f"decoder.{layer}.cross"
        with torch.no_grad(), trace(model.network, only=f"{place}.heads") as t:
            model.network(*other[:2])
        mean = t[f"{place}.heads"].mean(0)
        for head in range(model.config.model.heads):
            with intervene(model.network, without(place, head)):
                zero = whole - logprob(model, batch)
            with intervene(model.network, patching(f"{place}.heads", mean, Where(head=head))):
                steady = whole - logprob(model, batch)
            print(f"{place}:{head} lost {zero:.2f} by zeros, {steady:.2f} by its mean", flush=True)
        with intervene(model.network, *(without(place, head) for head in range(model.config.model.heads))):
            print(f"{place}, all heads: lost {whole - logprob(model, batch):.2f} by zeros")


def gold(pairs: list[Pair]) -> GoldPairs:
    links = [frozenset(pair.alignment) for pair in pairs]
    return GoldPairs(tuple((p.source, p.target) for p in pairs), tuple(Gold(one, one) for one in links), marks_apart)


def packed(model: Model, pairs: list[Pair]) -> Batch:
    source, target = model.tokenizers
    written = [target.encode(pair.target) for pair in pairs]
    return (
        Packed.of([[*source.encode(pair.source), source.end] for pair in pairs]),
        Packed.of([[target.start, *ids] for ids in written]),
        torch.tensor([id for ids in written for id in (*ids, target.end)]),
    )


@torch.no_grad()
def logprob(model: Model, batch: Batch) -> float:
    source, target, following = batch
    logits = model.network(source, target)
    return -float(F.cross_entropy(logits, following, reduction="sum")) / len(source.layout)


if __name__ == "__main__":
    main()
