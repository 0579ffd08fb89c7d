"""What a researcher may get wrong is answered in one line, never by a wrong number or a traceback."""

from dataclasses import replace
from inspect import get_annotations
from typing import Any

import pytest
import torch

import seq2see
from seq2see.api import Model
from seq2see.config import TextConfig
from seq2see.errors import Notice, UserError
from seq2see.inspect.alignment import align, word_alignment
from seq2see.inspect.attention_flow import head_ablation
from seq2see.inspect.comparison import compare
from seq2see.inspect.embedding_space import EmbeddingSpace, token_paths
from seq2see.inspect.explain import Explanation, rerun
from seq2see.inspect.interventions import ablate_head, intervene, scale
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.inspect.token_similarity import contextual_embeddings, token_similarity
from seq2see.inspect.trace import trace
from tests.inspect.test_explain import SMALL, SOURCE, TARGET, perturbed_model


@pytest.fixture(scope="module")
def model() -> Model:
    return perturbed_model(SMALL)


@pytest.fixture(scope="module")
def e(model: Model) -> Explanation:
    return model.explain(SOURCE, target=TARGET)


def test_every_analysis_asks_for_an_explanation(e: Explanation) -> None:
    analyses = [
        function
        for name in seq2see.__all__
        if callable(function := getattr(seq2see, name)) and Explanation in get_annotations(function).values()
    ]
    found = {function.__name__ for function in analyses if get_annotations(function).get("return") is not Explanation}
    assert found >= {"head_ablation", "compare", "token_paths", "logit_attribution", "word_alignment", "logit_lens"}
    for function in analyses:
        with pytest.raises(UserError, match=rf"{function.__name__} takes one explanation as \w+, not a list: call it"):
            function([e, e])
        with pytest.raises(UserError, match=r"not a str: e = model.explain\(text\)"):
            function("We like tea")
    with pytest.raises(UserError, match="compare takes one explanation as after, not a dict"):
        compare(e, after={})  # type: ignore[arg-type]


def test_a_model_or_a_list_in_the_wrong_place_is_named(model: Model, e: Explanation) -> None:
    starts: list[Any] = [trace, intervene]
    for start in starts:
        with pytest.raises(UserError, match=r"take a network, not a Model: use model\.network"), start(model):
            pass
    ablation = ablate_head("decoder.0.cross", 0)
    with pytest.raises(UserError, match="not a list: give several one after the other"):
        rerun(e, [ablation])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("analysis", "arguments", "message"),
    [
        (alternatives, ["हम"], "row 'हम' is not a number: tokens have ids"),
        (alternatives, [0, 0], "top = 0 must be at least 1"),
        (logit_lens, [-1], "top = -1 must be at least 1"),
        (logit_attribution, [0, "हम"], "token 'हम' is not a number: tokens have ids"),
        (logit_attribution, [0, 5, 1.0], "token 1.0 is not a number"),
        (head_ablation, ["decoder.9.cross"], 'no attention "decoder.9.cross": did you mean "decoder.1.cross"'),
        (token_paths, ["cross"], "this model has no cross: use the encoder or the decoder"),
        (token_similarity, ["decoder.1.cross.norm.mean"], "does not have one vector per token"),
        (
            lambda e, stack: EmbeddingSpace.of(e.model, stack),
            ["both"],
            "this model has no both: use the encoder or the decoder",
        ),
        (lambda e: e.model.explain([SOURCE, SOURCE]), [], "explain takes one text, a string, not a list"),
        (
            lambda e: EmbeddingSpace.of(e.model, "decoder").nearest(torch.zeros(16), 3),
            [],
            r"directions \[n, 16\], not \[16\]",
        ),
        (
            lambda e, pairs: align(e.model, pairs),
            [[SOURCE, TARGET]],
            r"pairs are given as a list of \(source, target\)",
        ),
        (word_alignment, [[(1, 0)]], r"list of LayerHead\(layer, head\)"),
        (lambda e: rerun(e, scale("cross", 0.0)), [], 'no tap of this model matches "cross": .*decoder.0.cross.'),
        (
            lambda e: contextual_embeddings(e.model, "zebra", ["We like a zebra"]),
            [],
            '"zebra" is not in the vocabulary',
        ),
        (lambda e: e.model.explain(None), [], "one text, a string, not a NoneType"),
        (lambda e: e.model.explain(SOURCE, target=[TARGET]), [], "explain takes one target, a string, not a list"),
    ],
)
def test_misuse_is_answered_in_one_line(e: Explanation, analysis: Any, arguments: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        analysis(e, *arguments)


def test_outputs_in_different_vocabularies_are_not_compared(e: Explanation) -> None:
    other = perturbed_model(SMALL, TextConfig(tokenizer="character")).explain("We", target="W")
    for pair in ((e, other), (other, e)):
        with pytest.raises(UserError, match="different vocabularies"):
            compare(*pair)


def test_a_model_in_training_mode_is_not_traced() -> None:
    model = perturbed_model(replace(SMALL, dropout=0.1))
    model.network.train()
    with pytest.raises(UserError, match=r"dropout makes every pass different: call model\.eval\(\)"):
        model.explain(SOURCE, target=TARGET)
    model.network.eval()
    assert model.explain(SOURCE, target=TARGET).target_ids


def test_an_explanation_names_the_interventions_of_outer_blocks(model: Model) -> None:
    outer, own = scale("encoder.1.self.projected", 0.5), ablate_head("decoder.0.cross", 0)
    expected = model.explain(SOURCE, target=TARGET, interventions=[outer, own])
    with intervene(model.network, outer):
        e = model.explain(SOURCE, target=TARGET, interventions=own)  # type: ignore[arg-type]
        again = rerun(model.explain(SOURCE, target=TARGET), own)
        inside = head_ablation(e, "decoder.0.cross")
    with model.ablate_head("decoder.0.cross", 0) as ablated:
        assert [one.pattern for one in ablated.explain(SOURCE, target=TARGET).interventions] == [
            "decoder.0.cross.heads"
        ]
    for other in (e, again):
        assert other.interventions == (outer, own) == expected.interventions
        torch.testing.assert_close(other.target_logprobs, expected.target_logprobs)
    for found in (inside, head_ablation(e, "decoder.0.cross"), head_ablation(expected, "decoder.0.cross")):
        assert found[0].abs().max() == 0 and found[1].abs().max() > 0
        torch.testing.assert_close(found, inside)


def test_words_of_a_target_that_the_vocabulary_lacks_are_reported(model: Model) -> None:
    with pytest.warns(Notice, match="the vocabulary lacks words of the target: they count as <unknown>"):
        assert model.explain(SOURCE, target="हम ज़ेब्रा हैं").target_tokens[1] == "<unknown>"
