"""The engine beside CTranslate2 and torch: one client, one sentence at a time, with the bundled en-fr and beam 4.

All decode the same sentences with the same weights, in turns in every round; CTranslate2's source ends in `<end>`, as the model
wants it. The result is the median over rounds of sentences per second, each side at its best of 1 and 2 threads, and the ratio
to CTranslate2 in the same precision. Ends in one JSON line; the load average shows whether the machine was quiet.

    python benchmarks/engine.py [--rounds 5] [--sentences 40] [--model en-fr] [--processor avx2]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import seq2see
from seq2see.config import InferencePrecision
from seq2see.engine import library
from seq2see.exchange.to_ctranslate2 import write_ctranslate2
from seq2see.exchange.tokenizer_writer import vocabulary

BEAM, THREADS = 4, (1, 2)
PRECISIONS: tuple[InferencePrecision, ...] = ("int8", "float32")
SENTENCES = (
    "The train to the coast leaves at eight in the morning.",
    "I would like a cup of tea, please.",
    "She has been working in this office for more than ten years.",
    "How much does it cost to send this letter to Canada?",
    "The children are playing in the garden behind the house.",
    "We could not find the key, so we had to wait outside.",
    "What did you think of the film that we saw last night?",
    "He opened the window because it was very hot in the room.",
)
Run = Callable[[], object]


def engine_run(model: seq2see.Model, count: int, threads: int, processor: str) -> Run:
    def run() -> None:
        os.environ[library.VARIABLE] = processor
        torch.set_num_threads(threads)
        for i in range(count):
            model.hypotheses([SENTENCES[i % len(SENTENCES)]], beam=BEAM)

    return run


def ctranslate2_run(model: seq2see.Model, folder: Path, precision: str, count: int, threads: int) -> Run:
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type=precision, intra_threads=threads)
    names = vocabulary(model.tokenizers[0], model.config.model)
    sources = [[names[id] for id in model.encode_source(sentence)] for sentence in SENTENCES]
    limits = [int(len(source) * 1.5) + 10 for source in sources]

    def run() -> None:
        for i in range(count):
            which = i % len(SENTENCES)
            translator.translate_batch([sources[which]], beam_size=BEAM, max_decoding_length=limits[which])

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--model", default="en-fr")
    parser.add_argument("--processor", default=library.processors()[-1], help="of the engine, such as avx2")
    options = parser.parse_args()
    runs: dict[tuple[str, str, int], Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            model = seq2see.load(options.model, precision=precision)
            path = Path(folder, precision)
            path.mkdir()
            write_ctranslate2(seq2see.load(options.model), path, "float32")
            for threads in THREADS:
                count = options.sentences
                runs["engine", precision, threads] = engine_run(model, count, threads, options.processor)
                runs["torch", precision, threads] = engine_run(model, count, threads, "off")
                runs["CTranslate2", precision, threads] = ctranslate2_run(model, path, precision, count, threads)
        seconds: dict[tuple[str, str, int], list[float]] = {key: [] for key in runs}
        for number in range(options.rounds + 1):  # the first warms up
            for key, run in runs.items():
                start = time.perf_counter()
                run()
                if number:
                    seconds[key].append(time.perf_counter() - start)
    rows = []
    print("load average:", *(f"{load:.2f}" for load in os.getloadavg()), flush=True)
    for precision in PRECISIONS:
        best = {
            name: max(options.sentences / statistics.median(seconds[name, precision, threads]) for threads in THREADS)
            for name in ("engine", "torch", "CTranslate2")
        }
        for name, speed in best.items():
            ratio = round(speed / best["CTranslate2"], 2)
            rows.append(
                {"contender": name, "precision": precision, "sentences_per_second": round(speed), "ratio": ratio}
            )
            print(f"{name:12} {precision:8} {speed:7,.0f} sentences/s   {ratio:.2f} × CTranslate2", flush=True)
    about = {"model": options.model, "beam": BEAM, "processor": options.processor, "load": os.getloadavg()}
    print(json.dumps({"benchmark": "engine", **about, "rows": rows}))


if __name__ == "__main__":
    main()
