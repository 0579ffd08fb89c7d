"""`encoder`: one encoder block step by step; attention is global, the feed-forward layer local.

Change one word and compare: attention passes the change to every position, the feed-forward layer treats each position
separately. The same is shown by changing one vector inside the model, before each of the two sub-layers.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.config import ModelConfig
from seq2see.course.lessons.attention import Matrix
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import block_steps, explain_sentence, input_stack, relative_change, resolve_model
from seq2see.course.lessons.render import LessonText, Table, matrix_table
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, rerun
from seq2see.inspect.interventions import Selection, scale
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer
from seq2see.presets import preset


@dataclass(frozen=True)
class FeedForwardSize:
    """A feed-forward layer: width → inner → width, and its share of the parameters of the block."""

    name: str
    width: int
    inner: int
    share: float


@dataclass(frozen=True)
class Result:
    sentence: str
    changed: str
    words: tuple[str, ...]
    steps: Table
    values: tuple[str, ...]  # names of the traced values below
    change: Matrix  # [values, words]: relative change of each word's vector from the first sentence to the second
    changed_index: int  # the position whose vector is changed inside the model
    attention_change: tuple[float, ...]  # relative change of the output of attention, if only that vector changes
    feed_forward_change: tuple[float, ...]
    sizes: tuple[FeedForwardSize, ...]
    norm_first: bool
    residual_error: float  # norm(norm(X + Z) + R) against the output of the block
    notes_error: float  # relative error of norm((X + Z) + R), as written in the notes


def compute(
    sentence: str = "Nithish killed the lion.", changed: str = "Nithish saw the lion.", model: Model | None = None
) -> Result:
    """Runs two sentences that differ in one word through the first block and the whole stack."""
    model = resolve_model(model)
    one, other = explain_sentence(model, sentence), explain_sentence(model, changed)
    stack, length = input_stack(one), len(input_stack(other).tokens)
    if len(stack.tokens) != length:
        raise UserError(
            f"{len(stack.tokens)} tokens against {length}: change a word without changing the number of tokens"
        )
    block, attention, inputs = f"{stack.name}.0", stack.attention_names[0], f"{stack.name}.input"
    attention_output, feed_forward_output = f"{attention}.projected", f"{block}.feed_forward.output"
    values = (inputs, f"{attention}.values", attention_output, feed_forward_output, f"{stack.name}.vectors")
    change = tuple(relative_change(one.trace[name], other.trace[name]) for name in values)
    index = max(range(length), key=lambda i: change[0][i])
    config = model.config.model
    if config.norm_first:
        attention_input, feed_forward_input = f"{attention}.norm.output", f"{block}.feed_forward.norm.output"
    else:
        attention_input, feed_forward_input = inputs, f"{attention}.norm.output"
    residual_error, notes_error = _residual_errors()
    sizes = tuple(
        _feed_forward_size(name, each) for name, each in (("paper", preset("paper-base")), ("this model", config))
    )
    return Result(
        sentence, changed, stack.tokens, block_steps(one, block), values, change, index,
        _perturb(one, attention_input, attention_output, index),
        _perturb(one, feed_forward_input, feed_forward_output, index),
        sizes, config.norm_first, residual_error, notes_error,
    )  # fmt: skip


def _perturb(e: Explanation, source: str, target: str, position: int) -> tuple[float, ...]:
    """Scales one vector of `source` by 1.5 and returns the relative change of each vector of `target`."""
    perturbed = rerun(e, scale(source, 1.5, Selection(positions=[position])))
    return relative_change(e.trace[target], perturbed.trace[target])


def _feed_forward_size(name: str, config: ModelConfig) -> FeedForwardSize:
    with torch.device("meta"):
        block = Transformer(config).get_submodule("encoder.blocks.0" if config.has_encoder else "decoder.blocks.0")
    parameters = sum(p.numel() for p in block.get_submodule("feed_forward").parameters())
    return FeedForwardSize(
        name, config.width, config.feed_forward, parameters / sum(p.numel() for p in block.parameters())
    )


@cache  # constant, and its seed would disturb a training in another thread
@torch.no_grad()
def _residual_errors() -> tuple[float, float]:
    """Recomputes the second add & norm of a small untrained post-norm block from its trace: correctly, and as in the notes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Transformer(
            ModelConfig(shape="encoder", vocab_size=20, width=32, heads=4, encoder_layers=1, feed_forward=64)
        )
    with trace(model.eval()) as t:
        output = model(Packed.from_sequences([[3, 1, 4, 1, 5]]))
    x, z, r = (t[f"encoder.{name}"] for name in ("input", "0.self.projected", "0.feed_forward.output"))
    correct, notes = (F.layer_norm(y + r, [32]) for y in (F.layer_norm(x + z, [32]), x + z))
    return float((correct - output).abs().max()), float((notes - output).norm() / output.norm())


def describe(result: Result) -> LessonText:
    word = result.words[result.changed_index]
    sizes = Table(
        ("feed-forward", "widths", "share of the block"),
        tuple((s.name, f"{s.width} → {s.inner:,} → {s.width}", f"{s.share:.0%}") for s in result.sizes),
    )
    perturbed = matrix_table(
        (result.attention_change, result.feed_forward_change), ("attention", "feed-forward"), result.words,
        f'Only the vector of "{word}" is changed, before each sub-layer. Relative change of the output:', 3,
    )  # fmt: skip
    norm = "before each sub-layer (pre-norm)" if result.norm_first else "after each residual sum, as the paper does"
    return LessonText(
        'One encoder block. The notes: attention is global, it "captures relationships among different positions"; the '
        'feed-forward network is local, "applied independently to each position", with the same weights for all.',
        (
            result.steps,
            f"This model normalises {norm}.",
            sizes,
            matrix_table(
                result.change, result.values, result.words,
                f'"{result.sentence}" → "{result.changed}": relative change of each vector', 3,
            ),
            perturbed,
        ),
        "The inputs differ in one word only; after the first attention every word that can attend to it has changed. A vector "
        "changed just before the feed-forward layer affects no other position.",
        (
            'The second residual is written (X + Z) + R, then "normalized", which omits the first norm. The block computes '
            f"norm(norm(X + Z) + R): on a small post-norm block this equals its output (difference at most "
            f"{result.residual_error:.0e}), while the formula of the notes is off by {result.notes_error:.0%}.",
        ),
    )  # fmt: skip


def draw(result: Result, path: Path | str) -> None:
    figure, (changed, perturbed) = subplots(2)
    names = [name.partition(".")[2] for name in result.values]
    heatmap(changed, result.change, names, result.words, f'Relative change in "{result.changed}"')
    rows = (result.attention_change, result.feed_forward_change)
    title = f'Only "{result.words[result.changed_index]}" changed'
    heatmap(perturbed, rows, ("attention", "feed-forward"), result.words, title)
    save_figure(figure, path)
