"""The page with one explanation inside, as one file that opens from disk: no server, no network, nothing but the file.

What the server would answer about this text is written into the page as JSON: the manifest, every tensor of the trace, the
readings that views ask for, and the weights, so that the Inspector can work any cell out again. Tensors are base64 of
little-endian float32, or of its upper half where the lower one is 0 throughout (weights that were stored as bf16), and
equal ones are kept once. Of a model with more than WEIGHTS bytes the weights stay out, and the Inspector says so at the cells
that need them. Needs the page to be built, and neither fastapi nor a browser.
"""

import json
import re
from base64 import b64encode
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.decode.search import Hypothesis
from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.inspect.attention_flow import entropies
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_attribution import contributions
from seq2see.inspect.weights import weights
from seq2see.model.summary import structure
from seq2see.serve import serializers

FOLDER = Path(__file__).parent / "page"
TRACE, WEIGHTS = 64 << 20, 16 << 20  # bytes of the trace and of the weights, at most
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_page(e: Explanation, path: Path | str, name: str = "bundled", best: list[Hypothesis] | None = None) -> None:
    """One HTML file. `name` is the model's; `best` are the hypotheses of its beam, best first."""
    text = page(embedded(e, name, best or []))
    try:
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def page(data: dict[str, Any], folder: Path = FOLDER) -> str:
    """The built page with everything that it would fetch put in its place, and the data."""
    index = folder / "index.html"
    if not index.is_file():
        raise UserError(f"the page is not built ({index} is missing): run `make setup`, which needs Node")
    style = re.sub(
        r'url\("?(?:\./)?([\w.-]+\.woff2)"?\)', lambda m: f"url({_link(folder / m[1])})", _text(folder / "app.css")
    )
    script = _text(folder / "app.js").replace("</script", r"<\/script")
    facts = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", r"\u003c")
    html = _text(index)
    for old, new in {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<link rel="stylesheet" href="app.css">': f"<style>{style}</style>",
        'href="icon.svg"': f'href="{_link(folder / "icon.svg")}"',
        '<script src="app.js" defer></script>': (
            f'<script type="application/json" id="seq2see-data">{facts}</script>\n<script>{script}</script>'
        ),
    }.items():
        if old not in html:
            raise UserError(f"{index} has no {old}: build the page again with `make setup`")
        html = html.replace(old, new)
    return html


def embedded(e: Explanation, name: str, best: list[Hypothesis]) -> dict[str, Any]:
    """What the page asks for, as web/src/embedded.ts reads it; the parts are as the server answers them."""
    store = Store()
    size = sum(4 * e.trace[tensor, 0].numel() for tensor in e.trace.names())
    if size > TRACE:
        raise UserError(
            f"the numbers of {len(e.sources) + len(e.reads)} tokens take {size:,} bytes, where a page holds {TRACE:,}: "
            "shorten the text, or look at it with `seq2see explore`"
        )
    state = e.model.network.state_dict()
    fits = sum(4 * weight.numel() for weight in state.values()) <= WEIGHTS
    manifest = serializers.manifest("this", name, None, e)
    if best:
        manifest["hypotheses"] = [serializers.hypothesis(e.model, one) for one in best]
    return {
        "card": _card(e, name),
        "manifest": manifest,
        "note": _note(e),
        "tokens": serializers.tokens(e.model),
        "entropies": {place: heads.tolist() for place, heads in entropies(e).items()},
        "contributions": _contributions(e),
        "tensors": {tensor: store.add(e.trace[tensor, 0]) for tensor in e.trace.names()},
        "learned": [asdict(weight) for weight in weights(e.model.network)],
        "weights": {place: store.add(weight) for place, weight in state.items()} if fits else {},
        "data": store.data,
    }


def _contributions(e: Explanation) -> list[Any] | str:
    """Of every row; or, of a model whose logits are no sum, the sentence that says so."""
    try:
        return [asdict(contributions(e, row)) for row in range(len(e.reads))]
    except UserError as error:
        return str(error)


class Store:
    """Tensors as text, each once."""

    def __init__(self) -> None:
        self.data: list[str] = []
        self._known: dict[bytes, int] = {}

    def add(self, tensor: Tensor) -> dict[str, Any]:
        numbers = tensor.detach().float().cpu().contiguous()
        narrow = numbers.bfloat16()
        exact = bool(torch.equal(narrow.float(), numbers)) and numbers.numel() > 0
        data = (narrow.view(torch.int16) if exact else numbers).numpy()
        raw = data.astype(data.dtype.newbyteorder("<")).tobytes()
        at = self._known.setdefault(sha256(raw).digest(), len(self.data))
        if at == len(self.data):
            self.data.append(b64encode(raw).decode())
        return {"shape": list(numbers.shape), "kind": "bfloat16" if exact else "float32", "at": at}


def _note(e: Explanation) -> str:
    reached = [f"{one.names}{'' if one.where.head is None else f' (head {one.where.head})'}" for one in e.interventions]
    return f"Computed while the model was reached into: {', '.join(reached)}." if reached else ""


def _card(e: Explanation, name: str) -> dict[str, Any]:
    source, target = e.model.tokenizers
    config = e.model.config
    return {
        "name": name, "kind": "translator" if config.model.has_encoder else "language model",
        "parameters": structure(config.model, name).parameters,
        "vocabulary": {
            "source": len(source), "target": len(target), "shared": source is target, "kind": target.kind,
        },
        "snapshots": [], "config": asdict(config), "scores": dict(e.model.scores),
    }  # fmt: skip


def _link(path: Path) -> str:
    kind = {".svg": "image/svg+xml", ".woff2": "font/woff2"}[path.suffix]
    return f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
