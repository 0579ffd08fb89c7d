"""`qkv`: learned self-attention on the notes' three words, in rows and in columns, and why it must be learned.

From embeddings through W_Q, W_K and W_V to scores, weights and output; then the same by the notes' other notation, one
column a word. Last, an idiom: its words one by one, and in sentences, by a model that has learned from data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, read, reader
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Grid, Story, brief, matrix
from seq2see.course.lessons.worked_attention import Features, Steps, Table, as_table, as_tensor, attention
from seq2see.errors import UserError
from seq2see.layout import Layout
from seq2see.model.attention import attend_in_columns, attend_openly

EMBEDDINGS: Features = {
    "Pizza": (0.1, 2.13), "is": (0.11, 2.13), "awesome": (0.21, 3.13), "<EOS>": (0.8, 0.9),
}  # fmt: skip
WEIGHTS = ((0.78, 2.0), (0.9, 1.7))  # "Query Weights T", and the same for keys and values
IDIOMS = ("piece of cake", "This is a piece of cake.", "I ate a piece of cake.")
# The notes' line of weights as printed and as read out, and the values that it meets.
PRINTED, READ_OUT, VALUES = (0.38, 0.40, 0.24), (0.36, 0.40, 0.24), (0.6, -0.35, 3.86)


@dataclass(frozen=True)
class Idiom:
    text: str
    one_by_one: tuple[str, ...]  # each word translated alone
    translation: str


@dataclass(frozen=True)
class QKV:
    words: tuple[str, ...]
    embeddings: Table
    queries: Table
    keys: Table
    values: Table
    steps: Steps
    columns_apart: float  # the column form against the row form: the largest difference
    as_written_apart: (
        float  # the column form as the notes write it, on a model's first head: as a share of what is right
    )
    idioms: tuple[Idiom, ...]  # none where the model is no translator


def qkv(
    embeddings: Features = EMBEDDINGS, query_weights: Sequence[Sequence[float]] = WEIGHTS,
    key_weights: Sequence[Sequence[float]] = WEIGHTS, value_weights: Sequence[Sequence[float]] = WEIGHTS,
    idioms: Sequence[str] = IDIOMS, model: Model | None = None,
) -> QKV:  # fmt: skip
    """X · W for queries, keys and values, and what attention makes of them."""
    x = as_tensor(list(embeddings.values()), "embeddings")
    maps = [
        as_tensor(table, name) for table, name in ((query_weights, "W_Q"), (key_weights, "W_K"), (value_weights, "W_V"))
    ]
    for table, name in zip(maps, ("W_Q", "W_K", "W_V"), strict=True):
        if len(table) != x.shape[-1]:
            raise UserError(
                f"{name} has {len(table)} rows, but an embedding {x.shape[-1]} numbers: X · W needs as many"
            )
    if maps[0].shape != maps[1].shape:
        raise UserError(f"W_Q makes {maps[0].shape[-1]} numbers and W_K {maps[1].shape[-1]}: q · k needs as many")
    q, k, v = (x @ table for table in maps)
    chosen = bundled(model)
    return QKV(
        tuple(embeddings), as_table(x), as_table(q), as_table(k), as_table(v), attention(q, k, v),
        _columns_apart(q, k, v), _as_written_apart(chosen, idioms[0]), tuple(_idiom(chosen, text) for text in idioms)
        if chosen.config.model.shape == "encoder-decoder" else (),
    )  # fmt: skip


def _rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layout = Layout.of([len(q)])
    return attend_openly(q[:, None], k[:, None], v[:, None], layout, layout)[:, 0]


def _columns_apart(q: Tensor, k: Tensor, v: Tensor) -> float:
    layout = Layout.of([len(q)])
    return _apart(attend_in_columns(q[:, None], k[:, None], v[:, None], layout, layout)[:, 0], _rows(q, k, v))


def _as_written_apart(model: Model, sentence: str) -> float:
    """V softmax(QᵀK / √p), down the columns, of words that stand in columns: the notes' line, to the letter. (Of the notes'
    own numbers, whose Q is K, it would be right: QᵀK = KᵀQ.)
    """
    e = read(model, sentence)
    place = reader(e).places[0]
    q, k, v = (e.trace[f"{place}.{name}"][:, 0] for name in ("queries", "keys", "values"))  # [n, d]: the first head's
    Q, K, V = q.mT, k.mT, v.mT
    right = _rows(q, k, v)
    return float(((V @ (Q.mT @ K / len(Q) ** 0.5).softmax(dim=0)).mT - right).norm() / right.norm())


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _idiom(model: Model, text: str) -> Idiom:
    *alone, whole = model.translate([*read(model, text).sources[:-1], text])
    return Idiom(text, tuple(alone), whole)


def story(result: QKV) -> Story:
    steps, words, numbers = result.steps, result.words, range(1, len(result.queries[0]) + 1)
    made = Grid(
        ("", "X", "Q = X·W_Q", "K = X·W_K", "V = X·W_V"),
        tuple(
            (word, *(_vector(table[i]) for table in (result.embeddings, result.queries, result.keys, result.values)))
            for i, word in enumerate(words)
        ),
    )
    parts: list[str | Grid] = [
        made,
        matrix(steps.scores, words, words, "Scores Q·Kᵀ:"),
        matrix(steps.scaled, words, words, f"Divided by √{len(numbers)}:"),
        matrix(steps.weights, words, words, "Weights: softmax along each row, which adds to 1:", 3, shaded=True),
        matrix(steps.output, words, [str(n) for n in numbers], "Output: weights · V:"),
        "In columns, one word each, the same is V · softmax(KᵀQ / √p), the softmax down each column: the outputs differ "
        f"by {brief(result.columns_apart)} at most.",
    ]
    if result.idioms:
        first = result.idioms[0]
        rows = ((f"{first.text}, word by word", " · ".join(word or "–" for word in first.one_by_one)),)
        learned = tuple((idiom.text, idiom.translation) for idiom in result.idioms)
        parts.append(Grid(("", ""), rows + learned, "Idioms, by a model that has learned from examples:"))
    return Story(
        "three linear maps make a query, a key and a value of every word, the same maps for all words. The notes: "
        'Attention(Q, K, V) = Softmax(QKᵀ/√d_K)V; without weights "there is no learning from DATASET", and "piece of '
        'cake" is translated word by word.',
        tuple(parts),
        "everything after X·W is the lesson `context` again. What is new stands in W: with W learned, which word looks "
        "at which comes from the data, and so does an idiom.",
        _slips(result.as_written_apart),
    )


def _slips(as_written_apart: float) -> tuple[str, ...]:
    x, w = as_tensor(list(EMBEDDINGS.values())), as_tensor(WEIGHTS)
    awesome = _vector((x @ w)[2].tolist())
    printed, said = (as_tensor([line]) for line in (PRINTED, READ_OUT))
    value = as_tensor([VALUES]).mT
    return (
        f'the query of "awesome" is printed 0.8, 0.8 and its key 0.18, 0.81; X·W makes {awesome} of both.',
        f"the weights 0.38, 0.4, 0.24 add to {float(printed.sum()):.2f}; the 36% of the words beside them make "
        f"{float(said.sum()):.2f}, and 0.36·0.6 + 0.40·(−0.35) + 0.24·3.86 = {float(said @ value):.2f} as printed (with "
        f'0.38: {float(printed @ value):.2f}). "0.38% similar" means 38%. The tables of softmax leave <EOS> out.',
        "the column form is written V softmax(QᵀK/√p), which has the queries down the columns. With their K = Q it is the "
        f"same, but on a head of the model its output is off by {as_written_apart:.0%}. Its multi-head lines write V "
        "where V_h, that head's own, is meant.",
    )


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{number:.2f}" for number in numbers) + ")"


def draw(result: QKV, path: Path | str) -> None:
    figure, axes = panels(3)
    for side, table, title in zip(
        axes, (result.steps.scores, result.steps.scaled, result.steps.weights),
        ("scores Q·Kᵀ", "divided by √d", "weights: softmax of each row"), strict=True,
    ):  # fmt: skip
        heat(side, table, result.words, result.words, title)
    save(figure, path)
