"""The models of 2014 and 2015: they compute what a plain loop over one sentence does, and everything works on them too."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.decode import engine, session
from seq2see.decode.engine import search, translations
from seq2see.decode.int8 import quantised
from seq2see.decode.search import Search
from seq2see.decode.session import Manner, Request, Vocabulary
from seq2see.errors import UserError
from seq2see.inspect.alignment import align
from seq2see.inspect.attention_flow import ablations, rollout
from seq2see.inspect.interventions import (
    Intervention,
    Where,
    attending,
    attending_uniformly,
    intervene,
    scaling,
    without,
)
from seq2see.inspect.logit_attribution import contributions
from seq2see.inspect.logit_lens import lens
from seq2see.inspect.token_similarity import senses
from seq2see.inspect.trace import Trace, tap_names, trace
from seq2see.layout import Layout, Packed
from seq2see.model.recurrent import Recurrent
from seq2see.model.summary import structure
from seq2see.presets import preset
from seq2see.train import run
from seq2see.train.estimates import fewest_micro_batches
from tests.corpora import SMALL, WORDS, phrases

START, END = 1, 2
WORDS_OF = Vocabulary(START, END)
RNN = ModelConfig(
    kind="rnn", vocabulary=40, width=12, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.0, output_bias=True
)
CONFIGS = {
    "2014": RNN,
    "2015": replace(RNN, kind="rnn-attention", encoder_layers=1, decoder_layers=1),
    "2015, more layers": replace(RNN, kind="rnn-attention", decoder_layers=3, tie="none"),
}
every_kind = pytest.mark.parametrize("name", CONFIGS)


def model(name: str, dtype: torch.dtype = torch.float64) -> Recurrent:
    """Random weights large enough to matter, the end token favoured so that outputs differ in length."""
    torch.manual_seed(0)
    made = Recurrent(CONFIGS[name]).to(dtype).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
        assert made.unembedding_bias is not None
        made.unembedding_bias[END] += 0.5
    return made


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (count,), generator=random).tolist()
    return [[*torch.randint(3, 40, (n,), generator=random).tolist(), END] for n in lengths]


# A plain loop, from the raw weights

Weights = dict[str, Tensor]
State = tuple[Tensor, Tensor]


def lstm_step(w: Weights, x: Tensor, state: State, suffix: str = "") -> State:
    h, c = state
    gates = w[f"weight_ih{suffix}"] @ x + w[f"bias_ih{suffix}"] + w[f"weight_hh{suffix}"] @ h + w[f"bias_hh{suffix}"]
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def under(w: Weights, place: str) -> Weights:
    return {name.removeprefix(place + "."): value for name, value in w.items() if name.startswith(place + ".")}


def zeros(size: int) -> State:
    return torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)


def by_hand(m: Recurrent, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """The logits of one pair."""
    w, config = {name: p.detach() for name, p in m.named_parameters()}, m.config
    scale = config.width**0.5
    own = w.get("source_embedding.weight", w["embedding.weight"])
    xs, ys = [own[t] * scale for t in source], [w["embedding.weight"][t] * scale for t in target]
    unembedding = w.get("unembedding.weight", w["embedding.weight"])
    decoder = under(w, "decoder")
    vectors = []
    if config.kind == "rnn":
        states: list[State] = []
        order = xs[::-1]
        for layer in range(config.encoder_layers):
            state, shown = zeros(config.width), []
            for x in order:
                state = lstm_step(under(w, f"encoder.layers.{layer}"), x, state, "_l0")
                shown.append(state[0])
            states.append(state)
            order = shown
        for y in ys:
            x = y
            for layer in range(config.decoder_layers):
                states[layer] = lstm_step(under(decoder, f"layers.{layer}"), x, states[layer], "_l0")
                x = states[layer][0]
            vectors.append(x)
    else:
        for layer in range(config.encoder_layers):
            lstm, there, back = under(w, f"encoder.layers.{layer}"), [], []
            state = zeros(config.width // 2)
            for x in xs:
                state = lstm_step(lstm, x, state, "_l0")
                there.append(state[0])
            state = zeros(config.width // 2)
            for x in xs[::-1]:
                state = lstm_step(lstm, x, state, "_l0_reverse")
                back.append(state[0])
            xs = [torch.cat(pair) for pair in zip(there, back[::-1], strict=True)]
        begin = (decoder["begin.weight"] @ xs[0][config.width // 2 :] + decoder["begin.bias"]).tanh()
        states = [(h, torch.zeros_like(h)) for h in begin.chunk(config.decoder_layers)]
        for y in ys:
            query = decoder["attention.queries.weight"] @ states[0][0] + decoder["attention.queries.bias"]
            fits = [decoder["attention.fit.weight"] @ (query + decoder["attention.keys.weight"] @ h).tanh() for h in xs]
            weights = torch.cat(fits).softmax(0)
            found = sum(weight * h for weight, h in zip(weights, xs, strict=True))
            assert isinstance(found, Tensor)
            states[0] = lstm_step(under(decoder, "cell"), torch.cat([y, found]), states[0])
            x = states[0][0]
            for layer in range(1, config.decoder_layers):
                states[layer] = lstm_step(under(decoder, f"layers.{layer - 1}"), x, states[layer], "_l0")
                x = states[layer][0]
            vectors.append((decoder["combine.weight"] @ torch.cat([x, found, y]) + decoder["combine.bias"]).tanh())
    return torch.stack(vectors) @ unembedding.T + w["unembedding_bias"]


@every_kind
def test_a_batch_gives_what_a_plain_loop_gives_for_each_sentence(name: str) -> None:
    m, pairs = model(name), list(zip(sentences(7), sentences(7, seed=1), strict=True))
    logits = m(Packed.of([s for s, _ in pairs]), Packed.of([t for _, t in pairs]))
    torch.testing.assert_close(logits, torch.cat([by_hand(m, *pair) for pair in pairs]), rtol=0, atol=1e-12)


@every_kind
def test_empty_sequences_and_a_longest_rounded_up_change_nothing(name: str) -> None:
    """Batches of fixed size, as a GPU likes them, have both."""
    m, (source, target) = model(name), sentences(2)
    alone = m(Packed.of([source]), Packed.of([target]))
    filled = [Packed(torch.tensor(tokens), Layout.of([0, len(tokens), 0], longest=16)) for tokens in (source, target)]
    together = m(*filled)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    together.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in m.parameters())


@every_kind
def test_every_weight_gets_a_gradient(name: str) -> None:
    m = model(name).train()
    m(Packed.of(sentences(4)), Packed.of(sentences(4, seed=1))).square().mean().backward()
    assert [n for n, p in m.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


# Decoding


@torch.no_grad()
def uncached(m: Recurrent, source: Sequence[int], limit: int) -> list[int]:
    """Greedy, with a whole pass for every token."""
    written = [START]
    while len(written) <= limit:
        logits = m(Packed.of([source]), Packed.of([written]))[-1]
        written.append(int(logits.argmax()))
        if written[-1] == END:
            break
    return [token for token in written[1:] if token != END]


@every_kind
def test_greedy_decoding_in_any_batch_is_what_whole_passes_write(name: str) -> None:
    m, sources = model(name), sentences(13)
    found = translations(m, sources, WORDS_OF)
    expected = [uncached(m, source, int(len(source) * 1.5) + 10) for source in sources]
    assert [list(best.tokens) for best, *_ in found] == expected
    assert len({len(tokens) for tokens in expected}) > 2
    # Few at a time: rows leave and are filled again.
    assert [list(best.tokens) for best, *_ in translations(m, sources, WORDS_OF, budget=60)] == expected
    prefixes = [tokens[: i % 4] for i, tokens in enumerate(expected)]
    begun = translations(m, sources, WORDS_OF, Search(longest=12), prefixes=prefixes)
    for prefix, (best, *_), tokens in zip(prefixes, begun, expected, strict=True):
        assert [*prefix, *best.tokens][: len(tokens)] == tokens[: len(prefix) + 12]


@every_kind
def test_a_beam_finds_the_scores_that_whole_passes_give(name: str) -> None:
    m, sources = model(name), sentences(6)
    for found in (translations(m, sources, WORDS_OF, Search(beam=3, nbest=3), budget=n) for n in (0, 100)):
        for source, hypotheses in zip(sources, found, strict=True):
            assert len(hypotheses) == 3
            for one in hypotheses:
                ids = [*one.tokens, END] if one.finished else list(one.tokens)
                logprobs = m(Packed.of([source]), Packed.of([[START, *ids[:-1]]])).log_softmax(-1)
                torch.testing.assert_close(
                    torch.tensor(one.logprobs), logprobs[range(len(ids)), ids].detach().float(), rtol=0, atol=1e-4
                )
    greedy = translations(m, sources, WORDS_OF)
    requests = [Request(i, source, [START], int(len(source) * 1.5) + 10) for i, source in enumerate(sources)]
    assert [one[0].tokens for one in search(m, requests, Search(beam=1), WORDS_OF)] == [one[0].tokens for one in greedy]


@every_kind
def test_samples_do_not_depend_on_the_batch(name: str) -> None:
    m, sources = model(name), sentences(5)
    options = Search(temperature=1.0, samples=2, seed=3)
    whole, few = (translations(m, sources, WORDS_OF, options, budget=n) for n in (0, 60))
    assert [[s.tokens for s in one] for one in whole] == [[s.tokens for s in one] for one in few]
    assert any(one[0].tokens != one[1].tokens for one in whole)


@every_kind
@pytest.mark.parametrize("beam", [1, 3])
def test_static_shapes_as_on_a_gpu_give_the_same(name: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    m, sources, options = model(name), sentences(13), Search(beam=beam)
    expected = translations(m, sources, WORDS_OF, options)
    for asking in (engine, session):
        monkeypatch.setattr(
            asking, "manner_on", lambda device: Manner(static=True, captured=False, rows=16, tokens=300, look=8)
        )
    found = translations(m, sources, WORDS_OF, options)
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]


# Looking and reaching in


@every_kind
def test_a_trace_has_every_tap_and_changes_nothing(name: str, tmp_path: Path) -> None:
    m, both = model(name), (Packed.of(sentences(3)), Packed.of(sentences(3, seed=1)))
    with trace(m) as t:
        seen = m(*both)
    assert torch.equal(seen, m(*both))
    assert t.names() == [*tap_names(m.config), "probabilities"]
    t.save(tmp_path / "t.safetensors")
    again = Trace.load(tmp_path / "t.safetensors")
    assert all(torch.equal(again[n], t[n]) for n in t.names() if n != "probabilities")
    if m.config.kind == "rnn-attention":
        weights, values = t["decoder.0.cross.weights", 1], t["decoder.0.cross.values", 1]
        torch.testing.assert_close(weights, t["decoder.0.cross.energies", 1].softmax(-1))
        assert weights.shape == (1, len(sentences(3, seed=1)[1]), len(sentences(3)[1]))
        torch.testing.assert_close(weights[0] @ values[:, 0], t["decoder.0.cross.heads", 1][:, 0])
        assert t.quantity("decoder.0.cross.values").formula.startswith("x itself")


@pytest.mark.parametrize("name", ["2015", "2015, more layers"])
@pytest.mark.parametrize("change", [
    attending_uniformly("decoder.0.cross"),
    attending("decoder.0.cross", torch.eye(6)[0], Where(sentence=1)),
    without("decoder.0.cross", 0, Where(positions=[1, 2])),
], ids=["looking everywhere", "one sentence at its first word", "nowhere at two positions"])  # fmt: skip
def test_what_reaches_into_a_pass_reaches_into_decoding_alike(name: str, change: Intervention) -> None:
    m = model(name)
    sources = [[5, 6, 7, 8, 9, END], [12, 11, 10, 9, 8, END]]
    with intervene(m, change), trace(m):
        found = [best for best, *_ in translations(m, sources, WORDS_OF, Search(longest=6, beam=2))]
        inputs = Packed.of(sources), Packed.of([[START, *best.tokens] for best in found])
        logprobs = m(*inputs).log_softmax(-1)
    assert (m(*inputs).log_softmax(-1) - logprobs).abs().max() > 1e-3
    for i, best in enumerate(found):
        ids = [*best.tokens, END][: len(best.logprobs)]
        told = logprobs[inputs[1].layout.slice(i)][range(len(ids)), ids]
        torch.testing.assert_close(torch.tensor(best.logprobs), told.detach().float(), rtol=0, atol=1e-4)


def test_the_decoder_of_2014_gets_nothing_but_the_state_at_the_first_word_which_is_read_last() -> None:
    m, both = model("2014"), (Packed.of([[5, 6, 7, END]]), Packed.of([[START, 4, 5]]))
    plain = m(*both)
    with intervene(m, scaling("encoder.1.states", 0.0, Where(positions=[1, 2, 3]))):
        assert torch.equal(m(*both), plain)
    with intervene(m, scaling("encoder.1.states", 0.0, Where(positions=[0]))):
        assert (m(*both) - plain).abs().max() > 1e-3


# The same commands


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recurrent")
    data = phrases(folder)
    less = [setting for setting in SMALL if not setting.startswith(("model.heads", "model.feed_forward"))]
    less += ["model.width=48", "text.tokenizer=word", "train.validate_every=200", "train.steps=400"]
    for name in ("rnn-2014", "rnn-2015"):
        run.train(data, folder / name, preset=name, settings=less)
    return {name: folder / name for name in ("rnn-2014", "rnn-2015")}


def ask(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", ["rnn-2014", "rnn-2015"])
def test_it_learns_phrases(name: str, trained: dict[str, Path]) -> None:
    m = load(trained[name])
    assert isinstance(m.network, Recurrent)
    assert m.scores["validation"]["bleu"] > 85
    assert m.translate(["red tea three"], beam=3) == ["लाल चाय तीन"]


def test_the_attention_of_2015_aligns_and_explains(trained: dict[str, Path], tmp_path: Path) -> None:
    m = load(trained["rnn-2015"])
    text, right = "I drink red water", "मैं पीता लाल पानी"
    assert align(m, [(text, right)]) == [[(0, 0), (1, 1), (2, 2), (3, 3)]]
    e = m.explain(text)
    assert e.output == right
    assert ablations(e, "decoder.0.cross").sum() > 1  # without its attention it would not have said so
    told = json.loads(ask("explain", text, "--model", str(trained["rnn-2015"]), "--json"))
    assert list(told["attention"]) == ["decoder.0.cross"]
    assert told["lens"] is None and told["alignment"]["links"] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    shown = ask("explain", text, "--model", str(trained["rnn-2015"]), "--step", "1", "--beam", "2")
    assert "I मैं" in shown and "decoder.0.cross, head 0" in shown
    given = {"src": text, "ref": right, "align": "0-0 1-1 2-2 3-3"}
    for name, line in given.items():
        (tmp_path / name).write_text(f"{line}\n")
    options = [part for name in given for part in (f"--{name}", str(tmp_path / name))]
    assert "mean of heads" not in ask("evaluate", "--model", str(trained["rnn-2015"]), *options)
    for reading in (lambda: lens(e), lambda: contributions(e, 0), lambda: rollout(e, "encoder")):
        with pytest.raises(UserError, match='of Transformers, and this model is of the kind "rnn-attention"'):
            reading()
    assert senses(m, "tea", ["red tea", "I drink tea"]).vectors.shape == (2, 2, 48)


def test_the_model_of_2014_says_that_it_has_no_attention(trained: dict[str, Path]) -> None:
    m = load(trained["rnn-2014"])
    told = ask("explain", "I drink tea", "--model", str(trained["rnn-2014"]))
    assert "no attention" in told and WORDS["drink"] in told
    assert json.loads(ask("explain", "I drink tea", "--model", str(trained["rnn-2014"]), "--json"))["attention"] == {}
    assert "<table>" in m.explain("tea")._repr_html_()
    with pytest.raises(UserError, match="no attention to align by"):
        align(m, [("tea", "चाय")])
    with pytest.raises(UserError, match=r'no tap of this model matches "decoder.0.cross.heads"'):
        m.explain("tea", interventions=[without("decoder.0.cross", 0)])
    with pytest.raises(UserError, match="8-bit decoding is for Transformers"):
        quantised(m.network)


def test_the_server_shows_the_attention_of_2015_and_refuses_what_is_not_there(trained: dict[str, Path]) -> None:
    pytest.importorskip("pydantic")
    from seq2see.serve.handlers import Answers
    from seq2see.serve.requests import Explain
    from seq2see.serve.workers import Clock, Limits

    answers, clock = Answers(dict(trained), Limits()), Clock(60)
    told = answers.trace(Explain.model_validate({"model": "rnn-2015", "text": "red tea"}), clock)
    assert "decoder.0.cross.weights" in {tensor.name for tensor in told.tensors}
    assert [(link.source, link.target) for link in answers.alignment(told.id, -1, None, clock).links] == [
        (0, 0),
        (1, 1),
    ]
    with pytest.raises(UserError, match="the lens is a reading of Transformers"):
        answers.lens(told.id, 5, clock)
    weights = {one.name: one for one in answers.weights("rnn-2015", None).weights}
    assert weights["decoder.attention.fit.weight"].place == "decoder.0.cross"
    assert [symbol.symbol for symbol in weights["decoder.cell.weight_hh"].symbols] == ["U_i", "U_f", "U_g", "U_o"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["model.heads=4"], "model.heads = 4 must be 1"),
        (["model.shape=decoder"], "model.shape = decoder must be encoder-decoder"),
        (["model.encoder_layers=3"], "must be model.decoder_layers = 2"),
        (["model.norm_first=true"], "model.norm_first = True is an option of Transformers"),
        (["model.positions=rotary"], "model.positions = rotary is an option of Transformers"),
        (["model.kind=rnn-attention", "model.width=33"], "model.width = 33 must be even"),
        (["model.kind=lstm"], 'model.kind = "lstm" is not a choice'),
    ],
)
def test_what_does_not_apply_is_refused(settings: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Config(model=RNN).override(settings)


def test_the_presets_are_as_large_as_small() -> None:
    sizes = [structure(replace(preset(n), vocabulary=12000), n).parameters for n in ("small", "rnn-2014", "rnn-2015")]
    assert max(sizes) < 1.02 * min(sizes)


def test_what_a_step_needs_is_known() -> None:
    config = Config(model=RNN, train=TrainConfig(tokens=4096))
    assert fewest_micro_batches(config, torch.device("cpu")) == 1
