"""Decoding on a CPU: seq2see in float32, bf16 and int8 against Hugging Face's generate and CTranslate2.

float32 and int8 run on seq2see's engine, or on torch with SEQ2SEE_ENGINE=off; bf16 always on torch.
All use the same weights: a Transformer of 6+6 layers, width 512 and 16,000 tokens; 24 tokens in, 64 out (<end> is banned, so
that all do the same work). Each contender runs in its own process, all take turns in every round, and the result is the
median over rounds of the time ratio. Ends in one JSON line.

    python benchmarks/decode_cpu.py [--rounds 5] [--threads 2] [--only seq2see]
    python benchmarks/decode_cpu.py --profile --only float32 --batch 8 --beam 1     time per operation of a step
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

# Some virtual machines report Intel AMX but fault on its instructions, which kills the process in bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import transformers
from peers import END, START, transformer_base

from seq2see.data.framing import Framing
from seq2see.decode.generate import decode_requests
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import block_weights, optimize_for_decoding
from seq2see.decode.request import Request
from seq2see.decode.search import Search
from seq2see.exchange.huggingface import from_huggingface
from seq2see.model.network import Network

VOCABULARY = 16_000
IN, OUT = 24, 64
CASES = [(batch, beam) for beam in (1, 4) for batch in (1, 8, 32)]

NAMES = (
    "seq2see float32",
    "seq2see bf16",
    "seq2see int8",
    "Hugging Face float32",
    "CTranslate2 float32",
    "CTranslate2 int8",
)

Run = Callable[[list[list[int]], int], int]  # takes sources and beam size, returns the number of generated tokens


def run_seq2see(model: Network) -> Run:
    def run(sources: list[list[int]], beam: int) -> int:
        requests = [Request(i, source, [START], OUT) for i, source in enumerate(sources)]
        special_tokens = Framing(-1, START, END, (START,), banned=(0, END))
        results = decode_requests(model, requests, Search(beam=beam), special_tokens, token_budget=10**6)
        return sum(len(best.tokens) for best, *_ in results)

    return run


def run_hugging_face(model: Any) -> Run:
    def run(sources: list[list[int]], beam: int) -> int:
        with torch.inference_mode():
            out = model.generate(
                input_ids=torch.tensor(sources),
                min_new_tokens=OUT,
                max_new_tokens=OUT,
                num_beams=beam,
                do_sample=False,
                forced_eos_token_id=None,
                bad_words_ids=[[0]],
            )
        return int(out[:, 1:].numel())

    return run


def run_ctranslate2(model: Any, quantization: str, threads: int) -> Run:
    """Converts the model through CTranslate2's Python API; its command line would require a tokenizer."""
    import ctranslate2 as ct2
    from ctranslate2.converters.transformers import BartLoader

    model.config.normalize_before = model.config.normalize_embedding = False
    vocabulary = [f"w{i}" for i in range(VOCABULARY)]
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        spec = BartLoader().get_model_spec(model)
        spec.register_source_vocabulary(vocabulary)
        spec.register_target_vocabulary(vocabulary)
        spec.config.bos_token = spec.config.decoder_start_token = vocabulary[START]
        spec.config.eos_token, spec.config.unk_token = vocabulary[END], vocabulary[0]
        spec.validate()
        spec.optimize(quantization=None if quantization == "float32" else quantization)
        spec.save(folder)
        translator = ct2.Translator(folder, compute_type=quantization, intra_threads=threads, inter_threads=1)

    def run(sources: list[list[int]], beam: int) -> int:
        out = translator.translate_batch(
            [[vocabulary[token] for token in source] for source in sources],
            beam_size=beam,
            max_decoding_length=OUT,
            min_decoding_length=OUT,
            max_batch_size=10**6,
            batch_type="tokens",
        )
        return sum(len(result.hypotheses[0]) for result in out)

    return run


def build(name: str, threads: int) -> Run:
    hf_model = transformer_base(VOCABULARY)
    library, precision = name.rsplit(" ", 1)
    if library == "Hugging Face":
        return run_hugging_face(hf_model)
    if library == "CTranslate2":
        return run_ctranslate2(hf_model, precision, threads)
    model: Network = from_huggingface(hf_model)
    if precision == "int8":
        model = quantize_int8(model)
    else:
        model = block_weights(optimize_for_decoding(model.bfloat16() if precision == "bf16" else model))
    model.use_engine = True  # as after loading; bf16 runs on torch
    return run_seq2see(model)


def worker(name: str, threads: int, pipe: Connection) -> None:
    """Runs one contender in its own process; several OpenMP runtimes in one process would compete for the cores."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    run = build(name, threads)
    for sources, beam in iter(pipe.recv, None):
        start = time.perf_counter()
        generated = run(sources, beam)
        pipe.send((generated, time.perf_counter() - start))


class Contender:
    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.pipe, worker_pipe = get_context("spawn").Pipe()
        self.process = get_context("spawn").Process(target=worker, args=(name, threads, worker_pipe), daemon=True)
        self.process.start()
        self.seconds: dict[tuple[int, int], list[float]] = {}

    def run(self, sources: list[list[int]], beam: int) -> float:
        self.pipe.send((sources, beam))
        generated, seconds = self.pipe.recv()
        assert generated == len(sources) * OUT, (self.name, generated)
        return float(seconds)


def measure(contenders: list[Contender], rounds: int, cases: list[tuple[int, int]]) -> list[dict[str, object]]:
    random = torch.Generator().manual_seed(1)
    rows: list[dict[str, object]] = []
    for batch, beam in cases:
        sources = torch.randint(3, VOCABULARY, (batch, IN), generator=random).tolist()
        for repeat in range(rounds + 1):  # the first round is a warm-up
            for one in contenders:
                time.sleep(0.3)  # until the previous contender's threads stop spinning
                seconds = one.run(sources, beam)
                if repeat:
                    one.seconds.setdefault((batch, beam), []).append(seconds)
        print(f"\nbatch {batch}, {'greedy' if beam == 1 else f'beam {beam}'}", flush=True)
        for one in contenders:
            times = one.seconds[batch, beam]
            row: dict[str, object] = {"contender": one.name, "batch": batch, "beam": beam}
            row["tokens_per_second"] = round(batch * OUT / statistics.median(times))
            line = f"{one.name:24}{row['tokens_per_second']:>8,}"
            for ours in contenders:
                if ours.name.startswith("seq2see") and not one.name.startswith("seq2see"):
                    ratios = [theirs / own for theirs, own in zip(times, ours.seconds[batch, beam], strict=True)]
                    row[f"{ours.name} is faster"] = round(statistics.median(ratios), 2)
                    line += f"   {ours.name.removeprefix('seq2see ')} × {statistics.median(ratios):.2f}"
            rows.append(row)
            print(line, flush=True)
    return rows


def profile(name: str, threads: int, cases: list[tuple[int, int]]) -> None:
    """Prints the PyTorch operations that take the most time per step; not possible for CTranslate2."""
    torch.set_num_threads(threads)
    run = build(name, threads)
    for batch, beam in cases:
        sources = torch.randint(3, VOCABULARY, (batch, IN), generator=torch.Generator().manual_seed(1)).tolist()
        run(sources, beam)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            run(sources, beam)
        operations = sorted(profiler.key_averages(), key=lambda one: -one.self_cpu_time_total)
        total = sum(one.self_cpu_time_total for one in operations) / OUT / 1000
        print(f"\n{name}, batch {batch}, beam {beam}: {total:.1f} ms per step", flush=True)
        for one in operations[:8]:
            print(f"{one.self_cpu_time_total / OUT / 1000:8.2f} ms{one.count / OUT:8.1f} × {one.key}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="only contenders with this in their name")
    parser.add_argument("--batch", type=int, default=0, help="only this batch size")
    parser.add_argument("--beam", type=int, default=0, help="only this beam")
    parser.add_argument("--profile", action="store_true", help="print the time per operation instead")
    options = parser.parse_args()
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed (pip install ctranslate2): skipped", flush=True)
    names = [name for name in NAMES if options.only in name and (find_spec("ctranslate2") or "CTr" not in name)]
    cases = [(n, k) for n, k in CASES if options.batch in (0, n) and options.beam in (0, k)]
    if options.profile:
        for name in names:
            if "CTr" not in name:
                profile(name, options.threads, cases)
        return
    contenders = [Contender(name, options.threads) for name in names]
    rows = measure(contenders, options.rounds, cases)
    for one in contenders:
        one.pipe.send(None)
    about = {"threads": options.threads, "torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"benchmark": "decode_cpu", **about, "rows": rows}))


if __name__ == "__main__":
    main()
