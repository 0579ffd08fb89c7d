"""The key figures of every lesson, recomputed with NumPy alone: by hand where there is a formula, and by a forward pass from
the raw weights where there is a model. Nothing of the library takes part in the recomputation; it only provides the figures
to check.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from seq2see.course.lessons import (
    LESSONS,
    context,
    cross,
    decoder,
    directions,
    encoder,
    heads,
    layers,
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
from seq2see.course.vectors import WordVectors
from tests.course import test_recomputed_training
from tests.course.lessons import Array, close, cosine, relative, run, word_model
from tests.numpy_transformer import softmax


@pytest.fixture(scope="module")
def model() -> Any:
    return word_model()


def test_every_lesson_is_recomputed() -> None:
    tests = (*globals(), *vars(test_recomputed_training))
    assert {*LESSONS} <= {name.removeprefix("test_").partition("_is_")[0] for name in tests}


def test_words_is_recomputed() -> None:
    found = words.compute(sentences=100)
    documents = [document.lower().split() for document in found.documents]
    for term, row in zip(found.terms, found.tf_idf, strict=True):
        frequency = sum(term in document for document in documents)
        assert close(row, [document.count(term) * math.log(len(documents) / frequency) for document in documents])
    king, queen = np.array([0.6, 0.1, 1.0, 0.9]), np.array([0.3, 0.2, 0.9, 1.0])
    assert found.king_queen_cosine == pytest.approx(cosine(king, queen), abs=1e-6)
    assert close(found.one_hot, np.eye(3)) and found.mixtures[0].fruit_sentences == 90


def test_similarity_is_recomputed(model: Any) -> None:
    found = similarity.compute(sentence="an apple phone", model=model)
    for tables, x in (
        (found.words, np.array([[1, 4], [0, 3], [3, 0]], dtype=float)),
        (found.document, np.array([[0, 3, 0], [4, 0, 0], [2, 2, 0], [0, 0, 2], [0, 0, 3]], dtype=float)),
    ):
        assert close(tables.dot, x @ x.T) and close(tables.scaled, x @ x.T / math.sqrt(x.shape[1]))
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        assert close(tables.cosine, unit @ unit.T)
    memory = run(model, "an apple phone")[0].memory
    unit = memory / np.linalg.norm(memory, axis=1, keepdims=True)
    assert close(found.contextual.cosine, unit @ unit.T)


def test_directions_is_recomputed() -> None:
    random = np.random.default_rng(1)
    names = ["king", "man", "woman", "queen", "dog", "dogs", "cat", "cats", "tea", "cup"]
    table = {name: random.normal(size=5) for name in names}
    vectors = WordVectors.from_dict({name: tuple(vector) for name, vector in table.items()})
    found = directions.compute(
        vectors,
        analogies=[("king", "man", "woman", "queen")],
        pairs=[("dogs", "dog"), ("cats", "cat")],
        words=["tea", "cup"],
    )
    unit = {name: vector / np.linalg.norm(vector) for name, vector in table.items()}
    target = unit["king"] - unit["man"] + unit["woman"]
    scores = {name: cosine(target, unit[name]) for name in names if name not in ("king", "man", "woman")}
    answer = found.analogies[0]
    assert answer.rank == 1 + sum(score > scores["queen"] for score in scores.values())
    assert answer.rank_of_a == 1 + sum(cosine(target, unit[name]) > cosine(target, unit["king"]) for name in names)
    best = sorted(scores, key=lambda name: -scores[name])[:3]
    assert [name for name, _ in answer.best] == best and close(
        [score for _, score in answer.best], [scores[n] for n in best]
    )
    direction = (table["dogs"] - table["dog"] + table["cats"] - table["cat"]) / 2
    expected = [table[name] @ direction / np.linalg.norm(direction) for name in ("tea", "cup")]
    assert close([value for _, value in found.projections], expected)


def test_context_is_recomputed() -> None:
    features = {"orange": (0, 3, 0), "phone": (4, 0, 0), "apple": (2, 2, 0), "and": (0, 0, 2), "an": (0, 0, 3)}
    found = context.compute()
    for each in found.sentences:
        x = np.array([features[word] for word in each.words], dtype=float)
        scores = x @ x.T / math.sqrt(3)
        assert close(each.scaled, scores) and close(each.weights, softmax(scores))
        assert close(each.softmax_output, softmax(scores) @ x)
        assert close(each.normalized, scores / scores.sum(1, keepdims=True))
        related = np.where(scores > 0, np.exp(scores), 0)
        assert close(each.related_weights, related / related.sum(1, keepdims=True))
    bank = {
        "money": (4, 0, 1),
        "HDFC": (4, 0, 0),
        "river": (0, 4, 1),
        "bank": (2, 2, 0),
        "grows": (2, 0, 2),
        "flows": (0, 2, 2),
    }
    for each in found.bank_sentences:
        x = np.array([bank[word] for word in each.words], dtype=float)
        assert close(each.softmax_output, softmax(x @ x.T / math.sqrt(3)) @ x)
    given = np.array([[0.7, 0.2, 0.1], [0.25, 0.7, 0.05], [0.1, 0.2, 0.7]])
    assert close(found.banks[0].given_output, given @ np.array([bank[word] for word in ("money", "bank", "grows")]))
    assert close(found.opposites.weights[0], softmax(np.array([1, -1]) / math.sqrt(2)))


def test_lookup_is_recomputed() -> None:
    found = lookup.compute()
    pairs = [list(zip(f"^{name}", f"{name}$", strict=True)) for name in ("Summeth", "Smith", "Summer", "Smeeth")]
    known = sorted(set().union(*pairs))
    counts = np.array([[each.count(pair) for pair in known] for each in pairs], dtype=float)
    shared = counts[1:] @ counts[0]
    assert close(found.shared_pairs, shared)
    for t, row, answer in zip(found.temperatures, found.weights, found.answers, strict=True):
        weights = softmax(shared / t / math.sqrt(len(known)))
        assert close(row, weights) and answer == pytest.approx(float(weights @ [200, 201, 202]))

    def edits(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(edits(a[1:], b) + 1, edits(a, b[1:]) + 1, edits(a[1:], b[1:]) + (a[0] != b[0]))

    assert found.edit_distances == tuple(edits("Summeth", name) for name in ("Smith", "Summer", "Smeeth"))


def test_qkv_is_recomputed(model: Any) -> None:
    found = qkv.compute(model=model)
    x, w = np.array([[0.1, 2.13], [0.11, 2.13], [0.21, 3.13], [0.8, 0.9]]), np.array([[0.78, 2.0], [0.9, 1.7]])
    q = x @ w
    weights = softmax(q @ q.T / math.sqrt(2))
    assert close(found.queries, q) and close(found.steps.weights, weights) and close(found.steps.output, weights @ q)
    assert close(found.kernel, w @ w.T) and close(x @ np.array(found.kernel) @ x.T, found.steps.scores)
    notes = " ".join(note.text for note in LESSONS["qkv"].describe(found).notes)
    assert (
        f"adds to {0.38 + 0.4 + 0.9:.2f}" in notes
        and f"give {np.array([0.36, 0.40, 0.24]) @ q[:3, 0]:.2f} instead" in notes
    )
    reference, _ = run(model, found.sentence)
    ids = model.tokenizers[0].encode(found.sentence)
    table, d, width = reference.w["embedding.weight"], model.config.model.width // model.config.model.heads, 16
    position = np.arange(len(ids) + 1)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    inputs = table[[*ids, model.tokenizers[0].end]] * math.sqrt(width)
    inputs = inputs + np.stack([np.sin(position), np.cos(position)], -1).reshape(len(inputs), width)
    name = "encoder.blocks.0.attention.queries_keys_values"
    stacked = inputs @ reference.w[f"{name}.weight"].T + reference.w[f"{name}.bias"]
    a, b, v = stacked[:, :d], stacked[:, width : width + d], stacked[:, 2 * width : 2 * width + d]
    scores = a @ b.T
    assert found.asymmetry == pytest.approx(np.linalg.norm(scores - scores.T) / np.linalg.norm(scores), rel=1e-3)
    wrong = (v.T @ softmax((a @ b.T / math.sqrt(d)).T).T).T  # V softmax(QᵀK), the softmax down the columns
    right = softmax(scores / math.sqrt(d)) @ v
    assert found.notes_error == pytest.approx(np.linalg.norm(wrong - right) / np.linalg.norm(right), rel=1e-3)


def test_scaling_is_recomputed(model: Any) -> None:
    found, random = scaling.compute(model=model), np.random.default_rng(3)
    for spread in found.random:
        q, k = random.normal(size=(4000, spread.dimensions)), random.normal(size=(4000, 10, spread.dimensions))
        scores = np.einsum("sd,smd->sm", q, k)
        assert spread.variance == pytest.approx(scores.var(), rel=0.1)
        assert spread.largest == pytest.approx(softmax(scores).max(-1).mean(), abs=0.03)
        assert spread.largest_scaled == pytest.approx(
            softmax(scores / math.sqrt(spread.dimensions)).max(-1).mean(), abs=0.03
        )


def test_heads_is_recomputed(model: Any) -> None:
    found = heads.compute(model=model)
    table = np.array([[3, 0, 0], [0, 0, 2], [0, 0, 2], [2, 2, 0], [0, 0, 2], [0, 3, 0]], dtype=float)
    for view, selected in zip(found.views.heads, ((1, 1, 1), (1, 0, 0), (0, 1, 0)), strict=True):
        seen = table * selected
        weights = softmax(seen @ seen.T / math.sqrt(3))
        assert close(view.weights, weights) and close(view.output, (weights @ table)[3])
        assert close(view.summary, (weights @ table).mean(0))
    assert [cost.parameters for cost in found.costs[:2]] == [4 * 512 * 512 + 4 * 512] * 2
    answer = found.answers[1]
    reference, _ = run(model, answer.sentence)
    weights = reference.weights["encoder.0.self"]  # [heads, n, n]
    it, candidates = answer.words.index("it"), [answer.words.index(word) for word in answer.candidates]
    assert close([table[0] for table in answer.candidate_weights], weights[:, it, candidates].T)
    others = [run(model, sentence)[0].weights["encoder.0.self"] for sentence in heads.OTHER_SENTENCES]
    for c, column in enumerate(candidates):
        diagonals = np.concatenate(
            [np.diagonal(w, column - it, 1, 2) for w in others if abs(column - it) < w.shape[-1]], -1
        )
        assert close(answer.distance_weights[c][0], diagonals.mean(-1))


def test_positions_is_recomputed(model: Any) -> None:
    found = positions.compute(model=model)
    angle = np.arange(53)[:, None] / 10000 ** (np.arange(0, 128, 2) / 128)
    table = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(53, 128)
    assert close(found.map, table[:50]) and found.sinusoid_products[0] == pytest.approx(table[0] @ table[3], rel=1e-4)
    assert close(found.second, [f(1 / 10000 ** (2 * i / 6)) for i in range(3) for f in (math.sin, math.cos)])
    changes = [sum((a >= 0) != (b >= 0) for a, b in pairwise(column)) for column in table[:50, ::2].T]
    assert list(found.sign_changes) == changes
    for waves, distance in found.nearest:
        codes = table[:50, :1] if waves == 1 else table[:50, :: 128 // waves]
        gaps = [np.linalg.norm(a - b) for i, a in enumerate(codes) for b in codes[:i]]
        assert distance == pytest.approx(min(gaps), abs=1e-4)
    for p, row, moved in zip(found.curve_positions, found.curves, found.curve_moved, strict=True):
        angle = p / 10000 ** (np.arange(0, 128, 2) / 128)
        expected = np.stack([np.sin(angle), np.cos(angle)], -1).ravel()
        assert close(row, expected) and moved == (abs(expected - table[0]) > 0.1).sum()
    assert found.order is not None
    one, other = (run(model, sentence)[0].memory for sentence in found.order.sentences)
    assert close(found.order.change, relative(one, other[[2, 1, 0, 3]]))


def test_norms_is_recomputed(model: Any) -> None:
    found = norms.compute(model=model)
    x = np.array([[2, 3, 7, 5, 4], [1, 1, 2, 3, 4], [5, 4, 1, 2, 3], [6, 1, 7, 5, 6], [7, 1, 3, 3, 4]], dtype=float)

    def normalize(values: Array, axis: int) -> Array:
        return np.asarray((values - values.mean(axis, keepdims=True)) / np.sqrt(values.var(axis, keepdims=True) + 1e-5))

    assert close(found.batch, normalize(x, 0)) and close(found.layer, normalize(x, 1))
    for padded in found.padded:
        batch = normalize(np.concatenate([x, np.zeros((padded.rows, 5))]), 0)[:5]
        assert padded.batch_change == pytest.approx(relative(normalize(x, 0), batch).mean(), abs=1e-5)
        assert padded.first == pytest.approx(batch[0, 0], abs=1e-5)


def test_encoder_is_recomputed(model: Any) -> None:
    found = encoder.compute(model=model)
    assert found.paper.block_parameters == 4 * 512**2 + 4 * 512 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512
    assert [step.shape for step in found.paper.steps][:3] == ["3 × 512"] * 3 and found.paper.steps[
        6
    ].shape == "3 × 2048"
    e, p, x, z, sum_z, *_ = (np.array(step.first) for step in found.paper.steps)
    assert close(x, e + p, 1e-5) and close(sum_z, z + x, 1e-5) and close(p, [0, 1, 0])
    one, other = (run(model, sentence)[0].memory for sentence in (found.sentence, found.changed))
    assert close(found.change[-1], relative(one, other), 1e-3)
    assert found.sizes[0].share == pytest.approx((2 * 512 * 2048 + 2048 + 512) / found.paper.block_parameters, abs=1e-3)


def test_mask_is_recomputed(model: Any) -> None:
    found = mask.compute(target="आप कैसे हैं?", model=model)
    reference, _ = run(model, found.sentence, "आप कैसे हैं?")
    assert close(found.weights, reference.weights["decoder.0.masked"][0])
    given = np.array([[0.8, 0.1, 0.1], [0.15, 0.75, 0.1], [0.1, 0.2, 0.7]])
    kept = np.tril(given)
    assert close(found.by_hand.masked, kept / kept.sum(1, keepdims=True))


def test_cross_is_recomputed(model: Any) -> None:
    found = cross.compute(sentences=["How are you?"], steps=10, model=model).sentences[0]
    output = " ".join(found.target)
    tokens = model.explain("How are you?").output
    reference, _ = run(model, "How are you?", tokens)
    weights = reference.weights["decoder.1.cross"].mean(0)[: len(found.target)]
    assert len(found.target) == 0 or close(found.weights, weights[:, :-1], 1e-3), output
    assert close(found.end_weights, weights[:, -1], 1e-3)


def test_decoder_is_recomputed(model: Any) -> None:
    found = decoder.compute(model=model).forced
    _, logits = run(model, "I am good", "मैं बढ़िया हूँ")
    tokenizer = model.tokenizers[1]
    targets = [*tokenizer.encode("मैं बढ़िया हूँ"), tokenizer.end]
    probabilities = softmax(logits)[np.arange(len(targets)), targets]
    assert close([position.probability for position in found.positions], probabilities)
    assert found.loss == pytest.approx(-np.log(probabilities).mean(), abs=1e-4)


def test_next_is_recomputed(model: Any) -> None:
    found = LESSONS["next"].module.compute(model=model)
    assert close([p for _, _, p in found.logits], softmax(np.array([200.0, -8, 1, 6, -9])))
    table = np.array([[8.2, -4.2, 0.2, 0.8], [7.2, 6.4, -1, 7], [-8.1, 3.8, -4, 4], [-8.7, -1.7, 1.2, 8]])
    assert close(found.embedding, table) and close(table @ np.eye(4)[:, 1], [row[1] for row in found.embedding])
    e = model.explain("I am good")
    logits = run(model, "I am good", e.output)[1][: len(found.positions)]  # it may have stopped at the maximum length
    probabilities = softmax(logits)
    assert close([position.top[0][1] for position in found.positions], probabilities.max(1))
    row = int(probabilities.max(1).argmin())
    assert found.top[0][1] == pytest.approx(probabilities[row].max(), abs=1e-4)
    assert found.logit == pytest.approx(logits[row].max(), abs=1e-3)


def test_temperature_is_recomputed(model: Any) -> None:
    found, x = temperature.compute(model=model), np.array([6.0, -5.0, 4.0, 1.5, 9.9])
    for t, row, entropy, energy in zip(
        found.temperatures, found.probabilities, found.entropies, found.mean_energies, strict=True
    ):
        p = softmax(x / t)
        assert close(row, p) and energy == pytest.approx(-(p * x).sum())
        assert entropy == pytest.approx(-(p * np.log(np.maximum(p, 1e-300))).sum() / math.log(5), abs=1e-9)
    slope = np.polyfit(x, np.log([0.19, 0.04, 0.14, 0.10, 0.35]), 1)[0]
    assert found.fitted_temperature == pytest.approx(1 / slope)


def test_window_is_recomputed(model: Any) -> None:
    found = window.compute(window=4, model=model)
    expected = [[float(i - 4 < j <= i) for j in range(16)] for i in range(16)]
    assert close(found.visible, expected)


def test_layers_is_recomputed(model: Any) -> None:
    found = layers.compute(sentence="We are friends", model=model)
    e = model.explain("We are friends")
    reference, _ = run(model, "We are friends", e.output)
    targets = list(e.target_ids)
    for layer, vectors in zip(found.layers, reference.layers, strict=True):
        probabilities = softmax(reference.read_out(vectors))[: len(targets)]
        chosen = probabilities[np.arange(len(targets)), targets]
        assert close(layer.target_probabilities, chosen)
        better = (probabilities > chosen[:, None] * (1 + 1e-5)).sum(1)
        ties = (abs(probabilities - chosen[:, None]) <= 1e-4 * chosen[:, None]).sum(1)
        assert all(b + 1 <= rank <= b + t for rank, b, t in zip(layer.target_ranks, better, ties, strict=True))


def test_senses_is_recomputed(model: Any) -> None:
    found = senses.compute(model=model)
    word = next(word for word in found.words if word.word == "mole")
    vectors = []
    for sentence in word.sentences:
        spoken = sentence.replace(".", " .").split()
        vectors.append(run(model, sentence)[0].memory[spoken.index("mole")])
    table = np.array([[cosine(a, b) for b in vectors] for a in vectors])
    assert close(word.cosines[-1], table, 1e-3)
    pairs = [(i, j) for i in range(len(table)) for j in range(i)]
    same = [table[i, j] for i, j in pairs if word.senses[i] == word.senses[j]]
    different = [table[i, j] for i, j in pairs if word.senses[i] != word.senses[j]]
    assert word.layers[-1].same == pytest.approx(np.mean(same), abs=1e-3)
    assert word.layers[-1].different == pytest.approx(np.mean(different), abs=1e-3)
    assert word.chance == pytest.approx(3 / 15)  # 4 sentences for each of 4 senses
