"""Words to numbers: fitted on texts whose structure is known, and checked against the notes, arithmetic and autograd."""

import json
import math
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.course.vectors import Vectors, Word2Vec, fit_one_hot, fit_tf_idf, fit_word2vec
from seq2see.course.vectors.word2vec import _Training, cbow, skip_gram
from seq2see.course.vectors.word_counts import read, split
from seq2see.errors import UserError
from seq2see.similarity import MEASURES, similarities

NOTES = Vectors.of({"cherry": (1, 4), "orange": (0, 3), "phone": (3, 0)})
FRUITS, PHONES = ("cherry", "orange", "mango"), ("phone", "tablet", "laptop")


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Fruit is eaten, devices are charged: the words of either kind can stand for each other."""
    random = Random(1)
    eaten, charged = ("ate", "peeled", "juicy", "ripe"), ("charged", "bought", "screen", "battery")
    return [
        " ".join([*random.choices(around, k=2), random.choice(kind), *random.choices(around, k=2)])
        for _ in range(300)
        for kind, around in ((FRUITS, eaten), (PHONES, charged))
    ]


@pytest.fixture(scope="module")
def learned(sentences: list[str]) -> Vectors:
    return fit_word2vec(sentences, Word2Vec(width=16, epochs=10, sample=0))


def table(vectors: Vectors, measure: str) -> list[list[float]]:
    return [[round(value, 3) for value in row] for row in vectors.similarity(vectors.words, measure=measure).tolist()]  # type: ignore[arg-type]


def test_the_notes_two_features() -> None:
    assert table(NOTES, "dot") == [[17, 12, 3], [12, 9, 0], [3, 0, 9]]
    assert table(NOTES, "cosine") == [[1, 0.970, 0.243], [0.970, 1, 0], [0.243, 0, 1]]
    assert [row[0] for row in table(NOTES, "scaled")][1:] == [8.485, 2.121]
    assert [near.word for near in NOTES.near("cherry")] == ["orange", "phone"]


def test_the_notes_three_features() -> None:
    words = Vectors.of({"orange": (0, 3, 0), "phone": (4, 0, 0), "apple": (2, 2, 0), "and": (0, 0, 2), "an": (0, 0, 3)})
    dots = words.similarity(words.words, measure="dot")
    assert dots.diagonal().tolist() == [9, 16, 8, 4, 9]
    assert dots[2].tolist() == [6, 8, 8, 0, 0]
    assert dots[3, 4] == 6
    scaled = words.similarity(words.words, measure="scaled")  # over √3, where the notes write √5
    assert [round(float(scaled[i]), 2) for i in ((0, 0), (2, 0), (1, 1), (2, 2), (3, 3))] == [
        5.20,
        3.46,
        9.24,
        4.62,
        2.31,
    ]


def test_a_vector_of_zeros_is_like_nothing() -> None:
    assert similarities(torch.zeros(1, 2), torch.ones(1, 2)).tolist() == [[0]]


def test_words_keep_their_marks_and_lose_their_punctuation() -> None:
    assert split('"Don’t!" said the cross-road_2.') == ["don't", "said", "the", "cross", "road", "2"]
    assert split("आप कैसे हैं? मैं बढ़िया हूँ।") == ["आप", "कैसे", "हैं", "मैं", "बढ़िया", "हूँ"]
    assert split("An Apple", lower=False) == ["An", "Apple"]


def test_reading_ranks_by_frequency_and_drops_the_rare() -> None:
    text = read(["b a rare a", "a b"], min_count=2)
    assert text.words == ("a", "b")
    assert text.counts.tolist() == [3, 2]
    assert text.ids.tolist() == [1, 0, 0, 0, 1]
    assert text.documents.tolist() == [0, 0, 0, 1, 1]


def test_one_hot_words_are_all_as_far_from_each_other() -> None:
    vectors = fit_one_hot(["man bites dog", "dog bites man"])
    assert torch.equal(vectors.similarity(vectors.words), torch.eye(3))
    assert vectors["man"].tolist() == [1, 0, 0]
    assert vectors.words == ("man", "bites", "dog")


def test_tf_idf_by_hand() -> None:
    vectors = fit_tf_idf(["apple pie apple", "apple phone", "the pie", "the phone phone"])
    assert vectors["apple"].tolist() == pytest.approx([2 * math.log(2), math.log(2), 0, 0])
    assert vectors["phone"].tolist() == pytest.approx([0, math.log(2), 0, 2 * math.log(2)])
    dot = math.log(2) ** 2
    assert float(vectors.similarity(["apple"], ["phone"], "dot")) == pytest.approx(dot)
    assert float(vectors.similarity(["apple"], ["phone"])) == pytest.approx(dot / (5 * dot))
    assert dict(vectors.near("apple"))["phone"] == pytest.approx(0.2)


def test_a_word_of_every_document_says_nothing() -> None:
    assert fit_tf_idf(["the cat", "the dog"])["the"].tolist() == [0, 0]


def spans() -> tuple[Tensor, Tensor, Tensor]:
    """Two spans of 3 centres and 4 negatives, 5 places, width 6; the last centre has nothing around."""
    torch.manual_seed(1)
    pairs = (torch.rand(2, 3, 5) < 0.5).float()
    pairs[:, 2] = 0
    return torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 7, 6, requires_grad=True), pairs


def test_skip_grams_step_is_the_gradient() -> None:
    contexts, targets, pairs = spans()
    scores = targets @ contexts.mT
    positive = (pairs * scores[:, :3].sigmoid().log()).sum()
    each = (-scores[:, 3:]).sigmoid().log().mean(1)  # of one negative, over those that the span shares
    (positive + 10 * (pairs.sum(1) * each).sum()).backward()
    moved, targets_moved = skip_gram(contexts.detach(), targets.detach(), pairs, 10, torch.ones(2, 5), torch.ones(2, 7))
    torch.testing.assert_close(moved, contexts.grad)
    torch.testing.assert_close(targets_moved, targets.grad)


def test_cbows_step_is_the_gradient_which_every_context_gets_in_full() -> None:
    contexts, targets, pairs = spans()
    means = ((pairs @ contexts) / pairs.sum(2, keepdim=True).clamp(min=1)).detach().requires_grad_()
    some = (pairs.sum(2) > 0).float()
    positive = (some * (means * targets[:, :3]).sum(2).sigmoid().log()).sum()
    each = (-targets[:, 3:] @ means.mT).sigmoid().log().mean(1)
    (positive + 10 * (some * each).sum()).backward()
    moved, targets_moved = cbow(contexts.detach(), targets.detach(), pairs, 10, torch.ones(2, 5), torch.ones(2, 7))
    assert means.grad is not None
    torch.testing.assert_close(moved, pairs.mT @ means.grad)
    torch.testing.assert_close(targets_moved, targets.grad)


def test_words_that_can_stand_for_each_other_come_out_near(learned: Vectors) -> None:
    for kind in (FRUITS, PHONES):
        for word in kind:
            assert {near.word for near in learned.near(word, 2)} == set(kind) - {word}
    within, between = learned.similarity(FRUITS), learned.similarity(FRUITS, PHONES)
    assert within.min() > between.max() + 0.5


def test_cbow_finds_them_too(sentences: list[str]) -> None:
    vectors = fit_word2vec(sentences, Word2Vec("cbow", width=16, epochs=10, sample=0))
    assert vectors.similarity(FRUITS).min() > vectors.similarity(FRUITS, PHONES).max() + 0.5


def test_a_static_vector_is_an_average_over_the_data(sentences: list[str]) -> None:
    """As apple in the notes: nine sentences of ten about fruit leave it nearer to fruit than to phones."""
    random = Random(2)
    told = [
        sentence.replace("mango", "apple").replace("tablet", "apple" if random.random() < 1 / 9 else "tablet")
        for sentence in sentences
    ]
    vectors = fit_word2vec(told, Word2Vec(width=16, epochs=10, sample=0))
    fruit, phone = vectors.similarity(["apple"], ["orange"]), vectors.similarity(["apple"], ["phone"])
    pure = fit_word2vec(sentences, Word2Vec(width=16, epochs=10, sample=0)).similarity(["mango"], ["phone"])
    assert fruit > phone > pure


def test_the_seed_decides(sentences: list[str], learned: Vectors) -> None:
    again = fit_word2vec(sentences, Word2Vec(width=16, epochs=10, sample=0))
    other = fit_word2vec(sentences, Word2Vec(width=16, epochs=10, sample=0, seed=2))
    assert torch.equal(again.matrix, learned.matrix)
    assert not torch.equal(other.matrix, learned.matrix)


@pytest.mark.parametrize("window", [1, 3])
def test_every_pair_of_a_document_is_trained_on_and_no_other(window: int) -> None:
    """Words here are numbers in order; those side by side always make a pair, those further apart sometimes."""
    lengths = [1, 2, 40, 7, 16, 33]
    numbers = iter(range(sum(lengths)))
    documents = [" ".join(str(next(numbers)) for _ in range(length)) for length in lengths]
    text = read(documents)
    training = _Training(text, Word2Vec(width=2, window=window, sample=0, epochs=1), torch.device("cpu"))
    found: Counter[tuple[int, int]] = Counter()
    for _ in range(20):
        spans, owners = training._spans()

        def gradients(
            x: Tensor, y: Tensor, pairs: Tensor, *rest: object, spans: Tensor = spans
        ) -> tuple[Tensor, Tensor]:
            for span, centre, place in pairs.nonzero().tolist():
                found[int(spans[span, window + centre]), int(spans[span, place])] += 1
            return torch.zeros_like(x), torch.zeros_like(y)

        training._step(gradients, spans.long(), owners, 0.025)
    home = text.documents.tolist()
    wanted = {
        (i, j) for i in range(len(home)) for j in range(len(home)) if home[i] == home[j] and 0 < abs(i - j) <= window
    }
    assert set(found) == wanted
    assert {found[i, j] for i, j in wanted if abs(i - j) == 1} == {20}


def test_a_text_all_of_whose_words_may_be_skipped_has_vectors() -> None:
    for seed in range(5):
        vectors = fit_word2vec(["the king spoke to the queen"], Word2Vec(width=4, min_count=1, sample=1e-6, seed=seed))
        assert vectors.matrix.shape == (5, 4)


def test_few_words_repeated_often_stay_finite() -> None:
    vectors = fit_word2vec(["one two three one two"] * 20_000, Word2Vec(width=8, epochs=1, sample=0, lr=0.05))
    assert vectors.matrix.abs().max() < 20


@pytest.mark.parametrize("name", ["v.safetensors", "v.txt"])
def test_files_bring_back_every_number(tmp_path: Path, learned: Vectors, name: str) -> None:
    learned.save(tmp_path / name)
    back = Vectors.load(tmp_path / name)
    assert back.words == learned.words
    assert torch.equal(back.matrix, learned.matrix)
    assert back.lower


def test_sparse_vectors_are_saved_sparse(tmp_path: Path) -> None:
    vectors = fit_tf_idf([f"word{i} said" for i in range(2000)] + ["silence"])
    vectors.save(tmp_path / "v.safetensors")
    assert (tmp_path / "v.safetensors").stat().st_size < 200_000  # 2,002 × 2,001 numbers would be 16 MB
    back = Vectors.load(tmp_path / "v")
    assert back.counts is not None and int(back.counts[0]) == 2000
    assert torch.equal(back["said"], vectors["said"])


def test_text_formats_of_others_are_read_and_broken_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("king 1 2.5\nqueen -1e-3 4\n")
    assert Vectors.load(tmp_path / "glove.txt")["queen"].tolist() == [np.float32(-1e-3), 4]
    (tmp_path / "short.txt").write_text("3 2\nking 1 2\n")
    with pytest.raises(UserError, match="has 1 words where its first line tells 3"):
        Vectors.load(tmp_path / "short.txt")
    (tmp_path / "odd.txt").write_text("2 2\nking 1 2\nqueen 1\n")
    with pytest.raises(UserError, match="line 3: a word and 2 numbers are wanted, not 2 fields"):
        Vectors.load(tmp_path / "odd.txt")


KINGDOM = Vectors.of(
    {
        "king": (3, 1, 0),
        "queen": (3, -1, 0.4),
        "man": (0, 1, 0),
        "woman": (0, -1, 0),
        "lady": (2.9, -1, 0),
        "cat": (0, 0, 3),
    }
)


def test_an_analogy_tells_the_true_rank() -> None:
    found = KINGDOM.analogy("king", "man", "woman", "queen")
    assert found.best[0].word == "lady"
    assert found.rank == [near.word for near in found.best].index("queen") + 1 == 2
    assert {near.word for near in found.best} == {"lady", "queen", "cat"}
    assert set(found.given) == {"king", "man", "woman"}
    with pytest.raises(UserError, match="one of the three words given"):
        KINGDOM.analogy("king", "man", "woman", "man")


def test_a_direction_is_the_mean_difference_and_words_lie_along_it() -> None:
    found = KINGDOM.direction([("king", "queen"), ("man", "woman")])
    assert found.vector.tolist() == pytest.approx([0, 2, -0.2])
    assert found.right == 2
    along = KINGDOM.along(["man", "woman", "cat"], found.vector)
    assert along.tolist() == pytest.approx([2 / math.sqrt(4.04), -2 / math.sqrt(4.04), -0.6 / math.sqrt(4.04)])
    assert KINGDOM.direction([("king", "queen"), ("woman", "man")]).right == 0


def test_principal_axes_hold_most_of_the_spread() -> None:
    places, shares = Vectors.of({"a": (1, 0, 5), "b": (-1, 0, 5), "c": (0, 0.1, 5), "d": (0, -0.1, 5)}).principal(
        "abcd"
    )
    assert places.abs().amax(0).tolist() == pytest.approx([1, 0.1])
    assert shares.tolist() == pytest.approx([2 / 2.02, 0.02 / 2.02])


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='"chery" is not among the 3 words that have a vector: did you mean cherry'):
        NOTES["chery"]
    with pytest.raises(UserError, match="too few words: 0 of the 2 different ones occur at least 5 times"):
        fit_word2vec(["once upon"])
    with pytest.raises(UserError, match="no word in the text: 2 documents"):
        fit_tf_idf(["…", "!"])
    with pytest.raises(UserError, match="window 0 must be more than 0"):
        Word2Vec(window=0)
    with pytest.raises(UserError, match='"seq2see vectors fit" makes one'):
        Vectors.load(tmp_path / "none.safetensors")


def test_the_commands(tmp_path: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n\n".join(sentences))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["vectors", *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    run("fit", "--text", "text.txt", "--width", "16", "--epochs", "10", "--sample", "0", "--device", "cpu")
    assert {row["word"] for row in json.loads(run("near", "mango", "-n", "2", "--json"))} == {"cherry", "orange"}
    told = json.loads(run("similarity", "mango", "ripe mango unheard", "--json"))
    assert told["words"] == ["mango", "ripe", "mango"]
    assert told.keys() == {"words", *MEASURES}
    told = json.loads(run("analogy", "mango", "ripe", "screen", "--answer", "phone", "--json"))
    assert told["best"][told["rank"] - 1]["word"] == "phone"
    Path("pairs.txt").write_text("cherry phone\norange tablet\n")
    told = json.loads(run("direction", "--pairs", "pairs.txt", "--words", "mango laptop", "--json"))
    assert told["words"][0]["along"] > told["words"][1]["along"]
    assert told["right"] == told["pairs"] == 2
    run("plot", "cherry:phone", "mango", "--out", "axes.svg")
    run("plot", "mango", "laptop", "--across", "cherry:phone", "--up", "ripe:juicy", "--out", "ways.svg")
    assert "principal axis 1" not in Path("ways.svg").read_text()
    assert Path("axes.svg").stat().st_size > 5000
    run("convert", "vectors.safetensors", "v.vec")
    assert torch.equal(Vectors.load("v.vec").matrix, Vectors.load("vectors").matrix)
    run("fit", "--text", "text.txt", "--method", "tf-idf", "--out", "counted")
    with pytest.raises(UserError, match="put blank lines between documents"):
        run("fit", "--text", "pairs.txt", "--method", "tf-idf")
