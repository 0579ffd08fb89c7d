"""The space of embeddings: neighbours, sums of words, paths through the layers, and its axes."""

import pytest
import torch

import seq2see
from seq2see.api import Model
from seq2see.config import ModelConfig, TextConfig
from seq2see.errors import UserError
from seq2see.inspect.embedding_space import EmbeddingSpace, Stack, layer_names, token_paths
from seq2see.inspect.similarity import principal_axes, similarities, tsne
from seq2see.inspect.trace import tap_names
from tests.models import GRAMMAR_MODEL, TINY, tiny_model

TEXTS = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "the king and the queen"]
WORDS = TextConfig(tokenizer="word")


@pytest.fixture(scope="module")
def bundled() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


def test_the_words_of_a_training_step_are_neighbours(bundled: Model) -> None:
    space = EmbeddingSpace.of(bundled, "encoder")
    found = space.arithmetic("eat", count=4).neighbors
    assert {neighbor.token for neighbor in found} >= {"eats", "eating"}
    assert [neighbor.cosine for neighbor in found] == sorted((n.cosine for n in found), reverse=True)
    (best, *_) = space.arithmetic("went − go + come").neighbors
    assert best.token == "came"


def test_cosines_are_those_of_the_centred_embeddings() -> None:
    space = EmbeddingSpace.of(tiny_model(TEXTS, text=WORDS), "encoder")
    centred = space.table - space.table.mean(0)
    ids = space.words(8)
    torch.testing.assert_close(space.cosines(space.embeddings(ids)), similarities(centred[ids], centred))
    sum_ = space.arithmetic("king - cat + dog")
    unit = torch.nn.functional.normalize(centred, dim=1)
    king, cat, dog = (space.tokenizer.encode(word)[0] for word in ("king", "cat", "dog"))
    torch.testing.assert_close(sum_.vector, unit[king] - unit[cat] + unit[dog])
    assert not {king, cat, dog} & {neighbor.id for neighbor in sum_.neighbors}
    assert [(term.word, term.sign) for term in sum_.terms] == [("king", 1), ("cat", -1), ("dog", 1)]


def test_special_tokens_other_than_end_are_never_neighbours() -> None:
    space = EmbeddingSpace.of(tiny_model(TEXTS, text=WORDS), "decoder")
    (found,) = space.nearest(space.embeddings([space.tokenizer.start]), 1000)
    ids = {neighbor.id for neighbor in found}
    assert ids == set(range(len(space.tokenizer))) - (space.tokenizer.special - {space.tokenizer.end})
    assert not set(space.words(1000)) & space.tokenizer.special


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("kinng", "not in the vocabulary of .* tokens: did you mean king"),
        ("  ", "no word is given"),
        ("king −", 'a word is missing after "−"'),
        ("− ", 'a word is missing after "−"'),
        ("king − zzzz + cat", '"zzzz" is not in the vocabulary'),
    ],
)
def test_a_wrong_expression_is_explained(expression: str, message: str) -> None:
    space = EmbeddingSpace.of(tiny_model(TEXTS, text=WORDS), "encoder")
    with pytest.raises(UserError, match=message):
        space.arithmetic(expression)


def test_a_hyphen_inside_a_word_is_not_a_minus(bundled: Model) -> None:
    found = EmbeddingSpace.of(bundled, "encoder").arithmetic("ice-cream - tea")
    assert [term.word for term in found.terms] == ["ice-cream", "tea"]


def test_a_word_of_several_tokens_has_their_mean_vector() -> None:
    space = EmbeddingSpace.of(tiny_model(TEXTS), "encoder")  # byte-level BPE of few words
    (term,) = space.arithmetic("xylophone").terms
    assert len(term.ids) > 1
    torch.testing.assert_close(term.vector, space.directions(space.scale * space.table[list(term.ids)].mean(0)))


@pytest.mark.parametrize(
    ("config", "stacks"),
    [
        (TINY, ("encoder", "decoder")),
        (ModelConfig(width=16, heads=2, encoder_layers=1, decoder_layers=2, norm_first=True), ("encoder", "decoder")),
        (ModelConfig(shape="decoder", width=16, heads=2, decoder_layers=2, max_positions=64), ("decoder",)),
        (ModelConfig(shape="encoder", width=16, heads=2, encoder_layers=2, max_positions=64), ("encoder",)),
        (ModelConfig(kind="rnn", width=16, heads=1, encoder_layers=2, decoder_layers=2), ("encoder", "decoder")),
        (ModelConfig(kind="rnn-attention", width=16, heads=1), ("encoder", "decoder")),
    ],
)
def test_a_path_starts_at_the_embedding_in_every_kind_of_model(config: ModelConfig, stacks: tuple[Stack, ...]) -> None:
    model = tiny_model(TEXTS, config)
    for stack in stacks:
        assert set(layer_names(model, stack)) <= set(tap_names(model.config.model))
        e = model.explain(TEXTS[0])
        space, path = EmbeddingSpace.of(model, stack), token_paths(e, stack)
        ids = e.source_ids if stack == "encoder" else e.decoder_input_ids
        assert path.vectors.shape == (len(path.layers), len(ids), 16) and len(path.tokens) == len(ids)
        torch.testing.assert_close(space.directions(path.vectors[0]), space.embeddings(ids))
    both: tuple[Stack, ...] = ("encoder", "decoder")
    for stack in both:
        if stack not in stacks:
            with pytest.raises(UserError, match=f"this model has no {stack}"):
                EmbeddingSpace.of(model, stack)


def test_principal_axes_hold_the_variance_in_order() -> None:
    torch.manual_seed(1)
    vectors = torch.randn(50, 6) * torch.tensor([1.0, 5, 1, 3, 1, 1]) + 2
    axes = principal_axes(vectors, 3)
    torch.testing.assert_close(axes.axes.T @ axes.axes, torch.eye(3), atol=1e-5, rtol=0)
    variances = axes.project(vectors).var(0)
    torch.testing.assert_close(variances / vectors.var(0).sum(), axes.variance_ratios)
    assert list(variances) == sorted(variances, reverse=True)
    assert int(axes.axes[:, 0].abs().argmax()) == 1 and float(axes.axes[1, 0]) > 0
    torch.testing.assert_close(principal_axes(-vectors, 3).axes, axes.axes)  # the sign of an axis is fixed


def test_tsne_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openTSNE", None)
    with pytest.raises(UserError, match=r"pip install 'seq2see\[tsne\]'"):
        tsne(torch.randn(10, 4))


@pytest.mark.extras
def test_tsne_keeps_groups_together() -> None:
    pytest.importorskip("openTSNE")
    torch.manual_seed(1)
    groups = torch.randn(3, 1, 8).mul(10).expand(3, 20, 8) + torch.randn(3, 20, 8)
    checks: list[int] = []
    points = tsne(groups.flatten(0, 1), lambda: checks.append(1)).view(3, 20, 2)
    spread = (points - points.mean(1, keepdim=True)).norm(dim=-1).mean()
    assert torch.pdist(points.mean(1)).min() > 2 * spread
    assert checks
