"""Word alignment from cross-attention."""

import pytest
import torch

from seq2see.api import Model
from seq2see.data.layout import Packed
from seq2see.data.token_spans import TokenSpan
from seq2see.data.word_spans import split_words, wordpunct_spans
from seq2see.errors import UserError
from seq2see.inspect.alignment import align, align_with, all_layer_heads
from seq2see.inspect.interventions import Selection, force_attention, intervene
from seq2see.inspect.trace import trace
from tests.models import tiny_model

PAIRS = [
    ("I like tea.", "मुझे चाय पसंद है।"),
    ("We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"),
    ("Where are you going tomorrow with the big elephant?", "तुम कल बड़े हाथी के साथ कहाँ जा रहे हो?"),
    ("Congratulations", "बधाई हो"),
    ("", "कुछ नहीं"),
    ("nothing", ""),
    ("Odd   spaces ,here .", "  अजीब   जगह ।"),
]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model([text for pair in PAIRS[:3] for text in pair])


def test_words_are_aligned_by_the_rows_that_predict_them(model: Model) -> None:
    source, target = PAIRS[1]
    intended = [2, 0, 4, 5, 1, 6, 3]  # the source word that each target word attends to
    spans = [tokenizer.token_spans(text) for tokenizer, text in zip(model.tokenizers, PAIRS[1], strict=True)]
    assert all(len(side) > 10 for side in spans)  # words of several tokens
    forced = torch.zeros(
        len(spans[1]) + 1, len(spans[0]) + 1
    )  # rows: <start> and the target; columns: the source and <end>
    forced[-1, -1] = 1
    for row, span in enumerate(spans[1]):
        word = _word_of(target, span)
        source_word = None if word is None else intended[word]
        columns = [k for k, other in enumerate(spans[0]) if _word_of(source, other) == source_word]
        forced[row, columns] = 1 / len(columns)
    with intervene(model.network, force_attention("decoder.1.cross", forced)):
        assert align(model, [PAIRS[1]]) == [sorted((i, j) for j, i in enumerate(intended))]
    with intervene(model.network, force_attention("decoder.1.cross", forced.roll(1, 0))):  # by the rows that read them
        assert align(model, [PAIRS[1]]) != [sorted((i, j) for j, i in enumerate(intended))]
    with intervene(model.network, force_attention("decoder.0.cross", forced, where=Selection(head=1))):
        first, second = (align(model, [PAIRS[1]], layer=0, head=head) for head in (0, 1))
        assert second == [sorted((i, j) for j, i in enumerate(intended))] != first


def _word_of(text: str, token: TokenSpan) -> int | None:
    """Returns the word that a token belongs to, if it is more than a space."""
    found = [i for i, (first, last) in enumerate(wordpunct_spans(text)) if token.start < last and first < token.end]
    assert len(found) <= 1
    return found[0] if found else None


def test_weights_are_summed_over_source_words_and_averaged_over_target_words(model: Model) -> None:
    source, target = PAIRS[2]
    spans = [tokenizer.token_spans(text) for tokenizer, text in zip(model.tokenizers, (source, target), strict=True)]
    start, end = model.tokenizers[1].start, model.tokenizers[0].end
    source_ids, target_ids = [*(span.id for span in spans[0]), end], [start, *(span.id for span in spans[1])]
    with torch.no_grad(), trace(model.network) as t:
        model.network(Packed.from_sequences([source_ids]), Packed.from_sequences([target_ids]))
    weights = t["decoder.0.cross.weights", 0].mean(0)
    expected = []
    for j in range(len(split_words(target))):
        rows = [row for row, span in enumerate(spans[1]) if _word_of(target, span) == j]
        totals = [0.0] * len(split_words(source))
        for row in rows:
            for column, span in enumerate(spans[0]):
                word = _word_of(source, span)
                if word is not None:
                    totals[word] += float(weights[row, column]) / len(rows)
        expected.append((max(range(len(totals)), key=lambda i: totals[i]), j))
    assert align(model, [(source, target)], layer=0) == [sorted(expected)]


def test_batched_alignment_equals_single(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [(head,) for head in all_layer_heads(model)]
    assert len(heads) == 2 * (1 + 2)
    single = [align_with(model, [pair], heads) for pair in PAIRS]
    for tokens in (2000, 60):
        monkeypatch.setattr("seq2see.inspect.alignment.BATCH_TOKENS", tokens)
        batched = align_with(model, PAIRS, heads)
        assert [list(pair) for pair in zip(*batched, strict=True)] == [[links[0] for links in pair] for pair in single]
    assert batched[0][4] == batched[0][5] == []  # one side has no words
    assert all(len({j for _, j in batched[0][i]}) == len(split_words(PAIRS[i][1])) for i in (0, 1, 2, 3, 6))


def test_a_batch_holds_as_many_pairs_as_the_budget_allows(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("tea", "चाय")] * 7
    tokens = 1 + max(len(tokenizer.encode(text)) for tokenizer, text in zip(model.tokenizers, pairs[0], strict=True))
    monkeypatch.setattr("seq2see.inspect.alignment.BATCH_TOKENS", 3 * tokens)
    sizes = []
    hook = model.network.register_forward_pre_hook(lambda _, sides: sizes.append(len(sides[0].layout)))
    align(model, pairs)
    hook.remove()
    assert sizes == [3, 3, 1]


def test_layers_and_heads_out_of_range_are_rejected(model: Model) -> None:
    for layer, head, message in (
        (2, None, "layer 2 is out of range: the decoder has 2"),
        (-3, None, "layer -3 is out of range"),
        (0, 2, "head 2 is out of range: there are 2"),
    ):
        with pytest.raises(UserError, match=message):
            align(model, PAIRS[:1], layer=layer, head=head)
