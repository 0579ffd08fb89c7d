"""Word vectors: fitted on texts with a known structure, and checked by hand and against autograd."""

import json
import math
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.course.vectors import Word2VecConfig, WordVectors, fit_one_hot, fit_tf_idf, fit_word2vec
from seq2see.course.vectors.corpus import read_corpus, split_words
from seq2see.course.vectors.word2vec import _Trainer, cbow, skip_gram
from seq2see.errors import UserError
from seq2see.inspect.similarity import MEASURES, similarities

FEATURES = WordVectors.from_dict({"cherry": (1, 4), "orange": (0, 3), "phone": (3, 0)})
FRUITS, PHONES = ("cherry", "orange", "mango"), ("phone", "tablet", "laptop")


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Fruits and devices occur in different contexts; within each kind the words are interchangeable."""
    random = Random(1)
    eaten, charged = ("ate", "peeled", "juicy", "ripe"), ("charged", "bought", "screen", "battery")
    return [
        " ".join([*random.choices(around, k=2), random.choice(kind), *random.choices(around, k=2)])
        for _ in range(300)
        for kind, around in ((FRUITS, eaten), (PHONES, charged))
    ]


@pytest.fixture(scope="module")
def learned(sentences: list[str]) -> WordVectors:
    return fit_word2vec(sentences, Word2VecConfig(width=16, epochs=10, sample=0))


def table(vectors: WordVectors, measure: str) -> list[list[float]]:
    return [[round(value, 3) for value in row] for row in vectors.similarity(vectors.words, measure=measure).tolist()]  # type: ignore[arg-type]


def test_similarity_of_words_with_two_features() -> None:
    assert table(FEATURES, "dot") == [[17, 12, 3], [12, 9, 0], [3, 0, 9]]
    assert table(FEATURES, "cosine") == [[1, 0.970, 0.243], [0.970, 1, 0], [0.243, 0, 1]]
    assert [row[0] for row in table(FEATURES, "scaled")][1:] == [8.485, 2.121]
    assert [neighbor.word for neighbor in FEATURES.nearest("cherry")] == ["orange", "phone"]


def test_similarity_of_words_with_three_features() -> None:
    words = WordVectors.from_dict(
        {"orange": (0, 3, 0), "phone": (4, 0, 0), "apple": (2, 2, 0), "and": (0, 0, 2), "an": (0, 0, 3)}
    )
    dots = words.similarity(words.words, measure="dot")
    assert dots.diagonal().tolist() == [9, 16, 8, 4, 9]
    assert dots[2].tolist() == [6, 8, 8, 0, 0]
    assert dots[3, 4] == 6
    scaled = words.similarity(words.words, measure="scaled")  # divided by √3
    assert [round(float(scaled[i]), 2) for i in ((0, 0), (2, 0), (1, 1), (2, 2), (3, 3))] == [
        5.20,
        3.46,
        9.24,
        4.62,
        2.31,
    ]


def test_a_zero_vector_has_similarity_zero() -> None:
    assert similarities(torch.zeros(1, 2), torch.ones(1, 2)).tolist() == [[0]]


def test_splitting_keeps_combining_marks_and_drops_punctuation() -> None:
    assert split_words('"Don’t!" said the cross-road_2.') == ["don't", "said", "the", "cross", "road", "2"]
    assert split_words("आप कैसे हैं? मैं बढ़िया हूँ।") == ["आप", "कैसे", "हैं", "मैं", "बढ़िया", "हूँ"]
    assert split_words("An Apple", lowercase=False) == ["An", "Apple"]


def test_the_vocabulary_is_sorted_by_frequency_and_drops_rare_words() -> None:
    text = read_corpus(["b a rare a", "a b"], min_count=2)
    assert text.words == ("a", "b")
    assert text.counts.tolist() == [3, 2]
    assert text.ids.tolist() == [1, 0, 0, 0, 1]
    assert text.document_ids.tolist() == [0, 0, 0, 1, 1]


def test_one_hot_vectors_are_orthogonal() -> None:
    vectors = fit_one_hot(["man bites dog", "dog bites man"])
    assert torch.equal(vectors.similarity(vectors.words), torch.eye(3))
    assert vectors["man"].tolist() == [1, 0, 0]
    assert vectors.words == ("man", "bites", "dog")


def test_tf_idf_equals_hand_computed_values() -> None:
    vectors = fit_tf_idf(["apple pie apple", "apple phone", "the pie", "the phone phone"])
    assert vectors["apple"].tolist() == pytest.approx([2 * math.log(2), math.log(2), 0, 0])
    assert vectors["phone"].tolist() == pytest.approx([0, math.log(2), 0, 2 * math.log(2)])
    dot = math.log(2) ** 2
    assert float(vectors.similarity(["apple"], ["phone"], "dot")) == pytest.approx(dot)
    assert float(vectors.similarity(["apple"], ["phone"])) == pytest.approx(dot / (5 * dot))
    assert dict(vectors.nearest("apple"))["phone"] == pytest.approx(0.2)


def test_a_word_in_every_document_has_tf_idf_zero() -> None:
    assert fit_tf_idf(["the cat", "the dog"])["the"].tolist() == [0, 0]


def spans() -> tuple[Tensor, Tensor, Tensor]:
    """Two spans of 3 centres and 4 negatives, 5 positions, width 6; the last centre has no contexts."""
    torch.manual_seed(1)
    pairs = (torch.rand(2, 3, 5) < 0.5).float()
    pairs[:, 2] = 0
    return torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 7, 6, requires_grad=True), pairs


def test_skip_gram_computes_the_gradient() -> None:
    contexts, targets, pairs = spans()
    scores = targets @ contexts.mT
    positive = (pairs * scores[:, :3].sigmoid().log()).sum()
    each = (-scores[:, 3:]).sigmoid().log().mean(1)  # mean over the shared negatives
    (positive + 10 * (pairs.sum(1) * each).sum()).backward()
    context_gradient, target_gradient = skip_gram(
        contexts.detach(), targets.detach(), pairs, 10, torch.ones(2, 5), torch.ones(2, 7)
    )
    torch.testing.assert_close(context_gradient, contexts.grad)
    torch.testing.assert_close(target_gradient, targets.grad)


def test_cbow_gives_every_context_the_full_gradient_of_the_mean() -> None:
    contexts, targets, pairs = spans()
    means = ((pairs @ contexts) / pairs.sum(2, keepdim=True).clamp(min=1)).detach().requires_grad_()
    has_context = (pairs.sum(2) > 0).float()
    positive = (has_context * (means * targets[:, :3]).sum(2).sigmoid().log()).sum()
    each = (-targets[:, 3:] @ means.mT).sigmoid().log().mean(1)
    (positive + 10 * (has_context * each).sum()).backward()
    context_gradient, target_gradient = cbow(
        contexts.detach(), targets.detach(), pairs, 10, torch.ones(2, 5), torch.ones(2, 7)
    )
    assert means.grad is not None
    torch.testing.assert_close(context_gradient, pairs.mT @ means.grad)
    torch.testing.assert_close(target_gradient, targets.grad)


def test_interchangeable_words_get_similar_vectors(learned: WordVectors) -> None:
    for kind in (FRUITS, PHONES):
        for word in kind:
            assert {neighbor.word for neighbor in learned.nearest(word, 2)} == set(kind) - {word}
    within, between = learned.similarity(FRUITS), learned.similarity(FRUITS, PHONES)
    assert within.min() > between.max() + 0.5


def test_cbow_gives_interchangeable_words_similar_vectors(sentences: list[str]) -> None:
    vectors = fit_word2vec(sentences, Word2VecConfig("cbow", width=16, epochs=10, sample=0))
    assert vectors.similarity(FRUITS).min() > vectors.similarity(FRUITS, PHONES).max() + 0.5


def test_a_static_vector_is_an_average_over_the_data(sentences: list[str]) -> None:
    """If nine of ten sentences with "apple" are about fruit, it is closer to fruit than to phones."""
    random = Random(2)
    texts = [
        sentence.replace("mango", "apple").replace("tablet", "apple" if random.random() < 1 / 9 else "tablet")
        for sentence in sentences
    ]
    vectors = fit_word2vec(texts, Word2VecConfig(width=16, epochs=10, sample=0))
    fruit, phone = vectors.similarity(["apple"], ["orange"]), vectors.similarity(["apple"], ["phone"])
    pure = fit_word2vec(sentences, Word2VecConfig(width=16, epochs=10, sample=0)).similarity(["mango"], ["phone"])
    assert fruit > phone > pure


def test_the_seed_determines_the_vectors(sentences: list[str], learned: WordVectors) -> None:
    again = fit_word2vec(sentences, Word2VecConfig(width=16, epochs=10, sample=0))
    other = fit_word2vec(sentences, Word2VecConfig(width=16, epochs=10, sample=0, seed=2))
    assert torch.equal(again.matrix, learned.matrix)
    assert not torch.equal(other.matrix, learned.matrix)


@pytest.mark.parametrize("window", [1, 3])
def test_training_uses_all_pairs_within_a_document_and_no_others(window: int) -> None:
    """The words are consecutive numbers. Adjacent words always form a pair, more distant ones sometimes."""
    lengths = [1, 2, 40, 7, 16, 33]
    numbers = iter(range(sum(lengths)))
    documents = [" ".join(str(next(numbers)) for _ in range(length)) for length in lengths]
    corpus = read_corpus(documents)
    trainer = _Trainer(corpus, Word2VecConfig(width=2, window=window, sample=0, epochs=1), torch.device("cpu"))
    found: Counter[tuple[int, int]] = Counter()
    for _ in range(20):
        spans, documents_of = trainer._spans()

        def gradients(
            x: Tensor, y: Tensor, pairs: Tensor, *rest: object, spans: Tensor = spans
        ) -> tuple[Tensor, Tensor]:
            for span, centre, context in pairs.nonzero().tolist():
                found[int(spans[span, window + centre]), int(spans[span, context])] += 1
            return torch.zeros_like(x), torch.zeros_like(y)

        trainer._step(gradients, spans.long(), documents_of, 0.025)
    ids = corpus.document_ids.tolist()
    expected = {
        (i, j) for i in range(len(ids)) for j in range(len(ids)) if ids[i] == ids[j] and 0 < abs(i - j) <= window
    }
    assert set(found) == expected
    assert {found[i, j] for i, j in expected if abs(i - j) == 1} == {20}


def test_a_text_can_be_subsampled_to_nothing() -> None:
    for seed in range(5):
        vectors = fit_word2vec(
            ["the king spoke to the queen"], Word2VecConfig(width=4, min_count=1, sample=1e-6, seed=seed)
        )
        assert vectors.matrix.shape == (5, 4)


def test_a_tiny_vocabulary_does_not_diverge() -> None:
    vectors = fit_word2vec(["one two three one two"] * 20_000, Word2VecConfig(width=8, epochs=1, sample=0, lr=0.05))
    assert vectors.matrix.abs().max() < 20


@pytest.mark.parametrize("name", ["v.safetensors", "v.txt"])
def test_saved_vectors_load_exactly(tmp_path: Path, learned: WordVectors, name: str) -> None:
    learned.save(tmp_path / name)
    loaded = WordVectors.load(tmp_path / name)
    assert loaded.words == learned.words
    assert torch.equal(loaded.matrix, learned.matrix)
    assert loaded.lowercase


def test_sparse_vectors_are_saved_sparse(tmp_path: Path) -> None:
    vectors = fit_tf_idf([f"word{i} said" for i in range(2000)] + ["silence"])
    vectors.save(tmp_path / "v.safetensors")
    assert (tmp_path / "v.safetensors").stat().st_size < 200_000  # 2,002 × 2,001 numbers would be 16 MB
    loaded = WordVectors.load(tmp_path / "v")
    assert loaded.counts is not None and int(loaded.counts[0]) == 2000
    assert torch.equal(loaded["said"], vectors["said"])


def test_glove_files_load_and_broken_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("king 1 2.5\nqueen -1e-3 4\n")
    assert WordVectors.load(tmp_path / "glove.txt")["queen"].tolist() == [np.float32(-1e-3), 4]
    (tmp_path / "short.txt").write_text("3 2\nking 1 2\n")
    with pytest.raises(UserError, match="has 1 words, expected 3 by its first line"):
        WordVectors.load(tmp_path / "short.txt")
    (tmp_path / "odd.txt").write_text("2 2\nking 1 2\nqueen 1\n")
    with pytest.raises(UserError, match="line 3: expected a word and 2 numbers, found 2 fields"):
        WordVectors.load(tmp_path / "odd.txt")


@pytest.mark.parametrize("lost", ["words", "matrix", "method", "lower"])
def test_vectors_with_a_part_missing_are_an_error(tmp_path: Path, lost: str) -> None:
    file = tmp_path / "v.safetensors"
    KINGDOM.save(file)
    with safe_open(file, framework="pt") as old:
        metadata = {name: value for name, value in old.metadata().items() if name != lost}
        tensors = {name: old.get_tensor(name) for name in old.keys() if name != lost}  # noqa: SIM118 (not a dictionary)
    save_file(tensors, file, metadata)
    with pytest.raises(UserError, match=r"v.safetensors is damaged"):
        WordVectors.load(file)


KINGDOM = WordVectors.from_dict(
    {
        "king": (3, 1, 0),
        "queen": (3, -1, 0.4),
        "man": (0, 1, 0),
        "woman": (0, -1, 0),
        "lady": (2.9, -1, 0),
        "cat": (0, 0, 3),
    }
)


def test_an_analogy_reports_the_rank_of_the_answer() -> None:
    found = KINGDOM.analogy("king", "man", "woman", "queen")
    assert found.best[0].word == "lady"
    assert found.rank == [neighbor.word for neighbor in found.best].index("queen") + 1 == 2
    assert {neighbor.word for neighbor in found.best} == {"lady", "queen", "cat"}
    assert set(found.input_ranks) == {"king", "man", "woman"}
    with pytest.raises(UserError, match="one of the three input words"):
        KINGDOM.analogy("king", "man", "woman", "man")


def test_no_words_have_no_vectors() -> None:
    assert KINGDOM.lookup([]).shape == (0, 3)


def test_a_direction_is_the_mean_difference_and_words_project_on_it() -> None:
    found = KINGDOM.direction([("king", "queen"), ("man", "woman")])
    assert found.vector.tolist() == pytest.approx([0, 2, -0.2])
    assert found.leave_one_out_correct == 2
    projections = KINGDOM.project(["man", "woman", "cat"], found.vector)
    assert projections.tolist() == pytest.approx([2 / math.sqrt(4.04), -2 / math.sqrt(4.04), -0.6 / math.sqrt(4.04)])
    assert KINGDOM.direction([("king", "queen"), ("woman", "man")]).leave_one_out_correct == 0


def test_pca_returns_coordinates_and_explained_variance() -> None:
    vectors = WordVectors.from_dict({"a": (1, 0, 5), "b": (-1, 0, 5), "c": (0, 0.1, 5), "d": (0, -0.1, 5)})
    coordinates, ratios = vectors.pca("abcd")
    assert coordinates.abs().amax(0).tolist() == pytest.approx([1, 0.1])
    assert ratios.tolist() == pytest.approx([2 / 2.02, 0.02 / 2.02])


def test_errors_suggest_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='"chery" is not among the 3 words with a vector: did you mean cherry'):
        FEATURES["chery"]
    with pytest.raises(UserError, match="too few words: 0 of the 2 different ones occur at least 5 times"):
        fit_word2vec(["once upon"])
    with pytest.raises(UserError, match="the text has no words: 2 documents"):
        fit_tf_idf(["…", "!"])
    with pytest.raises(UserError, match="window = 0 must be at least 1"):
        Word2VecConfig(window=0)
    for name in ("width", "window", "negatives", "seed"):
        with pytest.raises(UserError, match=f"{name} = 9+ must be at most"):
            Word2VecConfig(**{name: int("9" * 20)})  # type: ignore[arg-type]
    with pytest.raises(UserError, match='create it with "seq2see vectors fit"'):
        WordVectors.load(tmp_path / "none.safetensors")


def test_the_commands(tmp_path: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n\n".join(sentences))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["vectors", *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    run("fit", "--text", "text.txt", "--width", "16", "--epochs", "10", "--sample", "0", "--device", "cpu")
    assert {row["word"] for row in json.loads(run("nearest", "mango", "-n", "2", "--json"))} == {"cherry", "orange"}
    output = json.loads(run("similarity", "mango", "ripe mango unheard", "--json"))
    assert output["words"] == ["mango", "ripe", "mango"]
    assert output.keys() == {"words", *MEASURES}
    output = json.loads(run("analogy", "mango", "ripe", "screen", "--answer", "phone", "--json"))
    assert output["best"][output["rank"] - 1]["word"] == "phone"
    Path("pairs.txt").write_text("cherry phone\norange tablet\n")
    output = json.loads(run("direction", "--pairs", "pairs.txt", "--words", "mango laptop", "--json"))
    assert output["words"][0]["projection"] > output["words"][1]["projection"]
    assert output["leave_one_out_correct"] == output["pairs"] == 2
    run("plot", "cherry:phone", "mango", "--out", "axes.svg")
    run("plot", "mango", "laptop", "--x-axis", "cherry:phone", "--y-axis", "ripe:juicy", "--out", "directions.svg")
    assert "principal axis 1" not in Path("directions.svg").read_text()
    assert Path("axes.svg").stat().st_size > 5000
    run("convert", "vectors.safetensors", "v.vec")
    assert torch.equal(WordVectors.load("v.vec").matrix, WordVectors.load("vectors").matrix)
    run("fit", "--text", "text.txt", "--method", "tf-idf", "--out", "counted")
    with pytest.raises(UserError, match="put blank lines between documents"):
        run("fit", "--text", "pairs.txt", "--method", "tf-idf")
