"""Decoding: cached search equals a plain forward pass in any batch, and agrees with Hugging Face's generate."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2see.data.framing import Framing
from seq2see.data.layout import Packed
from seq2see.decode import generate
from seq2see.decode.cache import COMPACT_STEPS, CacheSize, KeyValueCache
from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.prompts import power_of_two
from seq2see.decode.request import Request
from seq2see.decode.search import BeamSearch, Hypothesis, Search, fast_topk
from seq2see.decode.session import CPU_PROFILE, DeviceProfile, TorchSession
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from tests.decoders import (
    END,
    LANGUAGE_MODEL,
    SPECIAL_TOKENS,
    START,
    TRANSLATORS,
    exact_model,
    random_model,
    random_sentences,
)

pytestmark = pytest.mark.avx2
STATIC_PROFILE = DeviceProfile(
    static_shapes=True, cuda_graphs=False, max_hypotheses=64, token_budget=8192, check_interval=8
)
TIE = 1e-4  # tokens whose log-probabilities are this close may swap with the batch


@torch.no_grad()
def reference_logprobs(m: Transformer, source: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Returns the log-probabilities after each token, from one plain forward pass."""
    inputs = (
        (Packed.from_sequences([tokens]),)
        if m.encoder is None
        else (Packed.from_sequences([source]), Packed.from_sequences([tokens]))
    )
    return m(*inputs).log_softmax(-1, torch.float32)


def reference_greedy(m: Transformer, source: Sequence[int], limit: int, prompt: Sequence[int] = (START,)) -> list[int]:
    """Decodes greedily without a cache: passes the whole prefix through the model for each token."""
    tokens = list(prompt)
    for _ in range(limit):
        token = int(reference_logprobs(m, source, tokens)[-1].argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def default_limit(source: Sequence[int]) -> int:
    return int(len(source) * 1.5) + 10


def differs_beyond_ties(m: Transformer, source: Sequence[int], one: Hypothesis, other: Hypothesis) -> bool:
    """Returns whether two outputs diverge at a step where the two best tokens are not tied."""
    a, b = [*one.tokens, END], [*other.tokens, END]
    step = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if step is None:
        return len(a) != len(b)
    best = reference_logprobs(m, source, [START, *one.tokens[:step]])[-1].topk(2)[0]
    return float(best[0] - best[1]) > TIE


@pytest.mark.parametrize("name", TRANSLATORS)
def test_cached_equals_reference_logprobs(name: str) -> None:
    m = exact_model(TRANSLATORS[name])
    sources = random_sentences(12)
    found = translate_tokens(m, sources, SPECIAL_TOKENS)
    expected = [reference_greedy(m, source, default_limit(source)) for source in sources]
    assert [list(best.tokens) for best, *_ in found] == expected
    assert len({len(tokens) for tokens in expected}) > 3
    for (best, *_), source in zip(found, sources, strict=True):
        assert best.finished == (len(best.tokens) < default_limit(source))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_batched_translation_equals_single(name: str, beam: int) -> None:
    m = random_model(TRANSLATORS[name])
    sources = random_sentences(40)
    options = Search(beam=beam, nbest=beam)
    alone = [translate_tokens(m, [source], SPECIAL_TOKENS, options)[0] for source in sources]
    for budget in (10_000, 400):  # all at once; a few rows that are reused many times
        together = translate_tokens(m, sources, SPECIAL_TOKENS, options, token_budget=budget)
        changed = 0
        for source, ones, others in zip(sources, alone, together, strict=True):
            if [one.tokens for one in ones] != [other.tokens for other in others]:
                changed += 1
                assert beam > 1 or not differs_beyond_ties(m, source, ones[0], others[0])
            else:
                assert [one.score for one in ones] == pytest.approx([other.score for other in others], abs=1e-4)
        assert changed <= 1  # of 40, because of a tie


def test_cache_is_compacted_when_its_slots_run_out() -> None:
    """One long output among many short ones uses up the slots."""
    m = exact_model(end_bias=4.0)
    sources = random_sentences(60, seed=3)
    found = translate_tokens(m, sources, SPECIAL_TOKENS, Search(max_new_tokens=12), token_budget=100)
    assert [list(best.tokens) for best, *_ in found] == [reference_greedy(m, source, 12) for source in sources]


def test_cache_is_compacted_although_sentences_keep_joining() -> None:
    """Otherwise every step would attend to the slots of sentences that left long ago."""
    m, beam, life = exact_model(), 4, 10
    size = CacheSize(rows=2, max_new_tokens=500, max_positions=500, source_slots=4)
    running: TorchSession[Request] = TorchSession(m, Search(beam=beam), SPECIAL_TOKENS, size, CPU_PROFILE)
    windows = []
    with torch.inference_mode():
        for _ in range(40):
            running.add([Request(0, [5, 6, END], [START], 500)])
            for _ in range(life // 2):
                running.step()
                windows.append(running.cache.visible_slots)
            if len(running.rows) == 2:
                running.remove([0])
    assert max(windows) <= 1 + (life + COMPACT_STEPS + 1) * beam


@pytest.mark.parametrize("beam", [1, 4])
def test_static_shapes_do_not_change_the_output(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused rows, rounded windows and a check every eighth step, as on CUDA but without graphs."""
    # An unused row that advanced beyond the position table would raise an error.
    m, sources = exact_model(replace(TRANSLATORS["learned, norm first"], max_positions=33)), random_sentences(40)
    lm, prompts = exact_model(LANGUAGE_MODEL), [[5, 6], [7], [8, 9, 10]]
    options = Search(beam=beam, nbest=beam)
    expected = (
        translate_tokens(m, sources, SPECIAL_TOKENS, options),
        generate_tokens(lm, prompts, SPECIAL_TOKENS, Search(max_new_tokens=70)),
    )
    monkeypatch.setattr(generate, "device_profile", lambda model: STATIC_PROFILE)
    for budget in (10_000, 500):
        found = translate_tokens(m, sources, SPECIAL_TOKENS, options, token_budget=budget)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected[0]]
    found = generate_tokens(lm, prompts, SPECIAL_TOKENS, Search(max_new_tokens=70))
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected[1]]


@pytest.mark.parametrize("static_shapes", [True, False])
def test_a_step_of_static_shapes_reads_where_it_writes_from_the_device(
    static_shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot on the host would stay that of the captured step."""
    visible, slots = KeyValueCache._visible, []

    def recorded(*arguments: Any, **named: Any) -> Any:
        found = visible(*arguments, **named)
        slots.append(found.first_write)
        return found

    monkeypatch.setattr(KeyValueCache, "_visible", recorded)
    monkeypatch.setattr(generate, "device_profile", lambda model: STATIC_PROFILE if static_shapes else CPU_PROFILE)
    translate_tokens(exact_model(), [[5, 6, 7]], SPECIAL_TOKENS, Search(beam=1, max_new_tokens=3))
    assert slots and all((slot is None) == static_shapes for slot in slots)


def test_a_source_beyond_the_learned_positions_is_an_error_in_static_shapes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = exact_model(replace(TRANSLATORS["learned, norm first"], max_positions=33))
    monkeypatch.setattr(generate, "device_profile", lambda model: STATIC_PROFILE)
    with pytest.raises(UserError, match="a sequence of 40 tokens exceeds the model's 33 learned positions"):
        translate_tokens(m, [[5] * 40], SPECIAL_TOKENS, Search(max_new_tokens=5))


def test_beam_of_1_equals_greedy_and_scores_the_mean_logprob() -> None:
    m, sources = exact_model(), random_sentences(10)
    for (best, *more), source in zip(
        translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=1)), sources, strict=True
    ):
        assert not more and list(best.tokens) == reference_greedy(m, source, default_limit(source))
        assert best.score == pytest.approx(sum(best.logprobs) / len(best.logprobs), abs=1e-5)


@pytest.mark.parametrize(("alpha", "form"), [(0.0, "length"), (1.0, "length"), (0.6, "gnmt"), (2.0, "length")])
def test_n_best_are_sorted_distinct_and_scored_like_a_forward_pass(alpha: float, form: Any) -> None:
    m, sources = exact_model(), random_sentences(10)
    options = Search(beam=4, nbest=4, length_penalty=alpha, penalty=form)
    for source, found in zip(sources, translate_tokens(m, sources, SPECIAL_TOKENS, options), strict=True):
        assert len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({(h.tokens, h.finished) for h in found}) == 4
        for h in found:
            tokens = [*h.tokens, END] if h.finished else list(h.tokens)
            expected = reference_logprobs(m, source, [START, *tokens[:-1]])[range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(h.logprobs), expected, rtol=0, atol=2e-5)
            length = (5 + len(tokens)) / 6 if form == "gnmt" else len(tokens)
            assert h.score == pytest.approx(float(expected.sum()) / length**alpha, abs=1e-4)


def test_wider_beam_finds_more_likely_sentences() -> None:
    m, sources = exact_model(), random_sentences(30)
    means = []
    for beam in (1, 2, 8):
        options = Search(beam=beam, length_penalty=0.0, early_stopping="never")
        means.append(sum(best.score for best, *_ in translate_tokens(m, sources, SPECIAL_TOKENS, options)))
    assert means[0] < means[1] < means[2]


def test_forced_prefix_is_continued() -> None:
    m, sources = exact_model(), random_sentences(8)
    prefixes = [[10 + i] * (i % 4) for i in range(8)]
    for beam in (1, 3):
        found = translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=beam), prefixes)
        for source, prefix, (best, *_) in zip(sources, prefixes, found, strict=True):
            if beam == 1:
                assert list(best.tokens) == reference_greedy(m, source, default_limit(source), [START, *prefix])
            tokens = [*best.tokens, END] if best.finished else list(best.tokens)
            expected = reference_logprobs(m, source, [START, *prefix, *tokens[:-1]])[len(prefix) :][
                range(len(tokens)), tokens
            ]
            torch.testing.assert_close(torch.tensor(best.logprobs), expected, rtol=0, atol=2e-5)


def test_banned_tokens_are_never_generated() -> None:
    m, sources = exact_model(), random_sentences(20)
    frequent = {token for best, *_ in translate_tokens(m, sources, SPECIAL_TOKENS) for token in best.tokens[:1]}
    special_tokens = Framing(-1, START, END, (START,), banned=tuple(frequent))
    for beam in (1, 4):
        found = translate_tokens(m, sources, special_tokens, Search(beam=beam))
        assert frequent.isdisjoint(token for best, *_ in found for token in best.tokens)


def test_error_if_all_tokens_are_banned() -> None:
    special_tokens = replace(SPECIAL_TOKENS, banned=tuple(range(60)))
    with pytest.raises(UserError, match="every token has probability 0"):
        translate_tokens(exact_model(), random_sentences(2), special_tokens, Search(beam=3))


def test_alternatives_are_the_most_likely_tokens_of_each_step() -> None:
    m, sources = exact_model(), random_sentences(5)
    for source, (best, *_) in zip(
        sources, translate_tokens(m, sources, SPECIAL_TOKENS, Search(alternatives=3)), strict=True
    ):
        values, tokens = reference_logprobs(m, source, [START, *best.tokens]).topk(3)
        assert len(best.alternatives) == len(best.logprobs)
        for step, alternatives in enumerate(best.alternatives):
            assert [token for token, _ in alternatives] == tokens[step].tolist()
            assert [logprob for _, logprob in alternatives] == pytest.approx(values[step].tolist(), abs=2e-5)


def test_fast_topk_equals_topk() -> None:
    x = torch.randn(7, 128 * 40 + 13, generator=torch.Generator().manual_seed(0))
    for n in (1, 4, 16):
        values, indices = fast_topk(x, n)
        assert torch.equal(values, x.topk(n)[0]) and torch.equal(indices, x.topk(n)[1])


def next_token_logits(**logprobs: float) -> Tensor:
    """Returns logits with these log-probabilities; the remaining probability is spread over thousands of tokens."""
    names = {"end": END, "a": 3, "b": 4, "c": 5}
    probabilities = torch.zeros(8000)
    for name, logprob in logprobs.items():
        probabilities[names[name]] = math.exp(logprob)
    probabilities[100:] = (1 - probabilities.sum()) / 7900
    return probabilities.log()


def test_beam_continues_while_it_may_beat_its_worst_finished_hypothesis() -> None:
    beam = BeamSearch(
        Search(beam=2, nbest=2, length_penalty=0.0), 1, 6, Framing(-1, START, END, (START,)), torch.device("cpu")
    )
    beam.reset(slice(0, 1), torch.tensor([6]))
    for step in (
        [next_token_logits(a=-0.6, end=-1.0, b=-3.0)],  # finished: −1
        [next_token_logits(c=-1.4, end=-4.4), next_token_logits()],  # finished: −5; "a c" at −2 beats it but not the −1
        [next_token_logits(end=-0.1), next_token_logits()],  # "a c" ends at −2.1
    ):
        assert not bool(beam.done[0])
        beam.select(torch.stack(step), slice(0, 1))
    assert bool(beam.done[0])
    ((best, second),) = beam.hypotheses(torch.tensor([0]))
    assert (best.tokens, second.tokens) == ((), (3, 5))
    assert (best.score, second.score) == pytest.approx((-1.0, -2.1), abs=1e-4)


def test_unused_rows_do_not_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four rows are in use for hundreds of steps; the fourth must not leave the position table."""
    m = exact_model(replace(TRANSLATORS["learned, norm first"], max_positions=33))
    sources = [[7, 8, 9, END]] * 40
    (expected, *_) = translate_tokens(m, sources[:1], SPECIAL_TOKENS, Search(max_new_tokens=30))
    profile = replace(STATIC_PROFILE, max_hypotheses=3, token_budget=10**6)
    monkeypatch.setattr(generate, "device_profile", lambda model: profile)
    found = translate_tokens(m, sources, SPECIAL_TOKENS, Search(max_new_tokens=30))
    assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in expected]] * 40


# Against Hugging Face


# Sampling


def test_temperature_near_0_is_greedy() -> None:
    m, sources = exact_model(), random_sentences(10)
    cold, greedy = (translate_tokens(m, sources, SPECIAL_TOKENS, Search(temperature=t)) for t in (1e-4, 0.0))
    assert [best.tokens for best, *_ in cold] == [best.tokens for best, *_ in greedy]


def test_sample_frequencies_match_probabilities() -> None:
    m = exact_model(LANGUAGE_MODEL)
    count = 4000
    options = Search(temperature=1.3, samples=count, max_new_tokens=1, seed=1)
    (found,) = generate_tokens(m, [[5, 6, 7]], SPECIAL_TOKENS, options, token_budget=200_000)
    p = (reference_logprobs(m, (), [START, 5, 6, 7])[-1] / 1.3).softmax(-1)
    sampled = [h.tokens[0] if h.tokens else END for h in found]
    counts = torch.bincount(torch.tensor(sampled), minlength=60)
    expected = p * count
    common = expected >= 5
    statistic = float(((counts - expected)[common] ** 2 / expected[common]).sum())
    freedom = int(common.sum()) - 1
    assert freedom > 10
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_batched_sample_equals_single() -> None:
    m, sources = exact_model(), random_sentences(30)
    options = Search(temperature=1.0, top_p=0.95, seed=7)
    together = translate_tokens(m, sources, SPECIAL_TOKENS, options, token_budget=500)
    for i, (best, *_) in enumerate(together):
        alone = translate_tokens(m, [sources[i]], SPECIAL_TOKENS, replace(options, seed=7 + i))
        assert alone[0][0].tokens == best.tokens
    others = translate_tokens(m, sources, SPECIAL_TOKENS, replace(options, seed=8))
    assert [best.tokens for best, *_ in others] != [best.tokens for best, *_ in together]


def test_samples_of_one_prompt_have_different_seeds() -> None:
    m = exact_model(LANGUAGE_MODEL)
    options = Search(temperature=1.0, samples=6, max_new_tokens=8, seed=3)
    (found,) = generate_tokens(m, [[5, 6]], SPECIAL_TOKENS, options)
    assert len(found) == 6 and len({h.tokens for h in found}) > 3
    single = replace(options, samples=1, seed=5)
    assert generate_tokens(m, [[5, 6]], SPECIAL_TOKENS, single)[0][0].tokens == found[2].tokens


# The context window of a language model


def test_context_window_slides_by_half() -> None:
    m = exact_model(LANGUAGE_MODEL, end_bias=-50.0)
    context = [START, 5, 6, 7]
    expected: list[int] = []
    for _ in range(60):
        if len(context) > LANGUAGE_MODEL.max_positions:
            context = context[-(LANGUAGE_MODEL.max_positions // 2) :]
        expected.append(int(reference_logprobs(m, (), context)[-1].argmax()))
        context.append(expected[-1])
    others = [[9], [8, 8, 8, 8, 8, 8]]
    found = generate_tokens(m, [[5, 6, 7], *others], SPECIAL_TOKENS, Search(max_new_tokens=60))
    assert list(found[0][0].tokens) == expected
    stopped = generate_tokens(m, [[5, 6, 7]], SPECIAL_TOKENS, Search(max_new_tokens=60, window="stop"))[0][0]
    assert list(stopped.tokens) == expected[: LANGUAGE_MODEL.max_positions - 3]
    assert not stopped.finished


def test_prompt_longer_than_the_window_is_truncated_or_an_error() -> None:
    m = exact_model(LANGUAGE_MODEL)
    prompt = [5 + i % 50 for i in range(40)]
    found = generate_tokens(m, [prompt], SPECIAL_TOKENS, Search(max_new_tokens=3))[0][0]
    assert list(found.tokens) == reference_greedy(m, (), 3, prompt[-12:])
    with pytest.raises(UserError, match=r"41 tokens.*window is 24"):
        generate_tokens(m, [prompt], SPECIAL_TOKENS, Search(window="stop"))


# Interventions


def test_the_power_of_two_at_least_as_large() -> None:
    assert [power_of_two(n) for n in range(6)] == [1, 1, 2, 4, 4, 8]
