"""`cross`: cross-attention. Queries come from the output sequence, keys and values from the input sequence.

The two may therefore differ in length and order. A model's own translations show it. The second example of the notes is
French, so a small model is trained on French phrases on the spot; their adjectives follow the noun in reverse order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from random import Random

import torch

from seq2see.api import Model
from seq2see.config import Config
from seq2see.course.lessons.attention import Matrix, attention, to_matrix
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, resolve_translator
from seq2see.course.lessons.render import (
    ATTENTION,
    SLIDES,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    matrix_table,
)
from seq2see.course.lessons.training import build_model, prepare_dataset, train
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
    weights: Matrix
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
    sentences: Sequence[str] = SENTENCES, steps: int = 120, seed: int = 1, model: Model | None = None
) -> Result:
    """Aligns a model's own translations, and a French phrase by a model trained here."""
    model = resolve_translator(model)
    aligned = tuple(_align(explain_sentence(model, sentence)) for sentence in sentences)
    return Result(aligned, *_train_french(steps, seed))


def _align(e: Explanation) -> CrossAttention:
    layer = e.model.config.model.decoder_layers - 1
    alignment = word_alignment(e, (LayerHead(layer),))
    links = tuple(alignment.links)
    crossings = sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(links) for c, d in links[:i])
    shapes = [
        tuple(e.trace[f"decoder.{layer}.{kind}.{name}"].shape)
        for kind in ("cross", "masked")
        for name in ("queries", "keys")
    ]
    weights = alignment.weights
    return CrossAttention(
        alignment.source_words, alignment.target_words, to_matrix(weights), tuple((1 - weights.sum(-1)).tolist()), links,
        crossings, f"decoder.{layer}.cross", *shapes,
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
    with prepare_dataset(phrases[99:], test, seed) as dataset:
        config = replace(dataset.model_config, heads=2, encoder_layers=1, decoder_layers=1)
        transformer = build_model(config, seed)
        train(transformer, dataset, steps, seed)
        tokenizers = (dataset.tokenizer, dataset.tokenizer)
        model = Model(Config(model=config), transformer.eval(), tokenizers, {})
        translations = model.translate_sentences([english for english, _ in test])
        correct = sum(text == french for text, (_, french) in zip(translations, test, strict=True))
        return _align(explain_sentence(model, PHRASE[0])), correct / len(test)


def describe(result: Result) -> LessonText:
    first, french = result.sentences[0], result.french
    aligned = (*result.sentences, french)
    sizes = tuple((" ".join(each.source), len(each.source), len(each.target), each.crossings) for each in aligned)
    crossing = sum(each.crossings > 0 for each in aligned)
    phrases = len(DETERMINERS) * len(NOUNS) * 101 - 100
    return LessonText(
        "each row, one word of the translation, and where it looks in the source. If both languages had the same order, the "
        "dark cells would lie on the diagonal.",
        (_weights(first),),
        (
            f"{len(first.source)} source words, {len(first.target)} target words, {first.crossings} pairs of links that cross.",
            _weights(french),
        ),
        "Queries come from the output, keys and values from the input: there are as many results as queries, so length "
        f"and order may differ. In {crossing} of these {len(aligned)} translations links cross. A row adds to 1; what a "
        "word does not need from the source, it often leaves on <end>.",
        Library(
            "q = queries(decoder_vectors); k, v = keys_values(encoder_vectors)\n"
            'e = model.explain("I like eating ice-cream"); word_alignment(e).links',
            "inspect/alignment.py",
            (
                ViewLink("this translation and its attention", "translate", {"text": " ".join(first.source)}),
                ViewLink("every head", "heads", {"text": " ".join(first.source), "attention": first.attention}),
            ),
        ),
        (
            Section(
                "One word for two, two for one",
                (
                    *(_weights(each) for each in result.sentences[1:]),
                    Table(("", "source words", "target words", "crossing links"), sizes),
                ),
            ),
            Section(
                "Self-attention and cross-attention side by side",
                (
                    Table(
                        ("", "self-attention", "cross-attention"),
                        (
                            ("queries from", "the output so far", "the output so far"),
                            ("keys and values from", "the output so far", "the source sentence"),
                            ("queries", _shape(first.self_query_shape), _shape(first.query_shape)),
                            ("keys", _shape(first.self_key_shape), _shape(first.key_shape)),
                            (
                                "table of weights",
                                _square(first.self_query_shape, first.self_key_shape),
                                _square(first.query_shape, first.key_shape),
                            ),
                            ("results, one per query", str(first.self_query_shape[0]), str(first.query_shape[0])),
                            ("masked", "yes: no later words", "no: the whole source is known"),
                        ),
                        f'"{" ".join(first.source)}" in the last layer (tokens × heads × width):',
                    ),
                    "The same formula, softmax(QKᵀ/√d) V, twice. One looks around in its own sequence, the other across into "
                    "another. That other sequence need not be text: picture patches or frames of sound serve as well, for "
                    "captions and speech (lesson: patches).",
                ),
            ),
            Section(
                "The French phrase",
                (
                    f"The French model was trained on {phrases:,} phrases just now. It translates {result.accuracy:.0%} of 100 "
                    f'others correctly; "{PHRASE[0]}" becomes {" ".join(french.target)}'
                    + (
                        " — correct."
                        if " ".join(french.target) == PHRASE[1]
                        else f", where {PHRASE[1]} would be correct."
                    ),
                    "The weights are the mean over the heads of the last layer, at the position that predicts the word.",
                ),
            ),
        ),
        (Try("A sentence of your own.", {"sentences": "Thank you for the letter."}),),
        (
            Note(
                ATTENTION,
                'Cross-attention is the "first instance where Encoder & Decoder input meets": "query come from output '
                "sequence, "
                'key & value input sequence", and the number of outputs is that of the output sequence.',
            ),
            Note(SLIDES, '"La Zone Economique Europeene" is spelled La Zone Économique Européenne.'),
        ),
    )


def _weights(each: CrossAttention) -> Table:
    """The weights with the column of <end>, so that each row adds to 1."""
    rows = [(*row, rest) for row, rest in zip(each.weights, each.end_weights, strict=True)]
    caption = f'"{" ".join(each.source)}" → {" ".join(each.target)}'
    return matrix_table(rows, each.target, (*each.source, "<end>"), caption, shaded=True)


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _square(queries: Sequence[int], keys: Sequence[int]) -> str:
    return f"{queries[0]} × {keys[0]}" + (", square" if queries[0] == keys[0] else ", rectangular")


def exercises() -> tuple[Exercise, ...]:
    queries, keys = torch.empty(5, 64, device="meta"), torch.empty(8, 64, device="meta")
    steps = attention(
        torch.zeros(1, 2), torch.tensor([[1.0, 0], [0, 1], [3, 3]]), torch.tensor([[6.0, 0], [0, 0], [0, 0]])
    )
    return (
        Exercise(
            "The decoder has 5 tokens, the source 8 with <end>. How many weights has one head's table?",
            float((queries @ keys.mT).numel()),
            "5 queries × 8 keys.",
        ),
        Exercise("How many vectors does cross-attention return for them?", float(len(queries)), "One per query."),
        Exercise(
            "A query of zeros meets three keys; the values are (6, 0), (0, 0) and (0, 0). What is the first number of "
            "the result?",
            steps.output[0][0],
            "All scores are 0, so all weights are 1/3.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, any_script=True)
    for ax, each in zip(axes, (result.sentences[0], result.french), strict=True):
        rows = [(*row, rest) for row, rest in zip(each.weights, each.end_weights, strict=True)]
        heatmap(ax, rows, each.target, (*each.source, "<end>"), " ".join(each.source))
    save_figure(figure, path)
