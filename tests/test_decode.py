"""Decoding: the cached search gives what a plain forward pass says, whatever the batch, and what Hugging Face finds."""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from seq2see.decode import engine, session
from seq2see.decode.engine import continuations, search, translations
from seq2see.decode.sampling import candidates
from seq2see.decode.search import Beam, Hypothesis, Search, largest
from seq2see.decode.session import Manner, Request, Vocabulary
from seq2see.errors import UserError
from seq2see.exchange.huggingface import from_huggingface
from seq2see.inspect.interventions import (
    Intervention,
    Where,
    attending,
    attending_uniformly,
    intervene,
    patching,
    scaling,
    without,
)
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer
from tests.decoders import END, START, TRANSLATORS, WORDS, WRITER, model, sentences
from tests.parity import gpt2, llama, marian, padded

NEAR = 1e-4  # two tokens as likely as that may change places with the batch


@torch.no_grad()
def uncached(m: Transformer, source: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """The log-probabilities after each of the tokens, by one plain forward pass."""
    inputs = (Packed.of([tokens]),) if m.encoder is None else (Packed.of([source]), Packed.of([tokens]))
    return m(*inputs).log_softmax(-1)


def greedily(m: Transformer, source: Sequence[int], limit: int, prompt: Sequence[int] = (START,)) -> list[int]:
    """The plainest decoder: the whole prefix through the model for each token."""
    tokens = list(prompt)
    for _ in range(limit):
        token = int(uncached(m, source, tokens)[-1].argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def limit_of(source: Sequence[int]) -> int:
    return int(len(source) * 1.5) + 10


def differ(m: Transformer, source: Sequence[int], one: Hypothesis, other: Hypothesis) -> bool:
    """Whether two outputs differ where the two best tokens are not as good as equal."""
    a, b = [*one.tokens, END], [*other.tokens, END]
    place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if place is None:
        return len(a) != len(b)
    best = uncached(m, source, [START, *one.tokens[:place]])[-1].topk(2)[0]
    return float(best[0] - best[1]) > NEAR


@pytest.mark.parametrize("name", TRANSLATORS)
def test_cached_equals_uncached(name: str) -> None:
    m = model(TRANSLATORS[name])
    sources = sentences(12)
    found = translations(m, sources, WORDS)
    expected = [greedily(m, source, limit_of(source)) for source in sources]
    assert [list(best.tokens) for best, *_ in found] == expected
    assert len({len(tokens) for tokens in expected}) > 3
    for (best, *_), source in zip(found, sources, strict=True):
        assert best.finished == (len(best.tokens) < limit_of(source))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translation_does_not_depend_on_its_batch(name: str, beam: int) -> None:
    m = model(TRANSLATORS[name])
    sources = sentences(40)
    options = Search(beam=beam, nbest=beam)
    alone = [translations(m, [source], WORDS, options)[0] for source in sources]
    for budget in (10_000, 400):  # all at once; a few rows that are filled again and again
        together = translations(m, sources, WORDS, options, budget=budget)
        changed = sum(ones[0].tokens != others[0].tokens for ones, others in zip(alone, together, strict=True))
        assert changed <= 1  # of 40: even between tokens that are as good as equal, choices hardly change
        for source, ones, others in zip(sources, alone, together, strict=True):
            assert not differ(m, source, ones[0], others[0])
            for one, other in zip(ones, others, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)


def test_a_row_that_others_pass_through_many_times_stays_right() -> None:
    """One long output among many short ones: slots run out, and all move to the front."""
    m = model(ends=4.0)
    sources = sentences(60, seed=3)
    found = translations(m, sources, WORDS, Search(longest=12), budget=100)
    assert [list(best.tokens) for best, *_ in found] == [greedily(m, source, 12) for source in sources]


@pytest.mark.parametrize("beam", [1, 4])
def test_static_shapes_as_on_a_gpu_give_the_same(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle rows, windows rounded up, a look at who is done every eighth step: all but the graphs, on a CPU."""
    # A row that idled on beyond the table of positions would be an error.
    m, sources = model(replace(TRANSLATORS["learned, norm first"], longest=33)), sentences(40)
    writer, prompts = model(WRITER), [[5, 6], [7], [8, 9, 10]]
    options = Search(beam=beam, nbest=beam)
    expected = translations(m, sources, WORDS, options), continuations(writer, prompts, WORDS, Search(longest=70))
    for asking in (engine, session):
        monkeypatch.setattr(
            asking, "manner_on", lambda device: Manner(static=True, captured=False, rows=64, tokens=8192, look=8)
        )
    for budget in (10_000, 500):
        found = translations(m, sources, WORDS, options, budget=budget)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected[0]]
    found = continuations(writer, prompts, WORDS, Search(longest=70))
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected[1]]


def test_beam_1_equals_greedy_and_its_score_is_the_mean() -> None:
    m, sources = model(), sentences(10)
    for (best, *more), source in zip(translations(m, sources, WORDS, Search(beam=1)), sources, strict=True):
        assert not more and list(best.tokens) == greedily(m, source, limit_of(source))
        assert best.score == pytest.approx(sum(best.logprobs) / len(best.logprobs), abs=1e-5)


@pytest.mark.parametrize(("alpha", "form"), [(0.0, "length"), (1.0, "length"), (0.6, "gnmt"), (2.0, "length")])
def test_n_best_are_sorted_and_distinct_and_scored_as_a_plain_pass_scores_them(alpha: float, form: Any) -> None:
    m, sources = model(), sentences(10)
    options = Search(beam=4, nbest=4, length_penalty=alpha, penalty=form)
    for source, found in zip(sources, translations(m, sources, WORDS, options), strict=True):
        assert len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({(h.tokens, h.finished) for h in found}) == 4
        for h in found:
            tokens = [*h.tokens, END] if h.finished else list(h.tokens)
            expected = uncached(m, source, [START, *tokens[:-1]])[range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(h.logprobs), expected, rtol=0, atol=2e-5)
            length = (5 + len(tokens)) / 6 if form == "gnmt" else len(tokens)
            assert h.score == pytest.approx(float(expected.sum()) / length**alpha, abs=1e-4)


def test_a_wider_beam_finds_likelier_sentences() -> None:
    m, sources = model(), sentences(30)
    means = []
    for beam in (1, 2, 8):
        options = Search(beam=beam, length_penalty=0.0, early_stopping="never")
        means.append(sum(best.score for best, *_ in translations(m, sources, WORDS, options)))
    assert means[0] < means[1] < means[2]


def test_a_forced_prefix_is_obeyed() -> None:
    m, sources = model(), sentences(8)
    prefixes = [[10 + i] * (i % 4) for i in range(8)]
    for beam in (1, 3):
        found = translations(m, sources, WORDS, Search(beam=beam), prefixes)
        for source, prefix, (best, *_) in zip(sources, prefixes, found, strict=True):
            if beam == 1:
                assert list(best.tokens) == greedily(m, source, limit_of(source), [START, *prefix])
            tokens = [*best.tokens, END] if best.finished else list(best.tokens)
            expected = uncached(m, source, [START, *prefix, *tokens[:-1]])[len(prefix) :][range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(best.logprobs), expected, rtol=0, atol=2e-5)


def test_banned_tokens_are_never_written() -> None:
    m, sources = model(), sentences(20)
    favourites = {token for best, *_ in translations(m, sources, WORDS) for token in best.tokens[:1]}
    words = Vocabulary(START, END, tuple(favourites))
    for beam in (1, 4):
        found = translations(m, sources, words, Search(beam=beam))
        assert favourites.isdisjoint(token for best, *_ in found for token in best.tokens)


def test_where_nothing_can_be_written_an_error_says_so() -> None:
    words = replace(WORDS, banned=tuple(range(60)))
    with pytest.raises(UserError, match="no token has a probability"):
        translations(model(), sentences(2), words, Search(beam=3))


def test_alternatives_are_the_likeliest_tokens_at_each_step() -> None:
    m, sources = model(), sentences(5)
    for source, (best, *_) in zip(sources, translations(m, sources, WORDS, Search(alternatives=3)), strict=True):
        values, tokens = uncached(m, source, [START, *best.tokens]).topk(3)
        assert len(best.alternatives) == len(best.logprobs)
        for step, others in enumerate(best.alternatives):
            assert [token for token, _ in others] == tokens[step].tolist()
            assert [p for _, p in others] == pytest.approx(values[step].tolist(), abs=2e-5)


def test_the_largest_are_found_as_topk_finds_them() -> None:
    x = torch.randn(7, 128 * 40 + 13, generator=torch.Generator().manual_seed(0))
    for n in (1, 4, 16):
        values, places = largest(x, n)
        assert torch.equal(values, x.topk(n)[0]) and torch.equal(places, x.topk(n)[1])


def chances(**logprobs: float) -> Tensor:
    """Those of a next token with these log-probabilities; what is left is shared by thousands of others."""
    names = {"end": END, "a": 3, "b": 4, "c": 5}
    probabilities = torch.zeros(8000)
    for name, logprob in logprobs.items():
        probabilities[names[name]] = math.exp(logprob)
    probabilities[100:] = (1 - probabilities.sum()) / 7900
    return probabilities.log()


def test_a_beam_goes_on_while_it_may_beat_its_worst_finished_hypothesis() -> None:
    beam = Beam(Search(beam=2, nbest=2, length_penalty=0.0), 1, 6, END, torch.tensor([], dtype=torch.int64))
    beam.admit(slice(0, 1), torch.tensor([6]), None)
    for step in (
        [chances(a=-0.6, end=-1.0, b=-3.0)],  # finished: −1
        [chances(c=-1.4, end=-4.4), chances()],  # and −5, while "a c" at −2 beats that one, but not the other
        [chances(end=-0.1), chances()],  # "a c" ends at −2.1
    ):
        assert not bool(beam.done[0])
        beam.choose(torch.stack(step), slice(0, 1))
    assert bool(beam.done[0])
    ((best, second),) = beam.hypotheses(torch.tensor([0]))
    assert (best.tokens, second.tokens) == ((), (3, 5))
    assert (best.score, second.score) == pytest.approx((-1.0, -2.1), abs=1e-4)


def test_a_row_that_idles_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of four are in use for hundreds of steps; the fourth must not run off the table of positions."""
    m = model(replace(TRANSLATORS["learned, norm first"], longest=33))
    sources = [[7, 8, 9, END]] * 40
    (expected, *_) = translations(m, sources[:1], WORDS, Search(longest=30))
    for asking in (engine, session):
        monkeypatch.setattr(
            asking, "manner_on", lambda device: Manner(static=True, captured=False, rows=3, tokens=10**6, look=8)
        )
    found = translations(m, sources, WORDS, Search(longest=30))
    assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in expected]] * 40


# Against Hugging Face


@pytest.fixture(scope="module")
def their_marian() -> Any:
    """Hardly trained: it has learned to end somewhere near the length of the source, and little else."""
    torch.manual_seed(0)
    theirs: Any = marian(
        decoder_start_token_id=START, eos_token_id=END, pad_token_id=0, max_position_embeddings=64, vocab_size=60
    )()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=5e-3)
    for step in range(120):
        sources = sentences(32, seed=1000 + step)
        ids, mask = padded(sources)
        labels = ids.masked_fill(mask == 0, -100)
        theirs(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        theirs.final_logits_bias.normal_().mul_(0.1)
    return theirs.eval()


def generated(theirs: Any, sources: list[list[int]], new: int, **options: Any) -> list[list[int]]:
    ids, mask = padded(sources)
    with torch.no_grad():
        out = theirs.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=new, do_sample=False, forced_eos_token_id=None,
            bad_words_ids=[[0]], pad_token_id=0, bos_token_id=None, **options,
        )  # fmt: skip
    return [cut_at_end(row[1:].tolist()) for row in out]


def cut_at_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END)] if END in tokens else [token for token in tokens if token != 0]


THEIRS = Vocabulary(START, END, banned=(0,))


@pytest.mark.parametrize(
    ("beam", "alpha", "early"),
    [
        (1, 1.0, False), (2, 1.0, False), (4, 1.0, False), (4, 0.0, False), (4, 0.6, True), (4, 2.0, "never"),
        (8, 1.0, True), (8, 1.4, False), (2, -0.5, "never"), (8, 0.3, "never"),
    ],
)  # fmt: skip
def test_hugging_face_finds_the_same(their_marian: Any, beam: int, alpha: float, early: Any) -> None:
    ours, sources = from_huggingface(their_marian), sentences(60, seed=5)
    expected = generated(
        their_marian, sources, 20, num_beams=beam, length_penalty=alpha, early_stopping=early, num_return_sequences=beam
    )
    options = Search(beam=beam, nbest=beam, length_penalty=alpha, early_stopping=early, longest=20)
    found = translations(ours, sources, THEIRS, options)
    assert [list(h.tokens) for hypotheses in found for h in hypotheses] == expected
    assert len({len(tokens) for tokens in expected}) >= (5 if alpha < 2 else 2)  # such a penalty wants length alone


@pytest.mark.parametrize("build", [gpt2(n_positions=64), llama(max_position_embeddings=64)])
def test_hugging_face_continues_alike(build: Any) -> None:
    torch.manual_seed(0)
    theirs = build().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    ours = from_huggingface(theirs)
    prompts = [[5, 9, 2], [7, 3, 8, 1, 4, 6], [11]]
    nobody = Vocabulary(-1, 100)
    requests = [Request(i, (), prompt, 20) for i, prompt in enumerate(prompts)]
    for prompt, (best, *_) in zip(prompts, search(ours, requests, Search(), nobody), strict=True):
        with torch.no_grad():
            out = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=100, pad_token_id=100,
                bos_token_id=None,
            )  # fmt: skip
        expected = out[0, len(prompt) :].tolist()
        assert list(best.tokens) == (expected[: expected.index(100)] if 100 in expected else expected)


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        (Search(temperature=0.7, top_k=5), [transformers.TopKLogitsWarper(5)]),
        (Search(temperature=0.7, top_p=0.8), [transformers.TopPLogitsWarper(0.8)]),
        (Search(temperature=0.7, min_p=0.1), [transformers.MinPLogitsWarper(0.1)]),
        (
            Search(temperature=0.7, top_k=20, top_p=0.7),
            [transformers.TopKLogitsWarper(20), transformers.TopPLogitsWarper(0.7)],
        ),
    ],
)
def test_the_same_tokens_may_be_drawn_as_with_hugging_face(options: Search, processors: list[Any]) -> None:
    logits = torch.randn(50, 101, generator=torch.Generator().manual_seed(0)) * 3
    expected = transformers.TemperatureLogitsWarper(0.7)(None, logits)
    for processor in processors:
        expected = processor(None, expected)
    assert torch.equal(candidates(logits, options).isinf(), expected.isinf())
    torch.testing.assert_close(candidates(logits, options), expected)


# Sampling


def test_a_temperature_near_0_is_greedy() -> None:
    m, sources = model(), sentences(10)
    cold, greedy = (translations(m, sources, WORDS, Search(temperature=t)) for t in (1e-4, 0.0))
    assert [best.tokens for best, *_ in cold] == [best.tokens for best, *_ in greedy]


def test_samples_come_as_often_as_their_probability_says() -> None:
    m = model(WRITER)
    count = 4000
    options = Search(temperature=1.3, samples=count, longest=1, seed=1)
    (found,) = continuations(m, [[5, 6, 7]], WORDS, options, budget=200_000)
    p = (uncached(m, (), [START, 5, 6, 7])[-1] / 1.3).softmax(-1)
    drawn = [h.tokens[0] if h.tokens else END for h in found]
    seen = torch.bincount(torch.tensor(drawn), minlength=60)
    expected = p * count
    common = expected >= 5
    statistic = float(((seen - expected)[common] ** 2 / expected[common]).sum())
    freedom = int(common.sum()) - 1
    assert freedom > 10
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_a_sample_does_not_depend_on_its_batch() -> None:
    m, sources = model(), sentences(30)
    options = Search(temperature=1.0, top_p=0.95, seed=7)
    together = translations(m, sources, WORDS, options, budget=500)
    for i, (best, *_) in enumerate(together):
        alone = translations(m, [sources[i]], WORDS, replace(options, seed=7 + i))
        assert alone[0][0].tokens == best.tokens
    others = translations(m, sources, WORDS, replace(options, seed=8))
    assert [best.tokens for best, *_ in others] != [best.tokens for best, *_ in together]


def test_samples_of_one_prompt_differ_and_have_seeds_of_their_own() -> None:
    m = model(WRITER)
    options = Search(temperature=1.0, samples=6, longest=8, seed=3)
    (found,) = continuations(m, [[5, 6]], WORDS, options)
    assert len(found) == 6 and len({h.tokens for h in found}) > 3
    single = replace(options, samples=1, seed=5)
    assert continuations(m, [[5, 6]], WORDS, single)[0][0].tokens == found[2].tokens


# The window of a language model


def test_the_window_slides_by_half() -> None:
    m = model(WRITER, ends=-50.0)
    context = [START, 5, 6, 7]
    expected: list[int] = []
    for _ in range(60):
        if len(context) > WRITER.longest:
            context = context[-(WRITER.longest // 2) :]
        expected.append(int(uncached(m, (), context)[-1].argmax()))
        context.append(expected[-1])
    others = [[9], [8, 8, 8, 8, 8, 8]]
    found = continuations(m, [[5, 6, 7], *others], WORDS, Search(longest=60))
    assert list(found[0][0].tokens) == expected
    stopped = continuations(m, [[5, 6, 7]], WORDS, Search(longest=60, window="stop"))[0][0]
    assert list(stopped.tokens) == expected[: WRITER.longest - 3]
    assert not stopped.finished


def test_a_prompt_longer_than_the_window_keeps_its_end_or_is_refused() -> None:
    m = model(WRITER)
    prompt = [5 + i % 50 for i in range(40)]
    found = continuations(m, [prompt], WORDS, Search(longest=3))[0][0]
    assert list(found.tokens) == greedily(m, (), 3, prompt[-12:])
    with pytest.raises(UserError, match=r"41 tokens.*window is 24"):
        continuations(m, [prompt], WORDS, Search(window="stop"))


# Interventions


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "interventions",
    [
        [without("decoder.1.cross", head=2)],
        [without("decoder.0.masked", head=1, where=Where(positions=[2]))],
        [scaling("decoder.0.feed_forward.output", 0.0, Where(positions=[1, 3]))],
        [scaling("encoder.1.self.heads", 0.0)],
        [scaling("decoder.1.cross.keys", 2.0, Where(positions=[0]))],
        [attending_uniformly("decoder.1.masked"), attending_uniformly("decoder.0.cross")],
        [attending("decoder.0.cross", torch.eye(1, 20).roll(0))],
        [patching("decoder.0.masked.keys", torch.ones(8), Where(positions=[1]))],
        [scaling("logits", -1.0, Where(positions=[2]))],
    ],
)
def test_decoding_under_an_intervention_is_what_a_forward_pass_under_it_says(
    interventions: list[Intervention], beam: int
) -> None:
    m = model(ends=0.0)
    sources = sentences(6)
    if interventions[0].names == "decoder.0.cross.weights":
        sources = [[*source[:3], *[7] * (20 - len(source[:3]))] for source in sources]
    plain = translations(m, sources, WORDS, Search(beam=beam, longest=9))
    with intervene(m, *interventions):
        found = translations(m, sources, WORDS, Search(beam=beam, longest=9), budget=80)
        for source, (best, *_) in zip(sources, found, strict=True):
            tokens = [*best.tokens, END] if best.finished else list(best.tokens)
            logprobs = uncached(m, source, [START, *tokens[:-1]])
            expected = logprobs[range(len(tokens)), tokens]
            torch.testing.assert_close(torch.tensor(best.logprobs), expected, rtol=0, atol=5e-5)
            if beam == 1:
                assert tokens == logprobs.argmax(-1).tolist()
    assert [best.logprobs for best, *_ in found] != [best.logprobs for best, *_ in plain]
    again = translations(m, sources, WORDS, Search(beam=beam, longest=9))
    assert [best.tokens for best, *_ in again] == [best.tokens for best, *_ in plain]


def test_an_intervention_on_one_sentence_finds_it_in_any_batch() -> None:
    m, sources = model(), sentences(20)
    plain = translations(m, sources, WORDS)
    with intervene(m, scaling("decoder.1.cross.heads", -3.0)):
        expected = greedily(m, sources[11], limit_of(sources[11]))
    with intervene(m, scaling("decoder.1.cross.heads", -3.0, Where(sentence=11))):
        for budget in (10_000, 200):
            found = translations(m, sources, WORDS, budget=budget)
            assert [i for i in range(20) if found[i][0].tokens != plain[i][0].tokens] == [11]
            assert list(found[11][0].tokens) == expected


def test_a_language_model_is_decoded_under_an_intervention_too() -> None:
    m = model(WRITER)
    with intervene(m, without("decoder.1.masked", head=0)):
        found = continuations(m, [[5, 6, 7]], WORDS, Search(longest=12))[0][0]
        assert list(found.tokens) == greedily(m, (), 12, [START, 5, 6, 7])


def test_another_thread_decodes_undisturbed() -> None:
    m, sources = model(), sentences(8)
    plain = translations(m, sources, WORDS)
    elsewhere: list[Any] = []
    with intervene(m, scaling("decoder.1.cross.heads", -3.0)):
        thread = threading.Thread(target=lambda: elsewhere.append(translations(m, sources, WORDS)))
        thread.start()
        thread.join()
        assert translations(m, sources, WORDS) != plain
    assert elsewhere == [plain]
