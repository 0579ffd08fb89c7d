"""`senses`: the same word in several sentences, layer by layer.

Looked up, a word has one vector, the mean of all that it can mean; in the layers above, its sentence has its say. Cosines
between the occurrences show it, and the translations tell whether the model understood. On WiC, pairs of sentences in which a
word means the same or not, the same cosine is put to the test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from seq2see.api import Model
from seq2see.course.lessons.models import bundled
from seq2see.course.lessons.pictures import label, panels, save
from seq2see.course.lessons.render import Grid, Row, Story
from seq2see.course.lessons.wic import WiC, wic_accuracy
from seq2see.course.lessons.worked_attention import Table, as_table
from seq2see.errors import UserError
from seq2see.inspect.token_similarity import senses as senses_of

WORDS: Mapping[str, Sequence[str]] = {
    "bank": (
        "The money in the bank grows.", "I did not withdraw money from the bank.", "There is a duck on the river bank.",
        "There is a tree on the bank.",
    ),
    "apple": ("Apple is healthy.", "Apple is better than orange.", "Apple makes great phones."),
    "mole": (
        "American shrew mole", "There is a mole in the garden.", "One mole of carbon dioxide", "Take a biopsy of the mole.",
        "The police caught the mole.",
    ),
    "fit": ("Our sister is fit.", "The mango is fit to eat.", "The shoe does not fit me."),
}  # fmt: skip


@dataclass(frozen=True)
class Word:
    word: str
    sentences: tuple[str, ...]
    translations: tuple[str, ...]
    places: tuple[str, ...]
    cosines: tuple[Table, ...]  # [place][sentence][sentence]
    means: tuple[float, ...]  # over the pairs, at each place


@dataclass(frozen=True)
class Senses:
    words: tuple[Word, ...]
    wic: WiC | None


def senses(words: Mapping[str, Sequence[str]] = WORDS, wic: str | None = None, model: Model | None = None) -> Senses:
    """Every word in its sentences; `wic` is a folder with WiC's data and gold files."""
    chosen = bundled(model)
    found = tuple(_word(chosen, word, sentences) for word, sentences in words.items())
    return Senses(found, None if wic is None else wic_accuracy(chosen, Path(wic), found[0].places))


def _word(model: Model, word: str, sentences: Sequence[str]) -> Word:
    found = senses_of(model, word, sentences)
    if lacking := [sentence for sentence in sentences if sentence not in found.sentences]:
        raise UserError(f'"{word}" is not in "{lacking[0]}": every sentence needs the word itself')
    if len(found.sentences) < 2:
        raise UserError(f'1 sentence with "{word}": two at least, to be compared')
    translated: list[str] = []
    if model.config.model.shape == "encoder-decoder":
        translated = model.translate(found.sentences)
    pairs = list(combinations(range(len(found.sentences)), 2))
    means = tuple(sum(float(table[i, j]) for i, j in pairs) / len(pairs) for table in found.cosines)
    return Word(
        word, found.sentences, tuple(translated), found.places, tuple(as_table(table) for table in found.cosines), means
    )


def story(result: Senses) -> Story:
    parts: list[str | Grid] = []
    for word in result.words:
        rows: list[Row] = [
            (i + 1, sentence, word.translations[i] if word.translations else "")
            for i, sentence in enumerate(word.sentences)
        ]
        parts.append(Grid(("", "", ""), tuple(rows), f'"{word.word}":'))
        pairs = list(combinations(range(len(word.sentences)), 2))[:10]
        table: list[Row] = [
            (_place(name), *(word.cosines[p][i][j] for i, j in pairs), word.means[p])
            for p, name in enumerate(word.places)
        ]
        parts.append(Grid(("cosine of", *(f"{i + 1}·{j + 1}" for i, j in pairs), "mean"), tuple(table)))
    if result.wic is not None:
        wic = result.wic
        rows_of_wic = tuple(zip(map(_place, wic.places), wic.thresholds, wic.train, wic.dev, strict=True))
        caption = f"WiC, {wic.pairs} pairs (always the same answer: {wic.yes:.3f}):"
        parts.append(Grid(("", "threshold", "train", "dev"), rows_of_wic, caption, 3))
    falls = [f'"{word.word}" {word.means[0]:.2f} → {word.means[-1]:.2f}' for word in result.words]
    return Story(
        'context changes meaning. The notes: static embeddings give "bank" the same vector by the money and by the river; '
        'after the first step "mole" means "the sum" of all it can mean, and only then have its neighbours "the chances to '
        'pass the contextual information".',
        tuple(parts),
        f"looked up, a word is the same everywhere (cosine 1); layer by layer its sentences part it: {', '.join(falls)}. "
        "Where the meanings differ the cosine should fall further than where they agree; the translations show whether the "
        "model told them apart." + ("" if result.wic else " (--set wic=FOLDER measures it on the pairs of WiC.)"),
    )


def _place(name: str) -> str:
    what = name.split(".")[1]
    return {"embedded": "looked up", "input": "+ position", "vectors": "at the end"}.get(what, f"block {what}")


def draw(result: Senses, path: Path | str) -> None:
    figure, axes = panels(2, (len(result.words) + 1) // 2)
    for side, word in zip(axes, result.words, strict=False):
        for i, j in combinations(range(len(word.sentences)), 2):
            heights = [table[i][j] for table in word.cosines]
            side.plot(range(len(heights)), heights, "o-", markersize=3, linewidth=1, label=f"{i + 1} · {j + 1}")
        side.set_xticks(range(len(word.places)), [_place(name) for name in word.places], rotation=30, fontsize=7)
        side.set_ylim(0, 1.05)
        label(side, f'"{word.word}": two sentences', "", "cosine")
        side.legend(frameon=False, fontsize=7, ncols=2)
    save(figure, path)
