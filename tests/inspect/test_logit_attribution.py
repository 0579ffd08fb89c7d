"""The contributions of all components sum to the logit, in every architecture and under interventions."""

import math
from dataclasses import replace

import pytest
import torch

from seq2see.api import Model
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import ablate_head, patch, scale
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import logit_lens
from tests.inspect.test_explain import LANGUAGE_MODEL, SMALL, SOURCE, TARGET, close, perturbed_model

RMS = replace(SMALL, norm="rms", norm_first=True, bias="nowhere")
VARIANTS = {
    "rms": replace(RMS, activation="swiglu"),
    "post rms": replace(SMALL, norm="rms"),
    "untied": replace(
        SMALL, tie_embeddings="none", output_bias=True, positions="learned", embedding_norm=True, segments=2
    ),
    "language": replace(LANGUAGE_MODEL, norm_first=True, positions="rotary", key_value_heads=1, scale_embeddings=False),
    "T5": replace(RMS, positions="relative", attention_scale=1.0, logit_scale=0.25),
    "Gemma 2": replace(
        RMS,
        shape="decoder",
        positions="rotary",
        output_norm=True,
        query_key_norm=True,
        attention_cap=5.0,
        logit_cap=2.0,
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logit_attribution_sums_to_the_logit_in_every_architecture(variant: str) -> None:
    model = perturbed_model(VARIANTS[variant])
    e, cap = model.explain("We are", target="friends"), VARIANTS[variant].logit_cap
    for row in range(len(e.decoder_input_tokens)):
        found = logit_attribution(e, row)
        assert not {one.component for one in found.contributions} & {"interventions", "rounding"}  # no remainder
        total = sum(one.logit for one in found.contributions)
        assert total == pytest.approx(found.logit, rel=1e-4, abs=1e-4)
        expected = float(e.trace["logits", 0][row, e.target_ids[row]])
        assert (cap * math.tanh(total / cap) if cap else total) == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert not cap or abs(total) > abs(expected)
    close([reading.probability for reading in logit_lens(e).readings[-1]], e.target_logprobs.exp())


def test_a_logit_at_the_limit_has_no_parts() -> None:
    e = perturbed_model(replace(VARIANTS["Gemma 2"], logit_cap=2**-7)).explain("We are", target="friends")
    with pytest.raises(UserError, match="the logit is at the model's limit of ±0"):
        logit_attribution(e, 0, token=int(e.logprobs[0].argmax()))


@pytest.fixture(scope="module", params=[True, False], ids=["pre-norm", "post-norm"])
def model(request: pytest.FixtureRequest) -> Model:
    return perturbed_model(replace(SMALL, norm_first=request.param))


def remainder(e: Explanation) -> float:
    found = logit_attribution(e, 2)
    assert sum(one.logit for one in found.contributions) == pytest.approx(found.logit, rel=1e-4)
    return sum(one.logit for one in found.contributions if one.component in ("interventions", "rounding"))


def test_logit_attribution_sums_to_the_logit_under_interventions(model: Model) -> None:
    e = model.explain(SOURCE, target=TARGET, interventions=[ablate_head("decoder.1.cross", 1)])
    assert [one.logit for one in logit_attribution(e, 2).contributions if one.name == "decoder.1.cross:1"] == [0.0]
    assert remainder(e) == 0
    vector = torch.full((16,), 0.5)
    e = model.explain(SOURCE, target=TARGET, interventions=[patch("decoder.1.cross.projected", vector)])
    assert logit_attribution(e, 2).contributions[-1].component == "interventions"
    assert abs(remainder(e)) > 1e-3
    e = model.explain(SOURCE, target=TARGET, interventions=[scale("logits", 2.0)])
    assert remainder(e) == pytest.approx(logit_attribution(e, 2).logit / 2, rel=1e-3)  # half of it is no component's
