"""`encoder`: one block step by step, and global against local.

Change one word and see who changes: attention lets every position see it, the feed-forward layer treats each position by
itself. The same is then shown on one vector that is changed inside the model, just before each of the two.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.config import ModelConfig
from seq2see.course.lessons.models import bundled, moved, read, reader, steps_of
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Grid, Story, matrix
from seq2see.course.lessons.worked_attention import Table
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, again
from seq2see.inspect.interventions import Where, scaling
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer
from seq2see.presets import preset


@dataclass(frozen=True)
class Sizes:
    """The feed-forward layer: width → inner → width, and its share of the block's parameters."""

    name: str
    width: int
    inner: int
    share: float


@dataclass(frozen=True)
class Encoder:
    sentence: str
    changed: str
    words: tuple[str, ...]
    steps: Grid
    places: tuple[str, ...]
    moved: Table  # [places, words]: how far each word's vector has moved, in parts of its length
    nudged: int  # the place whose vector is changed inside the model
    reached_by_attention: tuple[float, ...]
    reached_by_feed_forward: tuple[float, ...]
    sizes: tuple[Sizes, ...]
    norm_first: bool
    residual_apart: float  # norm(norm(X + Z) + R) against the block's own output
    as_written_apart: float  # norm((X + Z) + R), as the notes write it, as a share of the right one's length


def encoder(
    sentence: str = "Nithish killed the lion.", changed: str = "Nithish saw the lion.", model: Model | None = None
) -> Encoder:
    """Two sentences that differ in a word, through the first block and the whole stack."""
    chosen = bundled(model)
    one, other = read(chosen, sentence), read(chosen, changed)
    own, length = reader(one), len(reader(other).words)
    if len(own.words) != length:
        raise UserError(
            f"{len(own.words)} tokens against {length}: change a word without changing the number of tokens"
        )
    block, first = f"{own.stack}.0", own.places[0]
    inputs = f"{own.stack}.input"
    places = (inputs, f"{first}.values", f"{first}.projected", f"{block}.feed_forward.output", f"{own.stack}.vectors")
    rows = tuple(moved(one.trace[name], other.trace[name]) for name in places)
    place = max(range(length), key=lambda i: rows[0][i])
    config = chosen.config.model
    entering = (f"{first}.norm.output", f"{block}.feed_forward.norm.output")
    if not config.norm_first:  # then a sub-layer reads what the norm before it left; the first, the embedded words
        entering = (inputs, f"{first}.norm.output")
    leaving = (f"{first}.projected", f"{block}.feed_forward.output")
    reached = [_nudged(one, name, end, place) for name, end in zip(entering, leaving, strict=True)]
    right, written = _residual()
    sizes = tuple(
        _sizes(name, each) for name, each in (("the paper's", preset("paper-base")), ("this model's", config))
    )
    return Encoder(
        sentence, changed, own.words, steps_of(one, block), places, rows, place, reached[0], reached[1], sizes,
        config.norm_first, right, written,
    )  # fmt: skip


def _nudged(e: Explanation, name: str, end: str, place: int) -> tuple[float, ...]:
    """Who moves at `end` if one vector is made half as long again at `name`."""
    changed = again(e, scaling(name, 1.5, Where(positions=[place])))
    return moved(e.trace[end], changed.trace[end])


def _sizes(name: str, config: ModelConfig) -> Sizes:
    with torch.device("meta"):
        block = Transformer(config).get_submodule("encoder.blocks.0" if config.has_encoder else "decoder.blocks.0")
    inner = sum(p.numel() for p in block.get_submodule("feed_forward").parameters())
    return Sizes(name, config.width, config.feed_forward, inner / sum(p.numel() for p in block.parameters()))


@cache  # always the same; and its seed would disturb a training in another thread
@torch.no_grad()
def _residual() -> tuple[float, float]:
    """The paper's add & norm of the second sub-layer on a small untrained block, by the parts that its trace shows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Transformer(
            ModelConfig(shape="encoder", vocabulary=20, width=32, heads=4, encoder_layers=1, feed_forward=64)
        )
    with trace(model.eval()) as t:
        output = model(Packed.of([[3, 1, 4, 1, 5]]))
    x, z, r = (t[f"encoder.{name}"] for name in ("input", "0.self.projected", "0.feed_forward.output"))
    right, written = (F.layer_norm(y + r, [32]) for y in (F.layer_norm(x + z, [32]), x + z))
    return float((right - output).abs().max()), float((written - output).norm() / output.norm())


def story(result: Encoder) -> Story:
    place = result.words[result.nudged]
    sizes = Grid(
        ("feed-forward", "widths", "share of the block"),
        tuple((s.name, f"{s.width} → {s.inner:,} → {s.width}", f"{s.share:.0%}") for s in result.sizes),
    )
    alone = matrix(
        (result.reached_by_attention, result.reached_by_feed_forward), ("attention", "feed-forward"), result.words,
        f'Inside: the vector of "{place}" alone is changed before each sub-layer. Who moves after it:', 3,
    )  # fmt: skip
    norm = "norms before each sub-layer (pre-norm)" if result.norm_first else "norms after each sum, as in the paper"
    return Story(
        "one block of the encoder. The notes: attention is global, \"captures relationships among different positions\"; "
        'the feed-forward network is local, "applied independently to each position", with the same weights for all.',
        (
            result.steps,
            f"(This model {norm}.)",
            sizes,
            matrix(
                result.moved, result.places, result.words,
                f'"{result.sentence}" → "{result.changed}": how far each vector has moved, in parts of its length', 3,
            ),
            alone,
        ),
        "what enters differs in one word only; after the first attention every word that may look at it has moved. Changed "
        "just before the feed-forward layer, one vector moves itself and nobody else.",
        (
            'the second residual is written (X + Z) + R, "normalized" then: it skips the first norm. The block is '
            f"norm(norm(X + Z) + R): on a small paper block that is its output (off by {result.residual_apart:.0e} at most), "
            f"and the notes' is off by {result.as_written_apart:.0%}.",
        ),
    )  # fmt: skip


def draw(result: Encoder, path: Path | str) -> None:
    figure, (changed, alone) = panels(2)
    names = [name.partition(".")[2] for name in result.places]
    heat(changed, result.moved, names, result.words, f'"{result.changed}": who has moved')
    rows = (result.reached_by_attention, result.reached_by_feed_forward)
    heat(alone, rows, ("attention", "feed-forward"), result.words, f'"{result.words[result.nudged]}" alone is changed')
    save(figure, path)
