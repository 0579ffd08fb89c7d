"""CUDA training: a captured step equals a plain one, learns, accumulates, survives NaN and a lack of memory, and resumes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.data.batches import Batches, PairBatches, TextBatches
from seq2see.data.layout import Layout
from seq2see.data.store import TokenizedSide, TokenStore
from seq2see.model.attention import PackedKeys, attend, attention_reference
from seq2see.model.transformer import Transformer
from seq2see.train.loss import Losses, cross_entropy, output_loss
from seq2see.train.parallel import World
from seq2see.train.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # advice of the compiler
]

VOCAB_SIZE = 301  # no multiple of a tile
MODEL = ModelConfig(
    vocab_size=VOCAB_SIZE, width=128, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=256, dropout=0.0
)
TRAIN = TrainConfig(steps=1000, batch_tokens=1024, warmup_steps=20, lr=2e-3)


def tokenized(lengths: Sequence[int], seed: int) -> TokenizedSide:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    random = np.random.default_rng(seed)
    return TokenizedSide(random.integers(3, 60, offsets[-1]).astype(np.uint16), offsets)


def pair_batches(max_length: int = 40) -> Batches:
    """Pairs whose target repeats the source, so that there is something to learn."""
    lengths = np.random.default_rng(0).integers(3, max_length, 800)
    side = tokenized(lengths.tolist(), 1)
    tokenizer: Any = SimpleNamespace(start=1, pad=0)
    return PairBatches(TokenStore(Path(), (side, side)), 1024, tokenizer, max_length=256, static=True)


def text_batches() -> Batches:
    tokenizer: Any = SimpleNamespace(start=1, pad=0)
    store = TokenStore(Path(), (tokenized([20_000], 2),))
    return TextBatches(store, 1024, tokenizer, context=256, static=True)


def build(model: ModelConfig, batches: Batches, **train: Any) -> Trainer:
    torch.manual_seed(0)
    config = Config(model=model, train=replace(TRAIN, **train))
    return Trainer(config, Transformer(model).cuda(), batches, World(torch.device("cuda")))


def losses(trainer: Trainer, steps: int) -> list[float]:
    values = []
    for _ in range(steps):
        trainer.step()
        values.append(trainer.report().loss)
    return values


@pytest.mark.parametrize("longest", [9, 27, 60, 120, 150])
@pytest.mark.parametrize(
    ("heads", "key_value_heads", "width"), [(8, 8, 64), (8, 2, 32), (4, 4, 16), (4, 2, 128), (4, 4, 40)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_packed_attention_equals_reference(
    longest: int, heads: int, key_value_heads: int, width: int, causal: bool
) -> None:
    random = torch.Generator().manual_seed(longest)
    lengths = [longest, *torch.randint(1, longest, (20,), generator=random).tolist(), 0, 0]
    others = lengths if causal else [longest, *torch.randint(1, longest, (20,), generator=random).tolist(), 1, 0]
    queries = Layout.from_lengths(lengths).to("cuda")
    keys = queries if causal else Layout.from_lengths(others).to("cuda")
    shapes = [(sum(lengths), heads), (sum(others), key_value_heads), (sum(others), key_value_heads)]
    inputs = [torch.randn(*shape, width, generator=random).cuda().bfloat16() for shape in shapes]
    gradient = torch.randn(sum(lengths), heads, width, generator=random).cuda()
    fast = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    found = attend(fast[0], queries, PackedKeys(fast[1], fast[2], keys, causal))
    expected = attention_reference(exact[0], queries, PackedKeys(exact[1], exact[2], keys, causal))
    (found * gradient).sum().backward()
    (expected * gradient).sum().backward()
    for a, b in zip([found, *(x.grad for x in fast)], [expected, *(x.grad for x in exact)], strict=True):
        assert a is not None and b is not None
        assert float((a.double() - b).detach().abs().max()) < 4e-2 * max(1.0, float(b.detach().abs().max()))


@pytest.mark.parametrize("longest", [50, 200])
def test_dropout_of_weights_is_the_same_in_both_passes(longest: int) -> None:
    lengths = [longest, 7, longest // 2]
    layout = Layout.from_lengths(lengths).to("cuda")
    torch.manual_seed(0)
    q, k, v, gradient = (torch.randn(sum(lengths), 4, 32, device="cuda").bfloat16() for _ in range(4))
    v.requires_grad_()
    first, second = (attend(q, layout, PackedKeys(k, v, layout), dropout=0.2) for _ in range(2))
    assert not torch.equal(first, second)
    (dv,) = torch.autograd.grad(first, v, gradient)
    # The output is linear in the values, so this holds only if both passes drop the same weights.
    left, right = (float((a.double() * b.double()).sum()) for a, b in ((first, gradient), (v, dv)))
    assert left == pytest.approx(right, rel=0.02, abs=1.0)


@pytest.mark.parametrize("vocab_size", [301, 320])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padded_output_loss_equals_plain_loss(vocab_size: int, smoothing: float) -> None:
    torch.manual_seed(0)
    network = Transformer(replace(MODEL, vocab_size=vocab_size, output_bias=True)).cuda()
    vectors = torch.randn(50, 128, device="cuda", requires_grad=True)
    targets = torch.randint(vocab_size, (50,), device="cuda")
    targets[40:] = -100

    def gradients(result: Losses) -> list[Tensor]:
        weight, bias = network.output_weights()
        assert bias is not None
        return [result.nll.detach(), *torch.autograd.grad(result.objective, [vectors, weight, bias])]

    plain = gradients(cross_entropy(network.logits(vectors, Layout.from_lengths([50])), targets, smoothing))
    for function in (output_loss, torch.compile(output_loss, dynamic=False)):
        for a, b in zip(gradients(function(network, vectors, targets, smoothing)), plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("kind", ["pairs", "text"])
def test_captured_steps_equal_plain_steps_and_learn(kind: str, accumulation: int) -> None:
    model = MODEL if kind == "pairs" else replace(MODEL, shape="decoder", max_positions=256, norm_first=True)
    batches = pair_batches() if kind == "pairs" else text_batches()
    captured = build(model, batches, gradient_accumulation=accumulation)
    plain = build(model, batches, gradient_accumulation=accumulation, compile=False)
    assert captured.graph_step is not None and plain.graph_step is None
    found, expected = losses(captured, 60), losses(plain, 60)
    assert any(graph is not None for graph in captured.graph_step.graphs.captured.values())
    assert found[-1] < 0.8 * found[0]
    # bf16 weights and another order of sums: the curves run close together without being equal.
    np.testing.assert_allclose(found[:5], expected[:5], rtol=2e-2)
    np.testing.assert_allclose(found[-5:], expected[-5:], rtol=8e-2)


def test_long_and_short_batches_share_one_compiled_network() -> None:
    trainer = build(MODEL, pair_batches(max_length=200))
    torch._dynamo.utils.counters.clear()
    losses(trainer, 40)
    assert trainer.graph_step is not None
    assert len({key for key in trainer.graph_step.graphs.captured if key != "update"}) >= 3
    assert not torch._dynamo.utils.counters["graph_break"]


def test_nan_gradients_skip_the_update_in_a_captured_step() -> None:
    trainer = build(MODEL, pair_batches())
    losses(trainer, 8)
    assert trainer.graph_step is not None
    before = [p.detach().clone() for p in trainer.model.parameters()]
    with torch.no_grad():
        trainer.graph_step.weights[0].fill_(torch.nan)
    trainer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    trainer.report()
    assert trainer.state.skipped_steps == 1
    assert np.isfinite(losses(trainer, 3)).all()


def test_without_memory_for_graphs_training_goes_on_in_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = build(MODEL, pair_batches())
    first = losses(trainer, 4)

    def no_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("simulated")

    monkeypatch.setattr(trainer.graph_step, "run", no_memory)
    rest = losses(trainer, 40)
    assert trainer.graph_step is None
    assert rest[-1] < first[0]


def test_resumed_captured_steps_repeat_the_same_losses() -> None:
    batches = pair_batches()
    model = replace(MODEL, dropout=0.1)
    whole = build(model, batches)
    expected = losses(whole, 30)
    first = build(model, batches)
    losses(first, 15)
    tensors = {name: tensor.clone() for name, tensor in first.checkpoint_tensors().items()}
    resumed = build(model, batches)
    resumed.restore(tensors, first.metadata())
    np.testing.assert_allclose(losses(resumed, 15), expected[15:], rtol=1e-2)
    assert resumed.state.step == whole.state.step
    equal = [torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True)]
    print(f"{sum(equal)} of {len(equal)} parameters are bit-equal after resuming")
