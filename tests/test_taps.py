"""Looking and reaching in: traces hold what was computed, interventions change it, and nobody listening costs nothing."""

import ast
import importlib.util
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import seq2see.model
from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.inspect.interventions import Where, attending, attending_uniformly, intervene, patching, scaling, without
from seq2see.inspect.trace import Trace, tap_names, trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer

PAPER = ModelConfig(
    vocabulary=31, width=16, heads=4, encoder_layers=2, decoder_layers=3, feed_forward=24, dropout=0.0, longest=32
)
CONFIGS = {
    "paper": PAPER,
    "norm-first": replace(PAPER, norm_first=True, activation="gelu", positions="learned", key_value_heads=2),
    "llama-like": replace(
        PAPER, shape="decoder", norm="rms", norm_first=True, activation="swiglu", positions="rotary", bias="nowhere"
    ),
    "bert-like": replace(
        PAPER, shape="encoder", positions="learned", segments=2, embedding_norm=True, activation="gelu"
    ),
}
SOURCE = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
TARGET = [[3, 5], [8], [9, 7, 9, 3]]


def model(name: str = "paper") -> Transformer:
    torch.manual_seed(0)
    return Transformer(CONFIGS[name]).double().eval()


def inputs(m: Transformer) -> tuple[Packed, ...]:
    both = Packed.of(SOURCE), Packed.of(TARGET)
    return both if m.config.shape == "encoder-decoder" else both[:1]


@pytest.mark.parametrize("name", CONFIGS)
def test_traced_and_untraced_outputs_agree(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        traced = m(*inputs(m))
    torch.testing.assert_close(traced, m(*inputs(m)), rtol=0, atol=1e-9)
    final = "encoder.vectors" if m.config.shape == "encoder" else "logits"
    assert torch.equal(t[final], traced)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_tap_has_a_stable_name_a_formula_and_axes(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    assert [heard for heard in t.names() if heard != "probabilities"] == tap_names(m.config)
    for tap in t.names():
        assert len(t.quantity(tap).axes) == t[tap].dim()
        assert t.quantity(tap).formula


@pytest.mark.parametrize(("name", "formula"), [("paper", "activation(before)"), ("llama-like", "silu(gate) · before")])
def test_a_formula_is_that_of_the_model(name: str, formula: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    assert t.quantity("decoder.1.feed_forward.after").formula == formula
    assert t.quantity("decoder.1.masked.values").formula.startswith("x · W_V")


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_derived_is_what_was_computed(name: str) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    with trace(m, only="*") as everything:
        m(*inputs(m))
    kept = {tap for tap in t.names() if tap in t._kept}
    assert "logits" in kept or m.config.shape == "encoder"
    assert not any(tap.endswith((".weights", ".scores", ".heads", ".mean")) for tap in kept)
    for tap in everything.names():
        torch.testing.assert_close(t[tap], everything[tap], rtol=0, atol=1e-12)


def test_the_chain_of_the_notes_holds_number_by_number() -> None:
    """Each traced quantity follows from the ones before it by its formula, with the weights taken from the model."""
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    block: Any = m.decoder.blocks[1]  # type: ignore[union-attr]
    here, s = "decoder.1.cross", 2  # the third sentence: one source token less than tokens in the target
    x = t["decoder.1.masked.norm.output", s]
    memory = t["encoder.vectors", s]
    q = (x @ block.cross.queries.weight.T + block.cross.queries.bias).view(4, 4, 4)
    k, v = (memory @ block.cross.keys_values.weight.T + block.cross.keys_values.bias).view(1, 8, 4).split(4, dim=1)
    for tap, expected in {
        "queries": q,
        "keys": k,
        "values": v,
        "scores": torch.einsum("qhd,khd->hqk", q, k),
        "scaled": torch.einsum("qhd,khd->hqk", q, k) / 2,
        "weights": torch.ones(4, 4, 1, dtype=torch.float64),  # one word to look at gets all the weight
        "heads": v.expand(4, 4, 4),
        "concatenated": v.expand(4, 4, 4).flatten(1),
        "projected": v.expand(4, 4, 4).flatten(1) @ block.cross.project.weight.T + block.cross.project.bias,
    }.items():
        torch.testing.assert_close(t[f"{here}.{tap}", s], expected)
    total = t[f"{here}.sum", s]
    torch.testing.assert_close(total, x + t[f"{here}.projected", s])
    centred = total - total.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(t[f"{here}.norm.output", s], expected)


def test_a_trace_knows_its_sentences() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    for s in range(3):
        n, k = len(TARGET[s]), len(SOURCE[s])
        assert t["encoder.tokens", s].tolist() == SOURCE[s]
        assert t["decoder.tokens", s].tolist() == TARGET[s]
        assert t["decoder.2.cross.weights", s].shape == (4, n, k)
        assert t["decoder.2.cross.keys", s].shape == (k, 4, 4)
        assert t["decoder.2.masked.weights", s].shape == (4, n, n)
        assert t["logits", s].shape == (n, 31)
        for weights in ("decoder.2.cross.weights", "decoder.0.masked.weights", "encoder.1.self.weights"):
            torch.testing.assert_close(t[weights, s].sum(-1), torch.ones_like(t[weights, s].sum(-1)))
    masked = t["decoder.0.masked.masked", 2]
    assert torch.equal(masked.isinf(), torch.ones(4, 4).triu(1).bool().expand(4, 4, 4))
    with pytest.raises(IndexError, match="sentence 3 of a trace of 3"):
        t["logits", 3]
    with pytest.raises(KeyError, match=r"decoder\.2\.cross\.weights"):
        t["decoder.2.cross.wieghts"]


def test_only_records_just_that() -> None:
    m = model()
    with trace(m, only="decoder.*.cross.weights") as t:
        m(*inputs(m))
    assert t.names() == [f"decoder.{layer}.cross.weights" for layer in range(3)]
    assert t["decoder.1.cross.weights", 0].shape == (4, 2, 3)
    with (
        pytest.raises(UserError, match=r'"decoder.\*.crosss.weights": did you mean "decoder.\d.cross.weights"'),
        trace(m, only="decoder.*.crosss.weights"),
    ):
        pass


def test_a_second_pass_replaces_the_first() -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
        m(Packed.of([[1, 2]]), Packed.of([[3]]))
    assert t["decoder.0.cross.weights"].shape == (1, 4, 1, 2)
    assert len(t.names()) == len(set(t.names()))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_trace_outlives_its_model_in_one_file(name: str, tmp_path: Path) -> None:
    m = model(name)
    with trace(m) as t:
        m(*inputs(m))
    t.save(tmp_path / "t.safetensors")
    again = Trace.load(tmp_path / "t.safetensors")
    assert again.names() == t.names()
    for tap in t.names():
        assert torch.equal(again[tap], t[tap])
        assert torch.equal(again[tap, 1], t[tap, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_broken_trace_file_is_refused_in_one_line(tmp_path: Path) -> None:
    m = model()
    with trace(m) as t:
        m(*inputs(m))
    path = tmp_path / "t.safetensors"
    t.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot read the trace"):
        Trace.load(path)
    with pytest.raises(UserError, match="cannot read the trace"):
        Trace.load(tmp_path / "none.safetensors")


def test_a_trace_of_a_thousand_tokens_fits_in_memory() -> None:
    """Kept: some 20 vectors a token and layer; not the four 1,000 × 1,000 tables of every head."""
    m = Transformer(replace(PAPER, shape="decoder", width=64, heads=8, decoder_layers=4, longest=1000)).eval()
    with torch.no_grad(), trace(m) as t:
        m(Packed.of([[1] * 1000]))
    kept = {value.data_ptr(): value.nbytes for value in t._kept.values()}
    tables = 4 * 4 * 8 * 1000 * 1000 * 4
    assert sum(kept.values()) < tables / 20
    assert t["decoder.3.masked.weights"].shape == (1, 8, 1000, 1000)


def test_a_head_switched_off_adds_nothing() -> None:
    m = model()
    before = m(*inputs(m))
    with intervene(m, without("decoder.2.cross", head=1)), trace(m) as t:
        after = m(*inputs(m))
    assert not torch.allclose(before, after)
    assert t["decoder.2.cross.heads"][:, 1].abs().max() == 0
    assert t["decoder.2.cross.heads"][:, 0].abs().min() > 0
    # The same by arithmetic: the head's columns of W_O set to zero.
    with torch.no_grad():
        m.decoder.blocks[2].cross.project.weight[:, 4:8] = 0  # type: ignore[union-attr, operator]
    torch.testing.assert_close(after, m(*inputs(m)))


def test_an_intervention_acts_at_the_chosen_positions_only() -> None:
    m = model()
    before = m(*inputs(m))
    with intervene(m, without("decoder.2.cross", head=1, where=Where(sentence=2, positions=[1]))):
        after = m(*inputs(m))
    changed = ((before - after).abs() > 1e-9).any(-1)
    assert changed.tolist() == [False, False, False, False, True, False, False]  # row 4: sentence 2, position 1


@pytest.mark.parametrize("attention", ["decoder.1.cross", "decoder.1.masked", "encoder.1.self"])
def test_uniform_attention_is_the_mean_of_the_values_in_sight(attention: str) -> None:
    m = model()
    with intervene(m, attending_uniformly(attention)), trace(m) as t:
        m(*inputs(m))
    values, heads = t[f"{attention}.values", 0], t[f"{attention}.heads", 0]
    for place in range(len(heads)):
        sight = values[: place + 1] if attention.endswith("masked") else values
        torch.testing.assert_close(heads[place], sight.mean(0))


def test_given_weights_are_used_and_recorded() -> None:
    m = model()
    given = torch.zeros(3, 4, 4, 5, dtype=torch.float64)
    given[..., 0] = 1  # everyone looks at the first source word
    with trace(m) as t, intervene(m, attending("decoder.0.cross", given, where=Where(head=3))):
        m(*inputs(m))
    assert torch.equal(t["decoder.0.cross.weights"][:, 3], given[:, 3])
    assert not torch.equal(t["decoder.0.cross.weights"][:, 2], given[:, 2])
    torch.testing.assert_close(t["decoder.0.cross.heads", 1][0, 3], t["decoder.0.cross.values", 1][0, 3])


def test_a_vector_patched_from_another_sentence_carries_its_meaning_over() -> None:
    m = model()
    with trace(m) as t:
        donor = m(Packed.of([[3, 1, 4]]), Packed.of([[3, 5]]))
    swapped = patching("encoder.vectors", t["encoder.vectors"])
    with intervene(m, swapped):
        assert torch.equal(m(Packed.of([[9, 9, 9]]), Packed.of([[3, 5]])), donor)
    one = patching("encoder.vectors", t["encoder.vectors"], where=Where(positions=[0]))
    with intervene(m, one):
        assert not torch.equal(m(Packed.of([[9, 9, 9]]), Packed.of([[3, 5]])), donor)


def test_a_single_unit_can_be_held_at_0() -> None:
    m = model()
    with trace(m) as before:
        m(*inputs(m))
    name = "encoder.0.feed_forward.after"
    own = before[name].clone()
    unit = int(own.abs().sum(0).argmax())
    with intervene(m, scaling(name, 0.0, Where(unit=unit))), trace(m) as after:
        m(*inputs(m))
    own[:, unit] = 0.0
    assert torch.equal(after[name], own)
    assert not torch.equal(after["logits"], before["logits"])


def test_interventions_compose_and_are_undone_also_after_an_exception() -> None:
    m = model()
    before = m(*inputs(m))
    off = scaling("decoder.*.cross.projected", 0.0)
    with intervene(m, off):
        alone = m(*inputs(m))
        with intervene(m, scaling("decoder.*.masked.projected", 0.0)):
            both = m(*inputs(m))
        assert torch.equal(m(*inputs(m)), alone)
    with intervene(m, off, scaling("decoder.*.masked.projected", 0.0)):
        assert torch.equal(m(*inputs(m)), both)
    assert not torch.equal(alone, both)
    with pytest.raises(RuntimeError, match="on purpose"), intervene(m, off), trace(m):
        raise RuntimeError("on purpose")
    assert torch.equal(m(*inputs(m)), before)
    assert "forward" not in m.__dict__
    with pytest.raises(UserError, match=r'"decoder\.9\.cross\.heads"'), intervene(m, without("decoder.9.cross", 0)):
        pass


def test_a_saved_trace_of_an_intervention_shows_what_the_model_used(tmp_path: Path) -> None:
    m = model()
    with intervene(m, attending_uniformly("decoder.0.cross")), trace(m) as t:
        m(*inputs(m))
    t.save(tmp_path / "t")
    weights = Trace.load(tmp_path / "t")["decoder.0.cross.weights", 1]
    torch.testing.assert_close(weights, torch.full((4, 1, 5), 0.2, dtype=torch.float64))


def test_another_thread_is_neither_recorded_nor_changed() -> None:
    m = model()
    before = m(*inputs(m))
    seen: list[Tensor] = []
    with intervene(m, scaling("decoder.*.cross.projected", 0.0)), trace(m) as t:
        other = threading.Thread(target=lambda: seen.append(m(*inputs(m))))
        other.start()
        other.join()
        assert not t.names()
    assert torch.equal(seen[0], before)


class WithoutTaps(ast.NodeTransformer):
    """Takes every `taps(name, value)` out of the source and leaves the value."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute):  # taps.at(place)(name, value)
            called = called.func.value
        if isinstance(called, ast.Name) and called.id == "taps" and len(node.args) == 2 and not node.keywords:
            return node.args[1]
        return node


def model_without_taps(config: ModelConfig) -> torch.nn.Module:
    """The same model from the same source, with the taps cut out of it."""
    folder = Path(seq2see.model.__path__[0])
    modules: dict[str, Any] = {}
    originals = {name: sys.modules[name] for name in list(sys.modules) if name.startswith("seq2see.model")}
    try:
        for name in ("layout", "taps", "attention", "positions", "layers", "initial", "network", "transformer"):
            full = f"seq2see.model.{name}"
            spec = importlib.util.spec_from_file_location(full, folder / f"{name}.py")
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            source = (folder / f"{name}.py").read_text()
            tree = ast.fix_missing_locations(WithoutTaps().visit(ast.parse(source)))
            assert ("taps(" in ast.unparse(tree)) == (name == "taps" and "taps(" in source) or name != "layers"
            exec(compile(tree, str(folder / f"{name}.py"), "exec"), module.__dict__)
            modules[name] = module
    finally:
        sys.modules.update(originals)
    return modules["transformer"].Transformer(config)


def graph_of(m: torch.nn.Module, arguments: tuple[Packed, ...]) -> str:
    """The whole graph that torch.compile sees, as code; fullgraph refuses anything that would break it."""
    code: list[str] = []

    def keep(graph: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        code.append(graph.print_readable(print_output=False))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(m, fullgraph=True, backend=keep)(*arguments)
    assert len(code) == 1
    # Comments tell from which line of the source a step comes; they are not the graph.
    return "\n".join(line.split("#")[0].rstrip() for line in code[0].splitlines() if line.split("#")[0].strip())


@pytest.mark.parametrize("name", CONFIGS)
def test_nobody_listening_costs_nothing(name: str) -> None:
    m = model(name)
    bare = model_without_taps(CONFIGS[name]).double().eval()
    bare.load_state_dict(m.state_dict())
    assert torch.equal(bare(*inputs(m)), m(*inputs(m)))
    assert graph_of(m, inputs(m)) == graph_of(bare, inputs(m))


def test_the_comparison_of_graphs_would_notice_a_step_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    m = model()
    before = graph_of(m, inputs(m))
    monkeypatch.setattr("seq2see.model.taps.Taps.__call__", lambda self, name, value: value * 1)
    assert graph_of(m, inputs(m)) != before
