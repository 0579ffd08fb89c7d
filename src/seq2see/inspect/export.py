"""Explanations as JSON: the results of all analyses as plain values.

docs/explaining.md describes the keys. Numbers have six significant digits; non-finite ones become null.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2see.errors import UserError
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import (
    Stack,
    attention_entropy,
    attention_names,
    attention_rollout,
    attention_weights,
)
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.tensors.files import atomic_write

FORMAT = "seq2see explanation 2"
DIGITS = 6


def to_dict(e: Explanation, top: int = 5) -> dict[str, Any]:
    """Returns everything as plain values, with the `top` most likely tokens per row and layer."""
    rows = range(len(e.decoder_input_tokens))
    entropy = attention_entropy(e)
    by_shape: dict[str, tuple[Stack, ...]] = {
        "encoder-decoder": ("encoder", "decoder", "both"), "decoder": ("decoder",), "encoder": ("encoder",),
    }  # fmt: skip
    stacks = by_shape[e.model.config.model.shape]
    is_text = e.model.config.model.source == "tokens"
    alignment = word_alignment(e) if e.model.config.model.cross_layers and is_text else None
    transformer = e.model.config.model.kind == "transformer"
    decodes = transformer and e.model.config.model.has_decoder
    result = {
        "format": FORMAT,
        "source": e.source,
        "output": e.output,
        **e.assessment.to_dict(),
        "tokens": {
            "source_tokens": e.source_tokens, "decoder_input_tokens": e.decoder_input_tokens,
            "target_tokens": e.target_tokens, "source_ids": e.source_ids, "decoder_input_ids": e.decoder_input_ids,
            "target_ids": e.target_ids, "output_start": e.output_start,
        },
        "hypothesis": None if e.hypothesis is None else asdict(e.hypothesis),
        "interventions": [{"pattern": one.pattern, **asdict(one.where)} for one in e.interventions],
        "probabilities": e.target_logprobs.exp(),
        "alternatives": [[asdict(one) for one in alternatives(e, row, top)] for row in rows],
        "alignment": None if alignment is None else {
            "source_words": alignment.source_words, "target_words": alignment.target_words, "weights": alignment.weights,
            "links": alignment.links,
        },
        "attention": {name: {"weights": attention_weights(e, name), "entropy": entropy[name]} for name in attention_names(e)},
        "rollout": {stack: attention_rollout(e, stack) for stack in stacks} if transformer else None,
        "logit_lens": asdict(logit_lens(e, top)) if decodes else None,
        "logit_attribution": [asdict(logit_attribution(e, row)) for row in rows] if decodes else None,
    }  # fmt: skip
    plain: dict[str, Any] = _plain(result)
    return plain


def write_json(e: Explanation, path: Path | str) -> None:
    """Writes an explanation as a JSON file."""
    try:
        with atomic_write(path) as part:
            part.write_text(json.dumps(to_dict(e), ensure_ascii=False, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _plain(value: Any) -> Any:
    """Converts tensors to lists, rounds numbers and replaces non-finite ones by None."""
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
