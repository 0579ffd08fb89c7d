"""A model in a few lines: what it is, its size, its vocabulary, its training and its scores."""

from collections.abc import Mapping
from typing import Any

from seq2see.config import Config
from seq2see.data.tokenizer import Tokenizer
from seq2see.engine.model import reasons_against
from seq2see.model.summary import summarize
from seq2see.storage.scores import score_number, score_texts


def model_facts(config: Config, tokenizers: tuple[Tokenizer, Tokenizer], scores: Mapping[str, Any]) -> dict[str, str]:
    model, (source, target) = config.model, tokenizers
    layers = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
    attention = f", {model.heads} heads, feed-forward width {model.feed_forward:,}" * (model.kind == "transformer")
    facts = {
        "model": f"{_KINDS.get(model.kind, model.kind)}, {model.shape}",
        "size": f"{summarize(model, '').parameters:,} parameters: {'+'.join(map(str, layers))} layers, width "
        f"{model.width:,}{attention}",
    }
    if model.source == "pictures":
        patch = f"{model.patch_size} × {model.patch_size} pixels"
        facts["source"] = f"pictures of height {model.picture_height} in patches of {patch}"
    elif model.source == "sounds":
        facts["source"] = f"sounds in frames of {model.mel_bands} mel bands"
    if reasons := reasons_against(model):
        facts["decoding"] = f"on torch, not on the engine: {', '.join(reasons)}"
    separate = f" for the target, {len(source):,} for the source" if source is not target else ""
    facts["vocabulary"] = f"{len(target):,} {target.kind} tokens{separate}"
    steps, epochs, seconds = (score_number(scores, "training", key) for key in ("steps", "epochs", "seconds"))
    if steps is not None and epochs is not None and seconds is not None:
        facts["training"] = f"{steps:,} steps, {epochs:,} epochs, {seconds / 60:,.1f} minutes"
    known = score_texts(scores)
    return facts | ({"validation": ", ".join(known)} if known else {})


_KINDS = {
    "transformer": "Transformer",
    "rnn": "recurrent (2014)",
    "rnn-attention": "recurrent with attention (2015)",
}
