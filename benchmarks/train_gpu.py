"""Training on one GPU: the trainer of `seq2see train` against Hugging Face's Marian and GPT-2 or nanoGPT, all in one run.

Ours runs through `Trainer`, with batches built on the fly; the peers run compiled, in bf16 autocast with fused AdamW, on
padded batches of similar length that already lie on the GPU. Random tokens; sentence lengths are log-normal, as in news
(mean 27) or in everyday sentences (mean 10). The figure is real target tokens per second. `lengths` measures time and
memory of attention alone for sequences of 64 to 32,768 tokens. Ends in one JSON line.

    python benchmarks/train_gpu.py [--only news everyday gpt2 lengths] [--nanogpt model.py] [--picture lengths.png]
"""

import argparse
import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import Config
from seq2see.data.batch import Batch
from seq2see.data.batches import Batches, PairBatches, TextBatches
from seq2see.data.layout import Layout
from seq2see.data.store import TokenizedSide, TokenStore
from seq2see.model.attention import PackedKeys, attend, attention_reference
from seq2see.model.transformer import Transformer
from seq2see.train.parallel import World
from seq2see.train.presets import preset_config
from seq2see.train.trainer import Trainer

DEVICE = "cuda"
SPECIAL = SimpleNamespace(start=1, pad=0)
Step = Callable[[], int]  # makes one optimizer step and returns its real target tokens


@dataclass(frozen=True)
class Workload:
    name: str
    preset: str
    mean: float  # median length of a sentence
    spread: float
    batch_tokens: int


PAIRS = [Workload("news", "paper-base", 24, 0.5, 25_000), Workload("everyday", "paper-base", 9, 0.35, 25_000)]


def sentence_lengths(work: Workload, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    source = np.exp(random.normal(math.log(work.mean), work.spread, count)).round().clip(2, 120)
    target = (source * np.exp(random.normal(0, 0.15, count))).round().clip(2, 120)
    return source.astype(np.int64), target.astype(np.int64)


def side(lengths: np.ndarray, vocab_size: int) -> TokenizedSide:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenizedSide(np.random.default_rng(1).integers(3, vocab_size, offsets[-1]).astype(np.uint16), offsets)


def seq2see_step(config: Config, batches: Batches) -> Step:
    model = Transformer(config.model).to(DEVICE)
    trainer = Trainer(config, model, batches, World(torch.device(DEVICE)))
    build, targets = batches.batch, {}

    def count_targets(epoch: int, number: int) -> Batch:
        batch = build(epoch, number)
        targets[epoch, number] = batch.num_targets
        return batch

    batches.batch = count_targets  # type: ignore[method-assign]

    def step() -> int:
        position = trainer.state.epoch, trainer.state.batch
        trainer.step()
        return targets.pop(position)

    return step


def pairs_step(work: Workload) -> Step:
    config = preset_config(work.preset)
    config = replace(config, train=replace(config.train, batch_tokens=work.batch_tokens, steps=10_000))
    vocab_size = config.model.vocab_size
    store = TokenStore(Path(), tuple(side(lengths, vocab_size) for lengths in sentence_lengths(work, 200_000)))
    return seq2see_step(config, PairBatches(store, work.batch_tokens, SPECIAL, max_length=256, static=True))  # type: ignore[arg-type]


def marian_step(work: Workload, count: int = 3) -> Step:
    config = transformers.MarianConfig(
        vocab_size=37000,
        pad_token_id=0,
        decoder_start_token_id=1,
        activation_function="relu",
        scale_embedding=True,
        attn_implementation="sdpa",
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        d_model=512,
    )
    model = transformers.MarianMTModel(config).to(DEVICE)
    batches: list[tuple[Tensor, Tensor, int]] = []
    for lengths in grouped(work, count):
        tables = []
        for row in lengths:
            size = torch.tensor(row, device=DEVICE)
            ids = torch.randint(3, config.vocab_size, (len(row), int(size.max())), device=DEVICE)
            tables.append(ids.masked_fill(torch.arange(ids.shape[1], device=DEVICE) >= size[:, None], 0))
        batches.append((tables[0], tables[1], int(sum(lengths[1]))))

    @torch.compile(dynamic=False)
    def loss(source: Tensor, target: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(
                input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target, use_cache=False
            )
            return F.cross_entropy(
                out.logits.flatten(0, 1).float(), target.flatten(), ignore_index=0, label_smoothing=0.1
            )

    return peer_step(
        model, lambda number: loss(*batches[number % count][:2]), lambda number: batches[number % count][2]
    )


def grouped(work: Workload, count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Batches of similar length that fill the token budget on either side."""
    source, target = sentence_lengths(work, 200_000)
    order = np.lexsort((np.minimum(source, target), np.maximum(source, target)))
    for start in np.linspace(0, len(order) - work.batch_tokens, count).astype(int):
        chosen = order[start : start + work.batch_tokens]
        sizes = np.maximum(np.cumsum(source[chosen]), np.cumsum(target[chosen]))
        chosen = chosen[sizes <= work.batch_tokens]
        yield source[chosen].tolist(), target[chosen].tolist()


def peer_step(model: nn.Module, loss: Callable[[int], Tensor], tokens: Callable[[int], int]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    number = -1

    def step() -> int:
        nonlocal number
        number += 1
        loss(number).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return tokens(number)

    return step


def gpt2_step(batch_tokens: int) -> Step:
    config = preset_config("gpt2")
    model = replace(config.model, dropout=0.0, attention_dropout=0.0)
    train = replace(config.train, batch_tokens=batch_tokens, label_smoothing=0.0, steps=10_000)
    config = replace(config, model=model, train=train)
    store = TokenStore(Path(), (side(np.array([batch_tokens * 200]), config.model.vocab_size),))
    batches = TextBatches(store, batch_tokens, SPECIAL, context=config.model.max_positions, static=True)  # type: ignore[arg-type]
    return seq2see_step(config, batches)


def nanogpt_step(file: Path, batch_tokens: int) -> Step:
    spec = importlib.util.spec_from_file_location("nanogpt_model", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    model = module.GPT(module.GPTConfig(dropout=0.0)).to(DEVICE)
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), DEVICE)
    compiled = torch.compile(model)
    ids = torch.randint(50257, (batch_tokens // 1024, 1025), device=DEVICE)

    def step() -> int:  # as in nanoGPT's train.py
        with torch.autocast(DEVICE, torch.bfloat16):
            _, loss = compiled(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return batch_tokens

    return step


def huggingface_gpt2_step(batch_tokens: int) -> Step:
    config = transformers.GPT2Config(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, attn_implementation="sdpa")
    model = transformers.GPT2LMHeadModel(config).to(DEVICE)
    ids = torch.randint(50257, (batch_tokens // 1024, 1024), device=DEVICE)

    @torch.compile(dynamic=False)
    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(ids, use_cache=False).logits
            return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())

    return peer_step(model, lambda _: loss(), lambda _: batch_tokens)


def attention_by_length() -> list[dict[str, float]]:
    """Time and memory of one causal attention, forward and backward, over 32,768 tokens in sequences of each length."""
    tokens, heads, width = 32_768, 8, 64
    rows = []
    for length in (2**n for n in range(6, 16)):
        layout = Layout.from_lengths([length] * (tokens // length)).to(DEVICE)
        q, k, v, gradient = (
            torch.randn(tokens, heads, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(4)
        )
        row: dict[str, float] = {"length": length}
        for name, attention in (("fast", attend), ("reference", attention_reference)):
            if name == "reference" and length > 4096:  # its memory grows with the square
                continue

            def run(attention: Callable[..., Tensor] = attention) -> None:
                torch.autograd.grad(attention(q, layout, PackedKeys(k, v, layout, True)), (q, k, v), gradient)  # noqa: B023

            run()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            for _ in range(5):
                run()
            torch.cuda.synchronize()
            row[f"{name}_ms"] = round((time.perf_counter() - start) / 5e-3, 3)
            row[f"{name}_mib"] = (torch.cuda.max_memory_allocated() - before) >> 20
        rows.append(row)
        print(row, flush=True)
    return rows


def draw_lengths(rows: list[dict[str, float]], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, quantity, label in ((axes[0], "ms", "milliseconds"), (axes[1], "mib", "MiB")):
        for name in ("fast", "reference"):
            points = [(row["length"], row[f"{name}_{quantity}"]) for row in rows if f"{name}_{quantity}" in row]
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="tokens per sequence", ylabel=label)
        axis.set_xscale("log", base=2)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def compare(name: str, contenders: dict[str, Step], rounds: int, steps: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {contender: [] for contender in contenders}
    for contender, step in contenders.items():
        start = time.perf_counter()
        for _ in range(3 * steps):
            step()
        torch.cuda.synchronize()
        print(f"{name}, {contender}: warmed up in {time.perf_counter() - start:.0f} s", flush=True)
    for _ in range(rounds):
        for contender, step in contenders.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            tokens = sum(step() for _ in range(steps))
            torch.cuda.synchronize()
            rates[contender].append(tokens / (time.perf_counter() - start))
    median = {contender: round(statistics.median(values)) for contender, values in rates.items()}
    ours, peer = list(median)
    ratio = statistics.median(a / b for a, b in zip(rates[ours], rates[peer], strict=True))
    print(f"{name}: {ours} {median[ours]:,} tokens/s, {peer} {median[peer]:,}: {ratio:.2f} ×", flush=True)
    return {"tokens_per_second": median, "ratio": round(ratio, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["news", "everyday", "gpt2", "lengths"], help="workloads to run")
    parser.add_argument("--picture", type=Path, help="draw the lengths into this file")
    parser.add_argument("--nanogpt", type=Path, help="nanoGPT's model.py; without it, the peer is Hugging Face's GPT-2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24, help="steps per round")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision("high")
    transformers.logging.set_verbosity_error()
    results: dict[str, Any] = {}
    for work in PAIRS:
        if work.name in options.only:
            contenders = {"seq2see": pairs_step(work), "Marian": marian_step(work)}
            results[work.name] = compare(work.name, contenders, options.rounds, options.steps)
            del contenders
            torch.cuda.empty_cache()
    if "gpt2" in options.only:
        tokens = 32_768
        peer = nanogpt_step(options.nanogpt, tokens) if options.nanogpt else huggingface_gpt2_step(tokens)
        contenders = {"seq2see": gpt2_step(tokens), "nanoGPT" if options.nanogpt else "Hugging Face": peer}
        results["gpt2"] = compare("gpt2", contenders, options.rounds, options.steps)
    if "lengths" in options.only:
        results["lengths"] = attention_by_length()
        if options.picture:
            draw_lengths(results["lengths"], options.picture)
    print(
        json.dumps(
            {"benchmark": "train_gpu", "device": torch.cuda.get_device_name(), "torch": torch.__version__, **results}
        )
    )


if __name__ == "__main__":
    main()
