"""Alignment error rate and ablation of each cross-attention head of a model: the table in docs/explaining.md.

    python recipes/heads.py [MODEL]

Computed on the test set of the built-in corpus; the drop in ln P of the reference translation is per sentence. Each head is
ablated twice, by zeros and by its own mean on the validation set: if both agree, the drop comes from what the head attends
to, not from a constant that later layers rely on.
"""

import hashlib
import sys

import torch
from torch.nn import functional as F

import seq2see
from seq2see import Packed, Selection, ablate_head, intervene, patch, trace
from seq2see.api import Model
from seq2see.course.sample_corpus import Pair, load_corpus
from seq2see.data.word_spans import wordpunct_spans
from seq2see.evaluate.alignment import GoldAlignment, GoldPairs, alignment_by_head, alignment_scores, best_heads
from seq2see.inspect.alignment import align_with
from seq2see.storage.bundled import GRAMMAR, find_model

Batch = tuple[Packed, Packed, torch.Tensor]


def main() -> None:
    directory = find_model(sys.argv[1] if len(sys.argv) > 1 else GRAMMAR)
    model, corpus = seq2see.load(directory), load_corpus()
    with (directory / "model.safetensors").open("rb") as file:
        print("weights", hashlib.file_digest(file, "sha256").hexdigest()[:12])
    test, valid = gold(corpus.test), gold(corpus.valid)
    for row in alignment_by_head(model, test):
        name = "mean" if row.layer_head.head is None else f"head {row.layer_head.head}"
        print(f"layer {row.layer_head.layer}, {name}: AER {100 * row.scores.aer:.1f}%")
    heads, valid_aer = best_heads(model, valid)
    test_aer = alignment_scores(align_with(model, test.pairs, [heads], test.split)[0], test.golds).aer
    print(
        "best heads",
        [(one.layer, one.head) for one in heads],
        f"AER {100 * valid_aer:.1f}%, test {100 * test_aer:.1f}%",
    )
    batch, other = packed(model, corpus.test), packed(model, corpus.valid)
    baseline = logprob(model, batch)
    print(f"ln P per sentence {baseline:.2f}")
    for layer in range(model.config.model.decoder_layers):
        attention = f"decoder.{layer}.cross"
        with torch.no_grad(), trace(model.network, only=f"{attention}.heads") as t:
            model.network(*other[:2])
        mean = torch.cat(tuple(t[f"{attention}.heads"])).mean(0)
        for head in range(model.config.model.heads):
            with intervene(model.network, ablate_head(attention, head)):
                zero = baseline - logprob(model, batch)
            with intervene(model.network, patch(f"{attention}.heads", mean, Selection(head=head))):
                mean_drop = baseline - logprob(model, batch)
            print(f"{attention}:{head} ln P drop {zero:.2f} with zeros, {mean_drop:.2f} with its mean", flush=True)
        with intervene(model.network, *(ablate_head(attention, head) for head in range(model.config.model.heads))):
            print(f"{attention}, all heads: ln P drop {baseline - logprob(model, batch):.2f} with zeros")


def gold(pairs: list[Pair]) -> GoldPairs:
    links = [frozenset(pair.alignment) for pair in pairs]
    return GoldPairs(
        tuple((p.source, p.target) for p in pairs), tuple(GoldAlignment(one, one) for one in links), wordpunct_spans
    )


def packed(model: Model, pairs: list[Pair]) -> Batch:
    source, target = model.tokenizers
    targets = [target.encode(pair.target) for pair in pairs]
    return (
        Packed.from_sequences([[*source.encode(pair.source), source.end] for pair in pairs]),
        Packed.from_sequences([[target.start, *ids] for ids in targets]),
        torch.tensor([id for ids in targets for id in (*ids, target.end)]),
    )


@torch.no_grad()
def logprob(model: Model, batch: Batch) -> float:
    source, target, labels = batch
    logits = model.network(source, target)
    return -float(F.cross_entropy(logits, labels, reduction="sum")) / len(source.layout)


if __name__ == "__main__":
    main()
