"""Decoding agrees with Hugging Face's generate: beams, greedy continuation, filters of samples."""

from typing import Any

import pytest
import torch
import transformers

from seq2see.data.framing import Framing
from seq2see.decode.generate import decode_requests, translate_tokens
from seq2see.decode.request import Request
from seq2see.decode.sampling import filter_logits
from seq2see.decode.search import Search
from seq2see.exchange.huggingface import from_huggingface
from tests.decoders import (
    END,
    START,
    random_sentences,
)
from tests.parity import padded, small, their_precision

pytestmark = pytest.mark.avx2


@pytest.fixture(scope="module")
def hf_marian() -> Any:
    """Trained for a few steps: it has learned to end near the length of the source, and little else."""
    torch.manual_seed(0)
    theirs: Any = small(
        "MarianMT",
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=0,
        max_position_embeddings=64,
        vocab_size=60,
        activation_function="swish",
        scale_embedding=True,
    )
    optimizer = torch.optim.Adam(theirs.parameters(), lr=5e-3)
    for step in range(120):
        sources = random_sentences(32, seed=1000 + step)
        ids, mask = padded(sources)
        labels = ids.masked_fill(mask == 0, -100)
        theirs(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        theirs.final_logits_bias.normal_().mul_(0.1)
    return theirs.double().eval()  # in float64, no two hypotheses are close enough to be swapped by rounding


def hf_generate(theirs: Any, sources: list[list[int]], new: int, **options: Any) -> list[list[int]]:
    ids, mask = padded(sources)
    with torch.no_grad():
        out = theirs.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=new,
            do_sample=False,
            forced_eos_token_id=None,
            bad_words_ids=[[0]],
            pad_token_id=0,
            bos_token_id=None,
            **options,
        )
    return [cut_at_end(row[1:].tolist()) for row in out]


def cut_at_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END)] if END in tokens else [token for token in tokens if token != 0]


HF_SPECIAL_TOKENS = Framing(-1, START, END, (START,), banned=(0,))


@pytest.mark.parametrize(
    ("beam", "alpha", "early"),
    [
        (1, 1.0, False),
        (2, 1.0, False),
        (4, 1.0, False),
        (4, 0.0, False),
        (4, 0.6, True),
        (4, 2.0, "never"),
        (8, 1.0, True),
        (8, 1.4, False),
        (2, -0.5, "never"),
        (8, 0.3, "never"),
    ],
)
def test_beam_search_equals_hugging_face(hf_marian: Any, beam: int, alpha: float, early: Any) -> None:
    ours, sources = from_huggingface(hf_marian), random_sentences(60, seed=5)
    expected = hf_generate(
        hf_marian, sources, 20, num_beams=beam, length_penalty=alpha, early_stopping=early, num_return_sequences=beam
    )
    options = Search(beam=beam, nbest=beam, length_penalty=alpha, early_stopping=early, max_new_tokens=20)
    found = translate_tokens(ours, sources, HF_SPECIAL_TOKENS, options)
    assert [list(h.tokens) for hypotheses in found for h in hypotheses] == expected
    assert len({len(tokens) for tokens in expected}) >= (
        5 if alpha < 2 else 2
    )  # a penalty of 2 favours length above all


@pytest.mark.parametrize(
    ("kind", "positions"), [("GPT2LMHead", "n_positions"), ("LlamaForCausalLM", "max_position_embeddings")]
)
def test_greedy_continuation_equals_hugging_face(kind: str, positions: str) -> None:
    torch.manual_seed(0)
    theirs = small(kind, **{positions: 64}).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    ours = from_huggingface(theirs.double())  # no two tokens are close enough to be swapped by rounding
    prompts = [[5, 9, 2], [7, 3, 8, 1, 4, 6], [11]]
    special_tokens = Framing(-1, -1, 100, (-1,))
    requests = [Request(i, (), prompt, 20) for i, prompt in enumerate(prompts)]
    for prompt, (best, *_) in zip(prompts, decode_requests(ours, requests, Search(), special_tokens), strict=True):
        with torch.no_grad(), their_precision(theirs, torch.float64):
            out = theirs.generate(
                torch.tensor([prompt]),
                max_new_tokens=20,
                do_sample=False,
                eos_token_id=100,
                pad_token_id=100,
                bos_token_id=None,
            )
        expected = out[0, len(prompt) :].tolist()
        assert list(best.tokens) == (expected[: expected.index(100)] if 100 in expected else expected)


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        (Search(temperature=0.7, top_k=5), [transformers.TopKLogitsWarper(5)]),
        (Search(temperature=0.7, top_p=0.8), [transformers.TopPLogitsWarper(0.8)]),
        (Search(temperature=0.7, min_p=0.1), [transformers.MinPLogitsWarper(0.1)]),
        (Search(temperature=0.7, min_p=1.0), [transformers.MinPLogitsWarper(1.0)]),
        (
            Search(temperature=0.7, top_k=20, top_p=0.7),
            [transformers.TopKLogitsWarper(20), transformers.TopPLogitsWarper(0.7)],
        ),
    ],
)
def test_filtered_logits_equal_hugging_face(options: Search, processors: list[Any]) -> None:
    logits = torch.randn(50, 101, generator=torch.Generator().manual_seed(0)) * 3
    expected = transformers.TemperatureLogitsWarper(0.7)(None, logits)
    for processor in processors:
        expected = processor(None, expected)
    assert torch.equal(filter_logits(logits, options).isinf(), expected.isinf())
    torch.testing.assert_close(filter_logits(logits, options), expected)
