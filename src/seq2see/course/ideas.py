"""The ideas of the five lecture notes: where the course shows each, which command does it, and where the code is.

The front matter of each lesson.md says which of them it shows. `python -m seq2see.course.ideas` prints them as the table of
docs/lessons.md. The tests compare the two, and check that every lesson, section, command and piece of code exists.
"""

from dataclasses import dataclass

from seq2see.course.lessons import LESSONS
from seq2see.course.lessons.template import front_matter

DOCUMENTS = {
    "E": "hand-written notes on static and contextual embeddings",
    "A": "hand-written notes on attention and the encoder-decoder",
    "S": "slides on self-attention",
    "L": "slides of a lecture, “Lecture 10: Transformer”",
    "M": "hand-written notes on language models, “April 19, Transformers”",
}


@dataclass(frozen=True)
class Idea:
    topic: str
    text: str
    documents: str  # letters of DOCUMENTS
    lesson: str
    section: str = ""  # its beginning; empty: the first part of the lesson
    command: str = ""  # besides `seq2see lesson`
    code: str = ""  # module:name, relative to seq2see


TOPICS = (
    "Words to numbers", "Similarity", "Directions", "Self-attention without parameters", "Queries, keys, values", "Why √d",
    "Heads", "Positions", "Norms", "Encoder", "Mask", "Cross-attention", "Decoder", "Training", "Decoding", "Before 2017",
    "Patches", "Language models", "Temperature", "Unembedding", "Context changes meaning", "Pictures",
)  # fmt: skip

IDEAS = tuple(
    sorted(
        (Idea(lesson=name, **idea) for name in LESSONS for idea in front_matter(name)["ideas"]),
        key=lambda idea: TOPICS.index(idea.topic),
    )
)


def table() -> str:
    """The table of docs/lessons.md."""
    lines = ["| topic | idea | notes | lesson | command | page | code |", "|---|---|---|---|---|---|---|"]
    topic = ""
    for idea in IDEAS:
        section = f", *{idea.section} …*" if idea.section not in ("", "*") else ""
        command = f"`seq2see {idea.command}`" if idea.command else f"`seq2see lesson {idea.lesson}`"
        module, _, name = idea.code.partition(":")
        code = f"`{module.replace('.', '/')}` `{name}`"
        lines.append(
            f"| {idea.topic if idea.topic != topic else ''} | {idea.text} | {idea.documents} | `{idea.lesson}`{section} | "
            f"{command} | `#/learn?lesson={idea.lesson}` | {code} |"
        )
        topic = idea.topic
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
