"""Compares our models with Hugging Face's on the same weights: the test cases, and the table of `make parity`.

Each case builds a Hugging Face model with random weights, converts it, and runs both on sentences of different lengths.
Biases of 0 and norm weights of 1 would hide mistakes, so all parameters are perturbed first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama import modeling_llama

from seq2see.exchange.huggingface import from_huggingface
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer

transformers.logging.set_verbosity_error()

SOURCES = [[5, 9, 2], [7, 3, 8, 1, 4, 6, 2], [3], [11, 12, 13, 14, 15]]
TARGETS = [[4, 8, 15, 16], [23, 42], [1, 2, 3, 4, 5, 6], [9, 9]]


@dataclass(frozen=True)
class Difference:
    """The largest differences: absolute, and relative to the largest output."""

    outputs: float
    relative: float
    weights: float


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]

    def compare(self, dtype: torch.dtype) -> Difference:
        torch.manual_seed(0)
        theirs = perturbed(self.build()).to(dtype).eval()
        ours = from_huggingface(theirs)
        source, target = Packed.from_sequences(SOURCES), Packed.from_sequences(TARGETS)
        inputs = (source, target) if ours.config.shape == "encoder-decoder" else (source,)
        with torch.no_grad(), trace(ours, only="*.weights") as t:
            traced = ours(*inputs)
        with torch.no_grad():
            fast = ours(*inputs)
        outputs = relative = weights = 0.0
        for s in range(len(SOURCES)):
            with torch.no_grad(), llama_precision(dtype):
                their_output, their_weights = run_huggingface(theirs, ours, s)
            rows = inputs[-1].layout.slice(s)
            for output in (traced, fast):
                difference = float((output[rows] - their_output).abs().max())
                outputs = max(outputs, difference)
                relative = max(relative, difference / float(their_output.abs().max()))
            assert set(their_weights) == set(t.names())
            for name, expected in their_weights.items():
                weights = max(weights, float((t[name, s] - expected).abs().max()))
        return Difference(outputs, relative, weights)


class _Float64Torch:
    """torch with float32 replaced by float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def llama_precision(dtype: torch.dtype) -> Iterator[None]:
    """Llama computes norms and softmax in float32 even with float64 weights; this makes them float64 for the comparison."""
    if dtype == torch.float64:
        modeling_llama.torch = _Float64Torch()
    try:
        yield
    finally:
        modeling_llama.torch = torch


def perturbed(model: nn.Module) -> nn.Module:
    """Adds noise to every parameter except the fixed sinusoids."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()  # type: ignore[operator]
    return model


def run_huggingface(model: nn.Module, ours: Transformer, sentence: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the output and, under our names, the attention weights for one sentence of a padded batch."""
    source, mask = padded(SOURCES)
    common: dict[str, Any] = {"input_ids": source, "attention_mask": mask, "output_attentions": True}
    n = len(SOURCES[sentence])
    weights: dict[str, Tensor] = {}
    if ours.config.shape == "encoder-decoder":
        target, target_mask = padded(TARGETS)
        out = model(**common, decoder_input_ids=target, decoder_attention_mask=target_mask)
        m = len(TARGETS[sentence])
        for layer, table in enumerate(out.encoder_attentions):
            weights[f"encoder.{layer}.self.weights"] = table[sentence, :, :n, :n]
        for layer, table in enumerate(out.decoder_attentions):
            weights[f"decoder.{layer}.masked.weights"] = table[sentence, :, :m, :m]
        for layer, table in enumerate(out.cross_attentions):
            weights[f"decoder.{layer}.cross.weights"] = table[sentence, :, :m, :n]
        return out.logits[sentence, :m], weights
    out = model(**common)
    name = "decoder.{}.masked.weights" if ours.config.shape == "decoder" else "encoder.{}.self.weights"
    for layer, table in enumerate(out.attentions):
        weights[name.format(layer)] = table[sentence, :, :n, :n]
    output = out.logits if ours.config.shape == "decoder" else out.last_hidden_state
    return output[sentence, :n], weights


def padded(sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    max_length = max(map(len, sentences))
    ids = torch.tensor([s + [0] * (max_length - len(s)) for s in sentences])
    mask = torch.tensor([[1] * len(s) + [0] * (max_length - len(s)) for s in sentences])
    return ids, mask


def marian(**options: Any) -> Callable[[], nn.Module]:
    defaults: dict[str, Any] = {
        "vocab_size": 101, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 16,
        "activation_function": "swish", "scale_embedding": True, "pad_token_id": 0, "decoder_start_token_id": 0,
        "attn_implementation": "eager",
    }  # fmt: skip
    return lambda: transformers.MarianMTModel(transformers.MarianConfig(**{**defaults, **options}))


def gpt2(**options: Any) -> Callable[[], nn.Module]:
    defaults: dict[str, Any] = {
        "vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "attn_implementation": "eager",
    }  # fmt: skip
    return lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**defaults, **options}))


def bert(**options: Any) -> Callable[[], nn.Module]:
    defaults: dict[str, Any] = {
        "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 16, "attn_implementation": "eager",
    }  # fmt: skip
    return lambda: transformers.BertModel(transformers.BertConfig(**{**defaults, **options}))


def llama(**options: Any) -> Callable[[], nn.Module]:
    defaults: dict[str, Any] = {
        "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16,
        "attn_implementation": "eager",
    }  # fmt: skip
    return lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**defaults, **options}))


CASES = [
    Case("Marian", marian()),
    Case("Marian, 6+1 layers, ReLU, unscaled", marian(
        encoder_layers=6, decoder_layers=1, activation_function="relu", scale_embedding=False)),
    Case("Marian, 3 heads of 14, GELU", marian(
        d_model=42, encoder_attention_heads=3, decoder_attention_heads=3, activation_function="gelu")),
    Case("Marian, separate vocabularies", marian(share_encoder_decoder_embeddings=False, decoder_vocab_size=57)),
    Case("Marian, untied", marian(tie_word_embeddings=False)),
    Case("GPT-2", gpt2()),
    Case("GPT-2, 8 layers, narrow", gpt2(n_layer=8, n_embd=12, n_head=3)),
    Case("GPT-2, 5 heads, untied, ReLU", gpt2(
        n_head=5, n_embd=35, tie_word_embeddings=False, activation_function="relu", n_inner=40)),
    Case("BERT", bert()),
    Case("BERT, 8 layers, 1 head", bert(num_hidden_layers=8, num_attention_heads=1)),
    Case("BERT, 7 heads, 3 segments", bert(
        hidden_size=42, num_attention_heads=7, type_vocab_size=3, hidden_act="gelu_new")),
    Case("Llama", llama()),
    Case("Llama, tied, biases, 3 heads per key", llama(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True, attention_bias=True,
        mlp_bias=True)),
    Case("Llama, 8 layers, wide heads", llama(
        num_hidden_layers=8, head_dim=24, num_key_value_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    Case("Llama, attention biases only", llama(attention_bias=True)),
]  # fmt: skip


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, title="Largest difference from Hugging Face: float64 absolute, float32 relative")
    for heading in ("same weights", "output", "attention", "output, float32"):
        table.add_column(heading, justify="left" if heading == "same weights" else "right")
    for case in CASES:
        exact, single = case.compare(torch.float64), case.compare(torch.float32)
        table.add_row(case.name, f"{exact.outputs:.1e}", f"{exact.weights:.1e}", f"{single.relative:.1e}")
    Console().print(table)


if __name__ == "__main__":
    main()
