"""Taps and torch.compile: inactive taps cost nothing, and a compiled model is not traced in silence."""

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import seq2see.model
from seq2see.config import ModelConfig
from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.inspect.interventions import (
    intervene,
    scale,
)
from seq2see.inspect.trace import trace
from tests.model.test_taps import CONFIGS, inputs, model
from tests.models import tiny_model


def test_a_compiled_model_is_not_traced_in_silence() -> None:
    m = model()
    compiled: Any = torch.compile(m, backend="eager")
    with (
        pytest.raises(UserError, match=r"compiled model: use the model as it was before torch\.compile"),
        trace(compiled),
    ):
        pass
    with pytest.raises(UserError, match="compiled model"), intervene(compiled, scale("*.cross.projected", 0.0)):
        pass
    with pytest.raises(UserError, match="no forward pass to trace"), trace(m):
        compiled(*inputs(m))
    with trace(m) as t:
        m(*inputs(m))
    assert t.names()
    assert m.decoder is not None
    m.decoder.compile(backend="eager")  # a part, in place
    with pytest.raises(UserError, match="compiled model"), trace(m):
        pass


def test_explaining_a_compiled_model_is_an_error() -> None:
    translator = tiny_model(["How are you?"], ModelConfig(width=16, heads=2, encoder_layers=1, decoder_layers=1))
    translator.network.compile(backend="eager")
    with pytest.raises(UserError, match="compiled model"):
        translator.explain("How are you?", target="How")


class WithoutTaps(ast.NodeTransformer):
    """Replaces every `taps(name, value)` in the source by the value."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute):  # taps.at(prefix)(name, value)
            called = called.func.value
        if isinstance(called, ast.Name) and called.id.endswith("taps") and len(node.args) == 2 and not node.keywords:
            return node.args[1]
        return node


def model_without_taps(config: ModelConfig) -> torch.nn.Module:
    """Builds the same model from the same source with all taps removed."""
    folder = Path(seq2see.model.__path__[0])
    modules: dict[str, Any] = {}
    originals = {name: sys.modules[name] for name in list(sys.modules) if name.startswith("seq2see.model")}
    try:
        for name in ("taps", "attention", "positions", "layers", "init", "network", "transformer"):
            full_name = f"seq2see.model.{name}"
            spec = importlib.util.spec_from_file_location(full_name, folder / f"{name}.py")
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full_name] = module
            source = (folder / f"{name}.py").read_text()
            tree = ast.fix_missing_locations(WithoutTaps().visit(ast.parse(source)))
            assert name != "layers" or "taps(" not in ast.unparse(tree)
            exec(compile(tree, str(folder / f"{name}.py"), "exec"), module.__dict__)
            modules[name] = module
    finally:
        sys.modules.update(originals)
    return modules["transformer"].Transformer(config)


def graph_of(m: torch.nn.Module, arguments: tuple[Packed, ...]) -> str:
    """Returns the graph of torch.compile as code; fullgraph rejects graph breaks."""
    code: list[str] = []

    def capture(graph: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        code.append(graph.print_readable(print_output=False))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(m, fullgraph=True, backend=capture)(*arguments)
    assert len(code) == 1
    # Comments hold source lines and are not part of the graph.
    return "\n".join(line.split("#")[0].rstrip() for line in code[0].splitlines() if line.split("#")[0].strip())


@pytest.mark.parametrize("name", CONFIGS)
def test_inactive_taps_cost_nothing(name: str) -> None:
    m = model(name)
    untapped = model_without_taps(CONFIGS[name]).double().eval()
    untapped.load_state_dict(m.state_dict())
    assert torch.equal(untapped(*inputs(m)), m(*inputs(m)))
    assert graph_of(m, inputs(m)) == graph_of(untapped, inputs(m))


def test_the_graph_comparison_detects_an_extra_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    m = model()
    before = graph_of(m, inputs(m))
    monkeypatch.setattr("seq2see.model.taps.Taps.__call__", lambda self, name, value: value * 1)
    assert graph_of(m, inputs(m)) != before
