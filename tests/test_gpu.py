"""On a CUDA device: the fast attention is the open one, a training step compiles to one graph, and decoding agrees."""

from typing import Any

import pytest
import torch

from seq2see.config import ModelConfig, Shape
from seq2see.decode.engine import search
from seq2see.decode.optimize import ready
from seq2see.decode.search import Beam, Search
from seq2see.decode.session import Request, Vocabulary
from seq2see.inspect.interventions import intervene, without
from seq2see.inspect.trace import trace
from seq2see.layout import Layout, Packed
from seq2see.model.attention import attend, attend_openly
from seq2see.model.transformer import Transformer
from tests import decoders

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_attend_equals_attend_openly(
    dtype: torch.dtype, tolerance: float, heads: tuple[int, int], causal: bool
) -> None:
    for seed in range(6):
        random = torch.Generator().manual_seed(seed)
        lengths = [int(n) for n in torch.randint(1, 200, (12,), generator=random)]
        others = lengths if causal else [int(n) for n in torch.randint(1, 200, (12,), generator=random)]
        queries = Layout.of(lengths).to("cuda")
        keys = queries if causal else Layout.of(others).to("cuda")
        shapes = [(sum(lengths), heads[0]), (sum(others), heads[1]), (sum(others), heads[1])]
        given = [torch.randn(*shape, 64, generator=random).cuda().to(dtype) for shape in shapes]
        pull = torch.randn(sum(lengths), heads[0], 64, generator=random).cuda()

        fast = [x.clone().requires_grad_() for x in given]
        exact = [x.double().requires_grad_() for x in given]
        got = attend(fast[0], fast[1], fast[2], queries, keys, causal)
        wanted = attend_openly(exact[0], exact[1], exact[2], queries, keys, causal)
        (got * pull).sum().backward()
        (wanted * pull).sum().backward()
        for a, b in zip([got, *(x.grad for x in fast)], [wanted, *(x.grad for x in exact)], strict=True):
            assert a is not None and b is not None
            scale = float(b.detach().abs().max())
            assert float((a.double() - b).detach().abs().max()) < tolerance * max(1.0, scale)


def test_a_compiled_step_is_one_graph_and_learns() -> None:
    torch.manual_seed(0)
    config = ModelConfig(width=128, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=256, dropout=0.0)
    model = Transformer(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = Packed.of([[3, 4, 5], [6, 7, 8, 9, 10]]).to("cuda")
    target = Packed.of([[1, 4], [1, 7, 8, 9]]).to("cuda")
    labels = torch.tensor([4, 2, 7, 8, 9, 2], device="cuda")

    @torch.compile(fullgraph=True)
    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return torch.nn.functional.cross_entropy(model(source, target).float(), labels)

    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(
    ("sentences", "beam", "heads", "groups", "width", "places", "first"),
    [(3, 1, 4, 4, 16, 70, 40), (2, 4, 8, 2, 32, 256, 130), (2, 4, 8, 8, 64, 256, 252), (1, 8, 16, 4, 16, 64, 8)],
)
def test_one_kernel_writes_and_looks(
    sentences: int, beam: int, heads: int, groups: int, width: int, places: int, first: int, dtype: torch.dtype,
    tolerance: float,
) -> None:  # fmt: skip
    from seq2see.decode.kernels import look

    torch.manual_seed(0)
    with torch.device("cuda"):
        q, k, v = torch.randn(sentences * beam, heads + 2 * groups, width, dtype=dtype).split(
            (heads, groups, groups), 1
        )
        keys, values = torch.randn(2, sentences + 1, groups, 300, width, dtype=dtype)
        mask = torch.where(torch.rand(sentences, beam, 300) < 0.5, 0.0, -torch.inf)
        mask[:, :, first:] = -torch.inf
        mask[:, range(beam), range(first, first + beam)] = 0.0  # each sees its own
        place = torch.arange(first, first + beam)
    new = [x.view(sentences, beam, groups, width).transpose(1, 2) for x in (k, v)]
    expected = keys.clone(), values.clone()
    for table, written in zip(expected, new, strict=True):
        table[:sentences, :, first : first + beam] = written

    def openly(mask: torch.Tensor) -> torch.Tensor:
        many = heads // groups
        asked = q.view(sentences, beam, heads, width).transpose(1, 2).double()
        k, v = (x[:sentences, :, :places].repeat_interleave(many, dim=1).double() for x in expected)
        scores = asked @ k.mT / width**0.5 + mask[:, None, :, :places]
        return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(0, 1)

    found = look(q, (k, v), keys, values, mask, place, places)
    torch.testing.assert_close(found.double(), openly(mask), rtol=tolerance, atol=tolerance)
    assert torch.equal(keys, expected[0]) and torch.equal(values, expected[1])

    same_for_all = mask[:, :1].clone()
    same_for_all[0] = -torch.inf  # a sentence that may see nothing, as idle rows may not
    found = look(q, None, keys, values, same_for_all, place, places)
    torch.testing.assert_close(found.double(), openly(same_for_all), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ["relu", "gelu-tanh"])
def test_blocks_in_fewer_kernels_compute_the_same(activation: Any) -> None:
    torch.manual_seed(0)
    config = ModelConfig(width=48, heads=3, encoder_layers=2, decoder_layers=2, feed_forward=96, activation=activation)
    model = Transformer(config).eval().cuda()
    fewer = ready(model)
    assert fewer is not model
    inputs = Packed.of([[3, 4, 5], [6, 7, 8, 9, 10]]).to("cuda"), Packed.of([[1, 4], [1, 7, 8, 9]]).to("cuda")
    with torch.inference_mode():
        torch.testing.assert_close(fewer(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)
    with trace(fewer) as kept:
        fewer(*inputs)
    assert "decoder.1.feed_forward.after" in kept.names()
    fewer(*inputs).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("options", [Search(), Search(beam=4, nbest=4), Search(temperature=1.0, top_p=0.9)])
def test_decoding_by_captured_graphs_gives_what_a_cpu_gives(shape: Shape, options: Search) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        shape=shape, vocabulary=300, width=64, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=96,
        dropout=0.0, longest=96, output_bias=True,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        assert model.unembedding_bias is not None
        model.unembedding_bias[2] += 2.0
    lengths = torch.randint(1, 20, (50,)).tolist()
    sources = [torch.randint(3, 300, (n,)).tolist() for n in lengths]
    limit = 150 if options.beam == 1 else 70  # the window slides, or is not reached
    requests = [
        Request(
            i, source if shape == "encoder-decoder" else (), [1] if shape == "encoder-decoder" else source, limit, i
        )
        for i, source in enumerate(sources)
    ]
    words = Vocabulary(1, 2)
    expected = search(model, requests, options, words)
    model.cuda()
    for _ in range(3):  # as it is, captured, replayed
        found = search(model, requests, options, words)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
    # In float32 by kernels of our own; rounding may tip a choice between two tokens that are as good.
    quick = ready(model.float())
    for _ in range(3):
        rounded = search(quick, requests, options, words)
        assert sum(a[0].tokens == b[0].tokens for a, b in zip(rounded, expected, strict=True)) >= 48
    model.double()
    with intervene(model, without("decoder.1.masked", head=0)):
        assert search(model, requests, options, words) != found


LATER: dict[str, Any] = {"norm_first": True, "activation": "gelu-tanh", "positions": "rotary", "key_value_heads": 2}


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True}, {**LATER, "bias": "nowhere"}, {**LATER, "bias": "attention"}]
)
def test_rows_pass_through_quick_blocks(shape: Shape, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2see.decode.fused_modules import QuickBlock

    fused, into = 0, QuickBlock._into

    def counted(self: QuickBlock, *given: Any) -> Any:
        nonlocal fused
        fused += 1
        return into(self, *given)

    monkeypatch.setattr(QuickBlock, "_into", counted)
    config = ModelConfig(
        shape=shape, vocabulary=300, width=96, heads=6, encoder_layers=2, decoder_layers=2, feed_forward=160,
        dropout=0.0, longest=96, output_bias=True, **options,
    )  # fmt: skip
    model = decoders.model(config, ends=0.0)
    sources = [torch.randint(3, 300, (n,)).tolist() for n in (2, 9, 5)]
    requests = [
        Request(i, one if shape == "encoder-decoder" else (), [1] if shape == "encoder-decoder" else one, 30)
        for i, one in enumerate(sources)
    ]
    words = Vocabulary(1, 2)
    beam = Search(beam=4, nbest=4)
    for count, choice in ((1, Search()), (2, Search()), (3, Search()), (1, beam), (3, beam)):
        expected = search(model.cpu(), requests[:count], choice, words)
        fewer = ready(model.cuda())
        assert list(fewer.state_dict()) == list(model.state_dict())
        fused = 0
        for _ in range(3):  # as it is, captured, replayed
            found = search(fewer, requests[:count], choice, words)
            assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close([h.score for h in one], [h.score for h in other], rtol=1e-4, atol=1e-4)
        assert fused > 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_one_kernel_norms_multiplies_and_activates(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    from torch.nn.functional import gelu, layer_norm, relu

    from seq2see.decode.kernels import Norm, linear

    torch.manual_seed(0)
    width = 136
    with torch.device("cuda"):
        x, y = torch.randn(2, rows, width, dtype=dtype)
        weight, shifts = torch.randn(301, width, dtype=dtype) / width**0.5, torch.randn(301, dtype=dtype)
        scale, shift = torch.randn(2, width, dtype=dtype)
    total = x + y
    normed = layer_norm(total, (width,), scale, shift)
    for given, norm, kept, bias in (
        ((x, None), None, x, None),
        ((x, y), Norm(scale, shift, 1e-5, "norm"), normed, shifts),
        ((x, y), Norm(scale, shift, 1e-5, "sum"), total, shifts),
        ((x, None), Norm(scale, None, 1e-5, "sum"), x, None),
    ):
        before = given[0] if given[1] is None else total
        if norm is not None:
            before = layer_norm(before, (width,), scale, norm.bias)
        product = before.double() @ weight.double().T + (0.0 if bias is None else bias.double())
        for name, function in (("", lambda x: x), ("relu", relu), ("gelu-tanh", lambda x: gelu(x, approximate="tanh"))):
            found, beside = linear(given[0], weight, bias, norm, given[1], name)
            torch.testing.assert_close(found.double(), function(product), rtol=tolerance, atol=2 * tolerance)
            torch.testing.assert_close(beside, kept, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("vocabulary", "beam"), [(9000, 4), (40, 3), (700, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"early_stopping": True}, {"early_stopping": "never"}, {"penalty": "gnmt", "length_penalty": 0.6}]
)
def test_two_kernels_take_a_step_of_a_beam(vocabulary: int, beam: int, options: dict[str, Any]) -> None:
    """The same logits for a beam on a CPU and one on a GPU, step by step, until all sentences are done."""
    random = torch.Generator().manual_seed(0)
    rows, size, longest, end = slice(1, 6), 5, 20, 2
    limits = torch.tensor([3, longest, longest, 1, longest])
    plain, quick = (
        Beam(Search(beam=beam, nbest=beam, **options), 7, longest, end, torch.tensor([0, 1, 5], device=device))
        for device in ("cpu", "cuda")
    )
    assert plain.branch is None and quick.branch is not None
    plain.admit(rows, limits, None)
    quick.admit(rows, limits.cuda(), None)
    steps = 0
    while not bool(plain.done[rows].all()):
        logits = 2 * torch.randn(size * (beam if steps else 1), vocabulary, generator=random)
        logits[:, end] += 5 * (torch.rand(len(logits), generator=random) < 0.4)
        logits[0, 0] = 40.0  # banned
        logits[-1, 20:30] = -torch.inf
        going = ~plain.done[rows] & (steps + 1 < limits)
        expected, expected_parents = plain.choose(logits, rows)
        tokens, parents = quick.choose(logits.cuda(), rows)
        assert expected_parents is not None and parents is not None
        assert torch.equal(tokens.cpu().view(size, beam)[going], expected.view(size, beam)[going])
        assert torch.equal(parents.cpu()[going], expected_parents[going])
        assert torch.equal(quick.done.cpu(), plain.done)
        steps += 1
    assert 1 < steps <= longest
    which = torch.arange(1, 6)
    for ours, theirs in zip(quick.hypotheses(which.cuda()), plain.hypotheses(which), strict=True):
        assert [(one.tokens, one.finished) for one in ours] == [(one.tokens, one.finished) for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close([*one.logprobs, one.score], [*other.logprobs, other.score], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hopeless", [torch.nan, -torch.inf])
def test_a_beam_outlives_logits_that_are_no_numbers(hopeless: float) -> None:
    k, vocabulary, rows = 4, 300, slice(0, 3)
    beam = Beam(Search(beam=k, nbest=k), 3, 6, 0, torch.tensor([5], device="cuda"))
    beam.admit(rows, torch.tensor([6, 6, 6], device="cuda"), None)
    for step in range(6):
        logits = torch.randn(3 * (k if step else 1), vocabulary, device="cuda")
        each = len(logits) // 3
        logits[:each, 4:] = hopeless  # a few tokens are left, of which one ends
        logits[each : 2 * each] = hopeless
        tokens, parents = beam.choose(logits, rows)
        assert parents is not None
        assert int(tokens.min()) >= 0 and int(tokens.max()) < vocabulary
        assert int(parents.min()) >= 0 and int(parents.max()) < k
    few, none, many = beam.hypotheses(torch.arange(3, device="cuda"))
    assert len(few) == len(many) == k and none == []
    assert all(token < 4 for one in few for token in one.tokens)
    assert all(one.score < 0 for one in [*few, *many])
    assert len({one.tokens for one in few}) == k


def test_places_are_closed_up_where_they_lie() -> None:
    from seq2see.decode.kernels import rearrange

    torch.manual_seed(0)
    alive = torch.rand(3, 300) < torch.tensor([0.5, 0.2, 0.9])[:, None]
    alive[:, :7] = True
    first, most = 7, int(alive.sum(1).max())
    index = (~alive).to(torch.uint8).argsort(dim=1, stable=True)[:, first:most].cuda()
    keys, values = torch.randn(2, 4, 2, 400, 32, device="cuda")
    expected = [[table[row, :, :300][:, places.cuda()] for row, places in enumerate(alive)] for table in (keys, values)]
    rearrange(keys, values, index, first)
    for table, wanted in zip((keys, values), expected, strict=True):
        for row, kept in enumerate(wanted):
            assert torch.equal(table[row, :, : kept.shape[1]], kept)


@pytest.mark.parametrize("vocabulary", [301, 304])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_of_an_odd_vocabulary(vocabulary: int, biased: bool, tied: bool) -> None:
    config = ModelConfig(
        shape="decoder", vocabulary=vocabulary, width=64, heads=4, decoder_layers=1, feed_forward=96,
        output_bias=biased, tie="all" if tied else "none",
    )  # fmt: skip
    model = decoders.model(config).cuda()
    quick = ready(model)
    for rows in (1, 4, 40):
        vectors, layout = torch.randn(rows, 64, device="cuda"), Layout.of([1] * rows).to("cuda")
        with torch.inference_mode():
            found, expected = quick.logits(vectors, layout), model.logits(vectors, layout)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_two_kernels_pick_a_token_and_write_it_down() -> None:
    from seq2see.decode.select_kernels import pick

    torch.manual_seed(0)
    rows, width, end = 5, 9000, 7
    with torch.device("cuda"):
        logits, banned = torch.randn(rows, width), torch.tensor([3, 8999])
        logits[:, 3] = 20.0  # the likeliest, and banned
        logits[1, end] = 19.0
        logits[2, 4096:8192] = -torch.inf
        tokens, logprobs = torch.zeros(rows, 6, dtype=torch.int64), torch.zeros(rows, 6)
        count, limit = torch.tensor([0, 1, 2, 4, 5]), torch.tensor([5, 5, 5, 5, 5])
        done = torch.tensor([False, False, False, False, True])
    before = count.clone()
    expected = logits.log_softmax(-1)
    expected[:, banned] = -torch.inf
    best, index = expected.max(-1)
    chosen = pick(logits, banned, tokens, logprobs, count, limit, done, end)
    assert torch.equal(chosen, index) and torch.equal(tokens.gather(1, before[:, None])[:, 0], index)
    assert bool(logprobs.isfinite().all())  # though a chunk of one row holds nothing but −∞
    torch.testing.assert_close(logprobs.gather(1, before[:, None])[:, 0], best, rtol=1e-5, atol=1e-5)
    assert count.tolist() == [1, 2, 3, 5, 5]
    assert done.tolist() == [False, True, False, True, True]
