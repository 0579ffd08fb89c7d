"""The engine's copy of a torch model: whether there can be one, its weights, and positions as the reference computes them."""

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from seq2see.engine.library import Library, default_library
from seq2see.engine.model import EngineModel, Positions, reasons_against
from seq2see.model.attention import Scoring
from seq2see.model.network import Network
from seq2see.model.positions import RelativeBias, rotary_cos_sin, rotary_frequencies, sinusoids
from seq2see.model.transformer import Stack, Transformer

MAX_ROWS = 1 << 13  # of the tables for sinusoids and rotations; longer sequences run on torch
KNOWN_MODULES = frozenset(  # whose layers the engine computes
    f"{package}.{name}"
    for package, names in (
        ("seq2see.model", "layers transformer positions"),
        ("seq2see.decode", "int8 optimize"),
        ("torch.nn.modules", "linear sparse container"),
    )
    for name in names.split()
)
_MODELS: WeakKeyDictionary[Network, tuple[object, EngineModel | None]] = WeakKeyDictionary()
_PACKING = threading.Lock()


def engine_of(network: Network) -> EngineModel | None:
    """Returns the engine's copy of a loaded network, made anew when a weight has changed; None if it runs on torch.

    PyTorch counts the changes of a weight, but not those through `.data`: so a sample of the numbers is compared as well.
    """
    if not network.use_engine or network.training or (library := default_library()) is None:
        return None
    modules: list[nn.Module] = [network]  # not network.modules(), which takes several times as long, for each sentence
    for module in modules:
        modules += [child for child in module._modules.values() if child is not None]
    weights = [weight for module in modules for weight in module._parameters.values() if weight is not None]
    if any(weight.is_inference() for weight in weights):  # loaded in inference mode: changes cannot be seen
        return None
    scorings = [vars(module)["scoring"] for module in modules if "scoring" in vars(module)]
    state = library, _are_hooked(modules), _fingerprint(library, weights), *scorings, *map(_address, weights)
    with _PACKING:
        known, model = _MODELS.get(network, (None, None))
        if known != state:
            model = None if why_on_torch(network) else pack_model(network, library)  # type: ignore[arg-type]
            _MODELS[network] = state, model
        return model


def _address(weight: Tensor) -> tuple[int, int]:
    return weight.data_ptr(), weight._version


def _fingerprint(library: Library, weights: Sequence[Tensor]) -> int:
    """A hash of every 251st number of the weights."""
    storages = (weight.untyped_storage() for weight in weights if weight.is_cpu)
    memory = {storage.data_ptr(): storage.nbytes() for storage in storages}
    addresses, sizes = np.array(list(memory), np.uintp), np.array(list(memory.values()), np.int64)
    found: int = library("fingerprint", len(memory), addresses.ctypes.data, sizes.ctypes.data)
    return found


def _are_hooked(modules: Sequence[nn.Module]) -> bool:
    """Whether a user runs code of their own in modules, by PyTorch's hooks or by another `forward`."""
    if _global_forward_hooks or _global_forward_pre_hooks:
        return True
    return any(each._forward_hooks or each._forward_pre_hooks or "forward" in vars(each) for each in modules)


def why_on_torch(network: Network) -> list[str]:
    """Returns what the engine does not hold of a network; nothing if it can run it."""
    weight, modules, config = network.embedding.weight, list(network.modules()), network.config
    others = sorted({type(each).__name__ for each in modules if type(each).__module__ not in KNOWN_MODULES})
    biases = [each.relative_bias for each in modules if isinstance(each, Stack) and each.relative_bias is not None]
    scorings = {vars(each)["scoring"] for each in modules if "scoring" in vars(each)}
    checks = (
        (weight.device.type == "cpu", f"it is on {weight.device}"),
        (weight.dtype == torch.float32, f"its precision is {str(weight.dtype).removeprefix('torch.')}"),
        (not others, f"it has {', '.join(others)}"),
        (all(type(each) is RelativeBias for each in biases), "its relative positions are not T5's"),
        (scorings <= {Scoring.of(config), Scoring.of(config, local=True)}, "its attention scores in a way of its own"),
        (not _are_hooked(modules), "modules have hooks"),
    )
    return [*reasons_against(config), *(reason for holds, reason in checks if not holds)]


@torch.inference_mode()
def pack_model(network: Transformer, library: Library) -> EngineModel:
    """Packs a model in float32 or int8."""
    modules = dict(network.named_modules())
    output = network.unembedding
    int8 = type(output).__module__ == "seq2see.decode.int8"

    def weight(name: str) -> Any:
        path, _, attribute = name.rpartition(".")
        if name == "unembedding.weight":
            value: Tensor | None = network.output_weights()[0]
        elif name == "unembedding_bias":
            value = getattr(output, "bias", None) if network.unembedding_bias is None else network.unembedding_bias
        elif attribute == "segment":
            segments = modules[path].segments
            value = None if segments is None else segments.weight[:1]
        else:
            value = getattr(modules[path], attribute)
        return None if value is None else value.numpy()

    encoder, decoder = _positions(network.encoder), _positions(network.decoder)
    return EngineModel(library, network.config, weight, encoder, decoder, int8)


def _positions(stack: Stack | None) -> Positions:
    if stack is None:
        return Positions()
    config, kind = stack.config, stack.position_kind
    if stack.positions is not None:
        return Positions(positions=stack.positions.weight.float().numpy())
    # An output may be longer than its source.
    length = min(MAX_ROWS, 2 * max(config.max_positions, config.actual_max_source_positions))
    if kind == "rotary":
        local = any(block.local for block in stack.blocks)
        return Positions(
            rotation=_rotation(stack, length, False), local_rotation=_rotation(stack, length, True) if local else None
        )
    if stack.relative_bias is not None:
        reach = config.relative_distance
        distances = torch.arange(-reach, reach + 1)
        return Positions(bias=stack.relative_bias(torch.zeros(1, dtype=torch.int64), distances)[:, 0].float().numpy())
    if kind.startswith("sinusoidal"):
        return Positions(positions=sinusoids(length, config.width, kind).numpy())
    return Positions()


def _rotation(stack: Stack, length: int, local: bool) -> Any:
    half = stack.config.actual_head_width // 2
    frequencies = rotary_frequencies(stack.config, local)
    cosines, sines = rotary_cos_sin(
        torch.arange(length), frequencies, stack.config.rotary_magnitude
    )  # [positions, 1, d]
    return torch.cat([cosines[:, 0, :half], sines[:, 0, :half]], dim=1).numpy()
