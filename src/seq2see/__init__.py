"""seq2see: train a Transformer on your own text, run it fast, and see every number it computed.

What a notebook needs, in one import. Names load their modules when they are first used, so that importing seq2see does
not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seq2see.api import Model as Model
    from seq2see.api import load as load
    from seq2see.config import Config as Config
    from seq2see.config import ModelConfig as ModelConfig
    from seq2see.decode.search import Hypothesis as Hypothesis
    from seq2see.directory import snapshots as snapshots
    from seq2see.exchange.huggingface import from_huggingface as from_huggingface
    from seq2see.inspect.alignment import word_alignment as word_alignment
    from seq2see.inspect.attention_flow import ablations as ablations
    from seq2see.inspect.attention_flow import entropies as entropies
    from seq2see.inspect.attention_flow import rollout as rollout
    from seq2see.inspect.comparison import changes as changes
    from seq2see.inspect.explain import Explanation as Explanation
    from seq2see.inspect.explain import again as again
    from seq2see.inspect.interventions import Where as Where
    from seq2see.inspect.interventions import attending as attending
    from seq2see.inspect.interventions import attending_uniformly as attending_uniformly
    from seq2see.inspect.interventions import intervene as intervene
    from seq2see.inspect.interventions import patching as patching
    from seq2see.inspect.interventions import scaling as scaling
    from seq2see.inspect.interventions import without as without
    from seq2see.inspect.logit_attribution import contributions as contributions
    from seq2see.inspect.logit_lens import alternatives as alternatives
    from seq2see.inspect.logit_lens import lens as lens
    from seq2see.inspect.token_similarity import senses as senses
    from seq2see.inspect.token_similarity import similarities as similarities
    from seq2see.inspect.trace import Trace as Trace
    from seq2see.inspect.trace import trace as trace
    from seq2see.layout import Packed as Packed
    from seq2see.model.transformer import Transformer as Transformer
    from seq2see.presets import preset as preset

_HOMES = {
    "config": ["Config", "ModelConfig"],
    "presets": ["preset"],
    "decode.search": ["Hypothesis"],
    "api": ["Model", "load"],
    "directory": ["snapshots"],
    "model.layout": ["Packed"],
    "model.transformer": ["Transformer"],
    "look.trace": ["Trace", "trace"],
    "look.intervene": [
        "Where", "attending", "attending_uniformly", "intervene", "patching", "scaling", "without",
    ],
    "look.explain": ["Explanation", "again"],
    "look.alignment": ["word_alignment"],
    "look.flow": ["ablations", "entropies", "rollout"],
    "look.lens": ["alternatives", "lens"],
    "look.contributions": ["contributions"],
    "look.similarity": ["senses", "similarities"],
    "look.changes": ["changes"],
    "exchange.huggingface": ["from_huggingface"],
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'seq2see' has no attribute {name!r}")
    return getattr(import_module(f"seq2see.{_HOME[name]}"), name)
