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
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import (
    LECTURE,
    SLIDES,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    format_small,
    matrix_table,
)
from seq2see.data.layout import Layout
from seq2see.errors import UserError
from seq2see.model.attention import PackedKeys, attention_by_columns, attention_reference
from seq2see.train.presets import preset

EMBEDDINGS: Features = {
    "Pizza": (0.1, 2.13), "is": (0.11, 2.13), "awesome": (0.21, 3.13), "<EOS>": (0.8, 0.9),
}  # fmt: skip
WEIGHTS = ((0.78, 2.0), (0.9, 1.7))  # "Query Weights T", and the same for keys and values
IDIOMS = ("piece of cake", "This is a piece of cake.", "I ate a piece of cake.")
# The weights as printed in the notes, first and then, and as given in their text; and the values they multiply.
FIRST_ROW = (0.38, 0.4, 0.9)
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
    kernel: Matrix  # W_Q W_Kᵀ
    kernel_error: float  # largest difference between X W_Q W_Kᵀ Xᵀ and Q Kᵀ
    asymmetry: float  # ‖S − Sᵀ‖ / ‖S‖ of the scores S of the model's first head
    sentence: str  # that the model read
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
        _column_error(q, k, v), *_first_head(model, idioms[0], projections[0] @ projections[1].mT, x, q @ k.mT),
        tuple(_translate_idiom(model, text) for text in idioms) if translates else (),
    )  # fmt: skip


def _row_form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layout = Layout.from_lengths([len(q)])
    return attention_reference(q[:, None], layout, PackedKeys(k[:, None], v[:, None], layout))[:, 0]


def _column_error(q: Tensor, k: Tensor, v: Tensor) -> float:
    layout = Layout.from_lengths([len(q)])
    columns = attention_by_columns(q[:, None], layout, PackedKeys(k[:, None], v[:, None], layout))[:, 0]
    return float((columns - _row_form(q, k, v)).abs().max())


def _first_head(
    model: Model, sentence: str, kernel: Tensor, x: Tensor, scores: Tensor
) -> tuple[float, Matrix, float, float, str]:
    """Returns `notes_error`, the kernel with its error, `asymmetry`, and the sentence.

    `notes_error` is that of V softmax(QᵀK / √p), normalised down the columns, with words in columns: the notes taken
    literally. With their numbers, where Q = K, it would be correct: QᵀK = KᵀQ.
    """
    e = explain_sentence(model, sentence)
    name = input_stack(e).attention_names[0]
    q, k, v = (e.trace[f"{name}.{part}"][:, 0] for part in ("queries", "keys", "values"))  # [n, d] of the first head
    Q, K, V = q.mT, k.mT, v.mT
    expected, own_scores = _row_form(q, k, v), q @ k.mT
    notes_error = float(((V @ (Q.mT @ K / len(Q) ** 0.5).softmax(dim=0)).mT - expected).norm() / expected.norm())
    kernel_error = float((x @ kernel @ x.mT - scores).abs().max())
    asymmetry = float((own_scores - own_scores.mT).norm() / own_scores.norm())
    return notes_error, to_matrix(kernel), kernel_error, asymmetry, sentence


def _translate_idiom(model: Model, text: str) -> Idiom:
    *word_by_word, translation = model.translate_sentences([*explain_sentence(model, text).source_tokens[:-1], text])
    return Idiom(text, tuple(word_by_word), translation)


def describe(result: Result) -> LessonText:
    steps, words, numbers = result.steps, result.words, range(1, len(result.queries[0]) + 1)
    first = words[0]
    more = [
        Section(
            "Step by step: scores, softmax, mixture",
            (
                matrix_table(steps.scores, words, words, "Scores Q·Kᵀ:"),
                matrix_table(steps.scaled, words, words, f"Divided by √{len(numbers)}:"),
                matrix_table(
                    steps.weights, words, words, "Weights: softmax of each row, which adds to 1", 3, shaded=True
                ),
                matrix_table(steps.output, words, [str(n) for n in numbers], "Output: weights · V"),
            ),
        ),
        _size_section(result),
        _kernel_section(result),
        Section(
            "Rows or columns: the same numbers",
            (
                "With one row per word, as here: softmax(QKᵀ / √d) V, the softmax along each row. With one column per word: "
                "V · softmax(KᵀQ / √d), the softmax down each column. The two outputs differ by at most "
                f"{format_small(result.column_error)}.",
            ),
        ),
    ]
    if result.idioms:
        more.append(_idiom_section(result.idioms))
    return LessonText(
        f'the weights of "{first}". Each word is multiplied by three matrices: W_Q makes what it asks (query), W_K what it '
        "answers to (key), W_V what it passes on (value). A weight compares one word's query with another word's key.",
        (
            Bars(
                f'Weights of "{first}"',
                ((f"{first} attends to", tuple(zip(words, steps.weights[0], strict=True))),),
                1.0,
            ),
        ),
        (
            Table(
                ("", "X", "Q = X·W_Q", "K = X·W_K", "V = X·W_V"),
                tuple(
                    (
                        word,
                        *(
                            _vector(table[i])
                            for table in (result.embeddings, result.queries, result.keys, result.values)
                        ),
                    )
                    for i, word in enumerate(words)
                ),
            ),
            f'"{first}" becomes {_vector(steps.output[0])}: the values, mixed by its weights.',
        ),
        "Everything after X·W is the lesson `context` again. W is new, and W is learned: the data decides which word "
        "attends to which. The three matrices are the same for all words and all sentences.",
        Library(
            "from seq2see.model.attention import attention_reference\n"
            "q, k, v = self.queries_keys_values(x)          # SelfAttention.forward\n"
            "softmax(q @ k.T / sqrt(d)) @ v                 # attention_reference, in words",
            "model/layers.py",
            (ViewLink("queries, keys and values of a sentence", "walk", {"text": result.sentence}),),
        ),
        tuple(more),
        (
            Try(
                "Let keys differ from queries: W_K with its columns exchanged.",
                {"key_weights": ((2.0, 0.78), (1.7, 0.9))},
            ),
            Try("W_V = identity: the output is then a mixture of X itself.", {"value_weights": ((1, 0), (0, 1))}),
        ),
        _notes(result.notes_error),
    )


def _size_section(result: Result) -> Section:
    rows = tuple((f"{width} × {width}", width * width, 3 * width * width) for width in (len(result.embeddings[0]), 512))
    paper, one = preset("paper-base"), len(result.embeddings[0])
    return Section(
        "How large the matrices are",
        (
            Table(("one matrix", "numbers in it", "in all three"), rows),
            f"A word of {one} numbers needs matrices with {one} rows, a word of 512 numbers 512 × 512. The paper cuts the 512 "
            f"columns into {paper.heads} heads of {paper.actual_head_width} (lesson: heads).",
        ),
    )


def _kernel_section(result: Result) -> Section:
    return Section(
        "Another reading: a similarity that is learned",
        (
            "A score is xᵀ W_Q W_Kᵀ y. Query and key need never appear: one matrix W_Q W_Kᵀ, the kernel, says how much each "
            "number of x counts with each number of y.",
            matrix_table(
                result.kernel, [f"x{i + 1}" for i in range(len(result.kernel))],
                [f"y{i + 1}" for i in range(len(result.kernel))], "W_Q W_Kᵀ:",
            ),
            f"All scores follow from it; the largest difference from Q·Kᵀ is {format_small(result.kernel_error)}. "
            "Without weights the kernel is the identity, and the score the plain dot product. A learned one need not "
            "be symmetric: in the first head of the model, the scores of “a asks b” and “b asks a” differ by "
            f"{result.asymmetry:.0%} of their size.",
        ),
    )  # fmt: skip


def _idiom_section(idioms: Sequence[Idiom]) -> Section:
    first = idioms[0]
    literal = " · ".join(word or "–" for word in first.word_by_word)
    rows = ((f"{first.text}, word by word", literal), *((idiom.text, idiom.translation) for idiom in idioms))
    differs = " ".join(first.word_by_word).split() != first.translation.split()
    return Section(
        "Why weights must be learned: an idiom",
        (
            Table(("", ""), rows, "Translated by the model:"),
            "Without learned weights nothing comes from the data, and an idiom can only be translated word by word. "
            + (
                f'This model gives "{first.text}" another translation as a whole than word by word: it has learned from '
                "examples. Whether it is the right one, a reader of the language must judge."
                if differs
                else f'This model translates "{first.text}" word by word: it has not learned the idiom.'
            ),
        ),
    )


def _notes(notes_error: float) -> tuple[Note, ...]:
    x, w = to_tensor(list(EMBEDDINGS.values())), to_tensor(WEIGHTS)
    projected = x @ w
    printed, in_text = (to_tensor([weights]) for weights in (PRINTED, IN_TEXT))
    values = to_tensor([VALUES]).mT
    mixed = float(in_text @ projected[:3, :1])
    output = attention(projected, projected, projected).output
    return (
        Note(
            SLIDES,
            'The query of "awesome" is printed as 0.8, 0.8 and its key as 0.18, 0.81; X·W gives '
            f"{_vector(projected[2].tolist())} for both.",
        ),
        Note(
            SLIDES,
            f"The first softmax row is printed 0.38, 0.4, 0.9, which adds to {sum(FIRST_ROW):.2f}; the next slide has 0.24 "
            f"instead of 0.9, which adds to {float(printed.sum()):.2f}; with the 36% of the text it adds to "
            f"{float(in_text.sum()):.2f}, and 0.36·0.6 + 0.40·(−0.35) + 0.24·3.86 = {float(in_text @ values):.2f} as printed "
            f'(with 0.38: {float(printed @ values):.2f}). "0.38% similar" means 38%. The softmax tables omit <EOS>.',
        ),
        Note(
            SLIDES,
            "The values 0.6, −0.35 and 3.86 do not follow from X·W, whose first column is "
            f"{', '.join(f'{float(v):.3f}' for v in projected[:3, 0])}; with those, the same weights give {mixed:.2f} "
            "instead of 1.0. Nor does the final table, 1.0 1.9 / 0.2 0.4 / 3.86 2.2, in which 3.86 is a value and not "
            f"a mixture: the outputs are {', '.join(_vector(row) for row in output[:3])}.",
        ),
        Note(
            LECTURE,
            "The column form is written V softmax(QᵀK/√p), which puts the queries on the wrong axis. With K = Q the "
            f"result is the same, but on a head of the model the output is off by {notes_error:.0%}. The multi-head "
            "lines write V instead of V_h, the values of that head.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    x, w = to_tensor([[1, 2]]), to_tensor([[3, 0], [1, 1]])
    q, k = to_tensor([[2, 0]]), to_tensor([[1, 5], [0, 9]])
    steps = attention(q, k, k)
    kernel = to_tensor([[1, 0], [0, 2]]) @ to_tensor([[0, 1], [1, 0]]).mT
    return (
        Exercise(
            "x = (1, 2) and W_Q = ((3, 0), (1, 1)). What is the first number of the query x · W_Q?",
            float((x @ w)[0, 0]),
            "1 · 3 + 2 · 1.",
        ),
        Exercise(
            "A query (2, 0) meets the keys (1, 5) and (0, 9). What weight does the first key get, with d = 2?",
            steps.weights[0][0],
            f"Scores 2 and 0, divided by √2: {steps.scaled[0][0]:.2f} and 0; the softmax gives {steps.weights[0][0]:.2f}.",
        ),
        Exercise(
            "W_Q = ((1, 0), (0, 2)) and W_K = ((0, 1), (1, 0)). What is the score of x = (1, 1) with y = (0, 1), "
            "xᵀ W_Q W_Kᵀ y?",
            float(to_tensor([[1, 1]]) @ kernel @ to_tensor([[0], [1]])),
            f"W_Q W_Kᵀ is {[list(map(int, row)) for row in kernel.tolist()]}; the second column, added up.",
        ),
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
