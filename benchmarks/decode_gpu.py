"""Decoding on a GPU in bf16: seq2see against Hugging Face's generate with its dynamic and its static cache.

All use the same weights: a transformer-base (30 tokens in, 64 out) and GPT-2 124M (32 in, 256 out), batch 1 and 128, greedy
and beam 4. <end> is banned, so that all do the same work. Each contender is warmed up at full length; all take turns; the
result is the median ratio. The bandwidth utilisation counts the bytes that a step must read: the decoder's weights once, and
the keys and values of all sequences. Ends in one JSON line.

    python benchmarks/decode_gpu.py [--rounds 5] [--only gpt2] [--batch 1] [--beam 1]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import transformers
from peers import END, START, transformer_base

from seq2see.data.framing import Framing
from seq2see.decode.generate import decode_requests
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.decode.request import Request
from seq2see.decode.search import Search
from seq2see.exchange.huggingface import from_huggingface
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer

DEVICE = "cuda"
BANDWIDTH = 4.24e12  # bytes per second, measured on an H200
Run = Callable[[], int]  # returns the number of generated tokens


@dataclass(frozen=True)
class Workload:
    name: str
    tokens_in: int
    tokens_out: int
    batch: int
    beam: int


@dataclass
class Contender:
    name: str
    run: Run
    seconds: list[float] = field(default_factory=list)


def gpt2() -> Any:
    config = transformers.GPT2Config(attn_implementation="sdpa", bos_token_id=START, eos_token_id=END, pad_token_id=0)
    return transformers.GPT2LMHeadModel(config)


MODELS: dict[str, tuple[Callable[[], Any], int, int]] = {
    "transformer-base": (partial(transformer_base, 37_000), 30, 64),
    "gpt2": (gpt2, 32, 256),
}


def run_seq2see(model: Network, work: Workload, inputs: list[list[int]]) -> Run:
    special_tokens = Framing(-1, START, END, (START,), banned=(0, END))
    pairs = [(tokens, [START]) if model.encoder is not None else ((), tokens) for tokens in inputs]
    requests = [Request(i, source, prompt, work.tokens_out) for i, (source, prompt) in enumerate(pairs)]

    def run() -> int:
        results = decode_requests(model, requests, Search(beam=work.beam), special_tokens, token_budget=10**9)
        return sum(len(best.tokens) for best, *_ in results)

    return run


def run_hugging_face(hf_model: Any, work: Workload, inputs: list[list[int]], cache: str) -> Run:
    ids = torch.tensor(inputs, device=DEVICE)
    skipped = 1 if hf_model.config.is_encoder_decoder else work.tokens_in
    options: dict[str, Any] = {"cache_implementation": "static"} if cache == "static" else {}

    def run() -> int:
        with torch.inference_mode():
            out = hf_model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                min_new_tokens=work.tokens_out,
                max_new_tokens=work.tokens_out,
                num_beams=work.beam,
                do_sample=False,
                forced_eos_token_id=None,
                bad_words_ids=[[0]],
                **options,
            )
        return int(out[:, skipped:].numel())

    return run


def bytes_per_step(model: Network, work: Workload) -> float:
    """Returns the bytes read per step in bf16, at the mean length."""
    config = model.config
    assert isinstance(model, Transformer) and model.decoder is not None
    weights = sum(weight.numel() for weight in model.decoder.parameters()) + model.embedding.weight.numel()
    if model.decoder.positions is not None:
        weights -= model.decoder.positions.weight.numel()
    length = work.tokens_out / 2 + (0 if model.encoder is not None else work.tokens_in)
    values_per_token = (
        2 * config.actual_key_value_heads * config.actual_head_width * config.decoder_layers
    )  # keys and values
    generated = work.batch * work.beam * length * values_per_token
    source = work.batch * work.tokens_in * values_per_token if model.encoder is not None else 0
    return 2.0 * (weights + generated + source)


def measure(hf_model: Any, model: Network, work: Workload, rounds: int) -> list[dict[str, object]]:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randint(3, 1000, (work.batch, work.tokens_in), generator=random).tolist()
    contenders = [
        Contender("seq2see", run_seq2see(model, work, inputs)),
        Contender("Hugging Face, dynamic", run_hugging_face(hf_model, work, inputs, "dynamic")),
        Contender("Hugging Face, static", run_hugging_face(hf_model, work, inputs, "static")),
    ]
    assert {weight.device.type for weight in (*model.parameters(), *hf_model.parameters())} == {DEVICE}
    print(f"\n{work.name}, batch {work.batch}, {'greedy' if work.beam == 1 else f'beam {work.beam}'}", flush=True)
    for one in list(contenders):
        try:
            for _ in range(3):  # the first steps of each shape are compiled or captured
                one.run()
        except Exception as error:  # an unsupported case is a result, too
            if one is contenders[0]:
                raise
            print(f"{one.name:24} fails: {' '.join(str(error).split())[:100]}", flush=True)
            contenders.remove(one)
    for _ in range(rounds):
        for one in contenders:
            torch.cuda.synchronize()
            start = time.perf_counter()
            generated = one.run()
            torch.cuda.synchronize()
            one.seconds.append(time.perf_counter() - start)
            assert generated == work.batch * work.tokens_out, (one.name, generated)
    rows: list[dict[str, object]] = []
    for one in contenders:
        seconds = statistics.median(one.seconds)
        ratio = statistics.median(t / own for t, own in zip(one.seconds, contenders[0].seconds, strict=True))
        share = bytes_per_step(model, work) * work.tokens_out / seconds / BANDWIDTH
        rate = work.batch * work.tokens_out / seconds
        rows.append(
            {
                "model": work.name,
                "batch": work.batch,
                "beam": work.beam,
                "contender": one.name,
                "tokens_per_second": round(rate),
                "seq2see_is_faster": round(ratio, 2),
                "share_of_bandwidth": round(share, 4),
            }
        )
        print(f"{one.name:24}{rate:12,.0f} tokens/s{ratio:8.2f} ×{share:8.1%} of the bandwidth", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(MODELS), help="only this model")
    parser.add_argument("--batch", type=int, default=0, help="only this batch size")
    parser.add_argument("--beam", type=int, default=0, help="only this beam")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows: list[dict[str, object]] = []
    for name, (build, tokens_in, tokens_out) in MODELS.items():
        if options.only not in (None, name):
            continue
        torch.manual_seed(0)
        hf_model = build().eval().to(DEVICE, torch.bfloat16)
        model = optimize_for_decoding(from_huggingface(hf_model).to(DEVICE))
        for batch in (1, 128):
            for beam in (1, 4):
                if options.batch in (0, batch) and options.beam in (0, beam):
                    work = Workload(name, tokens_in, tokens_out, batch, beam)
                    rows += measure(hf_model, model, work, options.rounds)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({"benchmark": "decode_gpu", **about, "transformers": transformers.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
