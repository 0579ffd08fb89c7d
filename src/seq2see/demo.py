"""`make demo`: the paper's model, built, and every step of one forward pass through it.

The weights are the initial ones, so the model knows nothing yet; what shows is the machinery, and that it starts well:
numbers of about unit size in every layer.
"""

import math
import time

import torch
from rich.console import Console

from seq2see.look.pictures import summary
from seq2see.look.trace import trace
from seq2see.model.layout import Packed
from seq2see.model.transformer import Transformer
from seq2see.presets import preset

PAIRS = [
    ("I like eating ice-cream", "मुझे आइसक्रीम खाना पसंद है"),
    ("We are friends", "हम दोस्त हैं"),
]


def main() -> None:
    console = Console(highlight=False)
    torch.manual_seed(1)
    began = time.perf_counter()
    model = Transformer(preset("paper-base")).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"[bold]paper-base[/]: {count:,} parameters, built in {time.perf_counter() - began:.1f} s")
    for english, hindi in PAIRS:
        console.print(f"  {english}  [dim]→[/]  {hindi}")

    sources, targets = ([pair[side].split() for pair in PAIRS] for side in (0, 1))
    words = ["<start>", "<end>", *sorted({word for sentence in sources + targets for word in sentence})]
    ids = {word: number for number, word in enumerate(words)}
    source = Packed.of([[ids[word] for word in sentence] for sentence in sources])
    target = Packed.of([[ids["<start>"], *(ids[word] for word in sentence)] for sentence in targets])
    following = Packed.of([[*(ids[word] for word in sentence), ids["<end>"]] for sentence in targets])
    began = time.perf_counter()
    with torch.no_grad(), trace(model) as t:
        logits = model(source, target)
    taken = time.perf_counter() - began
    lengths = [" and ".join(map(str, side.layout.lengths.tolist())) for side in (source, target)]
    console.print(
        f"One pass, both sentences packed end to end ({lengths[0]} tokens in, {lengths[1]} out): {taken:.2f} s\n"
    )

    for title, pattern in (
        ("encoder: what enters", "encoder.[!0-9v]*"),
        ("encoder.0: the first of six blocks", "encoder.0.*"),
        ("encoder: what the source has become", "encoder.vectors"),
        ("decoder: what enters, one step behind", "decoder.[!0-9v]*"),
        ("decoder.0: the first of six blocks", "decoder.0.*"),
        ("decoder: what leaves", "decoder.vectors"),
        ("the next token", "[lp]*"),
    ):
        console.print(summary(t, pattern, title))
        console.print()

    loss = torch.nn.functional.cross_entropy(logits, following.tokens)
    console.print(
        f"{len(t.names())} steps have a name. Knowing nothing would cost ln 37,000 = {math.log(37000):.2f}; "
        f"this untrained model's loss is {loss:.2f}."
    )
    console.print(
        "Next: [bold]seq2see model paper-base[/] shows its parts, docs/quickstart.md how to look inside from Python."
    )


if __name__ == "__main__":
    main()
