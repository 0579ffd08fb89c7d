"""Compares our models with Hugging Face's on the same weights: random configurations of every family, and `make parity`.

Each case draws a configuration, builds a Hugging Face model with random weights, converts it, and runs both on sentences of
different lengths. Biases of 0 and norm weights of 1 would hide mistakes, so all parameters are perturbed first.

Some of their models compute norms and softmax in float32 even with float64 weights. For the comparison in float64 they are
made to compute in float64 there; the rotary angles and their cosines stay in float32, in theirs and in ours.
"""

import importlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import Tensor, nn

from seq2see.data.layout import Packed
from seq2see.exchange.huggingface import from_huggingface
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer

transformers.logging.set_verbosity_error()

SOURCES = [[5, 9, 2], [7, 3, 8, 21, 4, 6, 2], [3], [11, 12, 13, 14, 15]]
TARGETS = [[4, 8, 15, 16], [23, 42], [31, 2, 3, 4, 5, 6], [9, 9]]

Draw = Callable[[random.Random], nn.Module]


@dataclass(frozen=True)
class Difference:
    """The largest differences: absolute, and relative to the largest output."""

    outputs: float
    relative: float
    weights: float

    def __or__(self, other: "Difference") -> "Difference":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Difference(*(max(pair) for pair in pairs))


def compare(draw: Draw, seed: int, dtype: torch.dtype) -> Difference:
    torch.manual_seed(seed)
    theirs = perturbed(draw(random.Random(seed))).to(dtype).eval()
    ours = from_huggingface(theirs)
    source, target = Packed.from_sequences(SOURCES), Packed.from_sequences(TARGETS)
    inputs = (source, target) if ours.config.shape == "encoder-decoder" else (source,)
    with torch.no_grad(), trace(ours, only="*.weights") as t:
        traced = ours(*inputs)
    with torch.no_grad():
        fast = ours(*inputs)
    difference = Difference(0.0, 0.0, 0.0)
    for s in range(len(SOURCES)):
        with torch.no_grad(), their_precision(theirs, dtype):
            their_output, their_weights = run_huggingface(theirs, ours, s)
        rows = inputs[-1].layout.slice(s)
        largest = max(float((output[rows] - their_output).abs().max()) for output in (traced, fast))
        assert set(their_weights) == set(t.names())
        weights = max(float((t[name, s] - expected).abs().max()) for name, expected in their_weights.items())
        difference |= Difference(largest, largest / float(their_output.abs().max()), weights)
    return difference


class _Float64Torch:
    """torch with float32 replaced by float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _gemma_norm(norm: Any, x: Tensor) -> Tensor:
    return norm._norm(x) * (1 + norm.weight)


@contextmanager
def their_precision(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Makes their model compute in float64 where it would use float32, if the weights are float64."""
    module = importlib.import_module(type(model).__module__)
    to_float = Tensor.float
    with ExitStack() as stack:
        if dtype == torch.float64:
            stack.enter_context(patch.object(module, "torch", _Float64Torch()))
            for name in ("Gemma2RMSNorm", "Gemma3RMSNorm"):
                if hasattr(module, name):
                    stack.enter_context(patch.object(getattr(module, name), "forward", _gemma_norm))
            if type(model).__name__.startswith("T5"):  # scores have four axes
                keep = lambda x: x if x.dim() == 4 else to_float(x)  # noqa: E731
                stack.enter_context(patch.object(Tensor, "float", keep))
        yield


def perturbed(model: nn.Module) -> nn.Module:
    """Adds noise to every parameter except the fixed sinusoids."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name or not _has_sinusoids(model):
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()  # type: ignore[operator]
    return model


def _has_sinusoids(model: nn.Module) -> bool:
    return str(model.config.model_type) in ("marian", "pegasus")  # type: ignore[union-attr]


def run_huggingface(model: nn.Module, ours: Transformer, sentence: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the output and, under our names, the attention weights for one sentence of a padded batch."""
    padding = getattr(model.config, "pad_token_id", None) or 0
    source, mask = padded(SOURCES, padding)
    common: dict[str, Any] = {"input_ids": source, "attention_mask": mask, "output_attentions": True}
    n = len(SOURCES[sentence])
    weights: dict[str, Tensor] = {}
    if ours.config.shape == "encoder-decoder":
        target, target_mask = padded(TARGETS, padding)
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
    output = out.logits if ours.config.predicts_tokens else out.last_hidden_state
    return output[sentence, :n], weights


def padded(sentences: list[list[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    max_length = max(map(len, sentences))
    ids = torch.tensor([s + [padding] * (max_length - len(s)) for s in sentences])
    mask = torch.tensor([[1] * len(s) + [0] * (max_length - len(s)) for s in sentences])
    return ids, mask


def build(kind: str, options: dict[str, Any]) -> nn.Module:
    """Builds a model of transformers, such as MarianMT, from the options of its configuration."""
    config_name = {"MarianMT": "Marian", "GPT2LMHead": "GPT2", "Gemma3ForCausalLM": "Gemma3Text"}.get(kind)
    config_name = config_name or kind.split("For")[0].removesuffix("Model")
    config = getattr(transformers, f"{config_name}Config")(**options, attn_implementation="eager")
    name = kind if kind.startswith(("Gemma", "Llama", "Mistral", "Qwen")) or "For" in kind else f"{kind}Model"
    return getattr(transformers, name.replace("ModelModel", "Model"))(config)


SIZES: dict[str, dict[str, Any]] = {
    "MarianMT": {
        "vocab_size": 101, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 16,
        "pad_token_id": 0, "decoder_start_token_id": 0,
    },
    "GPT2LMHead": {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16},
    "Bert": {
        "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 16,
    },
    "LlamaForCausalLM": {
        "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 48, "max_position_embeddings": 16,
    },
}  # fmt: skip


def small(kind: str, **options: Any) -> Any:
    """Builds a small model with these options."""
    return build(kind, SIZES[kind] | options)


def _sizes(r: random.Random) -> tuple[int, int]:
    """Draws a number of heads and a width."""
    heads = r.choice([1, 2, 3, 4, 6])
    return heads, heads * r.choice([4, 6, 8, 12])


def _encoder_decoder(r: random.Random, **options: Any) -> dict[str, Any]:
    heads, width = _sizes(r)
    inner = r.choice([20, 48])
    return {
        "vocab_size": 101, "d_model": width, "encoder_layers": r.randint(1, 4), "decoder_layers": r.randint(1, 4),
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner, "max_position_embeddings": r.choice([16, 40]),
        "activation_function": r.choice(["relu", "gelu", "swish", "gelu_new"]), "scale_embedding": r.random() < 0.5,
        "pad_token_id": 1, "decoder_start_token_id": 2, **options,
    }  # fmt: skip


def marian(r: random.Random) -> nn.Module:
    vocabularies: dict[str, Any] = r.choice(
        [{}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 57}, {"tie_word_embeddings": False}]
    )
    return build("MarianMT", _encoder_decoder(r, **vocabularies) | {"pad_token_id": 0})


def bart(r: random.Random) -> nn.Module:
    return build("BartForConditionalGeneration", _encoder_decoder(r))


def mbart(r: random.Random) -> nn.Module:
    return build("MBartForConditionalGeneration", _encoder_decoder(r))


def pegasus(r: random.Random) -> nn.Module:
    return build("PegasusForConditionalGeneration", _encoder_decoder(r) | {"pad_token_id": 0})


def m2m100(r: random.Random) -> nn.Module:
    return build("M2M100ForConditionalGeneration", _encoder_decoder(r))


def t5(r: random.Random) -> nn.Module:
    tied = r.random() < 0.5
    return build(
        "T5ForConditionalGeneration",
        {
            "vocab_size": 101, "d_model": r.choice([16, 24]), "d_kv": r.choice([4, 8]), "num_heads": r.choice([1, 3, 4]),
            "d_ff": 20, "num_layers": r.randint(1, 3), "num_decoder_layers": r.randint(1, 3),
            "relative_attention_num_buckets": r.choice([8, 32]), "relative_attention_max_distance": r.choice([20, 128]),
            "feed_forward_proj": r.choice(["relu", "gated-gelu"]), "tie_word_embeddings": tied,
            "scale_decoder_outputs": tied, "decoder_start_token_id": 0,
        },
    )  # fmt: skip


def gpt2(r: random.Random) -> nn.Module:
    heads, width = _sizes(r)
    return build(
        "GPT2LMHead",
        {
            "vocab_size": 101, "n_embd": width, "n_layer": r.randint(1, 6), "n_head": heads, "n_positions": 16,
            "n_inner": r.choice([None, 40]), "activation_function": r.choice(["gelu_new", "relu", "gelu"]),
            "tie_word_embeddings": r.random() < 0.5, "scale_attn_weights": r.random() < 0.7,
        },
    )  # fmt: skip


def scalings(width: int) -> list[dict[str, Any]]:
    """Every kind of scaled rotary positions, for texts of up to 16 tokens."""
    pairs = width // 2
    base = {"rope_theta": 500.0}
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    return [
        {"rope_type": "default", **base},
        {"rope_type": "linear", "factor": 2.5, **base},
        {"rope_type": "dynamic", "factor": 2.0, **base},
        {"rope_type": "llama3", **llama3, **base},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 4.0, **base},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 0.7, "mscale_all_dim": 1.0,
         "truncate": False, **base},
        {"rope_type": "longrope", "short_factor": [1 + i / 7 for i in range(pairs)], "long_factor": [3.0] * pairs,
         "original_max_position_embeddings": 8, "factor": 2.0, **base},
    ]  # fmt: skip


def _llama(r: random.Random, **options: Any) -> dict[str, Any]:
    key_value_heads = r.choice([1, 2])
    heads, head_width = key_value_heads * r.choice([1, 2, 3]), r.choice([8, 10])
    return {
        "vocab_size": 101, "hidden_size": r.choice([heads * head_width, heads * 12]), "num_hidden_layers": r.randint(1, 4),
        "num_attention_heads": heads, "num_key_value_heads": key_value_heads, "head_dim": head_width,
        "intermediate_size": 28, "max_position_embeddings": 16, "tie_word_embeddings": r.random() < 0.5,
        "rope_parameters": r.choice(scalings(head_width)), "pad_token_id": 0, **options,
    }  # fmt: skip


def llama(r: random.Random) -> nn.Module:
    biases = {"attention_bias": r.random() < 0.5, "mlp_bias": r.random() < 0.5}
    return build("LlamaForCausalLM", _llama(r, **biases))


def mistral(r: random.Random) -> nn.Module:
    return build("MistralForCausalLM", _llama(r, sliding_window=r.choice([None, 2, 3])))


def qwen2(r: random.Random) -> nn.Module:
    options = _llama(r, use_sliding_window=r.random() < 0.5, sliding_window=3, max_window_layers=1)
    options["hidden_size"] = options["num_attention_heads"] * options.pop("head_dim")
    return build("Qwen2ForCausalLM", options)


def qwen3(r: random.Random) -> nn.Module:
    return build(
        "Qwen3ForCausalLM",
        _llama(r, attention_bias=r.random() < 0.5, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    )


def _gemma(r: random.Random, **options: Any) -> dict[str, Any]:
    common = _llama(r, query_pre_attn_scalar=r.choice([8, 20]), sliding_window=3, attention_bias=r.random() < 0.3)
    # √36 and √144 are exact: their float64 model multiplies embeddings by the root in float32.
    return common | {"hidden_size": r.choice([36, 144]), **options}


def gemma2(r: random.Random) -> nn.Module:
    return build("Gemma2ForCausalLM", _gemma(r, attn_logit_softcapping=2.0, final_logit_softcapping=3.0))


def gemma3(r: random.Random) -> nn.Module:
    options = _gemma(r, num_hidden_layers=r.randint(1, 7), final_logit_softcapping=r.choice([None, 3.0]))
    scaling = {key: value for key, value in options["rope_parameters"].items() if key != "rope_theta"}
    if scaling["rope_type"] not in ("default", "linear"):
        scaling = {"rope_type": "linear", "factor": 8.0}
    options["rope_parameters"] = {
        "full_attention": {**scaling, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    }
    return build("Gemma3ForCausalLM", options)


def _bert(r: random.Random, **options: Any) -> dict[str, Any]:
    heads, width = _sizes(r)
    return {
        "vocab_size": 101, "hidden_size": width, "num_hidden_layers": r.randint(1, 6), "num_attention_heads": heads,
        "intermediate_size": 20, "max_position_embeddings": 18, "type_vocab_size": r.choice([1, 2, 3]),
        "hidden_act": r.choice(["gelu", "relu", "gelu_new"]), **options,
    }  # fmt: skip


def bert(r: random.Random) -> nn.Module:
    return build(r.choice(["Bert", "BertForMaskedLM"]), _bert(r))


def roberta(r: random.Random) -> nn.Module:
    return build(r.choice(["Roberta", "RobertaForMaskedLM", "XLMRobertaForMaskedLM"]), _bert(r, hidden_act="gelu"))


def distilbert(r: random.Random) -> nn.Module:
    heads, width = _sizes(r)
    options = {
        "vocab_size": 101,
        "dim": width,
        "n_layers": r.randint(1, 5),
        "n_heads": heads,
        "hidden_dim": 20,
        "max_position_embeddings": 16,
        "activation": r.choice(["gelu", "relu"]),
    }
    return build(r.choice(["DistilBert", "DistilBertForMaskedLM"]), options)


FAMILIES: dict[str, Draw] = {
    "Marian": marian, "BART": bart, "mBART": mbart, "Pegasus": pegasus, "M2M100, NLLB": m2m100, "T5": t5,
    "GPT-2": gpt2, "Llama, SmolLM": llama,
    "Mistral": mistral, "Qwen 2": qwen2, "Qwen 3": qwen3, "Gemma 2": gemma2, "Gemma 3": gemma3, "BERT, MiniLM": bert,
    "RoBERTa": roberta, "DistilBERT": distilbert,
}  # fmt: skip
CONFIGURATIONS = 12  # drawn for each family


def main() -> None:
    print(
        f"Largest difference from Hugging Face over {CONFIGURATIONS} configurations: float64 absolute, float32 relative"
    )
    print(f"{'family':<16}{'output':>10}{'attention':>12}{'output, float32':>18}")
    for name, draw in FAMILIES.items():
        exact = single = Difference(0.0, 0.0, 0.0)
        for seed in range(CONFIGURATIONS):
            exact, single = exact | compare(draw, seed, torch.float64), single | compare(draw, seed, torch.float32)
        print(f"{name:<16}{exact.outputs:>10.1e}{exact.weights:>12.1e}{single.relative:>18.1e}", flush=True)


if __name__ == "__main__":
    main()
