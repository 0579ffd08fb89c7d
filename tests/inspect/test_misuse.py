"""What a researcher may get wrong is answered in one line, never by a wrong number or a traceback."""

from inspect import get_annotations
from typing import Any

import pytest

import seq2see
from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.inspect.comparison import compare
from seq2see.inspect.explain import Explanation, rerun
from seq2see.inspect.interventions import ablate_head, intervene
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
