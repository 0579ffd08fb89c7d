"""The Transformer: equality with torch's layers, and the properties any Transformer must have."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError
from seq2see.model.layers import NO_STORES, Block, Memory, Pass
from seq2see.model.positions import rotary_cos_sin, rotary_frequencies, rotate, sinusoids
from seq2see.model.taps import NO_TAPS
from seq2see.model.transformer import Transformer
from seq2see.train.presets import PRESETS, preset

TINY = ModelConfig(
    vocab_size=31, width=16, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.0, max_positions=32
)
sentences = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=7), min_size=1, max_size=5)


def model(config: ModelConfig = TINY) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config).double().eval()


def variants() -> list[ModelConfig]:
    return [
        TINY,
        replace(TINY, norm_first=True, activation="gelu", positions="learned"),
        replace(
            TINY,
            norm="rms",
            norm_first=True,
            activation="swiglu",
            positions="rotary",
            key_value_heads=2,
            bias="nowhere",
        ),
        replace(
            TINY,
            positions="sinusoidal-halves",
            tie_embeddings="none",
            source_vocab_size=40,
            output_bias=True,
            head_width=6,
        ),
    ]


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        if hasattr(ours, "queries_keys_values"):
            ours.queries_keys_values.weight.copy_(theirs.in_proj_weight)  # type: ignore[operator, union-attr]
            ours.queries_keys_values.bias.copy_(theirs.in_proj_bias)  # type: ignore[operator, union-attr]
        else:
            width = theirs.embed_dim
            ours.queries.weight.copy_(theirs.in_proj_weight[:width])  # type: ignore[operator, union-attr]
            ours.queries.bias.copy_(theirs.in_proj_bias[:width])  # type: ignore[operator, union-attr]
            ours.keys_values.weight.copy_(theirs.in_proj_weight[width:])  # type: ignore[operator, union-attr]
            ours.keys_values.bias.copy_(theirs.in_proj_bias[width:])  # type: ignore[operator, union-attr]
        ours.project.load_state_dict(theirs.out_proj.state_dict())  # type: ignore[union-attr]


def perturb(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_block_equals_torchs_encoder_layer(norm_first: bool, activation: Literal["relu", "gelu"]) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(16, 4, 24, 0.0, activation, batch_first=True, norm_first=norm_first).double()
    perturb(theirs)
    ours = Block(replace(TINY, norm_first=norm_first, activation=activation), causal=False, cross=False).double()
    copy_attention(ours.attention, theirs.self_attn)
    ours.attention_norm.norm.load_state_dict(theirs.norm1.state_dict())
    ours.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    ours.feed_forward_norm.norm.load_state_dict(theirs.norm2.state_dict())

    layout = Layout.from_lengths([3, 5, 1])
    x = torch.randn(9, 16, dtype=torch.float64, requires_grad=True)
    got = ours(x, Pass(layout))
    expected = layout.unpad(theirs(layout.pad(x), src_key_padding_mask=~layout.mask))
    assert_same_outputs_and_gradients(got, expected, x, ours, theirs)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoder_block_equals_torchs_decoder_layer(norm_first: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(16, 4, 24, 0.0, batch_first=True, norm_first=norm_first).double()
    perturb(theirs)
    ours = Block(replace(TINY, norm_first=norm_first), causal=True, cross=True).double()
    assert ours.cross is not None and ours.cross_norm is not None
    copy_attention(ours.attention, theirs.self_attn)
    copy_attention(ours.cross, theirs.multihead_attn)
    ours.attention_norm.norm.load_state_dict(theirs.norm1.state_dict())
    ours.cross_norm.norm.load_state_dict(theirs.norm2.state_dict())
    ours.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    ours.feed_forward_norm.norm.load_state_dict(theirs.norm3.state_dict())

    layout, memory_layout = Layout.from_lengths([3, 5, 1]), Layout.from_lengths([4, 2, 6])
    x = torch.randn(9, 16, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(12, 16, dtype=torch.float64)
    got = ours(x, Pass(layout, Memory(memory, memory_layout)))
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    padded = theirs(layout.pad(x), memory_layout.pad(memory), mask, memory_key_padding_mask=~memory_layout.mask)
    assert_same_outputs_and_gradients(got, layout.unpad(padded), x, ours, theirs)


def assert_same_outputs_and_gradients(
    got: Tensor, expected: Tensor, x: Tensor, ours: nn.Module, theirs: nn.Module
) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(got)
    gradients: list[tuple[Tensor, Tensor]] = []
    for output, module in ((got, ours), (expected, theirs)):
        x.grad = None
        (output * upstream).sum().backward()
        # The two split their parameters differently; sorted by value, the gradients must be equal.
        parameter_gradients = (
            torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]).sort().values
        )
        assert x.grad is not None
        gradients.append((x.grad, parameter_gradients))
    for ours_gradient, theirs_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(ours_gradient, theirs_gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", variants(), ids=["paper", "learned", "llama-like", "mixed"])
@given(source=sentences, target=sentences)
@settings(max_examples=15, deadline=None)
def test_a_packed_batch_equals_single_sentences(
    config: ModelConfig, source: list[list[int]], target: list[list[int]]
) -> None:
    pairs = list(zip(source, target, strict=False))
    m = model(config)
    together = m(Packed.from_sequences([s for s, _ in pairs]), Packed.from_sequences([t for _, t in pairs]))
    alone = torch.cat([m(Packed.from_sequences([s]), Packed.from_sequences([t])) for s, t in pairs])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", variants(), ids=["paper", "learned", "llama-like", "mixed"])
@given(target=st.lists(st.integers(0, 30), min_size=2, max_size=7), data=st.data())
@settings(max_examples=15, deadline=None)
def test_later_tokens_do_not_change_earlier_outputs(
    config: ModelConfig, target: list[int], data: st.DataObject
) -> None:
    i = data.draw(st.integers(1, len(target) - 1))
    changed = [*target[:i], (target[i] + 1) % 31, *target[i + 1 :]]
    m, source = model(config), Packed.from_sequences([[3, 1, 4]])
    before, after = m(source, Packed.from_sequences([target])), m(source, Packed.from_sequences([changed]))
    assert torch.equal(before[:i], after[:i])  # bit for bit: the shapes are the same, and each row has its own sums
    assert not torch.equal(before[i:], after[i:])


@given(tokens=st.lists(st.integers(0, 30), min_size=2, max_size=7, unique=True), data=st.data())
@settings(max_examples=20, deadline=None)
def test_word_order_matters_only_through_positions(tokens: list[int], data: st.DataObject) -> None:
    """Without positions, permuting the tokens only permutes their vectors."""
    order = data.draw(st.permutations(range(len(tokens))).filter(lambda order: order != list(range(len(tokens)))))
    for positions in ("none", "sinusoidal", "rotary", "learned"):
        m = model(replace(TINY, shape="encoder", positions=positions))
        straight = m(Packed.from_sequences([tokens]))
        shuffled = m(Packed.from_sequences([[tokens[i] for i in order]]))
        assert torch.allclose(shuffled, straight[order], rtol=0, atol=1e-10) == (positions == "none")


def test_attention_mixes_tokens_and_feed_forward_does_not() -> None:
    block = Block(TINY, causal=False, cross=False).double().eval()
    p = Pass(Layout.from_lengths([5]))
    x = torch.randn(5, 16, dtype=torch.float64)
    other = x.clone()
    other[2] += 1
    mixed = block.attention(x, p, NO_TAPS, NO_STORES[0]) != block.attention(other, p, NO_TAPS, NO_STORES[0])
    assert mixed.any(-1).all()
    changed = block.feed_forward(x, NO_TAPS) != block.feed_forward(other, NO_TAPS)
    assert changed.any(-1).tolist() == [False, False, True, False, False]


def test_bfloat16_is_close_to_float32() -> None:
    torch.manual_seed(0)
    m = Transformer(replace(TINY, width=64)).eval()
    source, target = Packed.from_sequences([[1, 2, 3], [4, 5, 6, 7]]), Packed.from_sequences([[8, 9], [10, 11, 12]])
    exact = m(source, target)
    half = m.bfloat16()(source, target).float()
    assert float((half - exact).detach().abs().max()) < 0.1
    assert float(exact.detach().std()) > 0.5


def test_sinusoids_match_the_formula_of_the_paper() -> None:
    """At position 0 with d = 6: 0, 1, 0, 1, 0, 1; the divisors are 1, 10000^(1/3), 10000^(2/3)."""
    table = sinusoids(50, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    for i in range(3):
        assert math.isclose(table[7, 2 * i], math.sin(7 / 10000 ** (i / 3)), rel_tol=1e-6)
        assert math.isclose(table[7, 2 * i + 1], math.cos(7 / 10000 ** (i / 3)), rel_tol=1e-6)
    halves = sinusoids(50, 6, "sinusoidal-halves")
    assert torch.equal(torch.cat([table[:, ::2], table[:, 1::2]], dim=1), halves)


def test_a_shift_of_sinusoids_is_a_rotation_independent_of_the_position() -> None:
    table = sinusoids(80, 128).double().view(80, 64, 2)
    k = 5
    angle = k / 10000 ** (torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    sine, cosine = table[:-k].unbind(-1)
    rotated = torch.stack(
        [sine * angle.cos() + cosine * angle.sin(), cosine * angle.cos() - sine * angle.sin()], dim=-1
    )
    torch.testing.assert_close(rotated, table[k:], rtol=0, atol=1e-5)


def test_an_encoder_has_neither_the_window_nor_the_rotary_base_of_local_decoder_layers() -> None:
    plain = replace(TINY, positions="rotary")
    windowed = replace(plain, attention_window=2, local_layers=(0,))
    tokens = Packed.from_sequences([[3, 1, 4, 1, 5, 9], [2, 6]])
    models = [model(config) for config in (plain, windowed, replace(windowed, local_rotary_base=50.0))]
    encoded = [each.encode(tokens) for each in models]
    assert torch.equal(encoded[0], encoded[1]) and torch.equal(encoded[0], encoded[2])
    logits = [each(tokens, tokens) for each in models]
    assert not torch.allclose(logits[0], logits[1]) and not torch.allclose(logits[1], logits[2])


def test_rotary_scores_depend_only_on_the_distance() -> None:
    q, k = torch.randn(2, 1, 1, 8).unbind(0)
    scores = []
    for position in (0, 3, 40):
        frequencies = rotary_frequencies(ModelConfig(width=8, heads=1))
        rotations = [rotary_cos_sin(torch.tensor([p]), frequencies) for p in (position + 6, position)]
        scores.append(float((rotate(q, rotations[0]) * rotate(k, rotations[1])).sum()))
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-5)


def test_sinusoids_extend_beyond_their_table_and_learned_positions_do_not() -> None:
    long = Packed.from_sequences([[1] * 40])
    assert model(replace(TINY, shape="encoder"))(long).shape == (40, 16)
    with pytest.raises(UserError, match=r"40 tokens exceeds the model's 32 learned positions"):
        model(replace(TINY, shape="encoder", positions="learned"))(long)


def test_dropout_is_applied_where_the_paper_says_and_only_in_training() -> None:
    m = model(replace(TINY, dropout=0.5))
    inputs = Packed.from_sequences([[1, 2, 3]]), Packed.from_sequences([[4, 5]])
    assert torch.equal(m(*inputs), m(*inputs))
    m.train()
    assert not torch.equal(m(*inputs), m(*inputs))
    found = {name for name, module in m.named_modules() if isinstance(module, nn.Dropout) and module.p == 0.5}
    sublayers = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross", "feed_forward")}
    expected = {f"{stack}.dropout" for stack in sublayers} | {
        f"{stack}.blocks.{n}.{sub}_norm.dropout" for stack, subs in sublayers.items() for n in (0, 1) for sub in subs
    }
    assert found == expected


PUBLISHED = {
    "paper-base": (65e6, 0.03),  # table 3 of the paper, rounded to millions
    "paper-big": (213e6, 0.03),
    "gpt2": (124_439_808, 0),
    "gpt2-medium": (354_823_168, 0),
    "bert-base": (109_482_240 - 590_592, 0),  # minus the pooler, 768 × 768 + 768
    "minilm-l6": (22_713_216 - 147_840, 0),
    "smollm2-135m": (134_515_008, 0),
    "marian": (74_410_496 - 2 * 512 * 512 + 58_101, 0),  # minus two tables of sinusoids, plus the output bias
    # Minus the encoder's sinusoids; plus the bias of keys, which Whisper has not, in 18 attentions.
    "whisper-base": (72_593_920 - 1500 * 512 + 18 * 512, 0),
}


@pytest.mark.parametrize("name", [name for name, p in PRESETS.items() if p.model.kind == "transformer"])
def test_presets_have_the_published_number_of_parameters(name: str) -> None:
    config = preset(name)
    with torch.device("meta"):
        ours = sum(p.numel() for p in Transformer(config).parameters())
        if name in PUBLISHED:
            published, tolerance = PUBLISHED[name]
            assert abs(ours / published - 1) <= tolerance
        if config.shape == "encoder-decoder" and config.source == "tokens":
            # torch adds a norm after each stack, which post-norm does not need
            layers = config.encoder_layers, config.decoder_layers
            theirs = nn.Transformer(config.width, config.heads, *layers, config.feed_forward, batch_first=True)
            count = sum(p.numel() for p in theirs.parameters()) - 4 * config.width * (not config.norm_first)
            assert ours == count + config.vocab_size * (config.width + config.output_bias)


LARGER = replace(TINY, vocab_size=2000, width=128, encoder_layers=6, decoder_layers=6, feed_forward=256)


@pytest.mark.parametrize(
    "config",
    [
        LARGER,
        replace(LARGER, norm_first=True, tie_embeddings="none"),
        replace(preset("gpt2"), vocab_size=2000, width=128, heads=4, feed_forward=256, dropout=0.0),
    ],
)
def test_a_fresh_model_predicts_uniformly_with_vectors_of_unit_size(config: ModelConfig) -> None:
    from seq2see.inspect.trace import trace

    torch.manual_seed(0)
    m = Transformer(config).eval()
    packed = Packed.from_sequences(torch.randint(2000, (8, 20)).tolist())
    inputs = (packed, packed) if config.shape == "encoder-decoder" else (packed,)
    with torch.no_grad(), trace(m) as t:
        logits = m(*inputs)
    loss = nn.functional.cross_entropy(logits, torch.randint(2000, (160,)))
    assert abs(float(loss) - math.log(2000)) < 0.7
    for name in t.names("*.sum"):
        assert 0.3 < float(t[name].padded().values.std()) < 3 or not config.scale_embeddings, name
    for name in t.names("*.weights"):
        assert float(t[name].padded().values.max(-1).values.mean()) < 0.9, name  # no head is saturated at the start


def test_stacked_maps_are_initialized_by_their_own_shapes() -> None:
    torch.manual_seed(0)
    m = Transformer(
        ModelConfig(width=256, heads=4, key_value_heads=1, encoder_layers=1, decoder_layers=1, vocab_size=50)
    )
    assert m.encoder is not None
    stacked = m.encoder.blocks[0].attention.queries_keys_values  # type: ignore[union-attr]
    q, k, v = stacked.weight.split(stacked.sizes)  # type: ignore[operator, union-attr]
    for part in (q, k, v):
        limit = math.sqrt(6 / sum(part.shape))  # Glorot
        assert part.abs().max() <= limit
        assert part.abs().max() > 0.98 * limit
