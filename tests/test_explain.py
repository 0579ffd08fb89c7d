"""Explanations: what was decoded is what is explained, and every reading equals the arithmetic done by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seq2see.api import Model
from seq2see.config import ModelConfig, TextConfig
from seq2see.decode.search import Search
from seq2see.errors import UsageError, UserError
from seq2see.inspect.alignment import View, align, best_heads, word_alignment
from seq2see.inspect.attention_flow import ablations, attentions, entropies, rollout, weights
from seq2see.inspect.comparison import changes
from seq2see.inspect.explain import Explanation, again, beam_at
from seq2see.inspect.interventions import Where, patching, scaling, without
from seq2see.inspect.logit_attribution import contributions
from seq2see.inspect.logit_lens import alternatives, lens
from seq2see.inspect.token_similarity import senses, similarities
from seq2see.metrics.alignment import Gold, GoldPairs, alignment_scores
from seq2see.text.word_spans import marks_apart
from tests.by_hand import ByHand, softmax
from tests.models import tiny_model

TEXTS = ["I like tea.", "मुझे चाय पसंद है।", "We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"]
SOURCE, TARGET = "We like tea, brother!", "हम दोस्त हैं, भाई!"
SMALL = ModelConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.0)
WORDS = TextConfig(tokenizer="word")
LANGUAGE = replace(SMALL, shape="decoder", longest=64)


def made(model: ModelConfig, text: TextConfig = WORDS) -> Model:
    """A model none of whose parameters are left at zero or one."""
    found = tiny_model(TEXTS, model, text)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in found.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["pre-norm", "post-norm"])
def model(request: pytest.FixtureRequest) -> Model:
    return made(replace(SMALL, norm_first=request.param))


@pytest.fixture(scope="module")
def e(model: Model) -> Explanation:
    return model.explain(SOURCE, target=TARGET)


def by_hand(e: Explanation, off: tuple[str, int] | None = None) -> tuple[ByHand, np.ndarray]:
    raw = {name: value.double().numpy() for name, value in e.model.network.state_dict().items()}
    hand = ByHand(e.model.config.model, raw, off)
    return hand, hand.run(list(e.source_ids), list(e.read_ids))


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


def test_logits_and_weights_are_those_of_the_arithmetic_by_hand(e: Explanation) -> None:
    hand, logits = by_hand(e)
    close(e.trace["logits", 0], logits)
    close(e.chosen, np.log(softmax(logits))[range(len(e.writes)), list(e.write_ids)])
    assert attentions(e) == list(hand.weights) == [
        "encoder.0.self", "encoder.1.self", "decoder.0.masked", "decoder.0.cross", "decoder.1.masked", "decoder.1.cross"
    ]  # fmt: skip
    for name, table in hand.weights.items():
        close(weights(e, name), table)
        safe = np.where(table > 0, table, 1)
        close(entropies(e)[name], -(safe * np.log(safe)).sum(-1).mean(-1))


def test_the_lens_reads_every_layer_as_the_last_is_read(e: Explanation) -> None:
    hand, logits = by_hand(e)
    found = lens(e, top=3)
    assert len(found.places) == len(hand.layers) == 3
    for readings, layer in zip(found.readings, hand.layers, strict=True):
        p = softmax(hand.read_out(layer))
        for row, reading in enumerate(readings):
            own = p[row, e.write_ids[row]]
            close(reading.probability, own)
            assert reading.rank == 1 + (p[row] > own).sum()
            best = np.argsort(-p[row])[:3]
            assert [token for token, _ in reading.top] == [e.token(int(id)) for id in best]
            close([probability for _, probability in reading.top], p[row, best])
    last = [reading.probability for reading in found.readings[-1]]
    close(last, e.chosen.exp())
    for row in range(len(e.writes)):
        ours = alternatives(e, row, 3)
        assert [one.token for one in ours] == [token for token, _ in found.readings[-1][row].top]
        close([one.probability for one in ours], [p for _, p in found.readings[-1][row].top])
        close([one.logit for one in ours], sorted(logits[row])[:-4:-1])


def test_contributions_are_the_parts_carried_through_every_norm_and_add_up(e: Explanation) -> None:
    hand, logits = by_hand(e)
    table = hand.w["embedding.weight"]
    for row, id in enumerate(e.write_ids):
        found = contributions(e, row)
        assert {part.name for part in found.parts} == set(hand.parts)
        for part in found.parts:
            close(part.logit, hand.parts[part.name][row] @ table[id])
        close(found.logit, logits[row, id])
        close(sum(part.logit for part in found.parts), found.logit)
    ahead = contributions(e, 2, token=5, against=7)
    close(ahead.logit, logits[2, 5] - logits[2, 7])
    close(
        [part.logit for part in ahead.parts], [hand.parts[part.name][2] @ (table[5] - table[7]) for part in ahead.parts]
    )


def test_rollout_follows_attention_to_the_tokens_that_entered(e: Explanation) -> None:
    hand, _ = by_hand(e)
    mean = {name: table.mean(0) for name, table in hand.weights.items()}

    def mixed(name: str) -> np.ndarray:
        return (mean[name] + np.eye(len(mean[name]))) / 2

    encoder = mixed("encoder.1.self") @ mixed("encoder.0.self")
    close(rollout(e, "encoder"), encoder)
    close(rollout(e, "decoder"), mixed("decoder.1.masked") @ mixed("decoder.0.masked"))
    sources, rows = len(e.sources), len(e.reads)
    # All tokens of both sides as one sequence, on which every sub-layer is one square table.
    whole = np.eye(sources + rows)
    whole[:sources, :sources] = encoder
    for layer in (0, 1):
        masked, cross = np.eye(sources + rows), np.eye(sources + rows)
        masked[sources:, sources:] = mixed(f"decoder.{layer}.masked")
        cross[sources:, sources:] *= 0.5
        cross[sources:, :sources] = mean[f"decoder.{layer}.cross"] / 2
        whole = cross @ masked @ whole
    close(rollout(e, "both"), whole[sources:])
    for stack in ("encoder", "decoder", "both"):
        close(rollout(e, stack).sum(-1), 1)


def test_ablations_are_what_the_arithmetic_without_the_head_gives(e: Explanation) -> None:
    for name in ("encoder.1.self", "decoder.0.cross"):
        found = ablations(e, name)
        for head in (0, 1):
            _, logits = by_hand(e, off=(name, head))
            without_it = np.log(softmax(logits))[range(len(e.writes)), list(e.write_ids)]
            close(found[head], e.chosen.numpy() - without_it)


def test_similarities_at_any_place_by_any_measure(e: Explanation) -> None:
    hand, _ = by_hand(e)
    x = hand.memory
    close(similarities(e, "encoder.vectors", "dot"), x @ x.T)
    close(similarities(e, "encoder.vectors", "scaled"), x @ x.T / 4)
    sizes = np.sqrt((x**2).sum(1))
    close(similarities(e, "encoder.vectors"), x @ x.T / sizes[:, None] / sizes)
    q = e.trace["decoder.1.cross.queries", 0].flatten(1)
    close(similarities(e, "decoder.1.cross.queries", "dot"), q @ q.T)
    with pytest.raises(UsageError, match=r"no vector of each token: did you mean \"encoder.vectors\""):
        similarities(e, "encoder.vector")
    with pytest.raises(UsageError, match="no vector of each token"):
        similarities(e, "encoder.0.self.weights")


VARIANTS = {
    "rms": replace(SMALL, norm="rms", norm_first=True, bias="nowhere", activation="swiglu"),
    "post rms": replace(SMALL, norm="rms"),
    "untied": replace(SMALL, tie="none", output_bias=True, positions="learned", embedding_norm=True, segments=2),
    "language": replace(LANGUAGE, norm_first=True, positions="rotary", key_value_heads=1, scale_embeddings=False),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_contributions_add_up_in_models_of_every_form(variant: str) -> None:
    model = made(VARIANTS[variant])
    e = model.explain("We are", target="friends")
    for row in range(len(e.reads)):
        found = contributions(e, row)
        assert found.logit == pytest.approx(float(e.trace["logits", 0][row, e.write_ids[row]]))
        assert sum(part.logit for part in found.parts) == pytest.approx(found.logit, rel=1e-4, abs=1e-4)
        assert all(part.place != "interventions" for part in found.parts)
    close([reading.probability for reading in lens(e).readings[-1]], e.chosen.exp())


def test_contributions_add_up_under_interventions_too(model: Model) -> None:
    e = model.explain(SOURCE, target=TARGET, interventions=[without("decoder.1.cross", 1)])
    found = contributions(e, 2)
    assert [part.logit for part in found.parts if part.name == "decoder.1.cross:1"] == [0.0]
    assert all(part.place != "interventions" for part in found.parts)
    put_in = torch.full((16,), 0.5)
    e = model.explain(SOURCE, target=TARGET, interventions=[patching("decoder.1.cross.projected", put_in)])
    found = contributions(e, 2)
    assert found.parts[-1].place == "interventions"
    assert sum(part.logit for part in found.parts) == pytest.approx(found.logit, rel=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("config", [SMALL, LANGUAGE], ids=["translator", "language model"])
def test_what_is_explained_is_what_was_decoded(config: ModelConfig, beam: int) -> None:
    model = made(config)
    for longest in (3, 12):
        e = model.explain(SOURCE, beam=beam, longest=longest)
        assert e.hypothesis is not None
        assert e.write_ids[e.first :][: len(e.hypothesis.tokens)] == e.hypothesis.tokens
        close(e.chosen[e.first :], e.hypothesis.logprobs)
        assert e.read_ids[1:] == e.write_ids[:-1]
        assert len(e.reads) == len(e.writes) == len(e.read_ids) == len(e.trace["logits", 0])
        if config is SMALL:
            assert [e.output] == model.translate([SOURCE], beam=beam, longest=longest)
            assert e.sources == ("We", "like", "tea", ",", "brother", "!", "<end>")
        else:
            assert [e.output] == model.generate(SOURCE, beam=beam, tokens=longest)
            assert e.reads[:3] == ("<start>", "We", "like") and e.sources == ()


def test_a_beam_at_a_step_holds_the_best_of_that_moment() -> None:
    model = made(SMALL)
    search = Search(beam=4, length_penalty=0.0)
    first = beam_at(model, SOURCE, 1, search=search)
    e = model.explain(SOURCE, target="")
    banned = {model.tokenizers[1].pad, model.tokenizers[1].start}
    best = [int(id) for id in e.logprobs[0].argsort(descending=True) if int(id) not in banned][:4]
    assert [h.tokens[0] if h.tokens else model.tokenizers[1].end for h in first] == best
    close([h.score for h in first], e.logprobs[0, best])
    third = beam_at(model, SOURCE, 3, search=search)
    assert len(third) == 4 and all(h.finished or len(h.tokens) == 3 for h in third)
    close([h.score for h in third], [sum(h.logprobs) for h in third])
    head = without("decoder.1.cross", 0)
    e = model.explain(SOURCE, target="", interventions=[head])
    close(max(h.score for h in beam_at(model, SOURCE, 1, interventions=[head], search=search)),
          e.logprobs[0][[id for id in range(e.logprobs.shape[1]) if id not in banned]].max())  # fmt: skip
    with pytest.raises(UsageError, match="counted from 1"):
        beam_at(model, SOURCE, 0, search=search)


def test_explaining_under_an_intervention_is_decoding_under_it(model: Model) -> None:
    cut = [without("decoder.0.cross", 0), scaling("decoder.1.feed_forward.output", 0.0, Where(positions=[1]))]
    e = model.explain(SOURCE, longest=8, interventions=cut)
    with model.without("decoder.0.cross", 0) as less:
        assert less.explain(SOURCE, longest=8, interventions=cut[1:]).write_ids == e.write_ids
    assert e.hypothesis is not None
    close(e.chosen, e.hypothesis.logprobs)
    plain = model.explain(SOURCE, longest=8)
    close(
        again(plain, *cut).logprobs,
        model.explain(SOURCE, target=plain.output, interventions=cut).logprobs[: len(plain.reads)],
    )
    close(again(e).trace["logits"][0], plain.trace["logits"][0])  # and afterwards the model is as it was


def test_changes_tell_what_became_of_every_token(model: Model) -> None:
    before = model.explain(SOURCE, target="हम दोस्त हैं!")
    cut = without("decoder.1.cross", 1)
    fixed = changes(before, again(before, cut))
    assert [(one.before, one.after) for one in fixed] == [(w, w) for w in before.writes]
    close([one.shift for one in fixed], again(before, cut).chosen.exp() - before.chosen.exp())
    other = changes(before, model.explain(SOURCE, target="हम मेरे दोस्त हैं", interventions=[cut]))
    assert [(one.before, one.after) for one in other] == [
        ("हम", "हम"), (None, "मेरे"), ("दोस्त", "दोस्त"), ("हैं", "हैं"), ("!", None), ("<end>", "<end>")
    ]  # fmt: skip
    # Both have read "<start>" and "हम" when they write their second token; from then on they read different words.
    assert [one.p_kept is not None for one in other] == [True, False, True, False, False, False]
    close([one.p_before for one in other if one.before], before.chosen.exp())


def test_a_word_parts_from_itself_above_the_embedding(model: Model) -> None:
    sentences = ["We like tea.", "tea, brother!", "We are friends"]
    found = senses(model, "tea", sentences)
    assert found.sentences == tuple(sentences[:2])
    assert found.places[:2] == ("encoder.embedded", "encoder.input") and found.vectors.shape[1:] == (2, 16)
    id = model.tokenizers[0].encode("tea")[0]
    close(found.static, model.network.embedding.weight[id].detach() * 4)
    close(found.cosines[0], np.ones((2, 2)))
    close(found.to_static[0], [1, 1])
    e = model.explain(sentences[0], target="")
    close(found.vectors[-1, 0], e.trace["encoder.vectors", 0][2])
    a, b = found.vectors[-1].double().numpy()
    close(found.cosines[-1, 0, 1], a @ b / np.sqrt((a @ a) * (b @ b)))
    with pytest.raises(UserError, match="no word of the 3 sentences"):
        senses(model, "coffee", sentences)
    speaker = made(LANGUAGE)
    close(senses(speaker, "tea", sentences).vectors[0, 1], speaker.network.embedding.weight[id].detach() * 4)


def test_words_of_an_explanation_are_aligned_as_the_pair_would_be() -> None:
    model = made(SMALL, TextConfig())  # pieces of words, which add up
    e = model.explain(SOURCE, target=TARGET)
    for views in ((View(-1),), (View(0, 1),)):
        found = word_alignment(e, views)
        assert [found.links] == align(model, [(SOURCE, TARGET)], layer=views[0].layer, head=views[0].head)
        assert found.sources == ("We", "like", "tea", ",", "brother", "!")
        assert found.weights.shape == (6, 6) and bool((found.weights.sum(-1) <= 1.0001).all())
    two = word_alignment(e, (View(0, 1), View(1, 0))).weights
    close(two, (word_alignment(e, (View(0, 1),)).weights + word_alignment(e, (View(1, 0),)).weights) / 2)


def test_the_best_heads_are_found_on_gold_alignments() -> None:
    model = made(SMALL)
    pairs = (("I like tea.", "मुझे चाय पसंद है।"), (SOURCE, TARGET), ("my brother", "मेरे भाई"))
    links = align(model, pairs, layer=0, head=1)
    gold = GoldPairs(pairs, tuple(Gold(frozenset(one), frozenset(one)) for one in links), marks_apart)
    assert best_heads(model, gold) == ((View(0, 1),), 0.0)
    assert alignment_scores(align(model, pairs), gold.golds).aer > 0


def test_what_cannot_be_explained_says_why() -> None:
    with pytest.raises(UserError, match="writes nothing"):
        made(replace(SMALL, shape="encoder")).explain(SOURCE)
    with pytest.raises(UserError, match="window is 64"):
        made(LANGUAGE).explain("We " * 70)
    e = made(LANGUAGE).explain("We", longest=3)
    with pytest.raises(UsageError, match="row 9 of an output of"):
        alternatives(e, 9)
    with pytest.raises(UsageError, match="no encoder"):
        rollout(e, "both")
    with pytest.raises(UserError, match="only an encoder-decoder has cross-attention"):
        word_alignment(e)
