"""An intervention changes the selected entries and no others, or says why it cannot."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.layout import Packed
from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.interventions import (
    Intervention,
    Selection,
    ablate_head,
    force_attention,
    intervene,
    patch,
    scale,
)
from seq2see.inspect.trace import SentenceValues, Trace, tap_names, trace
from seq2see.model.network import Network
from seq2see.model.taps import quantity
from seq2see.model.transformer import Transformer
from tests.decoders import LANGUAGE_MODEL, PAPER, SPECIAL_TOKENS, START, exact_model, random_sentences

SOURCE = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
TARGET = [[3, 5], [8], [9, 7, 9, 3]]
SMALL = ModelConfig(
    vocab_size=31, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=12, dropout=0.0, max_positions=32
)
RELATIVE = replace(SMALL, positions="relative", key_value_heads=1, norm_first=True, norm="rms", bias="nowhere")
RECURRENT = ModelConfig(
    kind="rnn-attention", vocab_size=31, width=8, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0
)


def build(config: ModelConfig) -> Network:
    torch.manual_seed(0)
    network = Recurrent(config) if config.kind == "rnn-attention" else Transformer(config)
    return network.double().eval()


MODELS = [build(config) for config in (SMALL, RELATIVE, RECURRENT)]


def traced(model: Network, *interventions: Intervention) -> Trace:
    with torch.no_grad(), intervene(model, *interventions), trace(model, only="*") as t:
        model(Packed.from_sequences(SOURCE), Packed.from_sequences(TARGET))
    return t


BEFORE = [traced(model) for model in MODELS]


def is_step_by_step(model: Network, name: str) -> bool:
    """Whether each position is computed after the one before: it depends on it, and the last one is not known."""
    return model.config.kind == "rnn-attention" and name.endswith((".queries", ".energies", ".weights", ".heads"))


def expected_masks(
    name: str, values: SentenceValues, where: Selection, step_by_step: bool = False
) -> list[Tensor] | None:
    """Marks the selected entries of each sentence; None if a part of the selection does not exist. Step by step, shorter
    sentences may lack a position that another one has.
    """
    axes = quantity(name).axes[quantity(name).axes[0] == "sentence" :]  # of one sentence
    rows = axes.index("query") if "query" in axes else 0
    chosen = [(rows, list(where.positions))] if where.positions is not None else []
    if where.head is not None and "head" not in axes:
        return None
    chosen += [(axes.index("head"), [where.head])] if where.head is not None else []
    chosen += [(len(axes) - 1, [where.unit])] if where.unit is not None else []
    if where.sentence is not None and not 0 <= where.sentence < len(values):
        return None
    masks = []
    for sentence, value in enumerate(values):
        mask = torch.full(value.shape, where.sentence in (None, sentence))
        for axis, indices in chosen if where.sentence in (None, sentence) else []:
            first = -value.shape[axis] if axis == rows else 0
            indices = [i for i in indices if i < value.shape[axis] or axis != rows or not step_by_step]
            if not all(first <= i < value.shape[axis] for i in indices):
                return None
            along = torch.zeros(value.shape[axis], dtype=torch.bool)
            along[indices] = True
            mask &= along.view(-1, *[1] * (value.dim() - 1 - axis))
        masks.append(mask)
    return masks


PLACES = [(model, name) for model in MODELS for name in tap_names(model.config) if not name.endswith(".tokens")]
POSITIONS = st.lists(st.integers(-1, 0) | st.integers(-6, 6), max_size=2)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.none() | st.integers(0, 3),
    st.none() | POSITIONS,
    st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 4) | st.integers(-2, 12),
)
def test_a_selection_changes_the_selected_entries_and_no_others_or_raises(
    place: tuple[Network, str], sentence: int | None, positions: list[int] | None, head: int | None, unit: int | None
) -> None:
    model, name = place
    before = BEFORE[MODELS.index(model)][name]
    try:
        where = Selection(sentence, positions, head, unit)
        after = traced(model, Intervention(name, lambda value, place: torch.full_like(value, 777.0), where))[name]
    except UserError:
        if positions != [] and not (min(positions or [0]) < 0 and is_step_by_step(model, name)):
            assert expected_masks(name, before, Selection(sentence, positions, head, unit)) is None
        return
    expected = expected_masks(name, before, where, is_step_by_step(model, name))
    assert expected is not None
    for old, new, mask in zip(before, after, expected, strict=True):
        assert torch.equal(new == 777.0, mask)
        assert is_step_by_step(model, name) or torch.equal(new[~mask], old[~mask])


@pytest.mark.parametrize(
    ("name", "where", "message"),
    [
        (
            "encoder.vectors",
            Selection(positions=[5]),
            "no position 5 in sentence 0: .* from 0 to 2, or from the end −1 to −3",
        ),
        ("encoder.vectors", Selection(sentence=1, positions=[-6]), "no position -6 in sentence 1"),
        ("encoder.vectors", Selection(sentence=3), "no sentence 3: its sentences are numbered from 0 to 2"),
        ("decoder.0.cross.weights", Selection(sentence=2, unit=1), "no unit 1: its units are numbered from 0 to 0"),
        ("decoder.0.masked.keys", Selection(head=2), "no head 2"),
        ("logits", Selection(unit=31), "no unit 31"),
    ],
)
def test_a_selection_of_nothing_names_what_there_is(name: str, where: Selection, message: str) -> None:
    with pytest.raises(UserError, match=message):
        traced(MODELS[0], scale(name, 0.0, where))


def test_a_selection_is_made_of_integers() -> None:
    assert Selection(positions=range(2)) == Selection(positions=torch.arange(2).tolist()) == Selection(positions=(0, 1))
    wrong: list[Any] = [1, [0.5], slice(1), "1", []]
    for positions in wrong:
        with pytest.raises(UserError, match="positions"):
            Selection(positions=positions)
    with pytest.raises(UserError, match="head=1, but its selection has head=0"):
        ablate_head("decoder.0.cross", 1, Selection(head=0))
    assert ablate_head("decoder.0.cross", 1, Selection(unit=2)).where == Selection(head=1, unit=2)


def test_decoding_reports_what_never_came_up() -> None:
    m, sources, search = exact_model(end_bias=-9.0), random_sentences(3), Search(max_new_tokens=4)
    for where, message in (
        (Selection(positions=[1, 9]), "position 9 never came up while decoding: the last was 3"),
        (Selection(sentence=3), "no sentence 3: its sentences are numbered from 0 to 2"),
        (Selection(positions=[-1]), "the last position is not known yet"),
    ):
        with pytest.raises(UserError, match=message), intervene(m, scale("decoder.0.cross.heads", 0.5, where)):
            translate_tokens(m, sources, SPECIAL_TOKENS, search)
    with intervene(m, scale("decoder.0.cross.heads", 0.5, Selection(sentence=2, positions=[3]))):
        translate_tokens(m, sources, SPECIAL_TOKENS, search, token_budget=1)
    last = [scale("encoder.vectors", -1.0, Selection(positions=[p])) for p in (-1, len(sources[0]) - 1)]
    found = []
    for intervention in last:  # the whole source is known: it counts from the end
        with intervene(m, intervention):
            found.append(translate_tokens(m, sources[:1], SPECIAL_TOKENS, search))
    assert found[0] == found[1]
    with intervene(m, last[0]):
        pass  # without a pass, nothing is missing


def test_given_values_fit_their_sentence_or_say_what_is_needed() -> None:
    model, donor = MODELS[0], traced(MODELS[0], scale("encoder.embedded", -1.0))
    name = "encoder.vectors"
    after = traced(model, patch(name, donor[name]))
    assert all(torch.equal(a, b) for a, b in zip(after["logits"], donor["logits"], strict=True))
    after = traced(model, patch(name, donor[name, 1], Selection(sentence=1, positions=[-2])))
    for s, old in enumerate(BEFORE[0][name]):
        expected = old.clone()
        expected[3:4] = donor[name, 1][3:4] if s == 1 else 0
        assert torch.equal(after[name, s], expected)
    needed = "the value for encoder.vectors is {}, but 3 × 8 is needed"
    for value, message in (
        (donor[name, 1], needed.format("5 × 8")),
        (torch.cat(tuple(donor[name])), needed.format("9 × 8")),  # of the whole batch, end to end
        (donor[name].padded().values, needed.format("3 × 5 × 8")),
        (donor[name][:2], "2 values for encoder.vectors, but none for sentence 2"),
        ([[1.0] * 8], "no tensor"),
        (1.0, "no tensor"),
    ):
        with pytest.raises(UserError, match=message):
            traced(model, patch(name, value))  # type: ignore[arg-type]
    weights = "decoder.0.cross.weights"
    with pytest.raises(UserError, match="has 4 keys, but there are 3"):
        traced(model, force_attention("decoder.0.cross", torch.full((4,), 0.25), Selection(sentence=0)))
    row = torch.tensor([0.0, 1.0, 0.0, 0.0])  # a weight of 0 needs no key
    after = traced(model, force_attention("decoder.0.cross", row, Selection(sentence=0, positions=[-1], head=1)))
    assert after[weights, 0][1, 1].tolist() == [0, 1, 0]
    for transform, message in (
        (lambda value, place: None, "returned no tensor but NoneType"),
        (lambda value, place: value[:, :2], r"is 3 × 2, but 3 × 8 is needed"),
    ):
        with pytest.raises(UserError, match=message):
            traced(model, Intervention(name, transform, Selection()))  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [0, 2])
def test_a_table_of_weights_is_read_at_the_position_of_each_decoding_step(window: int) -> None:
    config = replace(PAPER, attention_window=window)
    m, sources, search = exact_model(config, end_bias=-9.0), random_sentences(1), Search(max_new_tokens=6)
    best = translate_tokens(m, sources, SPECIAL_TOKENS, search)[0][0]
    target = [SPECIAL_TOKENS.start, *best.tokens[:5]]
    with torch.no_grad(), trace(m) as t:
        m(Packed.from_sequences(sources), Packed.from_sequences([target]))
    name = "decoder.1.masked"
    given = t[f"{name}.weights", 0]
    with intervene(m, force_attention(name, given)):  # the model's own weights change nothing
        again = translate_tokens(m, sources, SPECIAL_TOKENS, search)[0][0]
    assert again.tokens == best.tokens
    torch.testing.assert_close(again.logprobs, best.logprobs, rtol=0, atol=1e-5)
    with (
        pytest.raises(UserError, match="has 5 positions, but position 5 is needed"),
        intervene(m, force_attention(name, given[:, :5])),
    ):
        translate_tokens(m, sources, SPECIAL_TOKENS, search)


def test_a_patched_prompt_is_continued_like_the_other_prompt() -> None:
    m, search = exact_model(LANGUAGE_MODEL, end_bias=-9.0), Search(max_new_tokens=4)
    with torch.no_grad(), trace(m) as t:
        m(Packed.from_sequences([[START, 8, 9, 10]]))
    expected = generate_tokens(m, [[8, 9, 10]], SPECIAL_TOKENS, search)
    donor = patch("decoder.embedded", t["decoder.embedded", 0], Selection(positions=[1, 2, 3]))
    with intervene(m, donor):
        found = generate_tokens(m, [[5, 6, 7]], SPECIAL_TOKENS, search)
    assert found[0][0].tokens == expected[0][0].tokens
    assert found[0][0].tokens != generate_tokens(m, [[5, 6, 7]], SPECIAL_TOKENS, search)[0][0].tokens


def test_a_gradient_reaches_the_patched_value() -> None:
    value = BEFORE[0]["encoder.vectors", 1].clone().requires_grad_()
    with intervene(MODELS[0], patch("encoder.vectors", value, Selection(sentence=1, positions=[-1]))):
        MODELS[0](Packed.from_sequences(SOURCE), Packed.from_sequences(TARGET)).square().sum().backward()
    assert value.grad is not None and (value.grad.abs().sum(1) > 0).tolist() == [False] * 4 + [True]
