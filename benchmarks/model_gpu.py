"""One training step of transformer-base on a GPU: ours against Hugging Face's Marian, both compiled, in one run.

Forward, loss, backward and fused AdamW in bf16 autocast, on batches of sentences of like length (a seeded log-normal
with a mean of 27 tokens, as WMT has). Ours packs them into static shapes; theirs are padded to one shape per batch. What
counts is real target tokens a second. Ends in one JSON line.

    python benchmarks/model_gpu.py [--budget 25000]
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.layout import Layout, Packed
from seq2see.model.transformer import Transformer
from seq2see.presets import preset

DEVICE = "cuda"
Lengths = list[tuple[int, int]]


def batches(budget: int, count: int) -> Iterator[Lengths]:
    """Batches of like length, each with as many sentences as the budget holds on either side."""
    random = np.random.default_rng(0)
    source = np.exp(random.normal(math.log(24), 0.5, 200_000)).round().clip(2, 120).astype(int)
    target = (source * np.exp(random.normal(0, 0.15, len(source)))).round().clip(2, 120).astype(int)
    pairs = sorted(zip(source.tolist(), target.tolist(), strict=True), key=lambda pair: (max(pair), min(pair)))
    starts = np.linspace(0, len(pairs) - budget, count).astype(int)
    for start in random.permutation(starts):
        batch: Lengths = []
        sizes = np.zeros(2, dtype=int)
        while (sizes + pairs[start + len(batch)] <= budget).all():
            sizes += pairs[start + len(batch)]
            batch.append(pairs[start + len(batch)])
        yield batch


def static(lengths: list[int], budget: int, sequences: int) -> Layout:
    """Filled up to the budget by sequences no longer than the others, and to a fixed number by empty ones."""
    longest = math.ceil(max(lengths) / 32) * 32
    left = budget - sum(lengths)
    tail = [longest] * (left // longest) + [left % longest]
    return Layout.of([*lengths, *tail, *[0] * (sequences - len(lengths) - len(tail))], longest)


def run_ours(all_batches: list[Lengths], budget: int) -> Callable[[int], Tensor]:
    model = Transformer(preset("paper-base")).to(DEVICE)
    vocabulary = model.config.vocabulary
    sequences = max(map(len, all_batches)) + 64
    inputs: list[tuple[Packed, Packed, Tensor]] = []
    for batch in all_batches:
        sides = []
        for side in (0, 1):
            layout = static([pair[side] for pair in batch], budget, sequences).to(DEVICE)
            sides.append(Packed(torch.randint(vocabulary, (budget,), device=DEVICE), layout))
        labels = torch.randint(vocabulary, (budget,), device=DEVICE)
        labels[sum(pair[1] for pair in batch) :] = -100
        inputs.append((sides[0], sides[1], labels))

    @torch.compile(fullgraph=True, dynamic=False)
    def loss(source: Packed, target: Packed, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return F.cross_entropy(model(source, target).float(), labels, ignore_index=-100)

    return training(model, lambda number: loss(*inputs[number]))


def run_marian(all_batches: list[Lengths]) -> Callable[[int], Tensor]:
    config = transformers.MarianConfig(
        vocab_size=37000, pad_token_id=0, decoder_start_token_id=1, activation_function="relu", scale_embedding=True,
        attn_implementation="sdpa", encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, d_model=512,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).to(DEVICE)
    inputs = []
    for batch in all_batches:
        tables = []
        for side in (0, 1):
            lengths = torch.tensor([pair[side] for pair in batch], device=DEVICE)
            ids = torch.randint(3, config.vocab_size, (len(batch), int(lengths.max())), device=DEVICE)
            tables.append(ids.masked_fill(torch.arange(ids.shape[1], device=DEVICE) >= lengths[:, None], 0))
        inputs.append(tables)

    @torch.compile(dynamic=False)
    def loss(source: Tensor, target: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(
                input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target, use_cache=False
            )
            return F.cross_entropy(out.logits.flatten(0, 1).float(), target.flatten(), ignore_index=0)

    return training(model, lambda number: loss(*inputs[number]))


def training(model: nn.Module, loss: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(number: int) -> Tensor:
        value = loss(number)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return step


def seconds(step: Callable[[int], Tensor], count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for number in range(count):
        step(number)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=25_000, help="tokens a side and step")
    parser.add_argument(
        "--batches", type=int, default=8, help="different batches, each compiled for where theirs differ"
    )
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision("high")
    transformers.logging.set_verbosity_error()
    chosen = list(batches(options.budget, options.batches))
    tokens = sum(pair[1] for batch in chosen for pair in batch)
    contenders = {"seq2see": run_ours(chosen, options.budget), "Marian": run_marian(chosen)}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for name, step in contenders.items():
        for _ in range(3):
            warm = seconds(step, len(chosen))
        print(f"{name} is warm: {tokens / warm:,.0f} target tokens/s", flush=True)
    for _ in range(options.rounds):
        for name, step in contenders.items():
            times[name].append(seconds(step, len(chosen)))
    rates = {name: round(tokens / statistics.median(taken)) for name, taken in times.items()}
    ratio = statistics.median(b / a for a, b in zip(times["seq2see"], times["Marian"], strict=True))
    for name, rate in rates.items():
        print(f"{name:10}{rate:12,} real target tokens/s")
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "budget": options.budget}
    print(json.dumps({"benchmark": "model_gpu", **about, "tokens_per_second": rates, "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
