"""The recurrent models of 2014 and 2015: equality with a plain loop, decoding, inspection, training and serving."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.framing import Framing
from seq2see.data.layout import Layout, Packed
from seq2see.decode import generate
from seq2see.decode.generate import decode_requests, translate_tokens
from seq2see.decode.request import Request
from seq2see.decode.search import Search
from seq2see.decode.session import DeviceProfile
from seq2see.errors import UserError
from seq2see.inspect.interventions import (
    Intervention,
    Selection,
    ablate_head,
    force_attention,
    intervene,
    scale,
    uniform_attention,
)
from seq2see.inspect.trace import Trace, tap_names, trace
from seq2see.model.summary import summarize
from seq2see.train.estimates import min_micro_batches
from seq2see.train.presets import preset

START, END = 1, 2
SPECIAL_TOKENS = Framing(-1, START, END, (START,))
RNN = ModelConfig(
    kind="rnn", vocab_size=40, width=12, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.0, output_bias=True
)
CONFIGS = {
    "2014": RNN,
    "2015": replace(RNN, kind="rnn-attention", encoder_layers=1, decoder_layers=1),
    "2015, more layers": replace(RNN, kind="rnn-attention", decoder_layers=3, tie_embeddings="none"),
}
all_models = pytest.mark.parametrize("name", CONFIGS)
pack = Packed.from_sequences


def random_model(name: str, dtype: torch.dtype = torch.float64) -> Recurrent:
    """Large random weights, with a bias towards the end token so that outputs differ in length."""
    torch.manual_seed(0)
    model = Recurrent(CONFIGS[name]).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
        assert model.unembedding_bias is not None
        model.unembedding_bias[END] += 0.5
    return model


def random_sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (count,), generator=random).tolist()
    return [[*torch.randint(3, 40, (n,), generator=random).tolist(), END] for n in lengths]


# A plain loop over the raw weights

Weights = dict[str, Tensor]
State = tuple[Tensor, Tensor]


def lstm_step(w: Weights, x: Tensor, state: State, suffix: str = "") -> State:
    h, c = state
    gates = w[f"weight_ih{suffix}"] @ x + w[f"bias_ih{suffix}"] + w[f"weight_hh{suffix}"] @ h + w[f"bias_hh{suffix}"]
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def submodule(w: Weights, name: str) -> Weights:
    return {key.removeprefix(name + "."): value for key, value in w.items() if key.startswith(name + ".")}


def zeros(size: int) -> State:
    return torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)


def plain_loop(m: Recurrent, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Returns the logits of one pair."""
    w, config = {name: p.detach() for name, p in m.named_parameters()}, m.config
    scale = config.width**0.5
    source_embedding = w.get("source_embedding.weight", w["embedding.weight"])
    xs, ys = [source_embedding[t] * scale for t in source], [w["embedding.weight"][t] * scale for t in target]
    unembedding = w.get("unembedding.weight", w["embedding.weight"])
    decoder = submodule(w, "decoder")
    vectors = []
    if config.kind == "rnn":
        states: list[State] = []
        order = xs[::-1]
        for layer in range(config.encoder_layers):
            state, hidden = zeros(config.width), []
            for x in order:
                state = lstm_step(submodule(w, f"encoder.layers.{layer}"), x, state, "_l0")
                hidden.append(state[0])
            states.append(state)
            order = hidden
        for y in ys:
            x = y
            for layer in range(config.decoder_layers):
                states[layer] = lstm_step(submodule(decoder, f"layers.{layer}"), x, states[layer], "_l0")
                x = states[layer][0]
            vectors.append(x)
    else:
        for layer in range(config.encoder_layers):
            lstm, forward, backward = submodule(w, f"encoder.layers.{layer}"), [], []
            state = zeros(config.width // 2)
            for x in xs:
                state = lstm_step(lstm, x, state, "_l0")
                forward.append(state[0])
            state = zeros(config.width // 2)
            for x in xs[::-1]:
                state = lstm_step(lstm, x, state, "_l0_reverse")
                backward.append(state[0])
            xs = [torch.cat(pair) for pair in zip(forward, backward[::-1], strict=True)]
        initial = (decoder["initial_state.weight"] @ xs[0][config.width // 2 :] + decoder["initial_state.bias"]).tanh()
        states = [(h, torch.zeros_like(h)) for h in initial.chunk(config.decoder_layers)]
        for y in ys:
            query = decoder["attention.queries.weight"] @ states[0][0] + decoder["attention.queries.bias"]
            energies = [
                decoder["attention.score.weight"] @ (query + decoder["attention.keys.weight"] @ h).tanh() for h in xs
            ]
            weights = torch.cat(energies).softmax(0)
            context = sum(weight * h for weight, h in zip(weights, xs, strict=True))
            assert isinstance(context, Tensor)
            states[0] = lstm_step(submodule(decoder, "cell"), torch.cat([y, context]), states[0])
            x = states[0][0]
            for layer in range(1, config.decoder_layers):
                states[layer] = lstm_step(submodule(decoder, f"layers.{layer - 1}"), x, states[layer], "_l0")
                x = states[layer][0]
            vectors.append((decoder["combine.weight"] @ torch.cat([x, context, y]) + decoder["combine.bias"]).tanh())
    return torch.stack(vectors) @ unembedding.T + w["unembedding_bias"]


@all_models
def test_a_batch_equals_a_plain_loop_over_each_sentence(name: str) -> None:
    m, pairs = random_model(name), list(zip(random_sentences(7), random_sentences(7, seed=1), strict=True))
    logits = m(pack([s for s, _ in pairs]), pack([t for _, t in pairs]))
    torch.testing.assert_close(logits, torch.cat([plain_loop(m, *pair) for pair in pairs]), rtol=0, atol=1e-12)


@all_models
def test_empty_sequences_and_a_rounded_max_length_change_nothing(name: str) -> None:
    """Static batches, as used on GPUs, have both."""
    m, (source, target) = random_model(name), random_sentences(2)
    alone = m(pack([source]), pack([target]))
    padded = [
        Packed(torch.tensor(tokens), Layout.from_lengths([0, len(tokens), 0], max_length=16))
        for tokens in (source, target)
    ]
    together = m(*padded)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    together.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in m.parameters())


@all_models
def test_every_weight_gets_a_gradient(name: str) -> None:
    m = random_model(name).train()
    m(pack(random_sentences(4)), pack(random_sentences(4, seed=1))).square().mean().backward()
    assert [n for n, p in m.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


# Decoding


@torch.no_grad()
def uncached(m: Recurrent, source: Sequence[int], limit: int) -> list[int]:
    """Greedy decoding with a full forward pass per token."""
    tokens_so_far = [START]
    while len(tokens_so_far) <= limit:
        logits = m(pack([source]), pack([tokens_so_far]))[-1]
        tokens_so_far.append(int(logits.argmax()))
        if tokens_so_far[-1] == END:
            break
    return [token for token in tokens_so_far[1:] if token != END]


@all_models
def test_greedy_decoding_in_any_batch_equals_full_forward_passes(name: str) -> None:
    m, sources = random_model(name), random_sentences(13)
    found = translate_tokens(m, sources, SPECIAL_TOKENS)
    expected = [uncached(m, source, int(len(source) * 1.5) + 10) for source in sources]
    assert [list(best.tokens) for best, *_ in found] == expected
    assert len({len(tokens) for tokens in expected}) > 2
    # A small budget: rows are freed and refilled.
    assert [list(best.tokens) for best, *_ in translate_tokens(m, sources, SPECIAL_TOKENS, token_budget=60)] == expected
    prefixes = [tokens[: i % 4] for i, tokens in enumerate(expected)]
    continued = translate_tokens(m, sources, SPECIAL_TOKENS, Search(max_new_tokens=12), prefixes=prefixes)
    for prefix, (best, *_), tokens in zip(prefixes, continued, expected, strict=True):
        assert [*prefix, *best.tokens][: len(tokens)] == tokens[: len(prefix) + 12]


@all_models
def test_beam_scores_equal_those_of_full_forward_passes(name: str) -> None:
    m, sources = random_model(name), random_sentences(6)
    for found in (
        translate_tokens(m, sources, SPECIAL_TOKENS, Search(beam=3, nbest=3), token_budget=n) for n in (0, 100)
    ):
        for source, hypotheses in zip(sources, found, strict=True):
            assert len(hypotheses) == 3
            for hypothesis in hypotheses:
                ids = [*hypothesis.tokens, END] if hypothesis.finished else list(hypothesis.tokens)
                logprobs = m(pack([source]), pack([[START, *ids[:-1]]])).log_softmax(-1)
                expected = logprobs[range(len(ids)), ids].detach().float()
                torch.testing.assert_close(torch.tensor(hypothesis.logprobs), expected, rtol=0, atol=1e-4)
    greedy = translate_tokens(m, sources, SPECIAL_TOKENS)
    requests = [Request(i, source, [START], int(len(source) * 1.5) + 10) for i, source in enumerate(sources)]
    assert [one[0].tokens for one in decode_requests(m, requests, Search(beam=1), SPECIAL_TOKENS)] == [
        one[0].tokens for one in greedy
    ]


@all_models
def test_samples_do_not_depend_on_the_batch(name: str) -> None:
    m, sources = random_model(name), random_sentences(5)
    options = Search(temperature=1.0, samples=2, seed=3)
    one_batch, small_batches = (translate_tokens(m, sources, SPECIAL_TOKENS, options, token_budget=n) for n in (0, 60))
    assert [[s.tokens for s in one] for one in one_batch] == [[s.tokens for s in one] for one in small_batches]
    assert any(one[0].tokens != one[1].tokens for one in one_batch)


@all_models
@pytest.mark.parametrize("beam", [1, 3])
def test_static_shapes_as_on_a_gpu_give_the_same_output(name: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    m, sources, options = random_model(name), random_sentences(13), Search(beam=beam)
    expected = translate_tokens(m, sources, SPECIAL_TOKENS, options)
    profile = DeviceProfile(
        static_shapes=True, cuda_graphs=False, max_hypotheses=16, token_budget=300, check_interval=8
    )
    monkeypatch.setattr(generate, "device_profile", lambda model: profile)
    found = translate_tokens(m, sources, SPECIAL_TOKENS, options)
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]


# Traces and interventions


@all_models
def test_a_trace_has_every_tap_and_changes_nothing(name: str, tmp_path: Path) -> None:
    m, both = random_model(name), (pack(random_sentences(3)), pack(random_sentences(3, seed=1)))
    with trace(m) as t:
        traced = m(*both)
    assert torch.equal(traced, m(*both))
    assert t.names() == [*tap_names(m.config), "probabilities"]
    t.save(tmp_path / "t.safetensors")
    loaded = Trace.load(tmp_path / "t.safetensors")
    assert all(torch.equal(loaded[n, s], t[n, s]) for n in t.names() if n != "probabilities" for s in range(len(t[n])))
    if m.config.kind == "rnn-attention":
        weights, values = t["decoder.0.cross.weights", 1], t["decoder.0.cross.values", 1]
        torch.testing.assert_close(weights, t["decoder.0.cross.energies", 1].softmax(-1))
        assert weights.shape == (1, len(random_sentences(3, seed=1)[1]), len(random_sentences(3)[1]))
        torch.testing.assert_close(weights[0] @ values[:, 0], t["decoder.0.cross.heads", 1][:, 0])
        assert t.quantity("decoder.0.cross.values").formula.startswith("x itself")


@pytest.mark.parametrize("name", ["2015", "2015, more layers"])
@pytest.mark.parametrize(
    "change",
    [
        uniform_attention("decoder.0.cross"),
        force_attention("decoder.0.cross", torch.eye(6)[0], Selection(sentence=1)),
        ablate_head("decoder.0.cross", 0, Selection(positions=[1, 2])),
    ],
    ids=["uniform", "one sentence to its first token", "ablated at two positions"],
)
def test_interventions_act_alike_on_forward_passes_and_decoding(name: str, change: Intervention) -> None:
    m = random_model(name)
    sources = [[5, 6, 7, 8, 9, END], [12, 11, 10, 9, 8, END]]
    with intervene(m, change), trace(m):
        found = [best for best, *_ in translate_tokens(m, sources, SPECIAL_TOKENS, Search(max_new_tokens=6, beam=2))]
        inputs = pack(sources), pack([[START, *best.tokens] for best in found])
        logprobs = m(*inputs).log_softmax(-1)
    assert (m(*inputs).log_softmax(-1) - logprobs).abs().max() > 1e-3
    for i, best in enumerate(found):
        ids = [*best.tokens, END][: len(best.logprobs)]
        expected = logprobs[inputs[1].layout.slice(i)][range(len(ids)), ids]
        torch.testing.assert_close(torch.tensor(best.logprobs), expected.detach().float(), rtol=0, atol=1e-4)


def test_the_decoder_of_2014_receives_only_the_state_at_the_first_token() -> None:
    m, both = random_model("2014"), (pack([[5, 6, 7, END]]), pack([[START, 4, 5]]))
    plain = m(*both)
    with intervene(m, scale("encoder.1.states", 0.0, Selection(positions=[1, 2, 3]))):
        assert torch.equal(m(*both), plain)
    with intervene(m, scale("encoder.1.states", 0.0, Selection(positions=[0]))):
        assert (m(*both) - plain).abs().max() > 1e-3


# Training, the command line and the server


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.heads=4"], "model.heads = 4 must be 1"),
        (["model.shape=decoder"], "model.shape = decoder must be encoder-decoder"),
        (["model.encoder_layers=3"], "must equal model.decoder_layers = 2"),
        (["model.norm_first=true"], "model.norm_first = True applies only to Transformers"),
        (["model.positions=rotary"], "model.positions = rotary applies only to Transformers"),
        (["model.kind=rnn-attention", "model.width=33"], "model.width = 33 must be even"),
        (["model.kind=lstm"], 'model.kind = "lstm" is not a valid choice'),
    ],
)
def test_inapplicable_options_are_rejected(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(model=RNN).override(settings)


def test_the_recurrent_presets_have_as_many_parameters_as_small() -> None:
    sizes = [summarize(replace(preset(n), vocab_size=12000), n).parameters for n in ("small", "rnn-2014", "rnn-2015")]
    assert max(sizes) < 1.02 * min(sizes)


def test_the_memory_of_a_step_is_estimated() -> None:
    config = Config(model=RNN, train=TrainConfig(batch_tokens=4096))
    assert min_micro_batches(config, torch.device("cpu")) == 1
