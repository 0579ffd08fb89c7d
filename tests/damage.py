"""Random damage to the files of a model, in bytes and in what they hold; for `tests.fuzz_models`."""

import copy
import json
import random
import re
import struct
import tomllib
from collections.abc import Callable
from typing import Any

VALUES: list[Any] = [
    *[None, True, False, 0, 1, -1, 2, 7, 1000, 10**6, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e-300, 1e300],
    *["", "x", "1", "nan", "<s>", "▁", "a" * 5000, "linear", "(a+)+$", "[", "?"],
    *[[], {}, [1], [[]], [None], {"type": "x"}, {"type": "Split", "pattern": {"Regex": "(a+)+$"}}, [0] * 1000],
]
FRAGMENTS = [b"\0", b"\xff" * 8, b"\xff\x7f", b"9" * 30, b"[" * 2000, b'"', b"{", b"e999", b"\n", b"\xf0"]


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
