"""An explanation for programs: all readings as plain JSON values, and any file by its ending.

The keys are described in docs/explaining.md. Numbers have six digits; what is not finite is null.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import Stack, attentions, entropies, rollout, weights
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_attribution import contributions
from seq2see.inspect.logit_lens import alternatives, lens

FORMAT = "seq2see explanation 1"
DIGITS = 6


def as_dict(e: Explanation, top: int = 5) -> dict[str, Any]:
    """Everything, with so many of the likeliest tokens at each row and layer."""
    rows = range(len(e.reads))
    entropy = entropies(e)
    translates = bool(e.sources)
    stacks: tuple[Stack, ...] = ("encoder", "decoder", "both") if translates else ("decoder",)
    alignment = word_alignment(e) if e.model.config.model.cross_layers else None
    transformer = e.model.config.model.kind == "transformer"
    found = {
        "format": FORMAT,
        "source": e.source,
        "output": e.output,
        "tokens": {
            "sources": e.sources, "reads": e.reads, "writes": e.writes,
            "source_ids": e.source_ids, "read_ids": e.read_ids, "write_ids": e.write_ids, "first": e.first,
        },
        "hypothesis": None if e.hypothesis is None else asdict(e.hypothesis),
        "interventions": [{"names": one.names, **asdict(one.where)} for one in e.interventions],
        "probabilities": e.chosen.exp(),
        "alternatives": [[asdict(one) for one in alternatives(e, row, top)] for row in rows],
        "alignment": None if alignment is None else {
            "sources": alignment.sources, "targets": alignment.targets, "weights": alignment.weights,
            "links": alignment.links,
        },
        "attention": {name: {"weights": weights(e, name), "entropy": entropy[name]} for name in attentions(e)},
        "rollout": {stack: rollout(e, stack) for stack in stacks} if transformer else None,
        "lens": asdict(lens(e, top)) if transformer else None,
        "contributions": [asdict(contributions(e, row)) for row in rows] if transformer else None,
    }  # fmt: skip
    plain: dict[str, Any] = _plain(found)
    return plain


def write_json(e: Explanation, path: Path | str) -> None:
    try:
        with written_whole(path) as part:
            part.write_text(json.dumps(as_dict(e), ensure_ascii=False, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _plain(value: Any) -> Any:
    """Tensors as lists, numbers short and finite."""
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
