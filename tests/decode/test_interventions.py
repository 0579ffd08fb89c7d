"""Decoding under interventions equals a forward pass under them."""

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.search import Search
from seq2see.inspect.interventions import (
    Intervention,
    Selection,
    ablate_head,
    force_attention,
    intervene,
    patch,
    scale,
    uniform_attention,
)
from tests.decode.test_decode import default_limit, reference_greedy, reference_logprobs
from tests.decoders import (
    END,
    LANGUAGE_MODEL,
    PAPER,
    SPECIAL_TOKENS,
    START,
    exact_model,
    random_sentences,
)

pytestmark = pytest.mark.avx2


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "interventions",
    [
        [ablate_head("decoder.1.cross", head=2)],
        [ablate_head("decoder.0.masked", head=1, where=Selection(positions=[2]))],
        [scale("decoder.0.feed_forward.output", 0.0, Selection(positions=[1, 3]))],
        [scale("encoder.1.self.heads", 0.0)],
        [scale("decoder.1.cross.keys", 2.0, Selection(positions=[0]))],
        [uniform_attention("decoder.1.masked"), uniform_attention("decoder.0.cross")],
        [force_attention("decoder.0.cross", torch.eye(1, 20).roll(0))],
        [patch("decoder.0.masked.keys", torch.ones(8), Selection(positions=[1]))],
        [scale("logits", -1.0, Selection(positions=[2]))],
    ],
)
def test_decoding_under_an_intervention_equals_a_forward_pass_under_it(
    interventions: list[Intervention], beam: int
) -> None:
    m = exact_model(end_bias=0.0)
    sources = random_sentences(6)
    if interventions[0].pattern == "decoder.0.cross.weights":
        sources = [[*source[:3], *[7] * (20 - len(source[:3]))] for source in sources]
    plain = translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=beam, max_new_tokens=9))
    with intervene(m, *interventions):
        found = translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=beam, max_new_tokens=9), token_budget=80)
        for source, (best, *_) in zip(sources, found, strict=True):
            tokens = [*best.tokens, END] if best.finished else list(best.tokens)
            logprobs = reference_logprobs(m, source, [START, *tokens[:-1]])
            expected = logprobs[range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(best.logprobs), expected, rtol=0, atol=5e-5)
            if beam == 1:
                assert tokens == logprobs.argmax(-1).tolist()
    assert [best.logprobs for best, *_ in found] != [best.logprobs for best, *_ in plain]
    again = translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=beam, max_new_tokens=9))
    assert [best.tokens for best, *_ in again] == [best.tokens for best, *_ in plain]


@pytest.mark.parametrize("beam", [1, 3])
def test_an_intervention_on_relative_positions_acts_in_every_step(beam: int) -> None:
    m, sources = exact_model(replace(PAPER, positions="relative"), end_bias=0.0), random_sentences(6)
    search = Search(beam=beam, max_new_tokens=9)
    plain = translate_tokens(m, sources, SPECIAL_TOKENS, search)
    with intervene(m, scale("decoder.relative_bias", -3.0)):
        found = translate_tokens(m, sources, SPECIAL_TOKENS, search)
        for source, (best, *_) in zip(sources, found, strict=True):
            tokens = [*best.tokens, END] if best.finished else list(best.tokens)
            expected = reference_logprobs(m, source, [START, *tokens[:-1]])[range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(best.logprobs), expected, rtol=0, atol=5e-5)
    assert [best.logprobs for best, *_ in found] != [best.logprobs for best, *_ in plain]


def test_intervention_on_one_sentence_affects_only_that_sentence() -> None:
    m, sources = exact_model(), random_sentences(20)
    plain = translate_tokens(m, sources, SPECIAL_TOKENS)
    with intervene(m, scale("decoder.1.cross.heads", -3.0)):
        expected = reference_greedy(m, sources[11], default_limit(sources[11]))
    with intervene(m, scale("decoder.1.cross.heads", -3.0, Selection(sentence=11))):
        for budget in (10_000, 200):
            found = translate_tokens(m, sources, SPECIAL_TOKENS, token_budget=budget)
            assert [i for i in range(20) if found[i][0].tokens != plain[i][0].tokens] == [11]
            assert list(found[11][0].tokens) == expected


def test_language_model_decodes_under_an_intervention() -> None:
    m = exact_model(LANGUAGE_MODEL)
    with intervene(m, ablate_head("decoder.1.masked", head=0)):
        found = generate_tokens(m, [[5, 6, 7]], SPECIAL_TOKENS, Search(max_new_tokens=12))[0][0]
        assert list(found.tokens) == reference_greedy(m, (), 12, [START, 5, 6, 7])


def test_intervention_does_not_affect_other_threads() -> None:
    m, sources = exact_model(), random_sentences(8)
    plain = translate_tokens(m, sources, SPECIAL_TOKENS)
    elsewhere: list[Any] = []
    with intervene(m, scale("decoder.1.cross.heads", -3.0)):
        thread = threading.Thread(target=lambda: elsewhere.append(translate_tokens(m, sources, SPECIAL_TOKENS)))
        thread.start()
        thread.join()
        assert translate_tokens(m, sources, SPECIAL_TOKENS) != plain
    assert elsewhere == [plain]
