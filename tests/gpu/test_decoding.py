"""CUDA: fast attention equals the reference, a training step compiles to one graph, decoding agrees with the CPU."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from seq2see.config import ModelConfig, Shape
from seq2see.data.framing import Framing
from seq2see.data.layout import Layout, Packed
from seq2see.decode.generate import decode_requests, translate_tokens
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.decode.prompts import PromptShape
from seq2see.decode.request import Request
from seq2see.decode.search import BeamSearch, Search
from seq2see.decode.session import _IDLE_SESSIONS
from seq2see.inspect.interventions import ablate_head, intervene
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer
from tests import decoders
from tests.server.service.test_scheduler import SEARCHES, jobs_for, require_as_alone, scheduler_of
from tests.waiting import HANG

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_compiled_training_step_is_one_graph_and_learns() -> None:
    torch.manual_seed(0)
    config = ModelConfig(width=128, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=256, dropout=0.0)
    model = Transformer(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = Packed.from_sequences([[3, 4, 5], [6, 7, 8, 9, 10]]).to("cuda")
    target = Packed.from_sequences([[1, 4], [1, 7, 8, 9]]).to("cuda")
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


@pytest.mark.parametrize("activation", ["relu", "gelu-tanh"])
def test_fused_modules_equal_the_original(activation: Any) -> None:
    torch.manual_seed(0)
    config = ModelConfig(width=48, heads=3, encoder_layers=2, decoder_layers=2, feed_forward=96, activation=activation)
    model = Transformer(config).eval().cuda()
    fused = optimize_for_decoding(model)
    assert fused is not model
    inputs = (
        Packed.from_sequences([[3, 4, 5], [6, 7, 8, 9, 10]]).to("cuda"),
        Packed.from_sequences([[1, 4], [1, 7, 8, 9]]).to("cuda"),
    )
    with torch.inference_mode():
        torch.testing.assert_close(fused(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)
    with trace(fused) as recorded:
        fused(*inputs)
    assert "decoder.1.feed_forward.post_activation" in recorded.names()
    fused(*inputs).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def build_requests(shape: Shape, sequences: list[list[int]], max_new_tokens: int) -> list[Request]:
    """Returns one request per sequence: a source to translate, or a prompt to continue."""
    if shape == "encoder-decoder":
        return [Request(i, source, [1], max_new_tokens, i) for i, source in enumerate(sequences)]
    return [Request(i, (), prompt, max_new_tokens, i) for i, prompt in enumerate(sequences)]


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("options", [Search(), Search(beam=4, nbest=4), Search(temperature=1.0, top_p=0.9)])
def test_decoding_with_cuda_graphs_equals_cpu(shape: Shape, options: Search) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        shape=shape,
        vocab_size=300,
        width=64,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=96,
        dropout=0.0,
        max_positions=96,
        output_bias=True,
    )
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        assert model.unembedding_bias is not None
        model.unembedding_bias[2] += 2.0
    lengths = torch.randint(1, 20, (50,)).tolist()
    sources = [torch.randint(3, 300, (n,)).tolist() for n in lengths]
    max_new_tokens = 150 if options.beam == 1 else 70  # the context window slides, or is not reached
    requests = build_requests(shape, sources, max_new_tokens)
    special_tokens = Framing(-1, 1, 2, (1,))
    expected = decode_requests(model, requests, options, special_tokens)
    model.cuda()
    for _ in range(3):  # eager, captured, replayed
        found = decode_requests(model, requests, options, special_tokens)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
    # In float32 with our kernels; rounding may change a choice between two tied tokens.
    fused = optimize_for_decoding(model.float())
    for _ in range(3):
        rounded = decode_requests(fused, requests, options, special_tokens)
        assert sum(a[0].tokens == b[0].tokens for a, b in zip(rounded, expected, strict=True)) >= 48
    model.double()
    with intervene(model, ablate_head("decoder.1.masked", head=0)):
        assert decode_requests(model, requests, options, special_tokens) != found


@pytest.mark.parametrize("beam", [1, 3])
def test_a_captured_pass_over_a_prompt_reads_the_prompt_of_each_call(beam: int) -> None:
    """One sentence at a time, of several lengths that share a graph, decoded in a session that earlier ones have used."""
    for shape in ("encoder-decoder", "decoder"):
        config = replace(decoders.PAPER if shape == "encoder-decoder" else decoders.LANGUAGE_MODEL, max_positions=40)
        model = decoders.exact_model(config)
        requests = build_requests(shape, decoders.random_sentences(30), 12)
        search = Search(beam=beam, nbest=beam)
        expected = [decode_requests(model, [each], search, decoders.SPECIAL_TOKENS)[0] for each in requests]
        model.cuda()
        for each, output in zip(requests, expected, strict=True):
            (found,) = decode_requests(model, [each], search, decoders.SPECIAL_TOKENS)
            assert [one.tokens for one in found] == [one.tokens for one in output]
        sessions = _IDLE_SESSIONS[model].values()
        captured = [key for each in sessions if each.graphs for key, graph in each.graphs.captured.items() if graph]
        assert sum(isinstance(key, PromptShape) for key in captured) > 1


BESIDE_COMPILED_CODE = """
import torch
from seq2see.tensors.cuda_graphs import CudaGraphs

x = torch.ones(1, 768, device="cuda", dtype=torch.bfloat16)

def product():
    return x @ x.T  # cuBLAS writes partial sums to its workspace

gone, stays = CudaGraphs(), CudaGraphs()
for graphs in (gone, stays):
    for _ in range(3):
        graphs.run("product", product)
del gone, graphs
compiled = torch.compile(lambda x: (x @ x.T).relu(), mode="reduce-overhead")
for _ in range(3):
    compiled(x)
torch.cuda.empty_cache()
assert stays.run("product", product).item() == 768
"""


def test_graphs_survive_what_torch_compile_does_in_the_same_process() -> None:
    """It frees the workspaces of cuBLAS, to which captured graphs go on writing. In a process of its own, which an illegal
    memory access ends.
    """
    done = subprocess.run([sys.executable, "-c", BESIDE_COMPILED_CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


MODERN: dict[str, Any] = {"norm_first": True, "activation": "gelu-tanh", "positions": "rotary", "key_value_heads": 2}


@pytest.mark.parametrize("shape", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True}, {**MODERN, "bias": "nowhere"}, {**MODERN, "bias": "attention"}]
)
def test_fused_blocks_decode_like_the_cpu(
    shape: Shape, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seq2see.decode.kernels import fused_modules

    calls, product = 0, fused_modules._product

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return product(*arguments)

    monkeypatch.setattr(fused_modules, "_product", counted)
    config = ModelConfig(
        shape=shape,
        vocab_size=300,
        width=96,
        heads=6,
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=160,
        dropout=0.0,
        max_positions=96,
        output_bias=True,
        **options,
    )
    model = decoders.random_model(config, end_bias=0.0)
    sources = [torch.randint(3, 300, (n,)).tolist() for n in (2, 9, 5)]
    requests = build_requests(shape, sources, 30)
    special_tokens = Framing(-1, 1, 2, (1,))
    beam = Search(beam=4, nbest=4)
    for count, choice in ((1, Search()), (2, Search()), (3, Search()), (1, beam), (3, beam)):
        expected = decode_requests(model.cpu(), requests[:count], choice, special_tokens)
        fused = optimize_for_decoding(model.cuda())
        assert list(fused.state_dict()) == list(model.state_dict())
        calls = 0
        for _ in range(3):  # eager, captured, replayed
            found = decode_requests(fused, requests[:count], choice, special_tokens)
            assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close([h.score for h in one], [h.score for h in other], rtol=1e-4, atol=1e-4)
        assert calls > 0


@pytest.mark.parametrize(("vocab_size", "beam"), [(9000, 4), (40, 3), (700, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"early_stopping": True}, {"early_stopping": "never"}, {"penalty": "gnmt", "length_penalty": 0.6}]
)
def test_beam_kernels_equal_the_cpu(vocab_size: int, beam: int, options: dict[str, Any]) -> None:
    """Feeds the same logits to a beam search on each device, step by step, until all sentences are done."""
    random = torch.Generator().manual_seed(0)
    rows, size, max_length, end = slice(1, 6), 5, 20, 2
    limits = torch.tensor([3, max_length, max_length, 1, max_length])
    search = Search(beam=beam, nbest=beam, **options)
    on_cpu, on_gpu = (
        BeamSearch(search, 7, max_length, Framing(-1, 1, end, (1,), banned=(0, 1, 5)), torch.device(device))
        for device in ("cpu", "cuda")
    )
    assert on_cpu.step_kernel is None and on_gpu.step_kernel is not None
    on_cpu.reset(rows, limits)
    on_gpu.reset(rows, limits.cuda())
    steps = 0
    while not bool(on_cpu.done[rows].all()):
        logits = 2 * torch.randn(size * (beam if steps else 1), vocab_size, generator=random)
        logits[:, end] += 5 * (torch.rand(len(logits), generator=random) < 0.4)
        logits[0, 0] = 40.0  # banned
        logits[-1, 20:30] = -torch.inf
        running = ~on_cpu.done[rows] & (steps + 1 < limits)
        expected, expected_parents = on_cpu.select(logits, rows)
        tokens, parents = on_gpu.select(logits.cuda(), rows)
        assert expected_parents is not None and parents is not None
        assert torch.equal(tokens.cpu().view(size, beam)[running], expected.view(size, beam)[running])
        assert torch.equal(parents.cpu()[running], expected_parents[running])
        assert torch.equal(on_gpu.done.cpu(), on_cpu.done)
        steps += 1
    assert 1 < steps <= max_length
    which = torch.arange(1, 6)
    for ours, theirs in zip(on_gpu.hypotheses(which.cuda()), on_cpu.hypotheses(which), strict=True):
        assert [(one.tokens, one.finished) for one in ours] == [(one.tokens, one.finished) for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close([*one.logprobs, one.score], [*other.logprobs, other.score], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("invalid", [torch.nan, -torch.inf])
def test_beam_search_survives_invalid_logits(invalid: float) -> None:
    k, vocab_size, rows = 4, 300, slice(0, 3)
    beam = BeamSearch(Search(beam=k, nbest=k), 3, 6, Framing(-1, 1, 0, (1,), banned=(5,)), torch.device("cuda"))
    beam.reset(rows, torch.tensor([6, 6, 6], device="cuda"))
    for step in range(6):
        logits = torch.randn(3 * (k if step else 1), vocab_size, device="cuda")
        each = len(logits) // 3
        logits[:each, 4:] = invalid  # a few tokens remain, one of them <end>
        logits[each : 2 * each] = invalid
        tokens, parents = beam.select(logits, rows)
        assert parents is not None
        assert int(tokens.min()) >= 0 and int(tokens.max()) < vocab_size
        assert int(parents.min()) >= 0 and int(parents.max()) < k
    few, none, many = beam.hypotheses(torch.arange(3, device="cuda"))
    assert len(few) == len(many) == k and none == []
    assert all(token < 4 for one in few for token in one.tokens)
    assert all(one.score < 0 for one in [*few, *many])
    assert len({one.tokens for one in few}) == k


@pytest.mark.parametrize("vocab_size", [301, 304])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_fused_logits_of_an_unaligned_vocabulary(vocab_size: int, biased: bool, tied: bool) -> None:
    config = ModelConfig(
        shape="decoder",
        vocab_size=vocab_size,
        width=64,
        heads=4,
        decoder_layers=1,
        feed_forward=96,
        output_bias=biased,
        tie_embeddings="all" if tied else "none",
    )
    model = decoders.random_model(config).cuda()
    fused = optimize_for_decoding(model)
    for rows in (1, 4, 40):
        vectors, layout = torch.randn(rows, 64, device="cuda"), Layout.from_lengths([1] * rows).to("cuda")
        with torch.inference_mode():
            found, expected = fused.logits(vectors, layout), model.logits(vectors, layout)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [decoders.PAPER, decoders.LANGUAGE_MODEL], ids=["translator", "language model"])
def test_jobs_that_share_batches_get_the_results_of_decoding_alone(config: ModelConfig) -> None:
    model = decoders.random_model(config).cuda()
    jobs = jobs_for(model, decoders.random_sentences(60), SEARCHES)
    with scheduler_of(model) as scheduler:
        for job in jobs:  # while earlier ones run
            scheduler.submit([job])
        found = [job.future.result(HANG) for job in jobs]
    assert scheduler.row_steps > scheduler.steps, "every job ran alone"
    require_as_alone(model, jobs, found, tolerance=1e-4)


@pytest.mark.parametrize("source", ["pictures", "sounds"])
def test_pictures_and_sounds_are_read_as_on_the_cpu(source: Any) -> None:
    config = replace(decoders.PAPER, source=source, picture_height=8, patch_size=4, mel_bands=8)
    random = np.random.default_rng(0)
    rows = [random.random((length, config.row_size)) for length in (9, 5, 2, 7)]
    sources = [(255 * each).astype(np.uint8) if source == "pictures" else each.astype(np.float16) for each in rows]
    model = decoders.random_model(config)
    for search in (Search(max_new_tokens=8), Search(beam=3, max_new_tokens=8)):
        expected = translate_tokens(model.cpu(), sources, decoders.SPECIAL_TOKENS, search)
        found = translate_tokens(model.cuda(), sources, decoders.SPECIAL_TOKENS, search)
        for (one, *_), (other, *_) in zip(found, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)
