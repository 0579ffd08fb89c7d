"""`cross`: the output's words ask the input's. Queries come from one sequence, keys and values from the other.

So the two may be of unlike length, and in another order. A model's own translations show it; and because the notes' other
example is French, a small model is taught French phrases on the spot, in which adjectives follow their noun backwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from random import Random

from seq2see.api import Model
from seq2see.config import Config
from seq2see.course.lessons.models import read, translator
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Grid, Story, matrix
from seq2see.course.lessons.training import material, train, untrained
from seq2see.course.lessons.worked_attention import Table, as_table
from seq2see.inspect.alignment import View, word_alignment
from seq2see.inspect.explain import Explanation

CLAIM = (
    'cross-attention, the "first instance where Encoder & Decoder input meets". The notes: the query comes from the '
    "output sequence, key and value from the input sequence, and there are as many outputs as queries: so order and "
    "size may differ."
)
SENTENCES = ("I like eating ice-cream", "Congratulations", "Thank you")
PHRASE = ("The European Economic Area", "La Zone Économique Européenne")
THE = {"The": "La", "A": "Une", "My": "Ma"}
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
class Crossed:
    """One translation: weights[t][s], from target word t to source word s; what is missing to 1 went to <end>."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Table
    links: tuple[tuple[int, int], ...]  # (source word, target word)
    crossings: int  # pairs of links that change places
    queries: tuple[int, ...]  # shapes in the last layer
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Cross:
    sentences: tuple[Crossed, ...]
    french: Crossed
    right: float  # share of unseen French phrases translated rightly


def cross(sentences: Sequence[str] = SENTENCES, steps: int = 120, seed: int = 1, model: Model | None = None) -> Cross:
    """A model's own translations, and a French phrase by a model that is taught here."""
    chosen = translator(model)
    return Cross(tuple(_crossed(read(chosen, text)) for text in sentences), *_french(steps, seed))


def _crossed(e: Explanation) -> Crossed:
    layer = e.model.config.model.decoder_layers - 1
    made = word_alignment(e, (View(layer),))
    links = tuple(made.links)
    crossings = sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(links) for c, d in links[:i])
    shapes = (tuple(e.trace[f"decoder.{layer}.cross.{name}"].shape) for name in ("queries", "keys"))
    return Crossed(made.sources, made.targets, as_table(made.weights), links, crossings, *shapes)


def _french(steps: int, seed: int) -> tuple[Crossed, float]:
    phrases = [
        (
            " ".join((the, *adjectives, noun)),
            " ".join((THE[the], NOUNS[noun], *(ADJECTIVES[a] for a in adjectives[::-1]))),
        )
        for the, noun in product(THE, NOUNS)
        for count in (0, 1, 2)
        for adjectives in permutations(ADJECTIVES, count)
    ]
    phrases.remove(PHRASE)
    Random(seed).shuffle(phrases)
    test = [PHRASE, *phrases[:99]]
    with material(phrases[99:], test, seed) as given:
        transformer = untrained(replace(given.model, heads=2, encoder_layers=1, decoder_layers=1), seed)
        train(transformer, given, steps, seed)
        tokenizers = (given.tokenizer, given.tokenizer)
        model = Model(Config(model=transformer.config), transformer.eval(), tokenizers, {})
        right = [made == phrase[1] for made, phrase in zip(model.translate([p[0] for p in test]), test, strict=True)]
        return _crossed(read(model, PHRASE[0])), sum(right) / len(test)


def story(result: Cross) -> Story:
    parts: list[str | Grid] = []
    for each in (*result.sentences, result.french):
        said = f'"{" ".join(each.source)}" → {" ".join(each.target)}'
        parts.append(matrix(each.weights, each.target, each.source, f"{said}: a row looks", shaded=True))
    first = result.sentences[0]
    sizes = tuple(
        (" ".join(each.source), len(each.source), len(each.target), each.crossings)
        for each in (*result.sentences, result.french)
    )
    heads, width = first.queries[1:]
    return Story(
        CLAIM,
        (
            *parts,
            Grid(("", "words in", "words out", "links that cross"), sizes),
            f"In the last layer of the first: queries {first.queries[0]} × {heads} × {width} (tokens of the output), keys and "
            f"values {first.keys[0]} × {heads} × {width} (tokens of the input, <end> among them). The weights are the mean "
            "of that layer's heads, at the place that is about to write the word.",
        ),
        "the bright cells do not lie on the diagonal: Hindi puts the verb last, French the adjective after the noun. "
        "One word may answer for two, and two for one. The French model was taught "
        f"{len(THE) * len(NOUNS) * 101 - 100:,} phrases just now and translates {result.right:.0%} of 100 others rightly, "
        "the notes' among them.",
        ('"La Zone Economique Europeene" is La Zone Économique Européenne.',),
    )  # fmt: skip


def draw(result: Cross, path: Path | str) -> None:
    figure, axes = panels(2, any_script=True)
    for side, each in zip(axes, (result.sentences[0], result.french), strict=True):
        heat(side, each.weights, each.target, each.source, " ".join(each.source))
    save(figure, path)
