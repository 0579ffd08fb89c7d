"""Models of other libraries on a CPU: the time and the peak memory of loading, decoding beside transformers, and exports.

Loads a Qwen 3 of about 500 million parameters with random bf16 weights; decodes 64 tokens after a prompt of 16 with a GPT-2 of
124 million and a Llama of 135 million, greedily, in turns with Hugging Face's generate. Exports a translator of 6+6 layers,
width 512 and 16,000 tokens, and decodes 64 tokens from a source of 24, greedily, one sentence at a time, in turns here, in
CTranslate2 and in onnxruntime. Ends in one JSON line.

    python benchmarks/exchange.py [--rounds 3] [--threads 2] [--only exports] [--layers 6]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers

from seq2see.config import Config, ModelConfig
from seq2see.data.framing import Framing
from seq2see.decode.generate import decode_requests
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import block_weights, optimize_for_decoding
from seq2see.decode.request import Request
from seq2see.decode.search import Search
from seq2see.exchange.foreign_tokenizer import ids_tokenizer
from seq2see.exchange.huggingface import from_huggingface
from seq2see.exchange.to_ctranslate2 import write_ctranslate2
from seq2see.exchange.to_onnx import Runner, write_onnx
from seq2see.model.transformer import Transformer
from seq2see.storage.pipeline import Pipeline

PROMPT, NEW = list(range(5, 21)), 64
LOAD = "import seq2see, sys; seq2see.load(sys.argv[1])"
IMPORT = "import seq2see, sys; seq2see.load"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["loading", "decoding", "exports"])
    parser.add_argument("--layers", type=int, default=6, help="of the exported translator, in encoder and decoder each")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {}
    if options.only in (None, "loading"):
        result["load"] = _loading()
    if options.only in (None, "decoding"):
        for name, model in (("GPT-2 124M", _gpt2()), ("Llama 135M", _llama())):
            result[name] = _decoding(model.eval(), options.rounds)
            print(name, result[name])
    if options.only in (None, "exports"):
        result["exports"] = _exports(options.rounds, options.threads, options.layers)
    print(json.dumps(result))


def _loading() -> dict[str, float]:
    config = transformers.Qwen3Config(
        vocab_size=100_000,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=4096,
        tie_word_embeddings=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
        parameters = sum(p.numel() for p in model.parameters())
        model.save_pretrained(folder)
        del model
        _, base = _run(IMPORT, folder)
        seconds, peak = _run(LOAD, folder)
    size = parameters * 4 / 2**20  # as float32
    found = {"parameters": parameters, "seconds": seconds, "peak_over_weights": (peak - base) / size}
    print("loading", found)
    return found


def _run(code: str, folder: str) -> tuple[float, float]:
    """Returns the seconds and the peak memory, in MiB, of a process."""
    # Not ru_maxrss, which a child process inherits.
    report = "; print(next(int(line.split()[1]) / 1024 for line in open('/proc/self/status') if 'VmHWM' in line))"
    start = time.perf_counter()
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code + report, folder], capture_output=True, check=True)
    return time.perf_counter() - start, float(out.stdout.split()[-1])


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config())


def _llama() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            intermediate_size=1536,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
        )
    )


@torch.inference_mode()
def _decoding(theirs: Any, rounds: int) -> dict[str, float]:
    ours = block_weights(optimize_for_decoding(from_huggingface(theirs)))
    end = theirs.config.vocab_size - 1
    tokens, request = Framing(-1, 0, end, (0,), banned=(end,)), Request(0, (), PROMPT, NEW)
    speeds: dict[str, list[float]] = {"seq2see": [], "transformers": []}
    for _ in range(rounds):
        start = time.perf_counter()
        decode_requests(ours, [request], Search(), tokens)
        speeds["seq2see"].append(NEW / (time.perf_counter() - start))
        start = time.perf_counter()
        theirs.generate(
            torch.tensor([PROMPT]),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=end,
        )
        speeds["transformers"].append(NEW / (time.perf_counter() - start))
    ratios = [a / b for a, b in zip(*speeds.values(), strict=True)]
    medians = {name: round(statistics.median(values), 1) for name, values in speeds.items()}
    return {**medians, "ratio": round(statistics.median(ratios), 2)}


Decode = Callable[[], int]  # returns the number of generated tokens
SOURCE, END = list(range(5, 29)), 2


def _exports(rounds: int, threads: int, layers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        sizes = _write_exports(Path(folder), layers)
        names = ["seq2see float32", "seq2see int8", *sizes]
        pipes = {name: _start(name, folder, threads, layers) for name in names}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds + 1):
            for name, pipe in pipes.items():
                time.sleep(0.3)  # until the previous contender's threads stop spinning
                pipe.send(True)
                seconds[name].append(pipe.recv())
        for pipe in pipes.values():
            pipe.send(None)
    rows = {}
    for name, times in seconds.items():
        ours = seconds[f"seq2see {name.rsplit(maxsplit=1)[-1]}"]
        ratios = [theirs / own for theirs, own in zip(times[1:], ours[1:], strict=True)]  # the first round warms up
        rows[name] = {
            "tokens_per_second": round(NEW / statistics.median(times[1:]), 1),
            "seq2see_is_faster_by": round(statistics.median(ratios), 2),
            **({"megabytes": sizes[name]} if name in sizes else {}),
        }
        print(name, rows[name])
    return rows


def _write_exports(folder: Path, layers: int) -> dict[str, float]:
    """Writes the exports whose runtimes are installed; returns their sizes in megabytes."""
    pipeline, sizes = _translator(layers), {}
    for format, precision in product(("CTranslate2", "onnxruntime"), ("float32", "int8")):
        if not find_spec(format.lower()):
            print(f"{format} is not installed: skipped")
            continue
        name = f"{format} {precision}"
        (folder / name).mkdir()
        (write_ctranslate2 if format == "CTranslate2" else write_onnx)(pipeline, folder / name, precision)
        sizes[name] = round(sum(file.stat().st_size for file in (folder / name).iterdir()) / 1e6, 1)
    return sizes


def _translator(layers: int) -> Pipeline:
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=16_000, encoder_layers=layers, decoder_layers=layers, max_positions=512)
    framing = Framing(pad=0, start=1, end=END, prompt=(1,), after=(END,), banned=(END,))
    tokenizer = ids_tokenizer(config.vocab_size, framing)
    return Pipeline(Config(model=config), Transformer(config).eval(), (tokenizer, tokenizer), {})


def _start(name: str, folder: str, threads: int, layers: int) -> Connection:
    """Starts a contender in its own process: several thread pools in one would compete for the cores."""
    pipe, theirs = get_context("spawn").Pipe()
    get_context("spawn").Process(target=_contend, args=(name, folder, threads, layers, theirs), daemon=True).start()
    return pipe


def _contend(name: str, folder: str, threads: int, layers: int, pipe: Connection) -> None:
    torch.set_num_threads(threads)
    library, precision = name.split()
    path = Path(folder) / name
    if library == "seq2see":
        run = _ours(precision, layers)
    else:
        run = (_ctranslate2 if library == "CTranslate2" else _onnxruntime)(path, threads)
    while pipe.recv():
        start = time.perf_counter()
        assert run() == NEW
        pipe.send(time.perf_counter() - start)


def _ours(precision: str, layers: int) -> Decode:
    network = _translator(layers).network
    network = quantize_int8(network) if precision == "int8" else block_weights(optimize_for_decoding(network))
    request, tokens = Request(0, SOURCE, [1], NEW), Framing(-1, 1, END, (1,), banned=(END,))
    return lambda: len(decode_requests(network, [request], Search(), tokens)[0][0].tokens)


def _ctranslate2(path: Path, threads: int) -> Decode:
    import ctranslate2

    names = json.loads((path / "shared_vocabulary.json").read_text())
    translator = ctranslate2.Translator(str(path), device="cpu", intra_threads=threads)
    source = [[names[id] for id in SOURCE]]
    options = {"beam_size": 1, "max_decoding_length": NEW, "suppress_sequences": [[names[END]]]}
    return lambda: len(translator.translate_batch(source, **options)[0].hypotheses[0])


def _onnxruntime(path: Path, threads: int) -> Decode:
    runner = Runner(path, threads)
    return lambda: len(runner.greedy(SOURCE, [1], NEW, (), (END,)))


if __name__ == "__main__":
    main()
