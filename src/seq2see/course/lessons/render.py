"""Names that lessons use whose text is still in Python."""

from collections.abc import Sequence

from seq2see.course.lessons.document import (
    Bars,
    HeatMap,
    LessonText,
    Library,
    Note,
    Part,
    Row,
    Section,
    Table,
    Try,
    ViewLink,
    format_cell,
    format_number,
    format_small,
    format_vector,
)

EMBEDDINGS = "Embeddings"  # S0
ATTENTION = "Attention and the encoder-decoder"  # S1
SLIDES = "Self-attention (slides)"  # S2
LECTURE = "Lecture 10: Transformer"  # S3
LANGUAGE_MODELS = "April 19, Transformers"  # S4


def matrix_table(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], caption: str = "",
    decimals: int = 2, shaded: bool = False,
) -> Table:  # fmt: skip
    body: list[Row] = [(label, *row) for label, row in zip(rows, values, strict=True)]
    return Table(("", *columns), tuple(body), caption, decimals, shaded)


__all__ = [
    "ATTENTION", "EMBEDDINGS", "LANGUAGE_MODELS", "LECTURE", "SLIDES", "Bars", "HeatMap", "LessonText", "Library", "Note",
    "Part", "Row", "Section", "Table", "Try", "ViewLink", "format_cell", "format_number", "format_small", "format_vector",
    "matrix_table",
]  # fmt: skip
