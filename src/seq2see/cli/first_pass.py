"""One forward pass through an untrained model, step by step.

It shows every operation, and that the initialisation is sound: values of about unit size in every layer.
"""

import math

import torch
from rich.console import Console
from rich.text import Text

from seq2see.config import ModelConfig
from seq2see.data.layout import Packed
from seq2see.errors import UsageError
from seq2see.inspect.trace import trace
from seq2see.model.network import model_class
from seq2see.views.terminal import draw_trace

PAIRS = [
    ("I like eating ice-cream", "मुझे आइसक्रीम खाना पसंद है"),
    ("We are friends", "हम दोस्त हैं"),
]


def print_first_pass(config: ModelConfig, name: str, console: Console) -> None:
    """Runs two sentences of different lengths through a new model; prints shape, mean and std of each value."""
    torch.manual_seed(1)
    model = model_class(config)(config).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(Text.assemble((name, "bold"), f": {count:,} parameters, untrained"))
    sources, targets = ([pair[side].split() for pair in PAIRS] for side in (0, 1))
    vocabulary = ["<start>", "<end>", *sorted({word for sentence in sources + targets for word in sentence})]
    if min(config.vocab_size, config.source_vocab_size or config.vocab_size) < len(vocabulary):
        raise UsageError(f"--trace reads {len(vocabulary)} different words: set model.vocab_size to at least as many")

    def pack(sentences: list[list[str]]) -> Packed:
        return Packed.from_sequences([[vocabulary.index(word) for word in sentence] for sentence in sentences])

    source, labels = pack(sources), pack([[*sentence[1:], "<end>"] for sentence in sources])
    if config.source != "tokens":
        source = _random_rows(config, [8 * len(sentence) for sentence in sources])
    inputs: tuple[Packed, ...] = (source,)
    if config.shape == "encoder-decoder":
        inputs = (source, pack([["<start>", *sentence] for sentence in targets]))
        labels = pack([[*sentence, "<end>"] for sentence in targets])
    for english, hindi in PAIRS:
        english = english if config.source == "tokens" else f"random {config.source}"
        line = Text(f"  {english}")
        console.print(line.append("  →  ", "dim").append(hindi) if len(inputs) > 1 else line)
    with torch.no_grad(), trace(model) as t:
        output = model(*inputs)
    console.print("packed end to end, one forward pass:\n")
    for stack in t.layouts:
        layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
        for title, pattern in (
            (f"{stack}: input", f"{stack}.[!0-9vf]*"),
            (f"{stack}.0: the first of {layers} blocks", f"{stack}.0.*"),
            (f"{stack}: output", f"{stack}.[vf]*"),
        ):
            console.print(draw_trace(t, pattern, title))
            console.print()
    if config.has_decoder:
        console.print(draw_trace(t, "[lp]*", "the next token"))
        loss = torch.nn.functional.cross_entropy(output, labels.tokens)
        console.print(
            f"\n{len(t.names())} named values. A uniform prediction has a loss of ln {config.vocab_size:,} = "
            f"{math.log(config.vocab_size):.2f}; this untrained model has {loss:.2f}."
        )


def _random_rows(config: ModelConfig, lengths: list[int]) -> Packed:
    """Returns noise in place of patches or frames, in the range that they have."""
    rows = [torch.rand(length, config.row_size) * (255 if config.source == "pictures" else 1) for length in lengths]
    return Packed.from_sequences([row.numpy() for row in rows])
