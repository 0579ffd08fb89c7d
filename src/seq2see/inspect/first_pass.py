"""One pass through a model that has learned nothing yet, step by step.

What shows is the machinery, and that it starts well: numbers of about unit size in every layer.
"""

import math

import torch
from rich.console import Console

from seq2see.config import ModelConfig
from seq2see.inspect.terminal import summary
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.registry import kind_of

PAIRS = [
    ("I like eating ice-cream", "मुझे आइसक्रीम खाना पसंद है"),
    ("We are friends", "हम दोस्त हैं"),
]


def tell(config: ModelConfig, name: str, console: Console) -> None:
    """Two sentences of different lengths through a fresh model: shape, mean and spread at each named step."""
    torch.manual_seed(1)
    model = kind_of(config)(config).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"[bold]{name}[/]: {count:,} parameters, none of them trained")
    sources, targets = ([pair[side].split() for pair in PAIRS] for side in (0, 1))
    words = ["<start>", "<end>", *sorted({word for sentence in sources + targets for word in sentence})]
    ids = {word: number for number, word in enumerate(words)}
    source = Packed.of([[ids[word] for word in sentence] for sentence in sources])
    inputs, following = source, Packed.of([[*(ids[word] for word in s[1:]), ids["<end>"]] for s in sources])
    both: tuple[Packed, ...] = (source,)
    if config.shape == "encoder-decoder":
        inputs = Packed.of([[ids["<start>"], *(ids[word] for word in sentence)] for sentence in targets])
        following = Packed.of([[*(ids[word] for word in sentence), ids["<end>"]] for sentence in targets])
        both = (source, inputs)
    for english, hindi in PAIRS:
        console.print(f"  {english}" + (f"  [dim]→[/]  {hindi}" if len(both) > 1 else ""))
    with torch.no_grad(), trace(model) as t:
        output = model(*both)
    console.print("packed end to end, and now one pass:\n")
    for stack in t.layouts:
        layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
        for title, pattern in (
            (f"{stack}: what enters", f"{stack}.[!0-9vf]*"),
            (f"{stack}.0: the first of {layers} blocks", f"{stack}.0.*"),
            (f"{stack}: what leaves", f"{stack}.[vf]*"),
        ):
            console.print(summary(t, pattern, title))
            console.print()
    if config.has_decoder:
        console.print(summary(t, "[lp]*", "the next token"))
        loss = torch.nn.functional.cross_entropy(output, following.tokens)
        console.print(
            f"\n{len(t.names())} steps have a name. Knowing nothing would cost ln {config.vocabulary:,} = "
            f"{math.log(config.vocabulary):.2f}; this untrained model's loss is {loss:.2f}."
        )
