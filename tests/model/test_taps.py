"""Taps: traces record what was computed, interventions change it, and inactive taps cost nothing."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.framing import Framing
from seq2see.data.layout import Packed
from seq2see.decode.generate import translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.interventions import (
    Selection,
    ablate_head,
    force_attention,
    intervene,
    patch,
    scale,
    uniform_attention,
)
from seq2see.inspect.trace import Trace, tap_names, trace
from seq2see.model.taps import quantity
from seq2see.model.transformer import Transformer

PAPER = ModelConfig(
    vocab_size=31, width=16, heads=4, encoder_layers=2, decoder_layers=3, feed_forward=24, dropout=0.0, max_positions=32
)
CONFIGS = {
    "paper": PAPER,
    "norm-first": replace(PAPER, norm_first=True, activation="gelu", positions="learned", key_value_heads=2),
    "llama-like": replace(
        PAPER, shape="decoder", norm="rms", norm_first=True, activation="swiglu", positions="rotary", bias="nowhere"
    ),
    "bert-like": replace(
        PAPER, shape="encoder", positions="learned", segments=2, embedding_norm=True, activation="gelu"
    ),
}
SOURCE = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
TARGET = [[3, 5], [8], [9, 7, 9, 3]]


def model(name: str = "paper") -> Transformer:
    torch.manual_seed(0)
    return Transformer(CONFIGS[name]).double().eval()


def inputs(m: Transformer) -> tuple[Packed, ...]:
    both = Packed.from_sequences(SOURCE), Packed.from_sequences(TARGET)
    return both if m.config.shape == "encoder-decoder" else both[:1]


@pytest.mark.parametrize("name", CONFIGS)
def test_traced_and_untraced_outputs_agree(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        traced = m(*inputs(m))
    torch.testing.assert_close(traced, m(*inputs(m)), rtol=0, atol=1e-9)
    final = "encoder.vectors" if m.config.shape == "encoder" else "logits"
    assert torch.equal(torch.cat(tuple(t[final])), traced)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_tap_has_a_name_a_formula_and_axes(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    assert [tap for tap in t.names() if tap != "probabilities"] == tap_names(m.config)
    for tap in t.names():
        own = t.quantity(tap).axes[t.quantity(tap).axes[0] == "sentence" :]  # of one sentence
        assert len(own) == t[tap, 0].dim()
        assert t.quantity(tap).formula


@pytest.mark.parametrize(
    ("name", "formula"), [("paper", "activation(pre_activation)"), ("llama-like", "silu(gate) · pre_activation")]
)
def test_a_formula_describes_the_model_at_hand(name: str, formula: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    assert t.quantity("decoder.1.feed_forward.post_activation").formula == formula
    assert t.quantity("decoder.1.masked.values").formula.startswith("x · W_V")
    assert t.quantity("encoder.embedded") == quantity("encoder.embedded")


@pytest.mark.parametrize("name", CONFIGS)
def test_derived_values_equal_computed_values(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    with trace(m, only="*") as everything:
        m(*inputs(m))
    stored = {tap for tap in t.names() if tap in t._values}
    assert "logits" in stored or m.config.shape == "encoder"
    assert not any(tap.endswith((".weights", ".scores", ".heads", ".mean")) for tap in stored)
    for tap in everything.names():
        torch.testing.assert_close(tuple(t[tap]), tuple(everything[tap]), rtol=0, atol=1e-12)


def test_each_traced_value_follows_from_earlier_ones_by_its_formula() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    block: Any = m.decoder.blocks[1]  # type: ignore[union-attr]
    attention, s = "decoder.1.cross", 2  # the third sentence has a single source token
    x = t["decoder.1.masked.norm.output", s]
    memory = t["encoder.vectors", s]
    q = (x @ block.cross.queries.weight.T + block.cross.queries.bias).view(4, 4, 4)
    k, v = (memory @ block.cross.keys_values.weight.T + block.cross.keys_values.bias).view(1, 8, 4).split(4, dim=1)
    for tap, expected in {
        "queries": q,
        "keys": k,
        "values": v,
        "scores": torch.einsum("qhd,khd->hqk", q, k),
        "scaled": torch.einsum("qhd,khd->hqk", q, k) / 2,
        "weights": torch.ones(4, 4, 1, dtype=torch.float64),  # a single key gets all the weight
        "heads": v.expand(4, 4, 4),
        "concatenated": v.expand(4, 4, 4).flatten(1),
        "projected": v.expand(4, 4, 4).flatten(1) @ block.cross.project.weight.T + block.cross.project.bias,
    }.items():
        torch.testing.assert_close(t[f"{attention}.{tap}", s], expected)
    total = t[f"{attention}.sum", s]
    torch.testing.assert_close(total, x + t[f"{attention}.projected", s])
    centred = total - total.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(t[f"{attention}.norm.output", s], expected)


def test_a_trace_can_be_indexed_by_sentence() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    for s in range(3):
        n, k = len(TARGET[s]), len(SOURCE[s])
        assert t["encoder.tokens", s].tolist() == SOURCE[s]
        assert t["decoder.tokens", s].tolist() == TARGET[s]
        assert t["decoder.2.cross.weights", s].shape == (4, n, k)
        assert t["decoder.2.cross.keys", s].shape == (k, 4, 4)
        assert t["decoder.2.masked.weights", s].shape == (4, n, n)
        assert t["logits", s].shape == (n, 31)
        for weights in ("decoder.2.cross.weights", "decoder.0.masked.weights", "encoder.1.self.weights"):
            torch.testing.assert_close(t[weights, s].sum(-1), torch.ones_like(t[weights, s].sum(-1)))
    masked = t["decoder.0.masked.masked", 2]
    assert torch.equal(masked.isinf(), torch.ones(4, 4).triu(1).bool().expand(4, 4, 4))
    with pytest.raises(IndexError, match="sentence 3 is out of range: the trace has 3"):
        t["logits", 3]
    with pytest.raises(KeyError, match=r"decoder\.2\.cross\.weights"):
        t["decoder.2.cross.wieghts"]


def test_padding_cannot_be_mistaken_for_values() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    weights: Any = t["decoder.2.cross.weights"]
    assert [value.shape for value in weights] == [(4, len(b), len(a)) for a, b in zip(SOURCE, TARGET, strict=True)]
    mistakes = (torch.mean, lambda x: x.mean(), lambda x: x.shape, lambda x: x[0, 3], lambda x: x * 2)
    for mistake in mistakes:
        with pytest.raises((TypeError, AttributeError), match=r"\.padded\(\)|unsupported operand"):
            mistake(weights)
    assert "decoder.2.cross.weights, 4 × 1–4 × 1–5 in 3 sentences" in repr(weights)
    assert torch.equal(weights[-1], t["decoder.2.cross.weights", 2]) and len(weights[1:]) == 2
    values, mask = weights.padded()
    assert values.shape == mask.shape == (3, 4, 4, 5) and values[~mask].abs().max() == 0
    torch.testing.assert_close(values[mask].mean(), torch.cat([value.flatten() for value in weights]).mean())
    vectors, mask = t["encoder.vectors"].padded()
    assert mask[..., 0].tolist() == [[True] * len(ids) + [False] * (5 - len(ids)) for ids in SOURCE]
    torch.testing.assert_close(vectors[mask].view(-1, 16), torch.cat(tuple(t["encoder.vectors"])))


def test_decoding_is_not_recorded_as_if_it_were_one_pass() -> None:
    m = model()
    special_tokens = Framing(-1, 1, 2, (1,))
    with pytest.raises(UserError, match=r"only decoded, token by token: use model\.explain"), trace(m):
        translate_tokens(m, SOURCE, special_tokens, Search(max_new_tokens=3))
    with trace(m) as t:
        m(*inputs(m))
        translate_tokens(m, SOURCE, special_tokens, Search(max_new_tokens=3))
    assert t["decoder.0.masked.weights", 2].shape == (4, 4, 4)


def test_a_trace_has_one_pooled_vector_for_each_sentence() -> None:
    m = Transformer(replace(CONFIGS["bert-like"], pooler=True)).eval()
    packed = Packed.from_sequences(SOURCE)
    with torch.no_grad(), trace(m) as t:
        pooled = m.pool(m.encode(packed, m.taps()), packed.layout, m.taps())
    assert [value.shape for value in t["pooled"]] == [(1, 16)] * 3
    assert torch.equal(torch.cat(tuple(t["pooled"])), pooled)


def test_only_limits_what_is_recorded() -> None:
    m = model()
    with trace(m, only="decoder.*.cross.weights") as t:
        m(*inputs(m))
    assert t.names() == [f"decoder.{layer}.cross.weights" for layer in range(3)]
    assert t["decoder.1.cross.weights", 0].shape == (4, 2, 3)
    with (
        pytest.raises(UserError, match=r'"decoder.\*.crosss.weights": did you mean "decoder.\d.cross.weights"'),
        trace(m, only="decoder.*.crosss.weights"),
    ):
        pass


def test_a_second_forward_pass_replaces_the_first() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
        m(Packed.from_sequences([[1, 2]]), Packed.from_sequences([[3]]))
    assert [weights.shape for weights in t["decoder.0.cross.weights"]] == [(4, 1, 2)]
    assert len(t.names()) == len(set(t.names()))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_trace_can_be_saved_and_loaded(name: str, tmp_path: Path) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    t.save(tmp_path / "t.safetensors")
    loaded = Trace.load(tmp_path / "t.safetensors")
    assert loaded.names() == t.names()
    for tap in t.names():
        assert all(torch.equal(a, b) for a, b in zip(loaded[tap], t[tap], strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_broken_trace_file_is_rejected(tmp_path: Path) -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    path = tmp_path / "t.safetensors"
    t.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot read the trace"):
        Trace.load(path)
    with pytest.raises(UserError, match=r"none\.safetensors: no such file"):
        Trace.load(tmp_path / "none.safetensors")


def test_a_trace_of_a_thousand_tokens_fits_in_memory() -> None:
    """About 20 vectors per token and layer are stored, but not the four 1,000 × 1,000 tables of every head."""
    m = Transformer(replace(PAPER, shape="decoder", width=64, heads=8, decoder_layers=4, max_positions=1000)).eval()
    with torch.no_grad(), trace(m) as t:
        m(Packed.from_sequences([[1] * 1000]))
    stored = {value.data_ptr(): value.nbytes for value in t._values.values()}
    tables = 4 * 4 * 8 * 1000 * 1000 * 4
    assert sum(stored.values()) < tables / 20
    assert t["decoder.3.masked.weights", 0].shape == (8, 1000, 1000)


def test_an_ablated_head_contributes_nothing() -> None:
    m = model()
    before = m(*inputs(m))
    with intervene(m, ablate_head("decoder.2.cross", head=1)), trace(m) as t:
        after = m(*inputs(m))
    assert not torch.allclose(before, after)
    for heads in t["decoder.2.cross.heads"]:
        assert heads[:, 1].abs().max() == 0
        assert heads[:, 0].abs().min() > 0
    # Equivalent: set the head's columns of W_O to zero.
    with torch.no_grad():
        m.decoder.blocks[2].cross.project.weight[:, 4:8] = 0  # type: ignore[union-attr, operator]
    torch.testing.assert_close(after, m(*inputs(m)))


def test_an_intervention_acts_only_at_the_selected_positions() -> None:
    m = model()
    before = m(*inputs(m))
    with intervene(m, ablate_head("decoder.2.cross", head=1, where=Selection(sentence=2, positions=[1]))):
        after = m(*inputs(m))
    changed = ((before - after).abs() > 1e-9).any(-1)
    assert changed.tolist() == [False, False, False, False, True, False, False]  # row 4: sentence 2, position 1


@pytest.mark.parametrize("attention", ["decoder.1.cross", "decoder.1.masked", "encoder.1.self"])
def test_uniform_attention_is_the_mean_of_the_visible_values(attention: str) -> None:
    m = model()
    with intervene(m, uniform_attention(attention)), trace(m) as t:
        m(*inputs(m))
    values, heads = t[f"{attention}.values", 0], t[f"{attention}.heads", 0]
    for i in range(len(heads)):
        visible = values[: i + 1] if attention.endswith("masked") else values
        torch.testing.assert_close(heads[i], visible.mean(0))


def test_forced_attention_weights_are_used_and_recorded() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    forced = [torch.zeros_like(weights) for weights in t["decoder.0.cross.weights"]]
    for weights in forced:
        weights[..., 0] = 1  # every token attends to the first source token
    with trace(m) as t, intervene(m, force_attention("decoder.0.cross", forced, where=Selection(head=3))):
        m(*inputs(m))
    for weights, expected in zip(t["decoder.0.cross.weights"], forced, strict=True):
        assert torch.equal(weights[3], expected[3])
        assert expected.shape[-1] == 1 or not torch.equal(weights[2], expected[2])
    torch.testing.assert_close(t["decoder.0.cross.heads", 1][0, 3], t["decoder.0.cross.values", 1][0, 3])


def test_patched_vectors_give_the_output_of_their_sentence() -> None:
    m = model()
    with trace(m) as t:
        donor = m(Packed.from_sequences([[3, 1, 4]]), Packed.from_sequences([[3, 5]]))
    all_vectors = patch("encoder.vectors", t["encoder.vectors"])
    with intervene(m, all_vectors):
        assert torch.equal(m(Packed.from_sequences([[9, 9, 9]]), Packed.from_sequences([[3, 5]])), donor)
    first_vector = patch("encoder.vectors", t["encoder.vectors"], where=Selection(positions=[0]))
    with intervene(m, first_vector):
        assert not torch.equal(m(Packed.from_sequences([[9, 9, 9]]), Packed.from_sequences([[3, 5]])), donor)


def test_a_single_unit_can_be_set_to_0() -> None:
    m = model()
    with trace(m) as before:
        m(*inputs(m))
    name = "encoder.0.feed_forward.post_activation"
    expected = torch.cat(tuple(before[name]))
    unit = int(expected.abs().sum(0).argmax())
    with intervene(m, scale(name, 0.0, Selection(unit=unit))), trace(m) as after:
        m(*inputs(m))
    expected[:, unit] = 0.0
    assert torch.equal(torch.cat(tuple(after[name])), expected)
    assert not torch.equal(after["logits", 0], before["logits", 0])


def test_interventions_compose_and_are_undone_even_after_an_exception() -> None:
    m = model()
    before = m(*inputs(m))
    off = scale("decoder.*.cross.projected", 0.0)
    with intervene(m, off):
        alone = m(*inputs(m))
        with intervene(m, scale("decoder.*.masked.projected", 0.0)):
            both = m(*inputs(m))
        assert torch.equal(m(*inputs(m)), alone)
    with intervene(m, off, scale("decoder.*.masked.projected", 0.0)):
        assert torch.equal(m(*inputs(m)), both)
    assert not torch.equal(alone, both)
    with pytest.raises(RuntimeError, match="on purpose"), intervene(m, off), trace(m):
        raise RuntimeError("on purpose")
    assert torch.equal(m(*inputs(m)), before)
    assert "forward" not in m.__dict__
    with pytest.raises(UserError, match=r'"decoder\.9\.cross\.heads"'), intervene(m, ablate_head("decoder.9.cross", 0)):
        pass


def test_a_saved_trace_of_an_intervention_holds_what_the_model_used(tmp_path: Path) -> None:
    m = model()
    with intervene(m, uniform_attention("decoder.0.cross")), trace(m) as t:
        m(*inputs(m))
    t.save(tmp_path / "t")
    weights = Trace.load(tmp_path / "t")["decoder.0.cross.weights", 1]
    torch.testing.assert_close(weights, torch.full((4, 1, 5), 0.2, dtype=torch.float64))


def test_other_threads_are_neither_recorded_nor_modified() -> None:
    m = model()
    before = m(*inputs(m))
    outputs: list[Tensor] = []
    with intervene(m, scale("decoder.*.cross.projected", 0.0)), trace(m) as t:
        other = threading.Thread(target=lambda: outputs.append(m(*inputs(m))))
        other.start()
        other.join()
        assert not t.names()
        m(*inputs(m))
    assert torch.equal(outputs[0], before)
