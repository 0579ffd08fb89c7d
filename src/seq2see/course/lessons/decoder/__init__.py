"""`decoder`: the decoder in training and in use, with the same probabilities.

In training the decoder reads the correct words and predicts at all positions in one pass (teacher forcing); in use it reads
its own output, one token at a time. Both compute the same numbers, thanks to the mask.
"""

from dataclasses import dataclass, replace

import torch

from seq2see.course.lessons import kit
from seq2see.data.layout import Packed
from seq2see.decode.generate import translate_tokens
from seq2see.decode.search import Search
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives


@dataclass(frozen=True)
class Position:
    """One position of the decoder, and the probability it gives to its target."""

    input: str
    target: str
    probability: float
    top: tuple[tuple[str, float], ...]  # the most probable tokens


@dataclass(frozen=True)
class Pass:
    sentence: str
    output: str
    positions: tuple[Position, ...]
    loss: float  # mean of −ln p


FORCED_TARGETS = ("मैं बढ़िया हूँ", "Je vais bien")  # of "I am good", in the languages of the bundled models
TIMING_RUNS, TIMING_TOKENS = 3, 128


@dataclass(frozen=True)
class Timing:
    """The same tokens through the decoder, all at once and one after another."""

    tokens: int
    parallel_seconds: float
    sequential_seconds: float


@dataclass(frozen=True)
class Result:
    steps: kit.Table
    vocab_size: int
    generated: Pass  # the model's own translation
    search_probabilities: tuple[float, ...]  # of the same tokens, from the search, one token at a time
    forced: Pass  # a given translation
    timing: Timing
    prefix_error: float  # largest difference in log-probability between `forced` and a separate pass over each prefix


def compute(
    sentence: str = "We are friends",
    forced_sentence: str = "I am good",
    forced_target: str = FORCED_TARGETS[0],
    model: kit.Model | None = None,
) -> Result:
    """Explains one sentence with the model's own translation, and one with a given translation."""
    model = kit.resolve_translator(model)
    generated, forced = (
        kit.explain_sentence(model, sentence),
        kit.explain_sentence(model, forced_sentence, forced_target),
    )
    if forced_target == FORCED_TARGETS[0]:  # in the language of the model
        others = [kit.explain_sentence(model, forced_sentence, target) for target in FORCED_TARGETS[1:]]
        forced = max((forced, *others), key=lambda e: float(e.target_logprobs.mean()))
    assert generated.hypothesis is not None
    return Result(
        kit.block_steps(generated, "decoder.0"),
        model.config.model.vocab_size,
        _pass(generated),
        tuple(torch.tensor(generated.hypothesis.logprobs).exp().tolist()),
        _pass(forced),
        _time(generated),
        _prefix_error(forced),
    )


def _pass(e: Explanation) -> Pass:
    positions = tuple(
        Position(
            token, target, float(p.exp()), tuple((each.token, each.probability) for each in alternatives(e, i, top=2))
        )
        for i, (token, target, p) in enumerate(
            zip(e.decoder_input_tokens, e.target_tokens, e.target_logprobs, strict=True)
        )
    )
    return Pass(e.source, e.output, positions, float(-e.target_logprobs.mean()))


@torch.no_grad()
def _prefix_error(e: Explanation) -> float:
    """Compares the last row of a pass over each prefix with the same row of the pass over everything."""
    source = Packed.from_sequences([e.source_ids])
    prefixes = [Packed.from_sequences([e.decoder_input_ids[: n + 1]]) for n in range(len(e.decoder_input_ids))]
    rows = [e.model.network(source, prefix)[-1].log_softmax(-1) for prefix in prefixes]
    return float((torch.stack(rows) - e.logprobs).abs().max())


@torch.no_grad()
def _time(e: Explanation) -> Timing:
    """Times one pass over tokens against decoding them one by one with a cache."""
    network, tokenizer = e.require_transformer("the timing"), e.model.tokenizers[1]
    tokens = min(TIMING_TOKENS, network.config.max_positions - 1)
    source, target = Packed.from_sequences([e.source_ids]), Packed.from_sequences([[tokenizer.start] * tokens])
    special = tokenizer.framing
    special = replace(special, banned=(*special.banned, special.end))  # so that both handle as many tokens
    search = Search(max_new_tokens=tokens)
    return Timing(
        tokens,
        kit.best_seconds(lambda: network(source, target), TIMING_RUNS),
        kit.best_seconds(lambda: translate_tokens(network, [list(e.source_ids)], special, search), TIMING_RUNS),
    )


def values(result: Result) -> kit.Values:
    pairs = list(zip(result.generated.positions, result.search_probabilities, strict=True))
    return {
        "pairs": pairs,
        "difference": max(abs(searched - p.probability) for p, searched in pairs),
        "times_as_long": result.timing.sequential_seconds / result.timing.parallel_seconds,
    }


def answers() -> kit.Values:
    probabilities = torch.tensor([0.5, 0.25, 0.5, 1.0], dtype=torch.float64)
    return {"loss": float(-probabilities.log().mean()), "product": float(probabilities.prod())}
