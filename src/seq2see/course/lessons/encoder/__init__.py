"""`encoder`: one encoder block step by step; attention is global, the feed-forward layer local.

Change one word and compare: attention passes the change to every position, the feed-forward layer treats each position
separately. The same is shown by changing one vector inside the model, before each of the two sub-layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.course.lessons import kit
from seq2see.course.lessons.heads import OTHER_SENTENCES
from seq2see.data.layout import Packed
from seq2see.inspect.explain import Explanation, rerun
from seq2see.inspect.interventions import Selection, scale
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer
from seq2see.train.presets import preset

SENTENCES = ("Nithish killed the lion.", "Nithish saw the lion.")
OTHER_PAIRS = (
    ("The boy saw the dog.", "The boy saw the cat."),
    ("The man is here.", "The man was here."),
    ("It is good.", "It was good."),
)


@dataclass(frozen=True)
class FeedForwardSize:
    """A feed-forward layer: width → inner → width, and its share of the parameters of the block."""

    name: str
    width: int
    inner: int
    share: float


@dataclass(frozen=True)
class Step:
    """One line of the way through a block."""

    symbol: str
    shape: str
    first: tuple[float, ...]  # the first numbers of the first word
    formula: str


@dataclass(frozen=True)
class PaperBlock:
    """Three words through an untrained block of the paper's size."""

    words: tuple[str, ...]
    steps: tuple[Step, ...]
    error: float  # largest difference between the output recomputed from the matrices and the block's
    block_parameters: int
    block_cosine: float  # between W₁ of the first and of the second block


@dataclass(frozen=True)
class Neuron:
    """The neuron of the first feed-forward layer that a word activates most."""

    word: str
    neuron: int
    activation: float
    strongest: tuple[str, ...]  # words of other sentences that activate it most


@dataclass(frozen=True)
class Result:
    sentence: str
    changed: str
    words: tuple[str, ...]
    steps: kit.Table
    values: tuple[str, ...]  # names of the traced values below
    change: kit.Matrix  # [values, words]: relative change of each word's vector from the first sentence to the second
    changed_index: int  # the position whose vector is changed inside the model
    attention_change: tuple[float, ...]  # relative change of the output of attention, if only that vector changes
    feed_forward_change: tuple[float, ...]
    sizes: tuple[FeedForwardSize, ...]
    norm_first: bool
    residual_error: float  # norm(norm(X + Z) + R) against the output of the block
    notes_error: float  # relative error of norm((X + Z) + R), as written in the notes
    paper: PaperBlock
    neurons: tuple[Neuron, ...]  # empty if the feed-forward layer has no such activation


def compute(sentence: str = SENTENCES[0], changed: str = SENTENCES[1], model: kit.Model | None = None) -> Result:
    """Runs two sentences that differ in one word through the first block and the whole stack."""
    model = kit.resolve_model(model)
    if (sentence, changed) == SENTENCES:  # a model may cut one of the default words into several tokens
        tokenizer = model.tokenizers[0]
        fitting = (p for p in (SENTENCES, *OTHER_PAIRS) if len({len(tokenizer.encode(each)) for each in p}) == 1)
        sentence, changed = next(fitting, SENTENCES)
    one, other = kit.explain_sentence(model, sentence), kit.explain_sentence(model, changed)
    stack, length = kit.input_stack(one), len(kit.input_stack(other).tokens)
    if len(stack.tokens) != length:
        raise kit.UserError(
            f"{len(stack.tokens)} tokens against {length}: change a word without changing the number of tokens"
        )
    block, attention, inputs = f"{stack.name}.0", stack.attention_names[0], f"{stack.name}.input"
    attention_output, feed_forward_output = f"{attention}.projected", f"{block}.feed_forward.output"
    values = (inputs, f"{attention}.values", attention_output, feed_forward_output, f"{stack.name}.vectors")
    change = tuple(kit.relative_change(one.trace[name, 0], other.trace[name, 0]) for name in values)
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
        sentence, changed, stack.tokens, kit.block_steps(one, block), values, change, index,
        _perturb(one, attention_input, attention_output, index),
        _perturb(one, feed_forward_input, feed_forward_output, index),
        sizes, config.norm_first, residual_error, notes_error, _paper_block(), _neurons(model, one, block),
    )  # fmt: skip


def _perturb(e: Explanation, source: str, target: str, position: int) -> tuple[float, ...]:
    """Scales one vector of `source` by 1.5 and returns the relative change of each vector of `target`."""
    perturbed = rerun(e, scale(source, 1.5, Selection(positions=[position])))
    return kit.relative_change(e.trace[target, 0], perturbed.trace[target, 0])


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
    x, z, r = (t[f"encoder.{name}", 0] for name in ("input", "0.self.projected", "0.feed_forward.output"))
    correct, notes = (F.layer_norm(y + r, [32]) for y in (F.layer_norm(x + z, [32]), x + z))
    return float((correct - output).abs().max()), float((notes - output).norm() / output.norm())


@cache
@torch.no_grad()
def _paper_block() -> PaperBlock:
    words = ("How", "are", "You")
    config = replace(preset("paper-base"), shape="encoder", vocab_size=len(words), encoder_layers=2, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Transformer(config).eval()
    with trace(model) as t:
        model(Packed.from_sequences([range(len(words))]))
    names = (
        ("E", "encoder.embedded", "look up each word, × √512"),
        ("P", "encoder.positions", "sines and cosines"),
        ("X", "encoder.input", "E + P"),
        ("z", "encoder.0.self.projected", "multi-head attention of X"),
        ("z′", "encoder.0.self.norm.input", "z + X"),
        ("norm z′", "encoder.0.self.norm.output", "mean 0, deviation 1"),
        ("h", "encoder.0.feed_forward.post_activation", "ReLU(norm z′ · W₁ + b₁)"),
        ("r", "encoder.0.feed_forward.output", "h · W₂ + b₂"),
        ("output", "encoder.0.feed_forward.norm.output", "norm(r + norm z′)"),
    )
    steps = tuple(
        Step(symbol, " × ".join(map(str, t[name, 0].shape)), tuple(t[name, 0][0, :3].tolist()), formula)
        for symbol, name, formula in names
    )
    weights = model.state_dict()
    (up, up_bias), (down, down_bias) = (
        [weights[f"encoder.blocks.0.feed_forward.{name}.{part}"] for part in ("weight", "bias")]
        for name in ("up", "down")
    )
    x = t["encoder.0.self.norm.output", 0]
    recomputed = F.layer_norm(x + (x @ up.mT + up_bias).relu() @ down.mT + down_bias, [config.width])
    error = float((recomputed - t["encoder.0.feed_forward.norm.output", 0]).abs().max())
    other = weights["encoder.blocks.1.feed_forward.up.weight"]
    parameters = sum(p.numel() for p in model.get_submodule("encoder.blocks.0").parameters())
    cosine = float(F.cosine_similarity(up.flatten(), other.flatten(), dim=0))
    return PaperBlock(words, steps, error, parameters, cosine)


def _neurons(model: kit.Model, e: Explanation, block: str) -> tuple[Neuron, ...]:
    name = f"{block}.feed_forward.post_activation"
    if name not in e.trace.names("*"):
        return ()
    others = [kit.explain_sentence(model, sentence, target="") for sentence in OTHER_SENTENCES]
    words = [word for other in others for word in kit.input_stack(other).tokens]
    activations = torch.cat([other.trace[name, 0].float().cpu() for other in others])  # [words, inner]
    found = []
    for word, row in zip(kit.input_stack(e).tokens, e.trace[name, 0].float().cpu(), strict=True):
        neuron = int(row.argmax())
        order = activations[:, neuron].argsort(descending=True).tolist()
        strongest = list(dict.fromkeys(words[i] for i in order))[:4]
        found.append(Neuron(word, neuron, float(row[neuron]), tuple(strongest)))
    return tuple(found)


def values(result: Result) -> kit.Values:
    def others_changed(change: Sequence[float]) -> int:
        return sum(each > 1e-6 for i, each in enumerate(change) if i != result.changed_index)

    return {
        "word": result.words[result.changed_index],
        "others": len(result.words) - 1,
        "listening": others_changed(result.attention_change),
        "alone": others_changed(result.feed_forward_change),
        "attention_bars": list(zip(result.words, result.attention_change, strict=True)),
        "feed_forward_bars": list(zip(result.words, result.feed_forward_change, strict=True)),
        "paper_rows": [
            (s.symbol, s.shape, ", ".join(f"{value:.2f}" for value in s.first).replace("-", "−") + " …", s.formula)
            for s in result.paper.steps
        ],
        "neuron_rows": [(n.word, n.neuron, n.activation, ", ".join(n.strongest)) for n in result.neurons],
        "value_names": [name.partition(".")[2] for name in result.values],
    }


def answers() -> kit.Values:
    product = torch.empty(3, 512, device="meta") @ torch.empty(512, 2048, device="meta")
    relu = torch.tensor([-2.0, 3.0]).relu() @ torch.tensor([[1.0], [2.0]])
    share = _feed_forward_size("paper", preset("paper-base")).share
    return {
        "numbers": float(product.numel()),
        "relu": float(relu[0]),
        "share": share,
        "most": "feed-forward" if share > 0.5 else "attention",
    }
