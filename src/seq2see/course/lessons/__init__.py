"""The notes' lessons: what they explain, computed by the library when asked.

    seq2see.course.lessons.context()               the numbers of one, in a frozen dataclass
    seq2see lesson context                  the same told in a terminal

Each lesson is a file with two or three functions: the one that computes and bears the lesson's name, whose arguments are the
notes' tables and sentences until somebody brings others; `story(result)`, which puts the numbers into the form that
`telling` shows; and, where there is a picture, `draw(result, path)`. What one that trains claims is its `CLAIM`, to be read
before. `LESSONS` lists them in the notes' order and imports none, so that listing them costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.errors import UsageError, nearest

if TYPE_CHECKING:
    from seq2see.course.lessons.decoder_block import decoder as decoder
    from seq2see.course.lessons.dot_products import scaling as scaling
    from seq2see.course.lessons.encoder_block import encoder as encoder
    from seq2see.course.lessons.many_heads import heads as heads
    from seq2see.course.lessons.masking import mask as mask
    from seq2see.course.lessons.meaning_directions import directions as directions
    from seq2see.course.lessons.measures import similarity as similarity
    from seq2see.course.lessons.next_token import next as next
    from seq2see.course.lessons.positional_encoding import positions as positions
    from seq2see.course.lessons.render import Story
    from seq2see.course.lessons.soft_lookup import lookup as lookup
    from seq2see.course.lessons.two_norms import norms as norms
    from seq2see.course.lessons.two_sequences import cross as cross
    from seq2see.course.lessons.without_mask import leak as leak
    from seq2see.course.lessons.without_positions import order as order
    from seq2see.course.lessons.without_scaling import saturation as saturation
    from seq2see.course.lessons.word_senses import senses as senses
    from seq2see.course.lessons.words_to_numbers import words as words


@dataclass(frozen=True)
class Lesson:
    """One lesson, not yet imported."""

    name: str
    title: str  # one sentence
    home: str  # its module in this package; named unlike the lesson, which would hide the function
    seconds: int = 0  # that it trains for, about, on a core of its own; 0: it answers at once

    def defaults(self) -> dict[str, Any]:
        """What can be given, and what it is if nobody does."""
        return {each.name: each.default for each in signature(self._function).parameters.values()}

    def compute(self, given: Mapping[str, Any]) -> Any:
        """The lesson's numbers. Where a list is expected, one text is a list of one."""
        known = self.defaults()
        for name in given:
            if name not in known:
                raise UsageError(f'the lesson "{self.name}" takes no "{name}": {nearest(name, known)}')
        lists = {name for name, default in known.items() if isinstance(default, tuple)}
        arguments = {
            name: (value,) if name in lists and isinstance(value, str) else value for name, value in given.items()
        }
        return self._function(**arguments)

    @property
    def claim(self) -> str:
        """Of one that trains, how its story begins; the others tell it as soon as they are asked."""
        claim: str = getattr(self._module, "CLAIM", "")
        return claim

    def story(self, result: Any) -> "Story":
        story: Story = self._module.story(result)
        return story

    @property
    def is_drawn(self) -> bool:
        return hasattr(self._module, "draw")

    def draw(self, result: Any, path: Path) -> None:
        self._module.draw(result, path)

    @property
    def _module(self) -> Any:
        return import_module(f"seq2see.course.lessons.{self.home}")

    @property
    def _function(self) -> Any:
        return getattr(self._module, self.name)


LESSONS: dict[str, Lesson] = {
    lesson.name: lesson
    for lesson in (
        Lesson("words", "Words to numbers: one-hot, TF-IDF, Word2Vec; apple is an average.", "words_to_numbers"),
        Lesson("similarity", "How alike two words are: dot product, cosine, scaled dot product.", "measures"),
        Lesson(
            "context",
            "Self-attention without parameters: a word as a mixture of words.",
            "words_in_context",
        ),
        Lesson("lookup", "Query, key and value: a dictionary that answers softly.", "soft_lookup"),
        Lesson("qkv", "Learned self-attention, in rows and in columns.", "queries_keys_values"),
        Lesson("scaling", "Why √d: the variance of a dot product grows with the dimension.", "dot_products"),
        Lesson("saturation", "The same in training: undivided scores saturate softmax.", "without_scaling", 24),
        Lesson("heads", "Many heads: several perspectives on one sentence.", "many_heads"),
        Lesson("positions", "Sines and cosines of the position, and why a word count will not do.", "waves"),
        Lesson("order", "Positions in training: without them a sentence is a bag of words.", "without_positions", 12),
        Lesson("norms", "Layer norm against batch norm, and what padding does to them.", "two_norms"),
        Lesson("encoder", "A block of the encoder; attention is global, feed-forward local.", "encoder_block"),
        Lesson("mask", "Masked attention: no position sees a later one.", "masking"),
        Lesson("leak", "The mask in training: without it the answer leaks.", "without_mask", 12),
        Lesson("decoder", "The decoder, taught all places at once and used one by one.", "decoder_block"),
        Lesson("cross", "Cross-attention: the output's words ask the input's.", "two_sequences", 2),
        Lesson("next", "The next token: unembedding, every layer's guess, temperature.", "next_token"),
        Lesson("directions", "Directions that mean something: king − man + woman, plurals.", "meaning_directions", 6),
        Lesson("senses", "One word in several sentences: static against contextual vectors.", "word_senses"),
    )
}
__all__ = ["LESSONS", "Lesson", *LESSONS]


def __getattr__(name: str) -> Any:
    if name not in LESSONS:
        raise AttributeError(f"module 'seq2see.course.lessons' has no attribute {name!r}")
    return getattr(import_module(f"seq2see.course.lessons.{LESSONS[name].home}"), name)
