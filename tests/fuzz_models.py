"""Fuzzing of model directories: a damaged file, ours or another library's, loads and works or is refused in one line.

    python -m tests.fuzz_models KIND --count 5000 [--seed 1] [--first 0]

Every case changes one file of a small model, loads the model in a forked process, and uses it: tokens of odd texts and back, a
few tokens of output, a conversation. It must end within 10 s of CPU time, take less than 1 GB more memory, and raise nothing
but a UserError of one line. Cases follow from (seed, number), so one can be repeated with `--first NUMBER --count 1`.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork

import torch

from seq2see.errors import MAX_LENGTH, UserError
from seq2see.storage.directory import load_pipeline
from seq2see.storage.manifest import write_manifest
from tests.damage import mutate_gguf, mutate_json, mutate_safetensors, mutate_toml

MAX_SECONDS, MAX_BYTES = 10, 1 << 30
BATCH = 50  # cases of one process
EARLIER = Path(__file__).parent / "storage/earlier"
TEXTS = ["", "How are you? " + "a" * 40 + "!", "नमस्ते दुनिया\n\n 12 7\t</s><s>", "\u200d👩‍👧 ▁ \x00"]

# The models whose files are damaged; each is written once.


@cache
def ours() -> Path:
    folder = _new_folder()
    shutil.copytree(EARLIER / "translator", folder, dirs_exist_ok=True)
    return folder


@cache
def ours_with_manifest() -> Path:
    folder = _new_folder()
    shutil.copytree(EARLIER / "language-model", folder, dirs_exist_ok=True)
    (folder / "chat.toml").write_text('user = "{text} "\n')
    write_manifest(folder)
    return folder


@cache
def decoder() -> Path:
    from tests import foreign_models as models

    scaling = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 500.0, "original_max_position_embeddings": 64}
    return models.save(_new_folder(), models.decoder(rope_parameters=scaling), models.byte_level(models.QWEN))


@cache
def translator() -> Path:
    from tests import foreign_models as models

    tokenizer = models.unigram(("en_XX", "hi_IN"))
    model = models.translator("MBartForConditionalGeneration", tokenizer.get_vocab_size())
    return models.save(_new_folder(), model, tokenizer, src_lang="en_XX", tgt_lang="hi_IN")


@cache
def encoder() -> Path:
    from tests import foreign_models as models

    return models.save(_new_folder(), models.encoder(), models.word_piece())


@cache
def gguf() -> Path:
    from tests import foreign_models as models
    from tests.exchange.test_gguf import ROPE, SIZES, write

    folder = _new_folder()
    write(
        folder / "a.gguf",
        "llama",
        models.decoder("LlamaForCausalLM", **{**SIZES, "vocab_size": 520}, **ROPE),
        models.llama_bpe(),
    )
    write(folder / "b.gguf", "qwen3", models.decoder("Qwen3ForCausalLM", **SIZES, **ROPE), models.byte_level())
    return folder


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=_root()))


@cache
def _root() -> str:
    import atexit

    folder = tempfile.mkdtemp(prefix="seq2see-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


Damage = Callable[[bytes, random.Random], bytes]
# The models of each kind, the files of which one is damaged, and how.
KINDS: dict[str, tuple[tuple[Callable[[], Path], ...], tuple[str, ...], Damage]] = {
    "safetensors": ((ours, decoder, translator), ("model.safetensors",), mutate_safetensors),
    "config.toml": ((ours,), ("config.toml",), mutate_toml),
    "tokenizer.json": ((ours, decoder, translator, encoder), ("tokenizer.json",), mutate_json),
    "manifest": ((ours_with_manifest,), ("files.json",), mutate_json),
    "chat.toml": ((ours_with_manifest,), ("chat.toml",), mutate_toml),
    "gguf": ((gguf,), ("a.gguf", "b.gguf"), mutate_gguf),
    "config.json": ((decoder, translator, encoder), ("config.json",), mutate_json),
    "generation_config.json": ((decoder, translator), ("generation_config.json",), mutate_json),
    "tokenizer_config.json": ((decoder, translator, encoder), ("tokenizer_config.json",), mutate_json),
}


@dataclass(frozen=True)
class Outcome:
    """How a case ended: "used", "refused", "refused: CAUSE" if the message is that of another exception, or a failure."""

    kind: str
    detail: str = ""


def use(path: Path) -> None:
    """Loads a model, and does a little of everything with it."""
    pipeline = load_pipeline(path)
    source, target = pipeline.tokenizers
    for text in TEXTS:
        for tokenizer in (source, target):
            ids = tokenizer.encode(text)
            tokenizer.decode(ids)
            tokenizer.token_spans(text)
            tokenizer.encode_batch([text, "a b"])
    target.decode(range(min(len(target), 1000)))
    pipeline.chat_template.render([("user", "Hello")])
    if pipeline.config.model.has_decoder:
        if pipeline.config.model.has_encoder:
            pipeline.translate_sentences(TEXTS[1:3], max_new_tokens=3)
        else:
            pipeline.generate(TEXTS[2], max_new_tokens=3)
    else:
        pipeline.embed(TEXTS[1:3])


def run_case(kind: str, number: int, seed: int) -> Outcome:
    """Damages a file and uses its model."""
    draw = random.Random(f"{kind} {seed} {number}")
    models, names, damage = KINDS[kind]
    original, name = draw.choice(models)(), draw.choice(names)
    with tempfile.TemporaryDirectory(dir=_root()) as folder:
        for file in original.iterdir():
            if file.name == name:
                (Path(folder) / name).write_bytes(damage(file.read_bytes(), draw))
            elif file.suffix != ".gguf":
                (Path(folder) / file.name).symlink_to(file)
        return outcome_of(lambda: use(Path(folder) / name if name.endswith(".gguf") else Path(folder)))


def run_in_child(run: Callable[[int], Outcome], numbers: Sequence[int]) -> list[Outcome]:
    """Runs cases in a forked process until one takes too long or too much memory, or ends the process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Rust's panics are printed
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES * 5, MAX_BYTES * 5))  # for the machine's sake
        for number in numbers:
            signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)  # of this process: others may be busy
            signal.alarm(MAX_SECONDS * 60)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            outcome = run(number)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            if grown > MAX_BYTES:
                outcome = Outcome("MEMORY", f"{grown / 1e9:.1f} GB; {outcome}")
            os.write(writer, json.dumps([outcome.kind, outcome.detail[-3000:]]).encode() + b"\n")
            if outcome.kind == "MEMORY":
                break
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        outcomes = [Outcome(*json.loads(line)) for line in pipe]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    late = status in (-signal.SIGPROF, -signal.SIGALRM)
    return outcomes + [Outcome("TIME" if late else "KILLED", f"exit status {status}")] * bool(status)


def outcome_of(action: Callable[[], None]) -> Outcome:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action()
    except UserError as error:
        text, cause = str(error), error.__cause__
        if "\n" in text or len(text) > MAX_LENGTH:
            return Outcome("MESSAGE", text)
        while isinstance(cause, UserError):
            cause = cause.__cause__
        return Outcome("refused" if cause is None else f"refused: {type(cause).__name__}", text)
    except BaseException:
        return Outcome("TRACEBACK", traceback.format_exc())
    return Outcome("used")


def run_cases(
    label: str, run: Callable[[int], Outcome], numbers: range, batch: int = BATCH
) -> tuple[Counter[str], list[str]]:
    """Runs cases in forked processes; returns how many ended in each way, and a description of each failure."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(numbers):
        outcomes += run_in_child(run, numbers[len(outcomes) :][:batch])
    failures = [
        f"{label}, case {number}, {outcome.kind}: {outcome.detail}"
        for number, outcome in zip(numbers, outcomes, strict=True)
        if outcome.kind.isupper()
    ]
    return Counter(outcome.kind for outcome in outcomes), failures


def fuzz(kind: str, count: int, seed: int = 1, first: int = 0) -> tuple[Counter[str], list[str]]:
    torch.set_num_threads(1)
    for model in KINDS[kind][0]:
        model()
    return run_cases(kind, lambda number: run_case(kind, number, seed), range(first, first + count))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    total, failed = fuzz(options.kind, options.count, options.seed, options.first)
    print(*failed, sep="\n\n")
    for label, number in total.most_common():
        print(f"{number:6,}  {label}")
    print(f"{options.kind}: {total.total():,} cases, {len(failed)} failures")
    sys.exit(bool(failed))
