"""On a CUDA device: the fast attention is the open one, a training step compiles to one graph, and decoding agrees."""

import pytest
import torch

from seq2see.config import ModelConfig, Shape
from seq2see.decode.engine import search
from seq2see.decode.search import Search
from seq2see.decode.session import Request, Vocabulary
from seq2see.look.intervene import intervene, without
from seq2see.model.attention import attend, attend_openly
from seq2see.model.layout import Layout, Packed
from seq2see.model.transformer import Transformer

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
        losses.append(float(value))
    assert losses[-1] < 0.1 * losses[0]


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
    with intervene(model, without("decoder.1.masked", head=0)):
        assert search(model, requests, options, words) != found
