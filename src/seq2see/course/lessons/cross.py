"""`cross`: cross-attention. Queries come from the output sequence, keys and values from the input sequence.

The two may therefore differ in length and order. A model's own translations show it. The second example of the notes is
French, so a small model is trained on French phrases on the spot; their adjectives follow the noun in reverse order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from random import Random

from seq2see.api import Model
from seq2see.config import Config
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, resolve_translator
from seq2see.course.lessons.render import LessonText, Table, matrix_table
from seq2see.course.lessons.training import build_model, prepare_dataset, train
from seq2see.inspect.alignment import LayerHead, word_alignment
from seq2see.inspect.explain import Explanation

INTRODUCTION = (
    'Cross-attention, the "first instance where Encoder & Decoder input meets". The notes: the query comes from the output '
    "sequence, key and value from the input sequence, and there are as many outputs as queries: so order and length may "
    "differ."
)
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
    """One translation. `weights[t][s]`: from target word t to source word s; the remainder goes to <end>."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Matrix
    links: tuple[tuple[int, int], ...]  # (source word, target word)
    crossings: int  # pairs of links that cross
    query_shape: tuple[int, ...]  # in the last layer
    key_shape: tuple[int, ...]


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
    shapes = (tuple(e.trace[f"decoder.{layer}.cross.{name}"].shape) for name in ("queries", "keys"))
    return CrossAttention(
        alignment.source_words, alignment.target_words, to_matrix(alignment.weights), links, crossings, *shapes
    )


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
    aligned = (*result.sentences, result.french)
    tables = [
        matrix_table(
            each.weights, each.target, each.source,
            f'"{" ".join(each.source)}" → {" ".join(each.target)}: rows are queries', shaded=True,
        )
        for each in aligned
    ]  # fmt: skip
    first = result.sentences[0]
    sizes = tuple((" ".join(each.source), len(each.source), len(each.target), each.crossings) for each in aligned)
    heads, width = first.query_shape[1:]
    return LessonText(
        INTRODUCTION,
        (
            *tables,
            Table(("", "source words", "target words", "crossing links"), sizes),
            f"In the last layer, for the first sentence: queries {first.query_shape[0]} × {heads} × {width} (output tokens), "
            f"keys and values {first.key_shape[0]} × {heads} × {width} (input tokens, including <end>). The weights are the "
            "mean over the heads of that layer, at the position that predicts the word.",
        ),
        "The large weights are not on the diagonal: Hindi puts the verb last, French the adjective after the noun. One word "
        "may correspond to two, and two to one. The French model was trained on "
        f"{len(DETERMINERS) * len(NOUNS) * 101 - 100:,} phrases just now and translates {result.accuracy:.0%} of 100 others "
        "correctly, including that of the notes.",
        ('"La Zone Economique Europeene" is spelled La Zone Économique Européenne.',),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, any_script=True)
    for ax, each in zip(axes, (result.sentences[0], result.french), strict=True):
        heatmap(ax, each.weights, each.target, each.source, " ".join(each.source))
    save_figure(figure, path)
