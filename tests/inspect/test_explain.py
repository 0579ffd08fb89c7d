"""Explanations describe what was decoded, and every analysis equals a NumPy computation from the raw weights."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.config import ModelConfig, TextConfig
from seq2see.data.word_spans import wordpunct_spans
from seq2see.decode.search import Search
from seq2see.errors import UsageError, UserError
from seq2see.evaluate.alignment import GoldAlignment, GoldPairs, alignment_scores, best_heads
from seq2see.inspect.alignment import LayerHead, align, word_alignment
from seq2see.inspect.attention_flow import (
    attention_entropy,
    attention_names,
    attention_rollout,
    attention_weights,
    head_ablation,
)
from seq2see.inspect.comparison import compare
from seq2see.inspect.explain import Explanation, beam_at_step, rerun
from seq2see.inspect.interventions import Intervention, Selection, ablate_head, intervene, scale
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.inspect.token_similarity import contextual_embeddings, token_similarity
from tests.models import tiny_model
from tests.numpy_transformer import NumpyTransformer, softmax

TEXTS = ["I like tea.", "मुझे चाय पसंद है।", "We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"]
SOURCE, TARGET = "We like tea, brother!", "हम दोस्त हैं, भाई!"
SMALL = ModelConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.0)
WORDS = TextConfig(tokenizer="word")
LANGUAGE_MODEL = replace(SMALL, shape="decoder", max_positions=64)


def perturbed_model(config: ModelConfig, text: TextConfig = WORDS) -> Model:
    """Returns a model with no parameter left at its initial zero or one."""
    model = tiny_model(TEXTS, config, text)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module", params=[True, False], ids=["pre-norm", "post-norm"])
def model(request: pytest.FixtureRequest) -> Model:
    return perturbed_model(replace(SMALL, norm_first=request.param))


@pytest.fixture(scope="module")
def e(model: Model) -> Explanation:
    return model.explain(SOURCE, target=TARGET)


def run_numpy(e: Explanation, ablated: tuple[str, int] | None = None) -> tuple[NumpyTransformer, np.ndarray]:
    weights = {name: value.double().numpy() for name, value in e.model.network.state_dict().items()}
    reference = NumpyTransformer(e.model.config.model, weights, ablated)
    return reference, reference.run(list(e.source_ids), list(e.decoder_input_ids))


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


def test_logits_attention_weights_and_entropy_equal_the_numpy_reference(e: Explanation) -> None:
    reference, logits = run_numpy(e)
    close(e.trace["logits", 0], logits)
    close(e.target_logprobs, np.log(softmax(logits))[range(len(e.target_tokens)), list(e.target_ids)])
    assert attention_names(e) == list(reference.weights) == [
        "encoder.0.self", "encoder.1.self", "decoder.0.masked", "decoder.0.cross", "decoder.1.masked", "decoder.1.cross"
    ]  # fmt: skip
    for name, table in reference.weights.items():
        close(attention_weights(e, name), table)
        safe = np.where(table > 0, table, 1)
        close(attention_entropy(e)[name], -(safe * np.log(safe)).sum(-1).mean(-1))


def test_logit_lens_decodes_every_layer_like_the_last(e: Explanation) -> None:
    reference, logits = run_numpy(e)
    found = logit_lens(e, top=3)
    assert len(found.layers) == len(reference.layers) == 3
    for readings, layer in zip(found.readings, reference.layers, strict=True):
        p = softmax(reference.read_out(layer))
        for row, reading in enumerate(readings):
            target = p[row, e.target_ids[row]]
            close(reading.probability, target)
            assert reading.rank == 1 + (p[row] > target).sum()
            best = np.argsort(-p[row])[:3]
            assert [token for token, _ in reading.top] == [e.token_label(int(id)) for id in best]
            close([probability for _, probability in reading.top], p[row, best])
    last = [reading.probability for reading in found.readings[-1]]
    close(last, e.target_logprobs.exp())
    for row in range(len(e.target_tokens)):
        candidates = alternatives(e, row, 3)
        assert [one.token for one in candidates] == [token for token, _ in found.readings[-1][row].top]
        close([one.probability for one in candidates], [p for _, p in found.readings[-1][row].top])
        close([one.logit for one in candidates], sorted(logits[row])[:-4:-1])


def test_logit_attribution_carries_components_through_every_norm_and_sums_to_the_logit(e: Explanation) -> None:
    reference, logits = run_numpy(e)
    table = reference.w["embedding.weight"]
    for row, id in enumerate(e.target_ids):
        found = logit_attribution(e, row)
        assert {one.name for one in found.contributions} == set(reference.components)
        for one in found.contributions:
            close(one.logit, reference.components[one.name][row] @ table[id])
        close(found.logit, logits[row, id])
        close(sum(one.logit for one in found.contributions), found.logit)
    difference = logit_attribution(e, 2, token=5, against=7)
    close(difference.logit, logits[2, 5] - logits[2, 7])
    close(
        [one.logit for one in difference.contributions],
        [reference.components[one.name][2] @ (table[5] - table[7]) for one in difference.contributions],
    )


def test_attention_rollout_equals_the_product_of_all_layers(e: Explanation) -> None:
    reference, _ = run_numpy(e)
    mean = {name: table.mean(0) for name, table in reference.weights.items()}

    def mixed(name: str) -> np.ndarray:
        return (mean[name] + np.eye(len(mean[name]))) / 2

    encoder = mixed("encoder.1.self") @ mixed("encoder.0.self")
    close(attention_rollout(e, "encoder"), encoder)
    close(attention_rollout(e, "decoder"), mixed("decoder.1.masked") @ mixed("decoder.0.masked"))
    sources, rows = len(e.source_tokens), len(e.decoder_input_tokens)
    # All tokens of both sides as one sequence, on which every sub-layer is a square matrix.
    whole = np.eye(sources + rows)
    whole[:sources, :sources] = encoder
    for layer in (0, 1):
        masked, cross = np.eye(sources + rows), np.eye(sources + rows)
        masked[sources:, sources:] = mixed(f"decoder.{layer}.masked")
        cross[sources:, sources:] *= 0.5
        cross[sources:, :sources] = mean[f"decoder.{layer}.cross"] / 2
        whole = cross @ masked @ whole
    close(attention_rollout(e, "both"), whole[sources:])
    for stack in ("encoder", "decoder", "both"):
        close(attention_rollout(e, stack).sum(-1), 1)


def test_head_ablation_equals_the_numpy_reference_without_the_head(e: Explanation) -> None:
    for name in ("encoder.1.self", "decoder.0.cross"):
        found = head_ablation(e, name)
        for head in (0, 1):
            _, logits = run_numpy(e, ablated=(name, head))
            ablated = np.log(softmax(logits))[range(len(e.target_tokens)), list(e.target_ids)]
            close(found[head], e.target_logprobs.numpy() - ablated)


def test_token_similarity_at_any_tap_with_any_measure(e: Explanation) -> None:
    reference, _ = run_numpy(e)
    x = reference.memory
    close(token_similarity(e, "encoder.vectors", "dot"), x @ x.T)
    close(token_similarity(e, "encoder.vectors", "scaled"), x @ x.T / 4)
    norms = np.sqrt((x**2).sum(1))
    close(token_similarity(e, "encoder.vectors"), x @ x.T / norms[:, None] / norms)
    q = e.trace["decoder.1.cross.queries", 0].flatten(1)
    close(token_similarity(e, "decoder.1.cross.queries", "dot"), q @ q.T)
    with pytest.raises(UsageError, match=r"does not have one vector per token: did you mean \"encoder.vectors\""):
        token_similarity(e, "encoder.vector")
    with pytest.raises(UsageError, match="does not have one vector per token"):
        token_similarity(e, "encoder.0.self.weights")


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("config", [SMALL, LANGUAGE_MODEL], ids=["translator", "language model"])
def test_explanation_matches_the_decoded_output(config: ModelConfig, beam: int) -> None:
    model = perturbed_model(config)
    for limit in (3, 12):
        e = model.explain(SOURCE, beam=beam, max_new_tokens=limit)
        assert e.hypothesis is not None
        assert e.target_ids[e.output_start :][: len(e.hypothesis.tokens)] == e.hypothesis.tokens
        close(e.target_logprobs[e.output_start :], e.hypothesis.logprobs)
        assert e.decoder_input_ids[1:] == e.target_ids[:-1]
        assert (
            len(e.decoder_input_tokens) == len(e.target_tokens) == len(e.decoder_input_ids) == len(e.trace["logits", 0])
        )
        if config is SMALL:
            assert [e.output] == model.translate([SOURCE], beam=beam, max_new_tokens=limit)
            assert e.source_tokens == ("We", "like", "tea", ",", "brother", "!", "<end>")
        else:
            assert [e.output] == model.generate(SOURCE, beam=beam, max_new_tokens=limit)
            assert e.decoder_input_tokens[:3] == ("<start>", "We", "like") and e.source_tokens == ()


def test_beam_at_step_returns_the_best_hypotheses_of_that_step() -> None:
    model = perturbed_model(SMALL)
    search = Search(beam=4, length_penalty=0.0)
    first = beam_at_step(model, SOURCE, 1, search=search)
    e = model.explain(SOURCE, target="")
    banned = {model.tokenizers[1].pad, model.tokenizers[1].start}
    best = [int(id) for id in e.logprobs[0].argsort(descending=True) if int(id) not in banned][:4]
    assert [h.tokens[0] if h.tokens else model.tokenizers[1].end for h in first] == best
    close([h.score for h in first], e.logprobs[0, best])
    third = beam_at_step(model, SOURCE, 3, search=search)
    assert len(third) == 4 and all(h.finished or len(h.tokens) == 3 for h in third)
    close([h.score for h in third], [sum(h.logprobs) for h in third])
    head = ablate_head("decoder.1.cross", 0)
    e = model.explain(SOURCE, target="", interventions=[head])
    close(
        max(h.score for h in beam_at_step(model, SOURCE, 1, interventions=[head], search=search)),
        e.logprobs[0][[id for id in range(e.logprobs.shape[1]) if id not in banned]].max(),
    )
    with pytest.raises(UsageError, match="numbered from 1"):
        beam_at_step(model, SOURCE, 0, search=search)


def test_explaining_under_interventions_equals_decoding_under_them(model: Model) -> None:
    interventions = [
        ablate_head("decoder.0.cross", 0),
        scale("decoder.1.feed_forward.output", 0.0, Selection(positions=[1])),
    ]
    e = model.explain(SOURCE, max_new_tokens=8, interventions=interventions)
    with model.ablate_head("decoder.0.cross", 0) as ablated:
        assert ablated.explain(SOURCE, max_new_tokens=8, interventions=interventions[1:]).target_ids == e.target_ids
    assert e.hypothesis is not None
    close(e.target_logprobs, e.hypothesis.logprobs)
    plain = model.explain(SOURCE, max_new_tokens=8)
    close(
        rerun(plain, *interventions).logprobs,
        model.explain(SOURCE, target=plain.output, interventions=interventions).logprobs[
            : len(plain.decoder_input_tokens)
        ],
    )
    close(rerun(e).trace["logits", 0][0], plain.trace["logits", 0][0])  # the interventions are gone


def test_compare_aligns_tokens_and_probabilities(model: Model) -> None:
    before = model.explain(SOURCE, target="हम दोस्त हैं!")
    ablation = ablate_head("decoder.1.cross", 1)
    fixed = compare(before, rerun(before, ablation))
    assert [(one.before, one.after) for one in fixed] == [(w, w) for w in before.target_tokens]
    close([one.shift for one in fixed], rerun(before, ablation).target_logprobs.exp() - before.target_logprobs.exp())
    other = compare(before, model.explain(SOURCE, target="हम मेरे दोस्त हैं", interventions=[ablation]))
    assert [(one.before, one.after) for one in other] == [
        ("हम", "हम"),
        (None, "मेरे"),
        ("दोस्त", "दोस्त"),
        ("हैं", "हैं"),
        ("!", None),
        ("<end>", "<end>"),
    ]
    # Both have seen "<start>" and "हम" when they predict their second token; after that the contexts differ.
    assert [one.p_same_token is not None for one in other] == [True, False, True, False, False, False]
    close([one.p_before for one in other if one.before], before.target_logprobs.exp())


def test_contextual_embeddings_differ_above_the_embedding(model: Model) -> None:
    sentences = ["We like tea.", "tea, brother!", "We are friends"]
    found = contextual_embeddings(model, "tea", sentences)
    assert found.sentences == tuple(sentences[:2])
    assert found.layers[:2] == ("encoder.embedded", "encoder.input") and found.vectors.shape[1:] == (2, 16)
    id = model.tokenizers[0].encode("tea")[0]
    close(found.static_embedding, model.network.embedding.weight[id].detach() * 4)
    close(found.cosines[0], np.ones((2, 2)))
    close(found.cosines_to_static[0], [1, 1])
    e = model.explain(sentences[0], target="")
    close(found.vectors[-1, 0], e.trace["encoder.vectors", 0][2])
    a, b = found.vectors[-1].double().numpy()
    close(found.cosines[-1, 0, 1], a @ b / np.sqrt((a @ a) * (b @ b)))
    with pytest.raises(UserError, match="does not occur in the 3 given sentences"):
        contextual_embeddings(model, "coffee", sentences)
    decoder = perturbed_model(LANGUAGE_MODEL)
    found = contextual_embeddings(decoder, "tea", sentences)
    close(found.vectors[0, 1], decoder.network.embedding.weight[id].detach() * 4)


def test_word_alignment_of_an_explanation_equals_that_of_the_pair() -> None:
    model = perturbed_model(SMALL, TextConfig())  # words of several tokens
    e = model.explain(SOURCE, target=TARGET)
    for heads in ((LayerHead(-1),), (LayerHead(0, 1),)):
        found = word_alignment(e, heads)
        assert [found.links] == align(model, [(SOURCE, TARGET)], layer=heads[0].layer, head=heads[0].head)
        assert found.source_words == ("We", "like", "tea", ",", "brother", "!")
        assert found.weights.shape == (6, 6) and bool((found.weights.sum(-1) <= 1.0001).all())
    mean = word_alignment(e, (LayerHead(0, 1), LayerHead(1, 0))).weights
    close(mean, (word_alignment(e, (LayerHead(0, 1),)).weights + word_alignment(e, (LayerHead(1, 0),)).weights) / 2)


def test_best_heads_are_found_on_gold_alignments() -> None:
    model = perturbed_model(SMALL)
    pairs = (("I like tea.", "मुझे चाय पसंद है।"), (SOURCE, TARGET), ("my brother", "मेरे भाई"))
    links = align(model, pairs, layer=0, head=1)
    gold = GoldPairs(pairs, tuple(GoldAlignment(frozenset(one), frozenset(one)) for one in links), wordpunct_spans)
    assert best_heads(model, gold) == ((LayerHead(0, 1),), 0.0)
    assert alignment_scores(align(model, pairs), gold.golds).aer > 0


def test_errors_say_why_a_model_cannot_be_explained() -> None:
    with pytest.raises(UserError, match=r"tokens to explain, but the model has 1,024 positions"):
        perturbed_model(replace(SMALL, shape="encoder")).explain("We " * 2000)
    with pytest.raises(UserError, match="window is 64"):
        perturbed_model(LANGUAGE_MODEL).explain("We " * 70)
    e = perturbed_model(LANGUAGE_MODEL).explain("We", max_new_tokens=3)
    with pytest.raises(UsageError, match="row 9 is out of range"):
        alternatives(e, 9)
    with pytest.raises(UsageError, match="no encoder"):
        attention_rollout(e, "both")
    with pytest.raises(UserError, match="only an encoder-decoder has cross-attention"):
        word_alignment(e)


def test_threads_share_a_model_without_sharing_hooks() -> None:
    """Explanations and translations, with and without interventions, equal those of a single thread."""
    model = perturbed_model(SMALL)
    texts = TEXTS[::2]
    changes: list[list[Intervention]] = [
        [],
        [ablate_head("decoder.1.cross", 0)],
        [scale("decoder.*.masked.heads", 0.0)],
    ]

    def run(number: int) -> dict[str, Tensor]:
        text, interventions = texts[number % 2], changes[number % 3]
        e = model.explain(text, target=TARGET, interventions=interventions)
        values = {name: e.trace[name, 0] for name in e.trace.names("*.heads")} | {"logprobs": e.target_logprobs}
        with intervene(model.network, *interventions):
            values["score"] = torch.tensor(model.hypotheses([text], beam=2)[0][0].score)  # also equal for a tie
        with model.ablate_head("encoder.0.self", 1) as ablated:
            values["ablated"] = rerun(replace(e, model=ablated)).target_logprobs
        return values

    expected = [run(number) for number in range(6)]
    assert not torch.equal(expected[0]["logprobs"], expected[4]["logprobs"])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(run, range(48)))
    finally:
        sys.setswitchinterval(interval)
    for number, values in enumerate(results):
        assert values.keys() == expected[number % 6].keys()
        torch.testing.assert_close(values, expected[number % 6])


@pytest.mark.parametrize(
    ("intervention", "message"),
    [
        (
            ablate_head("decoder.1.cross", 2),
            r"decoder\.1\.cross\.heads has no head 2: its heads are numbered from 0 to 1",
        ),
        (scale("logits", 2.0, Selection(head=0)), "logits has no heads"),
        (scale("decoder.0.feed_forward.post_activation", 0.0, Selection(unit=24)), "no unit 24: .* from 0 to 23"),
        (scale("encoder.tokens", 2.0), "token ids, which cannot be changed"),
        (scale("decoder.9.*", 2.0), r'no tap of this model matches "decoder\.9\.\*"'),
    ],
)
def test_an_intervention_without_a_place_is_refused_before_the_model_runs(
    e: Explanation, intervention: Intervention, message: str
) -> None:
    with pytest.raises(UserError, match=message), intervene(e.model.network, intervention):
        raise AssertionError("not refused")
