"""Models of Hugging Face that several benchmarks run beside ours."""

import torch
import transformers

START, END = 1, 2


def transformer_base(vocab_size: int) -> transformers.MarianMTModel:
    """A Marian with the sizes of transformer-base and random weights, 0 as padding."""
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=END,
        decoder_start_token_id=START,
        attn_implementation="sdpa",
        max_position_embeddings=512,
    )
    return transformers.MarianMTModel(config).eval()
