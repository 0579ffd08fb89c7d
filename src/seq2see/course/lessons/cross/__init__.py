"""`cross`: cross-attention. Queries come from the output sequence, keys and values from the input sequence.

The two may therefore differ in length and order. A model's own translations show it. The second example of the notes is
French, so a small model is trained on French phrases on the spot; their adjectives follow the noun in reverse order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from random import Random
from typing import Annotated

import torch

from seq2see.config import Config
from seq2see.course.lessons import kit
from seq2see.inspect.alignment import LayerHead, word_alignment
from seq2see.inspect.explain import Explanation

SENTENCES = ("I like eating ice-cream", "Congratulations", "Thank you")
PHRASE = ("The European Economic Area", "La Zone Économique Européenne")
DETERMINERS = {"The": "La", "A": "Une", "My": "Ma"}
ADJECTIVES = {
    "European": "Européenne", "Economic": "Économique", "Public": "Publique", "Central": "Centrale",
    "National": "Nationale", "French": "Française", "Social": "Sociale", "Military": "Militaire",
    "Scientific": "Scientifique", "Modern": "Moderne",
}  # fmt: skip
NOUNS = {
    "Area": "Zone", "Bank": "Banque", "Court": "Cour", "Commission": "Commission", "Republic": "République",
    "Culture": "Culture", "Region": "Région", "Society": "Société", "Force": "Force", "Conference": "Conférence",
}  # fmt: skip


@dataclass(frozen=True)
class CrossAttention:
    """One translation. `weights[t][s]`: from target word t to source word s; the rest of a row goes to <end>."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: kit.Matrix
    end_weights: tuple[float, ...]  # on <end> and other tokens that are no word: rows add to 1 with them
    links: tuple[tuple[int, int], ...]  # (source word, target word)
    crossings: int  # pairs of links that cross
    attention: str  # of the last layer
    query_shape: tuple[int, ...]
    key_shape: tuple[int, ...]
    self_query_shape: tuple[int, ...]  # of the masked self-attention of that layer
    self_key_shape: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    sentences: tuple[CrossAttention, ...]
    french: CrossAttention
    accuracy: float  # share of test phrases translated correctly into French


def compute(
    sentences: Sequence[str] = SENTENCES,
    steps: Annotated[int, kit.Bounds(10, 200)] = 120,
    seed: kit.Seed = 1,
    model: kit.Model | None = None,
) -> Result:
    """Aligns a model's own translations, and a French phrase by a model trained here."""
    model = kit.resolve_translator(model)
    aligned = tuple(_align(kit.explain_sentence(model, sentence)) for sentence in sentences)
    return Result(aligned, *_train_french(steps, seed))


def _align(e: Explanation) -> CrossAttention:
    layer = e.model.config.model.decoder_layers - 1
    alignment = word_alignment(e, (LayerHead(layer),))
    links = tuple(alignment.links)
    crossings = sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(links) for c, d in links[:i])
    shapes = [
        tuple(e.trace[f"decoder.{layer}.{kind}.{name}", 0].shape)
        for kind in ("cross", "masked")
        for name in ("queries", "keys")
    ]
    weights = alignment.weights
    return CrossAttention(
        alignment.source_words, alignment.target_words, kit.to_matrix(weights), tuple((1 - weights.sum(-1)).tolist()),
        links, crossings, f"decoder.{layer}.cross", *shapes,
    )  # fmt: skip


def _train_french(steps: int, seed: int) -> tuple[CrossAttention, float]:
    phrases = [
        (
            " ".join((determiner, *adjectives, noun)),
            " ".join((DETERMINERS[determiner], NOUNS[noun], *(ADJECTIVES[a] for a in adjectives[::-1]))),
        )
        for determiner, noun in product(DETERMINERS, NOUNS)
        for count in (0, 1, 2)
        for adjectives in permutations(ADJECTIVES, count)
    ]
    phrases.remove(PHRASE)
    Random(seed).shuffle(phrases)
    test = [PHRASE, *phrases[:99]]
    with kit.prepare_dataset(phrases[99:], test, seed) as dataset:
        config = replace(dataset.model_config, heads=2, encoder_layers=1, decoder_layers=1)
        transformer = kit.build_model(config, seed)
        kit.train(transformer, dataset, steps, seed)
        tokenizers = (dataset.tokenizer, dataset.tokenizer)
        model = kit.Model(Config(model=config), transformer.eval(), tokenizers, {})
        translations = model.translate_sentences([english for english, _ in test])
        correct = sum(text == french for text, (_, french) in zip(translations, test, strict=True))
        return _align(kit.explain_sentence(model, PHRASE[0])), correct / len(test)


def values(result: Result) -> kit.Values:
    first, aligned = result.sentences[0], (*result.sentences, result.french)
    return {
        "tables": [_weights(each) for each in aligned],
        "aligned": aligned,
        "crossing": sum(each.crossings > 0 for each in aligned),
        "size_rows": [(" ".join(each.source), len(each.source), len(each.target), each.crossings) for each in aligned],
        "squares": (_square(first.self_query_shape, first.self_key_shape), _square(first.query_shape, first.key_shape)),
        "phrases": len(DETERMINERS) * len(NOUNS) * 101 - 100,
        "french_output": " ".join(result.french.target),
    }


def _weights(each: CrossAttention) -> kit.Table:
    """The weights with the column of <end>, so that each row adds to 1."""
    rows = [(*row, rest) for row, rest in zip(each.weights, each.end_weights, strict=True)]
    caption = f'"{" ".join(each.source)}" → {" ".join(each.target)}'
    return kit.matrix(rows, each.target, (*each.source, "<end>"), caption, shaded=True)


def _square(queries: Sequence[int], keys: Sequence[int]) -> str:
    return f"{queries[0]} × {keys[0]}" + (", square" if queries[0] == keys[0] else ", rectangular")


def answers() -> kit.Values:
    queries, keys = torch.empty(5, 64, device="meta"), torch.empty(8, 64, device="meta")
    steps = kit.attention(
        torch.zeros(1, 2), torch.tensor([[1.0, 0], [0, 1], [3, 3]]), torch.tensor([[6.0, 0], [0, 0], [0, 0]])
    )
    return {"weights": float((queries @ keys.mT).numel()), "vectors": float(len(queries)), "mean": steps.output[0][0]}
