"""Rotary positions of other libraries' configurations, under their older and newer keys.

Every scaling for longer contexts comes down to two things: a divisor for each frequency, and a factor of the rotated vectors.
Two kinds depend on the length of the text and are exact only up to a limit, which becomes the context window: `dynamic`
changes nothing up to max_position_embeddings, `longrope` has one set of divisors up to original_max_position_embeddings.
"""

import math
from typing import Any

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.exchange.tables import ForeignConfig, Keys, Options, Rule

SECTIONS = ("rope_parameters", "rope_scaling")  # the newer key and the older one


def _read_rotary(config: ForeignConfig) -> Options:
    config.require("rope_interleaved", False)
    section = _section(config, config.fields, "rope_theta", 10000.0)
    return _options(config, section)


def _read_two_bases(config: ForeignConfig) -> Options:
    nested = config.fields.get("rope_parameters") or {}
    if "full_attention" not in nested:  # older files
        options = _options(config, _section(config, config.fields, "rope_theta", 1000000.0))
        return options | {"local_rotary_base": float(config.get("rope_local_base_freq", 10000.0))}
    config.get("rope_parameters", {})
    local = ForeignConfig(nested.get("sliding_attention") or {}, "rope_parameters.sliding_attention.", config.file)
    local.require("rope_type", "default")
    base = float(local.get("rope_theta", 10000.0))
    local.require_all_known()
    section = ForeignConfig(
        {"rope_theta": 1000000.0, **nested["full_attention"]}, "rope_parameters.full_attention.", config.file
    )
    return _options(config, section) | {"local_rotary_base": base}


def _section(config: ForeignConfig, fields: Any, base_key: str, default_base: float) -> ForeignConfig:
    """Returns the section about rotary positions, with the base, which older files keep outside of it."""
    present = [name for name in SECTIONS if fields.get(name)]
    name = present[-1] if present else SECTIONS[0]  # if a file has both, transformers takes the older one
    values = dict(config.get(name, {}))
    for other in present[:-1]:
        config.used.add(other)
    values.setdefault("rope_theta", config.get(base_key, default_base))
    if config.fields.get("partial_rotary_factor") is not None:
        values.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    if config.fields.get("original_max_position_embeddings") is not None:
        values["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    return ForeignConfig(values, f"{name}.", config.file)


def _options(config: ForeignConfig, section: ForeignConfig) -> Options:
    kind = section.fields.get("rope_type") or section.fields.get("type") or "default"
    section.used.update(("rope_type", "type"))
    if kind not in _SCALINGS:
        raise UserError(
            f"{config.file}: {section.section}rope_type = {kind!r} is not supported; supported: {', '.join(_SCALINGS)}"
        )
    section.require("partial_rotary_factor", 1.0, 1)
    base = float(section["rope_theta"])
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    window = config["max_position_embeddings"]
    plain = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
    try:
        frequencies, magnitude, window = _SCALINGS[kind](section, plain, base, window)
    except (TypeError, ZeroDivisionError, RuntimeError) as error:
        raise UserError(f"{config.file}: {section.section} does not describe {kind} scaling: {error}") from error
    section.require_all_known(("original_max_position_embeddings",) if kind in ("default", "linear", "dynamic") else ())
    factors = (plain.double() / frequencies.double()).tolist()
    return {
        "rotary_base": base,
        "rotary_factors": () if torch.equal(plain, frequencies) else tuple(factors),
        "rotary_magnitude": magnitude,
        "max_positions": window,
    }


Scaled = tuple[Tensor, float, int]  # frequencies, magnitude, context window


def _default(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    return plain, 1.0, window


def _linear(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    return plain / section["factor"], 1.0, window


def _dynamic(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    section.used.add("factor")  # takes effect beyond the window only
    return plain, 1.0, window


def _llama3(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    """Keeps short wavelengths, divides long ones by the factor, and interpolates between."""
    factor, low, high = (section[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = section.get("original_max_position_embeddings", window)
    wavelengths = 2 * math.pi / plain
    scaled = torch.where(wavelengths > context / low, plain / factor, plain)
    smooth = (context / wavelengths - low) / (high - low)
    between = ~(wavelengths < context / high) * ~(wavelengths > context / low)
    return torch.where(between, (1 - smooth) * scaled / factor + smooth * scaled, scaled), 1.0, window


def _yarn(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    """Keeps fast rotations, divides slow ones by the factor, with a ramp between; stretches the vectors."""
    context = section.get("original_max_position_embeddings", window)
    factor = section.get("factor", window / context)
    width = 2 * len(plain)

    def dimension(rotations: float) -> float:
        return (width * math.log(context / (rotations * 2 * math.pi))) / (2 * math.log(base))

    low, high = dimension(section.get("beta_fast", 32) or 32), dimension(section.get("beta_slow", 1) or 1)
    if section.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(len(plain), dtype=torch.float32) - low) / ((high - low) or 0.001)).clamp(0, 1)
    powers = base ** (torch.arange(0, width, 2).float() / width)
    kept = 1 - ramp
    frequencies = 1.0 / (factor * powers) * (1 - kept) + 1.0 / powers * kept

    def stretch(strength: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0

    strength, all_strength = section.get("mscale", 0), section.get("mscale_all_dim", 0)
    default = stretch(strength) / stretch(all_strength) if strength and all_strength else stretch(1)
    return frequencies, float(section.get("attention_factor", default)), window


def _longrope(section: ForeignConfig, plain: Tensor, base: float, window: int) -> Scaled:
    """Divides each frequency by its own factor: the short factors, which apply up to the original context."""
    context = section["original_max_position_embeddings"]
    factor = section.get("factor", window / context)
    divisors, _ = section["short_factor"], section["long_factor"]
    default = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(context))
    width = 2 * len(plain)
    powers = base ** (torch.arange(0, width, 2).float() / width)
    frequencies = 1.0 / (torch.tensor(divisors, dtype=torch.float32) * powers)
    return frequencies, float(section.get("attention_factor", default)), min(window, context)


_SCALINGS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}


def _write_rotary(config: ModelConfig) -> Keys:
    """Writes the older keys, which all versions of transformers read."""
    scaling, window = _scaling(config), config.max_positions
    return {"rope_theta": config.rotary_base, "rope_scaling": scaling, "max_position_embeddings": window}


def _scaling(config: ModelConfig) -> Keys | None:
    """Any divisors can be written as longrope, which has one for each frequency; equal ones are linear."""
    width, window = config.actual_head_width, config.max_positions
    divisors = config.rotary_factors or (1.0,) * (width // 2)
    if config.rotary_magnitude == 1:
        plain = 1.0 / config.rotary_base ** (torch.arange(0, width, 2).float() / width)
        frequencies = (plain.double() / torch.tensor(divisors, dtype=torch.float64)).float()
        factor = round(divisors[0], 6)
        if torch.equal(plain, frequencies):
            return None
        if torch.equal(plain / factor, frequencies):
            return {"rope_type": "linear", "factor": factor}
    factors = {"short_factor": list(divisors), "long_factor": list(divisors), "factor": 1.0}
    limits = {"attention_factor": config.rotary_magnitude, "original_max_position_embeddings": window}
    return {"rope_type": "longrope", **factors, **limits}


def _write_two_bases(config: ModelConfig) -> Keys:
    return {**_write_rotary(config), "rope_local_base_freq": config.local_rotary_base or config.rotary_base}


ROTARY = Rule(_read_rotary, _write_rotary)  # one kind of rotary positions for all layers
TWO_ROTARY_BASES = Rule(_read_two_bases, _write_two_bases)  # local layers have a base of their own (Gemma 3)
