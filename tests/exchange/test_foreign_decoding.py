"""Cached decoding of other libraries' models gives the same sequences as Hugging Face's generate."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from seq2see.data.framing import Framing
from seq2see.data.layout import Packed
from seq2see.decode import session
from seq2see.decode.generate import decode_requests, translate_tokens
from seq2see.decode.request import Request
from seq2see.decode.search import Search
from seq2see.exchange.huggingface import from_huggingface
from seq2see.inspect.interventions import intervene, scale, uniform_attention
from seq2see.inspect.trace import trace
from tests.parity import FAMILIES, padded, perturbed, their_precision

DECODERS = ["GPT-2", "Llama, SmolLM", "Mistral", "Qwen 2", "Qwen 3", "Gemma 2", "Gemma 3"]
TRANSLATORS = ["Marian", "BART", "mBART", "Pegasus", "M2M100, NLLB", "T5"]
PROMPTS = [[5, 9, 2, 14, 33, 60, 71], [7, 3], [11, 8, 4, 6]]
END, NEW = 100, 8


def float64_model(family: str, seed: int) -> Any:
    """In float64 no two tokens are close enough to be swapped by rounding."""
    torch.manual_seed(seed)
    return perturbed(FAMILIES[family](Random(seed))).double().eval()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", DECODERS)
def test_continuations_equal_hugging_face(family: str, seed: int) -> None:
    theirs = float64_model(family, seed)
    ours = from_huggingface(theirs)
    while ours.config.max_positions < 16:  # longrope: beyond its short window, they use other frequencies
        seed += 10
        theirs = float64_model(family, seed)
        ours = from_huggingface(theirs)
    requests = [Request(i, (), prompt, NEW) for i, prompt in enumerate(PROMPTS)]
    found = decode_requests(ours, requests, Search(), Framing(-1, -1, END, (-1,)))
    with intervene(ours, scale("decoder.0.masked.values", 1.0)):  # open attention, step by step
        traced = decode_requests(ours, requests, Search(), Framing(-1, -1, END, (-1,)))
    for prompt, (best, *_), (open_best, *_) in zip(PROMPTS, found, traced, strict=True):
        with torch.no_grad(), their_precision(theirs, torch.float64):
            out = theirs.generate(
                torch.tensor([prompt]),
                max_new_tokens=NEW,
                do_sample=False,
                eos_token_id=END,
                pad_token_id=0,
                bos_token_id=None,
            )
        expected = _before_end(out[0, len(prompt) :].tolist())
        assert list(best.tokens) == expected
        assert list(open_best.tokens) == expected


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("forced", [None, 42])
@pytest.mark.parametrize("family", TRANSLATORS)
def test_translations_equal_hugging_face(family: str, forced: int | None, beam: int) -> None:
    theirs = float64_model(family, 4)
    ours = from_huggingface(theirs)
    start, padding = theirs.config.decoder_start_token_id, theirs.config.pad_token_id
    end = 37
    tokens = Framing(-1, start, end, (start,) if forced is None else (start, forced), forced=int(forced is not None))
    found = translate_tokens(ours, PROMPTS, tokens, Search(beam=beam, nbest=beam, max_new_tokens=NEW))
    ids, mask = padded(PROMPTS, padding)
    with torch.no_grad(), their_precision(theirs, torch.float64):
        out = theirs.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=NEW + int(forced is not None),
            num_beams=beam,
            num_return_sequences=beam,
            do_sample=False,
            forced_bos_token_id=forced,
            forced_eos_token_id=None,
            eos_token_id=end,
        )
    prompt = 1 + int(forced is not None)
    expected = [_before_end(row[prompt:].tolist(), end) for row in out]
    assert [list(h.tokens) for hypotheses in found for h in hypotheses] == expected


def _before_end(tokens: list[int], end: int = END) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def test_the_window_of_local_layers_is_kept_while_a_beam_reorders_its_hypotheses() -> None:
    """One pass over prompt and output predicts each token of the beam as the cached steps did."""
    for family in ("Mistral", "Gemma 3", "T5"):
        ours = from_huggingface(float64_model(family, 5))
        source = PROMPTS[0] if family == "T5" else ()
        request = Request(0, source, [3, 9, 4], 10)
        options = Search(beam=4, nbest=4)
        (found,) = decode_requests(ours, [request], options, Framing(-1, 3, END, (3,)))
        for hypothesis in found:
            logprobs = _logprobs(ours, source, [3, 9, 4, *hypothesis.tokens])
            expected = [float(logprobs[2 + i, token]) for i, token in enumerate(hypothesis.tokens)]
            assert list(hypothesis.logprobs)[: len(expected)] == pytest.approx(expected, abs=1e-5)


def _logprobs(model: Any, source: Any, tokens: list[int]) -> torch.Tensor:
    inputs = [Packed.from_sequences([source])] if source else []
    with torch.no_grad():
        return model(*inputs, Packed.from_sequences([tokens])).log_softmax(-1)


@pytest.mark.parametrize("family", ["Mistral", "Gemma 2", "Gemma 3", "T5"])
@pytest.mark.parametrize("beam", [1, 3])
def test_static_shapes_as_on_a_gpu_give_the_same_sequences(
    family: str, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = from_huggingface(float64_model(family, 7))
    sources: list[Any] = PROMPTS if family == "T5" else [()] * 3
    requests = [Request(i, source, [3, 9, 4 + i], 10) for i, source in enumerate(sources)]
    options = Search(beam=beam)
    expected = decode_requests(ours, requests, options, Framing(-1, 3, END, (3,)))
    profile = replace(session.CPU_PROFILE, static_shapes=True)
    monkeypatch.setattr(session, "CPU_PROFILE", profile)
    found = decode_requests(ours, requests, options, Framing(-1, 3, END, (3,)))
    assert [h.tokens for (h, *_) in found] == [h.tokens for (h, *_) in expected]


def test_uniform_attention_stays_within_the_window_of_a_local_layer() -> None:
    ours = from_huggingface(float64_model("Gemma 3", 5))
    assert ours.config.is_local(0)
    tokens = Packed.from_sequences([PROMPTS[0]])
    with torch.no_grad(), intervene(ours, uniform_attention("decoder.0.masked")), trace(ours) as t:
        ours(tokens)
    weights = t["decoder.0.masked.weights", 0][0]
    window = ours.config.attention_window
    assert weights[-1].tolist() == pytest.approx([0.0] * (len(PROMPTS[0]) - window) + [1 / window] * window)
