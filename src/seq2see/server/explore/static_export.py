"""Exports an explanation as one self-contained HTML file: the page with all of its data, no server or network needed.

The file embeds what the server would return about one text: the trace with every tensor, the analyses that the views use,
and the weights, so that the Inspector can recompute any cell. Tensors are base64 of little-endian float32, or of bfloat16
where that is exact (weights stored as bf16), and equal ones are stored once. The weights of a model larger than
MAX_WEIGHT_BYTES are left out, and the Inspector says so. Needs the built page, but neither FastAPI nor a browser.
"""

import math
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from seq2see.decode.search import Hypothesis
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_attribution import LogitAttribution, logit_attribution
from seq2see.inspect.weights import WeightInfo, get_weight, list_weights
from seq2see.server.explore import PAGE_DIRECTORY, responses
from seq2see.server.explore.responses import ResponseModel
from seq2see.tensors.files import write_text

MAX_VOCABULARY, TOP_TOKENS = 20_000, 100  # of a larger vocabulary, only the most likely tokens are included
MAX_TRACE_BYTES, MAX_WEIGHT_BYTES, MAX_RECORDING_BYTES = 64 << 20, 16 << 20, 4 << 20
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)


class EmbeddedTensor(ResponseModel):
    """A tensor of the self-contained page; bfloat16 is used where it is exact."""

    shape: list[int]
    dtype: Literal["float32", "bfloat16"]
    data_index: int = Field(description="Index into `data`; equal tensors are stored once.")


class EmbeddedData(ResponseModel):
    """The data of the self-contained page, in the server's own response models."""

    model: responses.ModelInfo
    trace: responses.Trace
    hypotheses: list[responses.Hypothesis] = Field(description="The n-best list of the beam; empty without a beam.")
    note: str = Field(description="A remark about how it was computed, or empty.")
    vocabulary: responses.Vocabulary
    top_tokens: responses.TopTokens | None = Field(
        default=None, description="Of a large vocabulary, instead of the probabilities."
    )
    attention_entropy: responses.AttentionEntropy
    logit_attributions: list[LogitAttribution] | str = Field(description="One per row, or the reason there are none.")
    tensors: dict[str, EmbeddedTensor]
    weight_infos: list[WeightInfo]
    weights: dict[str, EmbeddedTensor] = Field(description="Empty for a large model.")
    media: str = Field(default="", description="Base64 of the file of a sound, to play it; empty if it is large.")
    data: list[str] = Field(description="Base64 of little-endian values.")


def export_html(e: Explanation, path: Path | str, name: str, hypotheses: list[Hypothesis] | None = None) -> None:
    """Writes the HTML file. `name` is the model's name; `hypotheses` is the n-best list of its beam."""
    html = render_page(embedded_data(e, name, hypotheses or []))
    write_text(path, html)


def render_page(data: EmbeddedData, directory: Path = PAGE_DIRECTORY) -> str:
    """Returns the built page with its scripts, styles, fonts and the data inlined."""
    index = directory / "index.html"
    if not index.is_file():
        raise UserError(f"the page is not built ({index} is missing): run `make setup`, which needs Node")
    style = re.sub(
        r'url\("?(?:\./)?([\w.-]+\.woff2)"?\)',
        lambda match: f"url({_data_url(directory / match[1])})",
        _read(directory / "app.css"),
    )
    script = _read(directory / "app.js").replace("</script", r"<\/script")
    json = data.model_dump_json().replace("<", r"\u003c")
    html = _read(index)
    for old, new in {
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">'
        ),
        '<link rel="stylesheet" href="app.css">': f"<style>{style}</style>",
        'href="icon.svg"': f'href="{_data_url(directory / "icon.svg")}"',
        '<script src="app.js" defer></script>': (
            f'<script type="application/json" id="seq2see-data">{json}</script>\n<script>{script}</script>'
        ),
    }.items():
        if old not in html:
            raise UserError(f"{index} does not contain {old}: rebuild the page with `make setup`")
        html = html.replace(old, new)
    return html


def embedded_data(e: Explanation, name: str, hypotheses: list[Hypothesis]) -> EmbeddedData:
    tensors = TensorStore()
    large = e.model.config.model.predicts_tokens and e.model.config.model.vocab_size > MAX_VOCABULARY
    names = [tensor for tensor in e.trace.names() if not (large and tensor == "probabilities")]
    size = sum(4 * e.trace[tensor, 0].numel() for tensor in names)
    if size > MAX_TRACE_BYTES:
        tokens = len(e.source_tokens) + len(e.decoder_input_tokens)
        raise UserError(
            f"the trace of {tokens} tokens takes {size:,} bytes, but a page holds at most {MAX_TRACE_BYTES:,}: "
            "shorten the text, or use `seq2see explore`"
        )
    model, weight_infos = e.model, list_weights(e.model.network)
    fits = sum(4 * math.prod(weight.shape) for weight in weight_infos) <= MAX_WEIGHT_BYTES
    return EmbeddedData(
        model=responses.model_info(name, model.config, model.tokenizers, model.scores, snapshots=[]),
        trace=responses.trace("embedded", name, None, e),
        hypotheses=[responses.hypothesis(model, found) for found in hypotheses],
        note=_note(e),
        vocabulary=responses.vocabulary(model),
        attention_entropy=responses.entropy(e),
        logit_attributions=_logit_attributions(e),
        top_tokens=responses.top_tokens(e, TOP_TOKENS) if large else None,
        tensors={tensor: tensors.add(e.trace[tensor, 0]) for tensor in names},
        weight_infos=weight_infos,
        weights={one.name: tensors.add(get_weight(model.network, one.name)) for one in weight_infos} if fits else {},
        media=_recording(e),
        data=tensors.data,
    )


def _recording(e: Explanation) -> str:
    """Returns base64 of the file of a sound, if it is there and not large. A picture is drawn from its patches."""
    path = Path(e.source)
    if e.model.config.model.source != "sounds" or not path.is_file() or path.stat().st_size > MAX_RECORDING_BYTES:
        return ""
    return b64encode(path.read_bytes()).decode()


def _logit_attributions(e: Explanation) -> list[LogitAttribution] | str:
    """Returns one per row, or the error message for a model whose logits are not a sum of contributions."""
    rows = range(len(e.decoder_input_tokens))
    try:
        return [logit_attribution(e, row) for row in rows]
    except UserError as error:
        return str(error)


class TensorStore:
    """Base64-encoded tensors, each stored once."""

    def __init__(self) -> None:
        self.data: list[str] = []
        self._indices: dict[bytes, int] = {}

    def add(self, tensor: Tensor) -> EmbeddedTensor:
        values = tensor.detach().float().cpu().contiguous()
        narrow = values.bfloat16()
        exact = bool(torch.equal(narrow.float(), values)) and values.numel() > 0
        array = (narrow.view(torch.int16) if exact else values).numpy()
        raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        index = self._indices.setdefault(sha256(raw).digest(), len(self.data))
        if index == len(self.data):
            self.data.append(b64encode(raw).decode())
        return EmbeddedTensor(shape=list(values.shape), dtype="bfloat16" if exact else "float32", data_index=index)


def _note(e: Explanation) -> str:
    names = [f"{one.pattern}{'' if one.where.head is None else f' (head {one.where.head})'}" for one in e.interventions]
    return f"Computed with interventions on {', '.join(names)}." if names else ""


def _data_url(path: Path) -> str:
    media_type = {".svg": "image/svg+xml", ".woff2": "font/woff2"}[path.suffix]
    return f"data:{media_type};base64,{b64encode(path.read_bytes()).decode()}"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
