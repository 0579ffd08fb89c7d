"""Runs the engine as decoding does, but without torch: what the tests of this folder share."""

from collections.abc import Sequence

import numpy as np
import torch

from seq2see.config import ModelConfig
from seq2see.config.search import Search
from seq2see.data.framing import Framing
from seq2see.decode.engine_model import pack_model
from seq2see.engine.library import open_library, processors
from seq2see.engine.model import EngineBatch, EngineModel, Found, Rules
from seq2see.model.transformer import Transformer

FRAMING = Framing(pad=0, start=1, end=2, prompt=(1,), banned=(0, 1))
Texts = Sequence[Sequence[int]]
GREEDY = Search()


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model whose probabilities are neither flat nor certain; biases and gains are random, too."""
    torch.manual_seed(seed)
    network = Transformer(config).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight), alpha=0.2)
            elif "bias" in name or "embedding" in name:
                weight.copy_(torch.randn_like(weight) * 0.3)
    return network


def random_texts(count: int, vocabulary: int, seed: int = 0, longest: int = 30) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, vocabulary, generator.integers(1, longest)).tolist() for _ in range(count)]


def rules_of(search: Search, framing: Framing, limit: int) -> Rules:
    lengths = torch.arange(limit + 1.0) + framing.forced
    at_limit = search.early_stopping == "never" and search.length_penalty > 0
    return Rules(
        search.beam,
        framing.end,
        search.early_stopping is True,
        at_limit,
        search.divisor(lengths).numpy(),
        framing.banned,
        framing.banned_first,
    )


def engine_search(
    model: EngineModel,
    sources: Texts,
    prompts: Texts,
    limits: Sequence[int],
    search: Search = GREEDY,
    framing: Framing = FRAMING,
    together: int = 8,
) -> list[list[Found]]:
    """Decodes with at most so many sentences together; they join as others leave."""
    batch = EngineBatch(model, rules_of(search, framing, max(limits)), together)
    waiting, running, found = list(range(len(prompts))), list[int](), dict[int, list[Found]]()
    while waiting or running:
        new, waiting = waiting[: together - len(running)], waiting[together - len(running) :]
        if new:
            batch.join([sources[i] for i in new], [prompts[i] for i in new], [limits[i] for i in new])
            running += new
        batch.run()
        for row in reversed(range(len(running))):
            if batch.is_done(row):
                found[running[row]] = batch.hypotheses(row, search.nbest)
                batch.leave(row)
                running[row] = running[-1]
                running.pop()
    return [found[i] for i in range(len(prompts))]


def packed(network: Transformer, processor: str = "") -> EngineModel:
    return pack_model(network, open_library(processor or processors()[-1]))
