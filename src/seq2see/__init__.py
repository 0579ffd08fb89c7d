"""seq2see: train a Transformer on your own text, run it fast, and see every number it computed.

Everything a notebook needs, in one import. Names import their modules on first use, so `import seq2see` does not import
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seq2see.api import Model as Model
    from seq2see.api import load as load
    from seq2see.config import Config as Config
    from seq2see.config import ModelConfig as ModelConfig
    from seq2see.data.layout import Packed as Packed
    from seq2see.decode.search import Hypothesis as Hypothesis
    from seq2see.exchange.huggingface import from_huggingface as from_huggingface
    from seq2see.inspect.alignment import word_alignment as word_alignment
    from seq2see.inspect.attention_flow import attention_entropy as attention_entropy
    from seq2see.inspect.attention_flow import attention_rollout as attention_rollout
    from seq2see.inspect.attention_flow import head_ablation as head_ablation
    from seq2see.inspect.comparison import compare as compare
    from seq2see.inspect.embedding_space import EmbeddingSpace as EmbeddingSpace
    from seq2see.inspect.embedding_space import token_paths as token_paths
    from seq2see.inspect.explain import Explanation as Explanation
    from seq2see.inspect.explain import rerun as rerun
    from seq2see.inspect.interventions import Selection as Selection
    from seq2see.inspect.interventions import ablate_head as ablate_head
    from seq2see.inspect.interventions import force_attention as force_attention
    from seq2see.inspect.interventions import intervene as intervene
    from seq2see.inspect.interventions import patch as patch
    from seq2see.inspect.interventions import scale as scale
    from seq2see.inspect.interventions import uniform_attention as uniform_attention
    from seq2see.inspect.logit_attribution import logit_attribution as logit_attribution
    from seq2see.inspect.logit_lens import alternatives as alternatives
    from seq2see.inspect.logit_lens import logit_lens as logit_lens
    from seq2see.inspect.token_similarity import contextual_embeddings as contextual_embeddings
    from seq2see.inspect.token_similarity import token_similarity as token_similarity
    from seq2see.inspect.trace import Trace as Trace
    from seq2see.inspect.trace import trace as trace
    from seq2see.model.transformer import Transformer as Transformer
    from seq2see.storage.directory import snapshots as snapshots
    from seq2see.train.presets import preset as preset

_EXPORTS = {
    "api": ["Model", "load"],
    "config": ["Config", "ModelConfig"],
    "decode.search": ["Hypothesis"],
    "storage.directory": ["snapshots"],
    "exchange.huggingface": ["from_huggingface"],
    "inspect.alignment": ["word_alignment"],
    "inspect.attention_flow": ["attention_entropy", "attention_rollout", "head_ablation"],
    "inspect.comparison": ["compare"],
    "inspect.embedding_space": ["EmbeddingSpace", "token_paths"],
    "inspect.explain": ["Explanation", "rerun"],
    "inspect.interventions": [
        "Selection", "ablate_head", "force_attention", "intervene", "patch", "scale", "uniform_attention",
    ],
    "inspect.logit_attribution": ["logit_attribution"],
    "inspect.logit_lens": ["alternatives", "logit_lens"],
    "inspect.token_similarity": ["contextual_embeddings", "token_similarity"],
    "inspect.trace": ["Trace", "trace"],
    "data.layout": ["Packed"],
    "model.transformer": ["Transformer"],
    "train.presets": ["preset"],
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'seq2see' has no attribute {name!r}")
    return getattr(import_module(f"seq2see.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
