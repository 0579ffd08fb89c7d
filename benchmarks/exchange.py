"""Models of other libraries on a CPU: the time and the peak memory of loading, and decoding beside transformers.

Loads a Qwen 3 of about 500 million parameters with random bf16 weights; decodes 64 tokens after a prompt of 16 with a GPT-2 of
124 million and a Llama of 135 million, greedily, in turns with Hugging Face's generate. Ends in one JSON line.

    python benchmarks/exchange.py [--rounds 3] [--threads 2]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
import transformers

from seq2see.decode.engine import decode_requests
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.decode.search import Search
from seq2see.decode.session import Request, SpecialTokens
from seq2see.exchange.huggingface import from_huggingface

PROMPT, NEW = list(range(5, 21)), 64
LOAD = "import seq2see, sys; seq2see.load(sys.argv[1])"
IMPORT = "import seq2see, sys; seq2see.load"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"load": _loading()}
    for name, model in (("GPT-2 124M", _gpt2()), ("Llama 135M", _llama())):
        result[name] = _decoding(model.eval(), options.rounds)
        print(name, result[name])
    print(json.dumps(result))


def _loading() -> dict[str, float]:
    config = transformers.Qwen3Config(
        vocab_size=100_000, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8, head_dim=64,
        intermediate_size=4096, tie_word_embeddings=True,
    )  # fmt: skip
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
            vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
            intermediate_size=1536, tie_word_embeddings=True, max_position_embeddings=2048,
        )
    )  # fmt: skip


@torch.inference_mode()
def _decoding(theirs: Any, rounds: int) -> dict[str, float]:
    ours = optimize_for_decoding(from_huggingface(theirs))
    end = theirs.config.vocab_size - 1
    tokens, request = SpecialTokens(0, end, banned=(end,)), Request(0, (), PROMPT, NEW)
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


if __name__ == "__main__":
    main()
