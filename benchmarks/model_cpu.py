"""Model throughput on a CPU: seq2see against torch.nn.Transformer and Hugging Face's Marian of the same size.

seq2see packs sentences. The peers pad them, in batches made in three ways: at random (the Trainer's default), grouped by length
(the Trainer's option: random megabatches, each sorted) and sorted completely. The metric is source and target tokens per
second, without padding. All contenders take turns in every round, so that noise affects them alike. The last line of the
output is JSON.

    python benchmarks/model_cpu.py [--data DIR] [--size small]       # DIR/multi30k/train.{en,de}.xz; default: synthetic lengths
"""

import argparse
import json
import lzma
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.data.layout import Packed
from seq2see.model.positions import sinusoids
from seq2see.model.transformer import Transformer

VOCAB_SIZE = 8000
BATCH = 130  # sentences per padded batch; a packed batch has as many tokens
Sentences = list[tuple[list[int], list[int]]]
Step = Callable[[Sentences], Tensor]  # returns the summed loss of a batch


def sentence_lengths(data: Path | None, count: int) -> list[tuple[int, int]]:
    random = np.random.default_rng(0)
    if data is None:
        source = np.exp(random.normal(math.log(13), 0.32, count)).round().clip(3, 60).astype(int)
        target = (source * np.exp(random.normal(0, 0.12, count))).round().clip(3, 60).astype(int)
        return list(zip(source.tolist(), target.tolist(), strict=True))
    sides = []
    for language in ("en", "de"):
        with lzma.open(data / "multi30k" / f"train.{language}.xz", "rt", encoding="utf-8") as file:
            sides.append([len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in file])
    pairs = list(zip(*sides, strict=True))
    return [pairs[i] for i in random.choice(len(pairs), count, replace=False)]


def make_corpus(data: Path | None, count: int) -> Sentences:
    random = np.random.default_rng(1)
    return [tuple(random.integers(3, VOCAB_SIZE, n).tolist() for n in pair) for pair in sentence_lengths(data, count)]


def consecutive_batches(corpus: Sentences) -> Iterator[Sentences]:
    """Cuts a corpus, which is in random order unless sorted, into batches."""
    for start in range(0, len(corpus), BATCH):
        yield corpus[start : start + BATCH]


def grouped_batches(corpus: Sentences) -> Iterator[Sentences]:
    """Like group_by_length of transformers: random megabatches of 50 batches, each sorted by source length."""
    for start in range(0, len(corpus), 50 * BATCH):
        yield from consecutive_batches(sorted(corpus[start : start + 50 * BATCH], key=lambda pair: -len(pair[0])))


def sorted_batches(corpus: Sentences) -> Iterator[Sentences]:
    yield from consecutive_batches(sorted(corpus, key=lambda pair: (len(pair[1]), len(pair[0]))))


def packed_batches(corpus: Sentences) -> Iterator[Sentences]:
    """Batches of similar lengths, filled up to the mean number of target tokens of a padded batch."""
    budget = BATCH * statistics.mean(len(target) for _, target in corpus)
    batch: Sentences = []
    size = 0
    for pair in sorted(corpus, key=lambda pair: (len(pair[1]), len(pair[0]))):
        if size + len(pair[1]) > budget:
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += len(pair[1])
    yield batch


def shift_right(target: list[int]) -> list[int]:
    return [1, *target[:-1]]


def seq2see_model(config: ModelConfig) -> tuple[nn.Module, Step]:
    model = Transformer(config)

    def step(batch: Sentences) -> Tensor:
        source = Packed.from_sequences([s for s, _ in batch])
        target = Packed.from_sequences([shift_right(t) for _, t in batch])
        labels = torch.tensor([token for _, t in batch for token in t])
        return F.cross_entropy(model(source, target), labels, reduction="sum")

    return model, step


def pad(sequences: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in sequences], batch_first=True)


def padded_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum")


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings and positions, which it does not include."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.register_buffer("waves", sinusoids(config.max_positions, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.body = nn.Transformer(
            config.width,
            config.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.feed_forward,
            config.dropout,
            batch_first=True,
        )

    waves: Tensor

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim) + self.waves[: tokens.shape[1]]
        return self.dropout(x)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        padding = source == 0
        x = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(x, self.embedding.weight)


def torch_transformer(config: ModelConfig) -> tuple[nn.Module, Step]:
    model = TorchTransformer(config)

    def step(batch: Sentences) -> Tensor:
        source, target = pad([s for s, _ in batch]), pad([shift_right(t) for _, t in batch])
        return padded_loss(model(source, target), pad([t for _, t in batch]))

    return model, step


def marian(config: ModelConfig) -> tuple[nn.Module, Step]:
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.width,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward,
            activation_function="relu",
            dropout=config.dropout,
            scale_embedding=True,
            pad_token_id=0,
            decoder_start_token_id=1,
            attn_implementation="sdpa",
        )
    )

    def step(batch: Sentences) -> Tensor:
        source, target = pad([s for s, _ in batch]), pad([shift_right(t) for _, t in batch])
        out = model(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target, use_cache=False)
        return padded_loss(out.logits, pad([t for _, t in batch]))

    return model, step


@dataclass
class Contender:
    name: str
    model: nn.Module
    step: Step
    batches: list[Sentences]
    seconds: dict[str, list[float]]

    def run(self, backward: bool) -> float:
        self.model.train(backward)
        start = time.perf_counter()
        with torch.set_grad_enabled(backward):
            for batch in self.batches:
                loss = self.step(batch)
                if backward:
                    self.model.zero_grad()
                    loss.backward()
        return time.perf_counter() - start


def measure(
    name: str, config: ModelConfig, corpus: Sentences, rounds: int, peer_only: str = ""
) -> list[dict[str, object]]:
    tokens = sum(len(source) + len(target) for source, target in corpus)
    batchings = {"random": consecutive_batches, "grouped": grouped_batches, "sorted": sorted_batches}
    model, step = seq2see_model(config)
    contenders = [Contender("seq2see", model, step, list(packed_batches(corpus)), {"forward": [], "training": []})]
    for peer, build in (("torch.nn.Transformer", torch_transformer), ("Marian", marian)):
        if peer_only not in ("", peer):
            continue
        model, step = build(config)
        for batching, make_batches in batchings.items():
            times: dict[str, list[float]] = {"forward": [], "training": []}
            contenders.append(Contender(f"{peer}, {batching}", model, step, list(make_batches(corpus)), times))
    for turn in range(rounds + 1):  # the first round is warm-up
        for contender in contenders:
            for mode in ("forward", "training"):
                seconds = contender.run(backward=mode == "training")
                if turn:
                    contender.seconds[mode].append(seconds)
    rows: list[dict[str, object]] = []
    print(f"\n{name}: {len(corpus):,} sentences, {tokens:,} tokens without padding", flush=True)
    print(f"{'':32}{'forward':>12}{'ratio':>8}{'forward+backward':>20}{'ratio':>8}")
    for contender in contenders:
        row: dict[str, object] = {"size": name, "contender": contender.name}
        line = f"{contender.name:32}"
        for mode, width in (("forward", 12), ("training", 20)):
            # Contenders of one round ran under the same load; the median over rounds discards outliers.
            ratios = [
                theirs / ours for theirs, ours in zip(contender.seconds[mode], contenders[0].seconds[mode], strict=True)
            ]
            rate = tokens / statistics.median(contender.seconds[mode])
            row[f"{mode}_tokens_per_second"], row[f"{mode}_ratio"] = round(rate), round(statistics.median(ratios), 2)
            line += f"{rate:{width},.0f}{statistics.median(ratios):8.2f}"
        rows.append(row)
        print(line, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory that contains multi30k/train.{en,de}.xz")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--sentences", type=int, default=BATCH * 8, help="number of sentences")
    parser.add_argument("--peer", choices=("torch.nn.Transformer", "Marian"), default="", help="run only this peer")
    parser.add_argument("--size", choices=("small", "base"), help="run only this size")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    corpus = make_corpus(options.data, options.sentences)
    sizes = {
        "small": (
            "3+3 layers, width 256",
            ModelConfig(
                vocab_size=VOCAB_SIZE, width=256, heads=4, encoder_layers=3, decoder_layers=3, feed_forward=1024
            ),
        ),
        "base": ("6+6 layers, width 512", ModelConfig(vocab_size=VOCAB_SIZE)),
    }
    selected = [options.size] if options.size else list(sizes)
    rows = [row for size in selected for row in measure(*sizes[size], corpus, options.rounds, options.peer)]
    environment = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    print(json.dumps({"benchmark": "model_cpu", **environment, "rows": rows}))


if __name__ == "__main__":
    main()
