"""The worked examples of the notes, including their errors."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from seq2see.course.lessons import (
    LESSONS,
    context,
    decoder,
    directions,
    encoder,
    heads,
    lookup,
    mask,
    norms,
    positions,
    qkv,
    scaling,
    senses,
    similarity,
    temperature,
    window,
    words,
)
from seq2see.course.lessons.document import Table, format_cell
from seq2see.course.vectors import WordVectors
from seq2see.errors import UserError
from seq2see.tensors.files import to_json
from tests.course.lessons import bundled, computed, word_model


def near(*numbers: float) -> Any:
    """Approximates as the notes round, to two decimals."""
    return pytest.approx(numbers, abs=0.006)


def test_two_features_cherry_orange_phone() -> None:
    found = similarity.compute(model=word_model()).words
    pairs = ((0, 1), (0, 2), (1, 2))
    assert [found.dot[i][j] for i, j in pairs] == [12, 3, 0]
    assert tuple(found.cosine[i][j] for i, j in pairs) == pytest.approx((0.970, 0.243, 0), abs=5e-4)
    assert tuple(found.scaled[i][j] for i, j in pairs) == near(8.49, 2.12, 0)


def test_three_features_are_divided_by_the_root_of_three_not_of_five() -> None:
    found = similarity.compute(model=word_model()).document
    assert found.words == ("orange", "phone", "apple", "and", "an")
    assert found.dot == (
        (9, 0, 6, 0, 0),
        (0, 16, 8, 0, 0),
        (6, 8, 8, 0, 0),
        (0, 0, 0, 4, 6),
        (0, 0, 0, 6, 9),
    )
    scaled = found.scaled
    assert (scaled[0][0], scaled[0][2], scaled[1][1], scaled[1][2], scaled[3][3]) == near(5.20, 3.46, 9.24, 4.62, 2.31)
    notes = LESSONS["similarity"].describe(similarity.compute(model=word_model())).notes
    assert any("√5" in note.text and "√3" in note.text for note in notes)


def test_apple_and_an_orange_by_sum_and_by_softmax() -> None:
    apple_and_an_orange, an_apple_phone = context.compute().sentences
    apple, orange = 0, 3
    assert tuple(apple_and_an_orange.scaled[apple]) == near(4.62, 0, 0, 3.46)
    assert tuple(apple_and_an_orange.normalized[apple]) == near(0.57, 0, 0, 0.43)
    assert tuple(apple_and_an_orange.related_weights[apple]) == near(0.76, 0, 0, 0.24)
    assert tuple(apple_and_an_orange.weights[apple]) == pytest.approx((0.749, 0.007, 0.007, 0.236), abs=6e-4)
    assert tuple(apple_and_an_orange.related_weights[orange]) == near(0.15, 0, 0, 0.85)
    an, apple, phone = range(3)
    assert an_apple_phone.scaled[apple][apple] == an_apple_phone.scaled[apple][phone] == pytest.approx(4.62, abs=0.005)
    assert tuple(an_apple_phone.related_weights[apple]) == near(0, 0.5, 0.5)
    assert tuple(an_apple_phone.related_weights[phone]) == pytest.approx((0, 0.010, 0.990), abs=5e-4)
    # "apple" moves towards tech in one sentence, and away from it in the other.
    assert an_apple_phone.softmax_output[apple][0] > 2.9 > 2 > apple_and_an_orange.softmax_output[0][0]
    errata = _notes("context", context.compute())
    assert "0.760 and 0.240" in errata and "0.150 and 0.850" in errata and "0.500 and 0.500" in errata
    assert "0.010 and 0.990" in errata and an == 0


def test_scores_that_add_to_0_have_no_weights_by_sum() -> None:
    found = context.compute(table={"x": (1, 0), "y": (-1, 0)}, sentences=["x y"])
    each = found.sentences[0]
    assert all(math.isnan(weight) for row in (*each.normalized, *each.normalized_output) for weight in row)
    assert each.weights[0] == pytest.approx((0.804, 0.196), abs=5e-4)
    text = LESSONS["context"].describe(found)
    cells = [
        format_cell(cell, part)
        for part in text.more[0].parts
        if isinstance(part, Table)
        for row in part.rows
        for cell in row
    ]
    assert "–" in cells and "0.707" in cells and not any("nan" in cell for cell in cells)
    assert any(isinstance(part, str) and "add to 0" in part for part in text.more[0].parts)
    assert (
        "(1x − 1y) / (1 − 1)" in str(text.more[-2].parts)
        and found.opposites.scaled[0][0] == -found.opposites.scaled[0][1]
    )
    assert found.near_opposites.normalized[0] == pytest.approx((2, -1))  # add to 1, but are no shares


@bundled
def test_rows_of_cross_attention_add_to_1_with_the_column_of_end() -> None:
    found = computed("cross")
    for each in (*found.sentences, found.french):
        for row, rest in zip(each.weights, each.end_weights, strict=True):
            assert sum(row) + rest == pytest.approx(1, abs=1e-5) and rest > -1e-5
    text = LESSONS["cross"].describe(found)
    tables = [part for part in (*text.picture, *text.parts) if isinstance(part, Table) and part.shaded]
    assert len(tables) == 4 and all(table.columns[-1] == "<end>" for table in tables)
    numbers = [[cell for cell in row if isinstance(cell, float)] for table in tables for row in table.rows]
    assert [sum(row) for row in numbers] == pytest.approx([1] * len(numbers), abs=1e-5)


def test_heads_are_compared_with_what_they_give_to_the_same_distance() -> None:
    """A head that follows the position gives the same to whatever stands there."""
    found = heads.compute(model=word_model())
    for answer in found.answers:
        count = len(answer.candidate_weights[0]) * len(answer.candidate_weights[0][0])
        for c in range(len(answer.candidates)):
            total = sum(weight for row in answer.candidate_weights[c] for weight in row)
            assert answer.means[c] == pytest.approx(total / count, abs=1e-6)
    text = str(LESSONS["heads"].describe(found))
    assert "at the same distance in other sentences" in text
    wrong = replace(found.answers[0], share=0.5, distance_share=0.45)
    assert "the position may explain it" in str(LESSONS["heads"].describe(replace(found, answers=(wrong,))).more)
    right = replace(found.answers[0], share=0.9, distance_share=0.2)
    assert "not the position alone" in str(LESSONS["heads"].describe(replace(found, answers=(right,))).more)


@bundled
def test_a_wrong_translation_is_called_so() -> None:
    for answer in computed("heads").answers:
        is_right = answer.output in heads.REFERENCES[answer.sentence]
        assert (answer.reference == "") == is_right
    text = str(LESSONS["heads"].describe(computed("heads")).more)
    assert ("differs from a correct translation" in text) == any(a.reference for a in computed("heads").answers)


def test_senses_are_measured_over_pairs_and_chance_is_one_half() -> None:
    """In the embedding all occurrences are alike, whatever the model: no measure can be better than chance there."""
    found = senses.compute(model=word_model())
    static = [word for word in found.words if word.is_static]
    assert static and {word.word for word in found.words} == {"bank", "apple", "mole", "fit"}
    for word in static:
        first = word.layers[0]
        assert (first.same, first.different, first.order) == pytest.approx((1, 1, 0.5), abs=1e-4)
        assert first.nearest == pytest.approx(word.chance, abs=1e-6)
        cosines, last = word.cosines[-1], word.layers[-1]
        pairs = [(i, j) for i in range(len(cosines)) for j in range(i)]
        same = [cosines[i][j] for i, j in pairs if word.senses[i] == word.senses[j]]
        different = [cosines[i][j] for i, j in pairs if word.senses[i] != word.senses[j]]
        assert (last.same, last.different) == pytest.approx(
            (sum(same) / len(same), sum(different) / len(different)), abs=1e-5
        )
        nearer = sum(a > b for a in same for b in different) / (len(same) * len(different))
        assert last.order == pytest.approx(nearer, abs=0.02)
    for order, verdict in ((0.9, "tells meanings apart:"), (0.65, "only a little"), (0.5, "does not tell")):
        layers = tuple(replace(layer, order=order) for layer in found.overall)
        assert verdict in LESSONS["senses"].describe(replace(found, overall=layers)).takeaway


def test_the_weights_of_the_two_banks_add_to_one_and_mix_the_vectors() -> None:
    money, river = context.compute().banks
    assert money.given_weights[1] == (0.25, 0.70, 0.05) and river.given_weights[1] == (0.20, 0.78, 0.02)
    for bank in (money, river):
        assert [sum(row) for row in bank.given_weights] == pytest.approx([1, 1, 1])
        assert [sum(row) for row in bank.weights] == pytest.approx([1, 1, 1])
    assert money.given_output[1][0] > money.given_output[1][1]  # finance, not water
    assert river.given_output[1][0] < river.given_output[1][1]


def test_summeth_is_nearest_to_summer_and_smeeth_which_tie() -> None:
    found = lookup.compute()
    assert found.keys == ("Smith", "Summer", "Smeeth") and found.values == (200, 201, 202)
    assert found.exact is None and found.edit_distances == (3, 2, 2)
    for row in found.weights:
        assert sum(row) == pytest.approx(1) and row[0] < row[1] == pytest.approx(row[2])
    sharp, soft = found.weights[0][1], found.weights[-1][1]
    assert sharp == pytest.approx(0.5, abs=0.01) and soft < sharp
    assert lookup.compute(query="Smith").exact == 200


def test_pizza_is_awesome() -> None:
    found = qkv.compute(model=word_model())
    assert tuple(found.queries[2]) == tuple(found.keys[2]) == tuple(found.values[2]) == near(2.98, 5.74)
    assert found.steps.scaled[0][0] == pytest.approx(found.steps.scores[0][0] / math.sqrt(2))
    assert [sum(row) for row in found.steps.weights] == pytest.approx([1] * 4)
    errata = _notes("qkv", found)
    assert "adds to 1.02" in errata and "= 1.00 as printed" in errata and "(2.98, 5.74)" in errata
    assert "0.38, 0.4, 0.9, which adds to 1.68" in errata  # the first softmax row
    assert "whose first column is 1.995, 2.003, 2.981" in errata and "1.0 1.9 / 0.2 0.4 / 3.86 2.2" in errata


def test_the_column_form_equals_the_row_form_and_that_of_the_notes_does_not() -> None:
    weights = ((0.3, -0.4), (0.1, 0.6))
    found = qkv.compute(query_weights=weights, key_weights=((1.0, 0.2), (-0.5, 0.4)), model=word_model())
    assert found.column_error < 1e-12
    assert found.notes_error > 0.01


def test_position_0_is_0_1_0_1_0_1() -> None:
    found = positions.compute(model=word_model())
    assert found.first == (0, 1, 0, 1, 0, 1)
    assert found.divisors == pytest.approx((1, 10000 ** (1 / 3), 10000 ** (2 / 3)))
    assert (len(found.map), len(found.map[0])) == (50, 128)
    assert found.bit_changes == (1, 3, 7, 15)
    assert list(found.sign_changes) == sorted(found.sign_changes, reverse=True)
    assert found.rotation_error < 1e-6
    products = found.sinusoid_products
    assert products == pytest.approx([products[0]] * 3, rel=1e-6)  # depends on the distance only
    assert found.count_products == (0, 130, 1720)
    assert found.order is not None
    assert max(found.order.change_without) < 1e-5 < 0.01 < max(found.order.change)


def test_the_variance_of_a_dot_product_grows_with_the_dimension() -> None:
    found = scaling.compute(model=word_model())
    for spread in found.random:
        assert spread.variance / spread.dimensions == pytest.approx(found.product_variance, rel=0.1)
        assert spread.scaled == pytest.approx(1, rel=0.1)
    assert found.random[-1].largest > 0.9 > 0.4 > found.random[-1].largest_scaled
    assert [ratio for _, ratio in found.multiples] == pytest.approx([c**2 for c, _ in found.multiples])


def test_layer_norm_works_on_rows_and_padding_does_not_affect_it() -> None:
    found = norms.compute(model=word_model())
    x = torch.tensor(found.samples)
    assert x.tolist()[0] == [2, 3, 7, 5, 4] and x.tolist()[4] == [7, 1, 3, 3, 4]
    for table, axis in ((found.batch, 0), (found.layer, 1)):
        normalized = torch.tensor(table)
        expected = (x - x.mean(axis, keepdim=True)) / (x.var(axis, correction=0, keepdim=True) + 1e-5).sqrt()
        assert torch.allclose(normalized, expected, atol=1e-5)
    assert all(padded.layer_change < 1e-6 for padded in found.padded)
    changes = [padded.batch_change for padded in found.padded]
    assert changes[0] == 0 and changes == sorted(changes) and changes[-1] > 1
    batch = found.model_batch
    assert batch.padding > 0 and max(batch.layer_change) < 1e-6 < 0.05 < min(batch.batch_change)


def test_the_mask_is_0_up_to_the_diagonal_and_minus_infinity_beyond() -> None:
    found = mask.compute(model=word_model())
    for i, row in enumerate(found.mask):
        assert all(cell == (0 if j <= i else -math.inf) for j, cell in enumerate(row))
        assert all(found.weights[i][j] == 0 for j in range(i + 1, len(row)))
        assert sum(found.weights[i]) == pytest.approx(1)
    assert set(found.change[:-1]) == {0.0} and found.change[-1] > 0.01
    assert min(found.unmasked_change[:-1]) > 1e-6  # without the mask, all positions change
    assert found.notes_weight_ahead > 0.1
    assert to_json(found)["mask"][0][1] is None  # JSON has no infinity


def test_temperature_seven_explains_the_probabilities_of_the_notes() -> None:
    found = temperature.compute(model=word_model())
    assert found.fitted_temperature == pytest.approx(7, abs=0.2) and found.remainder == pytest.approx(0.18)
    by_temperature = dict(zip(found.temperatures, found.probabilities, strict=True))
    assert by_temperature[0.1][4] == pytest.approx(1)
    assert by_temperature[1.0][4] == pytest.approx(0.977, abs=1e-3)
    assert [row[4] for row in found.probabilities] == sorted((row[4] for row in found.probabilities), reverse=True)
    assert list(found.entropies) == sorted(found.entropies) and list(found.mean_energies) == sorted(found.mean_energies)
    fitted = temperature.compute(temperatures=[found.fitted_temperature], model=word_model()).probabilities[0]
    printed = [0.82 * p for p in fitted]
    assert printed == pytest.approx((0.19, 0.04, 0.14, 0.10, 0.35), abs=0.01)


def test_the_next_token_is_the_one_with_the_largest_product_and_a_chat_is_one_text() -> None:
    found = LESSONS["next"].module.compute(model=word_model())
    assert found.product == pytest.approx(found.logit, abs=1e-4) and found.one_hot_error == 0
    assert found.logits[0][2] == pytest.approx(1) and found.row_token == found.top[0][0]
    assert window.compute(model=word_model()).prompt == "You're an apple.\n\nUser: Give me a banana\nModel: "


def test_one_hot_and_tf_idf_vectors_and_apple_as_an_average() -> None:
    found = words.compute(sentences=300)
    assert found.one_hot == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    apple = found.terms.index("apple")
    assert set(found.tf_idf[apple]) == {0}  # in every document
    assert found.tf_idf[found.terms.index("is")] == pytest.approx((0, math.log(2), math.log(2), 0), abs=1e-6)
    most, half, least = found.mixtures
    assert (most.fruit_sentences, most.phone_sentences) == (270, 30)
    assert most.fruit_share > half.fruit_share > least.fruit_share
    assert half.fruit_share == pytest.approx(0.5, abs=0.1)
    assert most.to_fruit > most.to_phones and least.to_fruit < least.to_phones


def test_directions_report_the_true_rank_of_the_answer() -> None:
    table = {
        "man": (1, 0, 0, 0),
        "woman": (1, 1, 0, 0),
        "king": (1, 0, 1, 0),
        "queen": (1, 1, 1, 0.1),
        "us": (1, 1, 1, 0),
        "cat": (0, 0, 3, 0),
        "cats": (0, 0, 3, 1),
        "dog": (0, 3, 0, 0),
        "dogs": (0, 3, 0, 1),
    }
    found = directions.compute(
        WordVectors.from_dict(table),
        [("king", "man", "woman", "queen"), ("king", "man", "woman", "empress")],
        [("cats", "cat"), ("dogs", "dog")],
        ["cats", "dog", "lion"],
    )
    first, second = found.analogies
    assert first.rank == 2 and first.best[0][0] == "us"
    assert second.rank == 0 and second.missing == ("empress",)
    assert found.leave_one_out_correct == 2 and [word for word, _ in found.projections] == ["cats", "dog"]
    assert [value for _, value in found.projections] == pytest.approx([1, 0], abs=1e-6)


def test_attention_is_global_and_the_feed_forward_layer_local() -> None:
    for model in (word_model(), word_model(norm_first=True)):
        found = encoder.compute(model=model)
        changed = found.changed_index
        assert [i for i, x in enumerate(found.change[0]) if x > 0] == [changed]  # the inputs differ in one word
        assert min(found.change[2]) > 0  # and after attention all have changed
        assert min(found.attention_change) > 0
        assert [i for i, x in enumerate(found.feed_forward_change) if x > 0] == [changed]
        assert found.residual_error < 1e-5 < 0.05 < found.notes_error
    with pytest.raises(UserError, match="without changing the number"):
        encoder.compute(changed="Nithish saw the big lion.", model=word_model())


def test_teacher_forcing_computes_the_same_as_decoding() -> None:
    found = decoder.compute(model=word_model())
    assert found.prefix_error < 1e-4
    probabilities = [position.probability for position in found.generated.positions]
    assert probabilities == pytest.approx(found.search_probabilities[: len(probabilities)], abs=1e-5)
    forced = found.forced.positions
    assert forced[0].input == "<start>" and forced[-1].target == "<end>"
    loss = -sum(math.log(position.probability) for position in forced) / len(forced)
    assert found.forced.loss == pytest.approx(loss, abs=1e-5)


def test_8_heads_of_64_cost_as_much_as_1_of_512() -> None:
    found = heads.compute(model=word_model())
    one, eight, wide = found.costs
    assert one.parameters == eight.parameters == 4 * 512 * 512 + 4 * 512 and wide.parameters > 7 * one.parameters
    for answer in found.answers:
        assert answer.share == pytest.approx(
            max(
                sum(table[layer][head] for table in answer.candidate_weights) for layer in range(1) for head in range(2)
            )
        )
        assert [sum(row) for row in answer.weights] == pytest.approx([1] * len(answer.words), abs=1e-5)


@bundled
def test_the_bundled_model_aligns_the_sentence_of_the_notes() -> None:
    ice_cream, congratulations, thanks = computed("cross").sentences
    assert " ".join(ice_cream.target) == "मुझे आइसक्रीम खाना पसंद है"
    assert {(0, 0), (3, 1), (2, 2), (1, 3)} <= set(ice_cream.links) and ice_cream.crossings > 0
    assert (len(congratulations.source), len(congratulations.target)) == (1, 2)
    assert (len(thanks.source), len(thanks.target)) == (2, 1)


def test_french_adjectives_are_aligned_in_reverse_order() -> None:
    french = computed("cross").french
    assert french.target == ("La", "Zone", "Économique", "Européenne") and computed("cross").accuracy > 0.8
    assert french.links == ((0, 0), (1, 3), (2, 2), (3, 1)) and french.crossings == 3


@bundled
def test_the_bundled_model_translates_the_idiom_and_distinguishes_senses() -> None:
    idiom, sentence, literal = computed("qkv").idioms
    assert idiom.translation == "आसान काम" and idiom.word_by_word[-1] == "केक"
    assert "केक" in literal.translation and "केक" not in sentence.translation
    mole = computed("senses").words[2]
    assert mole.layers[0].same == pytest.approx(1, abs=1e-5) == mole.layers[0].different
    creature = computed("heads").answers[2]
    assert creature.share > 0.9 > creature.uniform_share  # a head attends to the adjectives
    assert computed("decoder").generated.output == "हम दोस्त हैं"


def _notes(name: str, result: Any) -> str:
    return " ".join(note.text for note in LESSONS[name].describe(result).notes)
