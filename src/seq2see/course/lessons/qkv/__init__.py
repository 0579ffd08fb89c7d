"""`qkv`: learned self-attention on the example of the notes, in row and in column form, and why it must be learned.

From embeddings through W_Q, W_K and W_V to scores, weights and output; then the same in the other notation of the notes, one
column per word. Finally idioms, translated word by word and by a trained model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.data.layout import Layout
from seq2see.model.attention import PackedKeys, attention_by_columns, attention_reference
from seq2see.train.presets import preset

EMBEDDINGS: kit.Features = {
    "Pizza": (0.1, 2.13),
    "is": (0.11, 2.13),
    "awesome": (0.21, 3.13),
    "<EOS>": (0.8, 0.9),
}
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
    embeddings: kit.Matrix
    queries: kit.Matrix
    keys: kit.Matrix
    values: kit.Matrix
    steps: kit.Steps
    column_error: float  # largest difference between the column form and the row form
    notes_error: float  # relative error of the column form as written in the notes, on the model's first head
    kernel: kit.Matrix  # W_Q W_Kᵀ
    kernel_error: float  # largest difference between X W_Q W_Kᵀ Xᵀ and Q Kᵀ
    asymmetry: float  # ‖S − Sᵀ‖ / ‖S‖ of the scores S of the model's first head
    sentence: str  # that the model read
    idioms: tuple[Idiom, ...]  # empty if the model is not a translator


def compute(
    embeddings: kit.Features = EMBEDDINGS,
    query_weights: Sequence[Sequence[float]] = WEIGHTS,
    key_weights: Sequence[Sequence[float]] = WEIGHTS,
    value_weights: Sequence[Sequence[float]] = WEIGHTS,
    idioms: Sequence[str] = IDIOMS,
    model: kit.Model | None = None,
) -> Result:
    """Computes queries, keys and values as X · W, and the attention over them."""
    x = kit.to_tensor(list(embeddings.values()), "embeddings")
    projections = [
        kit.to_tensor(table, name)
        for table, name in ((query_weights, "W_Q"), (key_weights, "W_K"), (value_weights, "W_V"))
    ]
    for table, name in zip(projections, ("W_Q", "W_K", "W_V"), strict=True):
        if len(table) != x.shape[-1]:
            raise kit.UserError(
                f"{name} has {len(table)} rows, but embeddings have {x.shape[-1]} numbers: X · W needs them equal"
            )
    if projections[0].shape != projections[1].shape:
        raise kit.UserError(
            f"W_Q has {projections[0].shape[-1]} columns and W_K {projections[1].shape[-1]}: q · k needs them equal"
        )
    q, k, v = (x @ table for table in projections)
    model = kit.resolve_model(model)
    translates = model.config.model.shape == "encoder-decoder"
    return Result(
        tuple(embeddings),
        kit.to_matrix(x),
        kit.to_matrix(q),
        kit.to_matrix(k),
        kit.to_matrix(v),
        kit.attention(q, k, v),
        _column_error(q, k, v),
        *_first_head(model, idioms[0], projections[0] @ projections[1].mT, x, q @ k.mT),
        tuple(_translate_idiom(model, text) for text in idioms) if translates else (),
    )


def _row_form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    layout = Layout.from_lengths([len(q)])
    return attention_reference(q[:, None], layout, PackedKeys(k[:, None], v[:, None], layout))[:, 0]


def _column_error(q: Tensor, k: Tensor, v: Tensor) -> float:
    layout = Layout.from_lengths([len(q)])
    columns = attention_by_columns(q[:, None], layout, PackedKeys(k[:, None], v[:, None], layout))[:, 0]
    return float((columns - _row_form(q, k, v)).abs().max())


def _first_head(
    model: kit.Model, sentence: str, kernel: Tensor, x: Tensor, scores: Tensor
) -> tuple[float, kit.Matrix, float, float, str]:
    """Returns `notes_error`, the kernel with its error, `asymmetry`, and the sentence.

    `notes_error` is that of V softmax(QᵀK / √p), normalised down the columns, with words in columns: the notes taken
    literally. With their numbers, where Q = K, it would be correct: QᵀK = KᵀQ.
    """
    e = kit.explain_sentence(model, sentence)
    name = kit.input_stack(e).attention_names[0]
    q, k, v = (e.trace[f"{name}.{part}", 0][:, 0] for part in ("queries", "keys", "values"))  # [n, d] of the first head
    Q, K, V = q.mT, k.mT, v.mT
    expected, own_scores = _row_form(q, k, v), q @ k.mT
    notes_error = float(((V @ (Q.mT @ K / len(Q) ** 0.5).softmax(dim=0)).mT - expected).norm() / expected.norm())
    kernel_error = float((x @ kernel @ x.mT - scores).abs().max())
    asymmetry = float((own_scores - own_scores.mT).norm() / own_scores.norm())
    return notes_error, kit.to_matrix(kernel), kernel_error, asymmetry, sentence


def _translate_idiom(model: kit.Model, text: str) -> Idiom:
    *word_by_word, translation = model.translate_sentences(
        [*kit.explain_sentence(model, text).source_tokens[:-1], text]
    )
    return Idiom(text, tuple(word_by_word), translation)


def values(result: Result) -> kit.Values:
    x, w = kit.to_tensor(list(EMBEDDINGS.values())), kit.to_tensor(WEIGHTS)
    projected = x @ w
    printed, in_text = (kit.to_tensor([weights]) for weights in (PRINTED, IN_TEXT))
    values = kit.to_tensor([VALUES]).mT
    tables = (result.embeddings, result.queries, result.keys, result.values)
    width = len(result.embeddings[0])
    first = result.idioms[0] if result.idioms else None
    return {
        "numbers": [str(i + 1) for i in range(len(result.queries[0]))],
        "vectors": [(word, *(_vector(table[i]) for table in tables)) for i, word in enumerate(result.words)],
        "first_output": _vector(result.steps.output[0]),
        "sizes": [(f"{n} × {n}", n * n, 3 * n * n) for n in (width, 512)],
        "paper": preset("paper-base"),
        "x_names": [f"x{i + 1}" for i in range(len(result.kernel))],
        "y_names": [f"y{i + 1}" for i in range(len(result.kernel))],
        "idiom": first,
        "word_by_word": [word or "–" for word in first.word_by_word] if first else [],
        "has_learned": first is not None and " ".join(first.word_by_word).split() != first.translation.split(),
        "notes_query": _vector(projected[2].tolist()),
        "notes_sums": (sum(FIRST_ROW), float(printed.sum()), float(in_text.sum())),
        "notes_products": (float(in_text @ values), float(printed @ values), float(in_text @ projected[:3, :1])),
        "notes_column": projected[:3, 0].tolist(),
        "notes_outputs": [_vector(row) for row in kit.attention(projected, projected, projected).output[:3]],
    }


def answers() -> kit.Values:
    x, w = kit.to_tensor([[1, 2]]), kit.to_tensor([[3, 0], [1, 1]])
    q, k = kit.to_tensor([[2, 0]]), kit.to_tensor([[1, 5], [0, 9]])
    kernel = kit.to_tensor([[1, 0], [0, 2]]) @ kit.to_tensor([[0, 1], [1, 0]]).mT
    return {
        "query": float((x @ w)[0, 0]),
        "steps": kit.attention(q, k, k),
        "kernel": [list(map(int, row)) for row in kernel.tolist()],
        "score": float(kit.to_tensor([[1, 1]]) @ kernel @ kit.to_tensor([[0], [1]])),
    }


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{number:.2f}" for number in numbers) + ")"
