"""`qkv`: learned self-attention on the example of the notes, in row and in column form, and why it must be learned.

From embeddings through W_Q, W_K and W_V to scores, weights and output; then the same in the other notation of the notes, one
column per word. Finally idioms, translated word by word and by a trained model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Features, Matrix, Steps, attention, to_matrix, to_tensor
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import LessonText, Table, format_small, matrix_table
from seq2see.errors import UserError
from seq2see.layout import Layout
from seq2see.model.attention import attention_by_columns, attention_reference

EMBEDDINGS: Features = {
    "Pizza": (0.1, 2.13), "is": (0.11, 2.13), "awesome": (0.21, 3.13), "<EOS>": (0.8, 0.9),
}  # fmt: skip
WEIGHTS = ((0.78, 2.0), (0.9, 1.7))  # "Query Weights T", and the same for keys and values
IDIOMS = ("piece of cake", "This is a piece of cake.", "I ate a piece of cake.")
# The weights as printed in the notes and as given in their text, and the values they multiply.
PRINTED, IN_TEXT, VALUES = (0.38, 0.40, 0.24), (0.36, 0.40, 0.24), (0.6, -0.35, 3.86)


@dataclass(frozen=True)
class Idiom:
    text: str
    word_by_word: tuple[str, ...]  # the translation of each word alone
    translation: str


@dataclass(frozen=True)
class Result:
    words: tuple[str, ...]
    embeddings: Matrix
    queries: Matrix
    keys: Matrix
    values: Matrix
    steps: Steps
    column_error: float  # largest difference between the column form and the row form
    notes_error: float  # relative error of the column form as written in the notes, on the model's first head
    idioms: tuple[Idiom, ...]  # empty if the model is not a translator


def compute(
    embeddings: Features = EMBEDDINGS, query_weights: Sequence[Sequence[float]] = WEIGHTS,
    key_weights: Sequence[Sequence[float]] = WEIGHTS, value_weights: Sequence[Sequence[float]] = WEIGHTS,
    idioms: Sequence[str] = IDIOMS, model: Model | None = None,
) -> Result:  # fmt: skip
    """Computes queries, keys and values as X · W, and the attention over them."""
    x = to_tensor(list(embeddings.values()), "embeddings")
    projections = [
        to_tensor(table, name) for table, name in ((query_weights, "W_Q"), (key_weights, "W_K"), (value_weights, "W_V"))
    ]
    for table, name in zip(projections, ("W_Q", "W_K", "W_V"), strict=True):
        if len(table) != x.shape[-1]:
            raise UserError(
                f"{name} has {len(table)} rows, but embeddings have {x.shape[-1]} numbers: X · W needs them equal"
            )
    if projections[0].shape != projections[1].shape:
        raise UserError(
            f"W_Q has {projections[0].shape[-1]} columns and W_K {projections[1].shape[-1]}: q · k needs them equal"
        )
    q, k, v = (x @ table for table in projections)
    model = resolve_model(model)
    translates = model.config.model.shape == "encoder-decoder"
    return Result(
        tuple(embeddings), to_matrix(x), to_matrix(q), to_matrix(k), to_matrix(v), attention(q, k, v),
        _column_error(q, k, v), _notes_error(model, idioms[0]),
        tuple(_translate_idiom(model, text) for text in idioms) if translates else (),
    )  # fmt: skip


def _row_form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layout = Layout.from_lengths([len(q)])
    return attention_reference(q[:, None], k[:, None], v[:, None], layout, layout)[:, 0]


def _column_error(q: Tensor, k: Tensor, v: Tensor) -> float:
    layout = Layout.from_lengths([len(q)])
    columns = attention_by_columns(q[:, None], k[:, None], v[:, None], layout, layout)[:, 0]
    return float((columns - _row_form(q, k, v)).abs().max())


def _notes_error(model: Model, sentence: str) -> float:
    """Measures V softmax(QᵀK / √p), normalised down the columns, with words in columns: the notes taken literally.

    With the numbers of the notes, where Q = K, it would be correct: QᵀK = KᵀQ.
    """
    e = explain_sentence(model, sentence)
    name = input_stack(e).attention_names[0]
    q, k, v = (e.trace[f"{name}.{part}"][:, 0] for part in ("queries", "keys", "values"))  # [n, d] of the first head
    Q, K, V = q.mT, k.mT, v.mT
    expected = _row_form(q, k, v)
    return float(((V @ (Q.mT @ K / len(Q) ** 0.5).softmax(dim=0)).mT - expected).norm() / expected.norm())


def _translate_idiom(model: Model, text: str) -> Idiom:
    *word_by_word, translation = model.translate_sentences([*explain_sentence(model, text).source_tokens[:-1], text])
    return Idiom(text, tuple(word_by_word), translation)


def describe(result: Result) -> LessonText:
    steps, words, numbers = result.steps, result.words, range(1, len(result.queries[0]) + 1)
    projections = Table(
        ("", "X", "Q = X·W_Q", "K = X·W_K", "V = X·W_V"),
        tuple(
            (word, *(_vector(table[i]) for table in (result.embeddings, result.queries, result.keys, result.values)))
            for i, word in enumerate(words)
        ),
    )
    body: list[str | Table] = [
        projections,
        matrix_table(steps.scores, words, words, "Scores Q·Kᵀ:"),
        matrix_table(steps.scaled, words, words, f"Divided by √{len(numbers)}:"),
        matrix_table(steps.weights, words, words, "Weights: softmax of each row, which adds to 1:", 3, shaded=True),
        matrix_table(steps.output, words, [str(n) for n in numbers], "Output: weights · V:"),
        "In column form, one column per word, the same is V · softmax(KᵀQ / √p) with the softmax down each column. The "
        f"outputs differ by at most {format_small(result.column_error)}.",
    ]
    if result.idioms:
        first = result.idioms[0]
        rows = ((f"{first.text}, word by word", " · ".join(word or "–" for word in first.word_by_word)),)
        learned = tuple((idiom.text, idiom.translation) for idiom in result.idioms)
        body.append(Table(("", ""), rows + learned, "Idioms, translated by a trained model:"))
    return LessonText(
        "Three linear maps, shared by all words, give each word a query, a key and a value. The notes: Attention(Q, K, V) = "
        'Softmax(QKᵀ/√d_K)V; without weights "there is no learning from DATASET", and "piece of cake" is translated word by '
        "word.",
        tuple(body),
        "Everything after X·W is the lesson `context` again. W is new: once W is learned, the data decides which word "
        "attends to which, and idioms can be learned.",
        _errata(result.notes_error),
    )


def _errata(notes_error: float) -> tuple[str, ...]:
    x, w = to_tensor(list(EMBEDDINGS.values())), to_tensor(WEIGHTS)
    awesome = _vector((x @ w)[2].tolist())
    printed, in_text = (to_tensor([weights]) for weights in (PRINTED, IN_TEXT))
    values = to_tensor([VALUES]).mT
    return (
        f'The query of "awesome" is printed as 0.8, 0.8 and its key as 0.18, 0.81; X·W gives {awesome} for both.',
        f"The weights 0.38, 0.4, 0.24 add to {float(printed.sum()):.2f}; with the 36% given in the text they add to "
        f"{float(in_text.sum()):.2f}, and 0.36·0.6 + 0.40·(−0.35) + 0.24·3.86 = {float(in_text @ values):.2f} as printed "
        f'(with 0.38: {float(printed @ values):.2f}). "0.38% similar" means 38%. The softmax tables omit <EOS>.',
        "The column form is written V softmax(QᵀK/√p), which puts the queries on the wrong axis. With K = Q, as in the notes, "
        f"the result is the same, but on a head of the model the output is off by {notes_error:.0%}. The multi-head lines "
        "write V instead of V_h, the values of that head.",
    )


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{number:.2f}" for number in numbers) + ")"


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(3)
    for ax, matrix, title in zip(
        axes, (result.steps.scores, result.steps.scaled, result.steps.weights),
        ("scores Q·Kᵀ", "divided by √d", "weights: softmax of each row"), strict=True,
    ):  # fmt: skip
        heatmap(ax, matrix, result.words, result.words, title)
    save_figure(figure, path)
