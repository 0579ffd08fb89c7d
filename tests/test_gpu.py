"""On a CUDA device: the fast attention is the open one, and a training step compiles to one graph."""

import pytest
import torch

from seq2see.config import ModelConfig
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
