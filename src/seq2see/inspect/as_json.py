"""Explanations as JSON: the results of all analyses as plain values.

docs/explaining.md describes the keys. Numbers have six significant digits; non-finite ones become null.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import (
    RolloutStack,
    attention_entropy,
    attention_names,
    attention_rollout,
    attention_weights,
)
from seq2see.inspect.explain import Explanation, takes_explanation
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.tensors.files import to_json, write_text

FORMAT = "seq2see explanation 2"
DIGITS = 6


@takes_explanation
def to_dict(e: Explanation, top: int = 5) -> dict[str, Any]:
    """Returns everything as plain values, with the `top` most likely tokens per row and layer."""
    config, rows = e.model.config.model, range(len(e.decoder_input_tokens))
    stacks: tuple[RolloutStack, ...] = (
        ("encoder", "decoder", "both") if config.shape == "encoder-decoder" else (config.shape,)
    )
    aligns, is_transformer = config.cross_layers and config.source == "tokens", config.kind == "transformer"
    decodes = is_transformer and bool(e.target_ids)
    entropy = attention_entropy(e)
    result = {
        "format": FORMAT,
        "source": e.source,
        "output": e.output,
        **e.assessment.to_dict(),
        "tokens": {
            "source_tokens": e.source_tokens,
            "decoder_input_tokens": e.decoder_input_tokens,
            "target_tokens": e.target_tokens,
            "source_ids": e.source_ids,
            "decoder_input_ids": e.decoder_input_ids,
            "target_ids": e.target_ids,
            "output_start": e.output_start,
        },
        "hypothesis": e.hypothesis,
        "interventions": [{"pattern": one.pattern, **asdict(one.where)} for one in e.interventions],
        "probabilities": e.target_logprobs.exp(),
        "alternatives": [alternatives(e, row, top) for row in rows],
        "alignment": word_alignment(e) if aligns else None,
        "attention": {
            name: {"weights": attention_weights(e, name), "entropy": entropy[name]} for name in attention_names(e)
        },
        "rollout": {stack: attention_rollout(e, stack) for stack in stacks} if is_transformer else None,
        "logit_lens": logit_lens(e, top) if decodes else None,
        "logit_attribution": [logit_attribution(e, row) for row in rows] if decodes else None,
    }
    plain: dict[str, Any] = to_json(result, DIGITS)
    return plain


@takes_explanation
def write_json(e: Explanation, path: Path | str) -> None:
    """Writes an explanation as a JSON file."""
    write_text(path, json.dumps(to_dict(e), ensure_ascii=False, allow_nan=False))
