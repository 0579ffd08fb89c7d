"""Fuzzing of model directories: a damaged file, ours or another library's, loads and works or is refused in one line.

    python -m tests.fuzz_models KIND --count 5000 [--seed 1] [--first 0]

Every case changes one file of a small model, loads the model in a forked process, and uses it: tokens of odd texts and back, a
few tokens of output, a conversation. It must end within 10 s, take less than 1 GB more memory, and raise nothing but a
UserError of one line. Cases follow from (seed, number), so one can be repeated with `--first NUMBER --count 1`.
"""

import argparse
import copy
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork

import torch

from seq2see.errors import MAX_LENGTH, UserError
from seq2see.storage.directory import load_pipeline
from seq2see.storage.manifest import write_manifest

MAX_SECONDS, MAX_BYTES = 10, 1 << 30
EARLIER = Path(__file__).parent / "storage/earlier"
TEXTS = ["", "How are you? " + "a" * 40 + "!", "नमस्ते दुनिया\n\n 12 7\t</s><s>", "\u200d👩‍👧 ▁ \x00"]
VALUES: list[Any] = [
    *[None, True, False, 0, 1, -1, 2, 7, 1000, 10**6, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e-300, 1e300],
    *[
        "",
        "x",
        "1",
        "nan",
        "<s>",
        "▁",
        "a" * 5000,
        "linear",
        "(a+)+$",
        "[",
        "\ud800".encode("utf-8", "replace").decode(),
    ],
    *[[], {}, [1], [[]], [None], {"type": "x"}, {"type": "Split", "pattern": {"Regex": "(a+)+$"}}, [0] * 1000],
]
FRAGMENTS = [
    b"\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\x7f",
    b"9" * 30,
    b"[" * 2000,
    b'"',
    b"{",
    b"e999",
    b"\n",
    b"\xf0",
]


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """Changes a few bytes, mostly near the beginning, where headers and settings are."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        start = draw.randrange(max(min(len(changed), draw.choice([16, 400, 4000, 10**9])), 1))
        kind = draw.randrange(5)
        if kind == 0 and changed:
            changed[start] = draw.randrange(256)
        elif kind == 1 and changed:
            changed[start] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del changed[start : start + draw.randrange(1, 50)]
        elif kind == 3:
            changed[start:start] = draw.choice(FRAGMENTS)
        else:
            fragment = draw.choice(FRAGMENTS)
            changed[start : start + len(fragment)] = fragment
    return bytes(changed[: draw.randrange(len(changed) + 1)] if draw.random() < 0.1 else changed)


def mutate_tree(tree: Any, draw: random.Random) -> Any:
    """Changes a few values, names or lengths in what JSON or TOML holds."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        places = _places(tree, draw)
        if not places:
            return draw.choice(VALUES)
        parent, key = draw.choice(places)
        kind = draw.randrange(8)
        if kind < 4:
            parent[key] = copy.deepcopy(draw.choice(VALUES))
        elif kind == 4:
            del parent[key]
        elif kind == 5:
            other, name = draw.choice(places)
            parent[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
        elif kind == 6 and isinstance(parent, dict):
            parent[draw.choice(["x", "type", "", key.upper()])] = parent.pop(key)
        elif isinstance(parent[key], list):
            parent[key] = parent[key] * draw.choice([0, 2]) if len(parent[key]) < 10_000 else parent[key][1:]
        elif isinstance(parent[key], int | float):
            parent[key] = parent[key] * draw.choice([-1, 2, 0.5]) + draw.choice([0, 1])
    return tree


def _places(tree: Any, draw: random.Random) -> list[tuple[Any, Any]]:
    """Returns where a value may be changed; of a long list or table, such as a vocabulary, only a few entries."""
    entries: list[tuple[Any, Any]] = list(tree.items()) if isinstance(tree, dict) else []
    entries += list(enumerate(tree)) if isinstance(tree, list) else []
    if len(entries) > 20:
        entries = draw.sample(entries, 5)
    return [(tree, key) for key, _ in entries] + [place for _, value in entries for place in _places(value, draw)]


def mutate_json(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.25:
        return mutate_bytes(content, draw)
    return json.dumps(mutate_tree(json.loads(content), draw), ensure_ascii=draw.random() < 0.5).encode()


def mutate_toml(content: bytes, draw: random.Random) -> bytes:
    from seq2see.config.toml import to_toml

    if draw.random() < 0.25:
        return mutate_bytes(content, draw)
    text = content.decode()
    for table, fields in tomllib.loads(text).items():
        for name, value in fields.items() if isinstance(fields, dict) else ():
            if draw.random() < 0.02 or (table == "model" and draw.random() < 0.05):
                new = draw.choice([v for v in VALUES if v is not None and not isinstance(v, list | dict)])
                if isinstance(value, int) and draw.random() < 0.5:
                    new = draw.choice([value * 2, value + 1, -value, 10**6, 10**9])
                line = f"{name} = {to_toml(new)}".replace("\\", r"\\")
                text = re.sub(rf"^{name} = .*$", line, text, flags=re.MULTILINE)
    return text.encode()


def mutate_safetensors(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return mutate_bytes(content, draw)
    size = struct.unpack("<Q", content[:8])[0]
    header = json.dumps(mutate_tree(json.loads(content[8 : 8 + size]), draw)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def mutate_gguf(content: bytes, draw: random.Random) -> bytes:
    """Changes bytes, the metadata or the list of tensors."""

    def change(fields: Any, infos: Any) -> tuple[Any, Any]:
        return (mutate_tree(fields, draw), infos) if draw.random() < 0.5 else (fields, mutate_tree(infos, draw))

    return mutate_bytes(content, draw) if draw.random() < 0.4 else rewrite_gguf(content, change)


def rewrite_gguf(content: bytes, change: Callable[[Any, Any], tuple[Any, Any]]) -> bytes:
    """Writes a file with other metadata, each value with the type that it has in Python, and another list of tensors."""
    from seq2see.exchange.gguf_file import _Header, _parse

    header = _Header(memoryview(content))
    fields, infos = _parse(header)
    start = -(-header.position // 32) * 32
    fields, infos = change(fields, [list(info) for info in infos])
    fields, infos = fields if isinstance(fields, dict) else {}, infos if isinstance(infos, list) else []
    out = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(fields))
    out += b"".join(_gguf(str(key), False) + _gguf(value) for key, value in fields.items())
    for info in infos:
        name, shape, kind, offset = (*(info if isinstance(info, list) else []), 0, (1,), 0, 0)[:4]
        axes = [n if isinstance(n, int) else 0 for n in (shape if isinstance(shape, list | tuple) else ())]
        out += _gguf(str(name), False) + struct.pack("<I", len(axes))
        out += b"".join(struct.pack("<Q", n % 2**64) for n in reversed(axes))
        numbers = [n if isinstance(n, int) else 0 for n in (kind, offset)]
        out += struct.pack("<IQ", numbers[0] % 2**32, numbers[1] % 2**64)
    return out + b"\0" * (-len(out) % 32) + content[start:]


def _gguf(value: Any, typed: bool = True) -> bytes:
    """Returns a value in the format of GGUF, behind its type."""
    if isinstance(value, bool):
        kind, data = 7, struct.pack("<?", value)
    elif isinstance(value, int):
        kind, data = (11, struct.pack("<q", value)) if -(2**63) <= value < 2**63 else (12, struct.pack("<d", value))
    elif isinstance(value, float):
        kind, data = 12, struct.pack("<d", value)
    elif isinstance(value, list):
        alike = all(type(each) is type(value[0]) for each in value)
        items = [_gguf(each) for each in (value if alike else map(str, value))] or [_gguf("")]
        kind, data = (
            9,
            items[0][:4] + struct.pack("<Q", len(value)) + b"".join(item[4:] for item in items[: len(value)]),
        )
    else:
        text = str(value).encode(errors="replace")
        kind, data = 8, struct.pack("<Q", len(text)) + text
    return struct.pack("<I", kind) * typed + data


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
    """Damages a file and uses its model in a forked process."""
    draw = random.Random(f"{kind} {seed} {number}")
    models, names, damage = KINDS[kind]
    original, name = draw.choice(models)(), draw.choice(names)
    with tempfile.TemporaryDirectory(dir=_root()) as folder:
        for file in original.iterdir():
            if file.name == name:
                (Path(folder) / name).write_bytes(damage(file.read_bytes(), draw))
            elif file.suffix != ".gguf":
                (Path(folder) / file.name).symlink_to(file)
        return _in_a_child(lambda: use(Path(folder) / name if name.endswith(".gguf") else Path(folder)))


def _in_a_child(action: Callable[[], None]) -> Outcome:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Rust's panics are printed
        signal.alarm(MAX_SECONDS)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES * 5, MAX_BYTES * 5))  # for the machine's sake
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome = _outcome(action)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if grown > MAX_BYTES:
            outcome = Outcome("MEMORY", f"{grown / 1e9:.1f} GB; {outcome}")
        os.write(writer, json.dumps([outcome.kind, outcome.detail[-3000:]]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not answer:
        return Outcome("TIME" if status == -signal.SIGALRM else "KILLED", f"exit status {status}")
    return Outcome(*json.loads(answer))


def _outcome(action: Callable[[], None]) -> Outcome:
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


def fuzz(kind: str, count: int, seed: int = 1, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Runs cases; returns how many ended in each way, and a description of each failure."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    failures = []
    for number in range(first, first + count):
        outcome = run_case(kind, number, seed)
        counts[outcome.kind] += 1
        if outcome.kind.isupper():
            failures.append(f"{kind}, case {number}, {outcome.kind}: {outcome.detail}")
    return counts, failures


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
