"""Response bodies of the HTTP API; the page exported by `seq2see explain --out why.html` embeds the same models.

With `requests`, the single source of the API's schema: the OpenAPI document and the page's TypeScript types come from here.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from torch import Tensor

from seq2see.config import Config
from seq2see.course.lessons import document
from seq2see.course.lessons.settings import SettingKind
from seq2see.inspect.comparison import TokenChange
from seq2see.inspect.logit_attribution import LogitAttribution
from seq2see.inspect.logit_lens import Alternative
from seq2see.inspect.weights import WeightInfo
from seq2see.storage.bundled import About


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, Tensor) else values


Vector = Annotated[list[float], BeforeValidator(_plain)]
Matrix = Annotated[list[list[float]], BeforeValidator(_plain)]
Matrices = Annotated[list[list[list[float]]], BeforeValidator(_plain)]


class ResponseModel(BaseModel):
    # `model_validate` takes a dataclass of the library with the same fields. A response always contains all fields, also those
    # with a default in `Config`.
    model_config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)


class ErrorResponse(ResponseModel):
    """The body of every error."""

    message: str = Field(examples=['unknown model "en-hj"'])
    location: str = Field(description="The part of the request that caused it.", examples=["model"])
    hint: str = Field(examples=['did you mean "en-hi"?'])


# Models


class TokenizerInfo(ResponseModel):
    kind: str = Field(description="bpe, character or word; of another library's model, its own kind.")
    source_vocab_size: int
    target_vocab_size: int
    shared_vocab: bool = Field(description="Whether source and target use the same vocabulary.")


class Languages(ResponseModel):
    """The languages of a translator of many languages."""

    codes: list[str] = Field(examples=[["eng_Latn", "fra_Latn"]])
    source: str | None = Field(description="What a request uses by default; null if the model detects the language.")
    target: str | None = Field(description="The same for the target; null if a request must choose.")


class ModelInfo(ResponseModel):
    name: str
    kind: Literal["translator", "language model", "encoder"]
    parameters: int
    tokenizer: TokenizerInfo
    languages: Languages | None = Field(description="Null if there is no choice.")
    snapshots: list[int] = Field(description="Training steps with a snapshot of the weights.")
    config: Config = Field(description="The model's config.toml.")
    scores: dict[str, Any] = Field(description="The model's scores.json, with metric signatures.")
    about: About | None = Field(description="The about.json of a bundled model.")


class ModelList(ResponseModel):
    models: list[ModelInfo]


class WeightList(ResponseModel):
    """Matrices have one row per output, as in torch: `x · W` of the formulas is `x · rowsᵀ`."""

    model: str
    step: int | None
    weights: list[WeightInfo]


class Vocabulary(ResponseModel):
    """The text of every token, indexed by token id."""

    source: list[str] = Field(description="Source vocabulary of a translator.")
    target: list[str]
    banned: list[int] = Field(description="Target ids that are never generated.")


class TrainingPoint(ResponseModel):
    step: int
    loss: float = Field(description="Cross-entropy per token, in nats.")


class ValidationPoint(TrainingPoint):
    bleu: float | None = Field(description="Translators only.")


class History(ResponseModel):
    """The training log, downsampled evenly if it is long; empty if there is none."""

    model: str
    steps: list[TrainingPoint]
    validations: list[ValidationPoint]


# Generation


class Token(ResponseModel):
    id: int
    text: str


class SourceToken(Token):
    known: bool = Field(
        description="False for a word that is not in the vocabulary: `text` is the word, `id` that of `<unknown>`."
    )


class ScoredToken(Token):
    logprob: float | None = Field(description="Log-probability given all preceding tokens; null if it is −∞.")


class Hypothesis(ResponseModel):
    text: str
    score: float = Field(description="The score by which hypotheses are ranked.")
    finished: bool = Field(description="Whether it ended with `<end>` rather than at the length limit.")
    tokens: list[ScoredToken] = Field(description="Includes `<end>` if it was generated.")


class Assessed(ResponseModel):
    """How far an output can be trusted."""

    unknown: list[str] | None = Field(
        description="Words of the source that training never saw; null if the model has no list of words."
    )
    confidence: float | None = Field(
        description="Mean log-probability per token; of a text, that the lowest of its sentences. Null if it is −∞."
    )
    low_confidence: bool | None = Field(
        description="Whether the confidence is below the model's threshold; null if the model has none."
    )


class TranslatedSentence(Assessed):
    source: str
    hypotheses: list[Hypothesis] = Field(description="Best first.")


class Translation(Assessed):
    """The text is translated sentence by sentence, as on the command line."""

    model: str
    step: int | None
    translation: str = Field(description="The best translations of the sentences, with the text between them.")
    sentences: list[TranslatedSentence]
    notes: list[str] = Field(description="For example, unknown words, or that a sentence was too long and was divided.")


class Media(ResponseModel):
    """A stored picture or sound."""

    id: str = Field(description="The text of a trace request.")


# Traces


class TensorInfo(ResponseModel):
    name: str = Field(examples=["decoder.1.cross.weights"])
    shape: list[int] = Field(examples=[[8, 6, 5]])
    axes: list[str] = Field(examples=[["head", "query", "key"]])
    formula: str = Field(examples=["softmax over the keys: each row sums to 1"])


class Span(ResponseModel):
    """A part of the output written by one token, or by several that share a grapheme."""

    text: str
    row: int = Field(description="The row that wrote its first token.")


class Trace(Assessed):
    """The contents of a trace. Tensors are at `/api/traces/{id}/tensors/{name}`.

    Row t of the decoder reads `decoder_input_tokens[: t + 1]` and predicts `target_tokens[t]`.
    """

    id: str
    model: str
    step: int | None
    text: str = Field(description="The given text; of a picture or sound, its id.")
    output: str
    source_tokens: list[SourceToken] = Field(description="Input of the encoder; empty for a language model.")
    decoder_input_tokens: list[Token]
    target_tokens: list[ScoredToken]
    output_start: int = Field(description="The first row of the output; after the prompt, for a language model.")
    finished: bool | None = Field(description="Whether it ended with `<end>`; null if the target was given.")
    spans: list[Span] = Field(description="The output, split at token boundaries that are grapheme boundaries.")
    changes: list[TokenChange] = Field(description="What the interventions changed; empty without any.")
    teacher_forced_changes: list[TokenChange] = Field(description="The same for the original output, teacher-forced.")
    tensors: list[TensorInfo]


# Analyses


class AlignmentLink(ResponseModel):
    source: int = Field(description="Index of a source word.")
    target: int = Field(description="Index of a target word.")


class Alignment(ResponseModel):
    source_words: list[str]
    target_words: list[str]
    weights: Matrix = Field(description="[target words, source words]")
    links: list[AlignmentLink]


class AttentionEntropy(ResponseModel):
    entropies: dict[str, list[float]] = Field(description="Per attention layer, one per head: −Σ w ln w, in nats.")


class TokenProbability(ResponseModel):
    token: str
    probability: float


def _token_probabilities(pairs: Any) -> list[TokenProbability]:
    return [TokenProbability(token=token, probability=probability) for token, probability in pairs]


class LensReading(ResponseModel):
    top: Annotated[list[TokenProbability], BeforeValidator(_token_probabilities)]
    probability: float = Field(description="Probability of the token that the model chose in the end.")
    rank: int = Field(description="Its rank, from 1.")


class LogitLens(ResponseModel):
    layers: list[str]
    readings: list[list[LensReading]] = Field(description="[layer][row]")


class TopTokens(ResponseModel):
    """The most likely tokens of all rows, which is all that a page can show of a large vocabulary."""

    ids: list[int]
    tokens: list[str]
    logits: list[list[float]] = Field(description="For each row, the logit of each of these tokens.")
    probabilities: list[list[float]]


class Alternatives(ResponseModel):
    row: int
    alternatives: list[Alternative] = Field(description="Most likely first.")


class ContextualEmbeddings(ResponseModel):
    word: str
    sentences: list[str] = Field(description="The sentence of each occurrence.")
    layers: list[str]
    vectors: Matrices = Field(description="[layers, occurrences, width]")
    static_embedding: Vector = Field(description="The vector without context, [width].")
    cosines: Matrices = Field(description="[layers, occurrences, occurrences]")
    cosines_to_static: Matrix = Field(description="[layers, occurrences]")


# The space of the vectors

Point = tuple[float, float, float]


class Neighbor(ResponseModel):
    id: int
    token: str
    cosine: float = Field(description="Of the vectors as seen from the mean embedding.")


class PlacedNeighbor(Neighbor):
    point: Point | None = Field(description="Null under t-SNE if the token is not among those shown.")


class PlacedTerm(ResponseModel):
    word: str
    sign: Literal[1, -1]
    ids: list[int] = Field(description="Its tokens, whose mean embedding is used.")
    point: Point | None


class PlacedArithmetic(ResponseModel):
    """The sum of the words' unit vectors, and the embeddings nearest to it, without those of the words."""

    terms: list[PlacedTerm]
    point: Point | None
    neighbors: list[PlacedNeighbor]


class PlacedToken(ResponseModel):
    """A token of a trace, and its points from the embedding to the last layer."""

    trace: str
    position: int
    id: int
    text: str
    path: list[Point] = Field(description="One point per layer; empty under t-SNE.")


class Space(ResponseModel):
    """Embeddings and contextual vectors, projected on three axes or placed by t-SNE.

    All vectors are unit vectors from the mean embedding, so that near points have a large cosine.
    """

    methods: list[Literal["pca", "tsne"]] = Field(description="Those that this server can compute.")
    variance_ratios: list[float] = Field(description="The share of the variance on each axis; empty under t-SNE.")
    vocabulary_size: int
    ids: list[int] = Field(description="The tokens shown: the first that contain a letter or digit.")
    tokens: list[str]
    points: list[Point]
    layers: list[str] = Field(description="The tensors of a trace along a path.")
    paths: list[PlacedToken]
    arithmetic: PlacedArithmetic | None = Field(description="Null without words.")


class NearestAtLayer(ResponseModel):
    layer: str
    cosine: float = Field(description="With the token's own embedding.")
    neighbors: list[Neighbor]


class NearestEmbeddings(ResponseModel):
    """The embeddings nearest to one token's vector, layer by layer."""

    token: str
    layers: list[NearestAtLayer]


# Training

TrainingState = Literal["preparing", "training", "paused", "finishing", "finished", "stopped", "failed"]


class TrainingFile(ResponseModel):
    name: str = Field(examples=["books/emma.txt"])
    bytes: int


class TrainingStep(TrainingPoint):
    lr: float = Field(description="Learning rate.")
    tokens_per_second: float


class TrainingRun(ResponseModel):
    """A training run, as its files describe it."""

    name: str
    directory: str
    state: TrainingState = Field(
        description="`finishing`: scores and writes the model; `stopped`: before the first step."
    )
    own: bool = Field(description="Whether this server started it, and so can pause and stop it.")
    model: str | None = Field(description="Its name in `/api/models`, once it has finished.")
    command: str = Field(description="The command that trains it; empty if another process does.")
    message: str = Field(description="The last line of the command's output: of a failed run, the reason.")
    step: int
    seconds: float
    progress: float = Field(description="From 0 to 1.")
    steps: list[TrainingStep]
    validations: list[ValidationPoint]
    steps_with_weights: list[int] = Field(description="For `/api/training/report`.")


class Training(ResponseModel):
    disabled: str = Field(description="Why this server does not train; empty if it does.")
    runs: str = Field(description="The directory of new runs.")
    files: list[TrainingFile] = Field(description="What can be trained on, besides the built-in corpus.")
    paused: list[str] = Field(description="Runs that can be resumed.")
    run: TrainingRun | None = Field(description="The run that was started, resumed or followed last.")


class TrainingReport(ResponseModel):
    """What the model of one training step makes of a text."""

    step: int
    output: str
    probability: float = Field(description="Geometric mean of the probabilities of the output's tokens.")
    attentions: list[str]
    heads: int
    attention: str | None = Field(description="Null if the model has none.")
    head: int | None = Field(description="Null: the mean over the heads.")
    queries: list[str]
    written: list[str] = Field(description="What the decoder writes after it read each query; empty for the encoder.")
    keys: list[str]
    weights: list[list[float]] = Field(description="[queries, keys]")


# Lessons


class LessonSetting(ResponseModel):
    name: str = Field(examples=["table"])
    kind: SettingKind = Field(
        description="`text`, a list of `texts`, `rows` of texts; `number`, a list of `numbers`, a `matrix`; objects with "
        "numbers (`values`), lists of numbers (`table`), matrices (`matrices`), lists of texts (`groups`), or a text and a "
        "list of texts (`questions`) as values."
    )
    default: Any
    minimum: float = Field(description="Of its numbers.")
    maximum: float
    integer: bool = Field(description="Whether its numbers must be integers.")


class LessonInfo(ResponseModel):
    name: str = Field(examples=["context"])
    group: str = Field(examples=["Attention"])
    title: str
    question: str = Field(description="What the lesson answers.")
    settings: list[LessonSetting]
    uses_model: bool
    training_seconds: int = Field(description="Approximate training time; 0 if it does not train.")


class LessonList(ResponseModel):
    """Lessons in their order in the course."""

    lessons: list[LessonInfo]


class Table(ResponseModel):
    kind: Literal["table"] = "table"
    columns: list[str]
    rows: list[list[str | float | None]] = Field(description="Unrounded; null for an empty cell or −∞.")
    formatted: list[list[str]] = Field(description="The same cells, formatted for display.")
    caption: str
    decimals: int
    shaded: bool = Field(description="Whether to shade cells by value.")
    bold_rows: list[int]


class Bars(ResponseModel):
    kind: Literal["bars"] = "bars"
    title: str
    groups: list[tuple[str, list[tuple[str, float | None]]]] = Field(description="Name of the group, and its bars.")
    maximum: float | None


class HeatMap(ResponseModel):
    kind: Literal["heatmap"] = "heatmap"
    title: str
    rows: list[str]
    columns: list[str] = Field(description="May be empty.")
    values: list[list[float | None]]
    signed: bool


def _part(part: Any) -> Any:
    """Adds every cell as displayed, so that the page rounds numbers as the terminal does."""
    if not isinstance(part, document.Table):
        return part
    return {**vars(part), "formatted": [[document.format_cell(cell, part) for cell in row] for row in part.rows]}


def _without_options(tries: tuple[document.Try, ...]) -> list[document.Try]:
    return [each for each in tries if each.settings or not each.options]  # the others are for the terminal


LessonPart = Annotated[str | Table | Bars | HeatMap, BeforeValidator(_part)]


class LessonSection(ResponseModel):
    title: str
    parts: list[LessonPart]


class LessonTry(ResponseModel):
    text: str
    settings: dict[str, Any] = Field(description="Settings to change; empty if it needs an option of the command line.")


class LessonExercise(ResponseModel):
    question: str
    choices: list[str] = Field(description="Empty if the answer is a number.")
    answer: float | str
    shown_answer: str
    tolerance: float = Field(description="Of a number.")
    explanation: str


class LessonText(ResponseModel):
    look: str = Field(description="What to look at.")
    picture: list[LessonPart]
    body: list[LessonPart]
    takeaway: str
    more: list[LessonSection] = Field(description="Further sections, to be folded away.")
    tries: Annotated[list[LessonTry], BeforeValidator(_without_options)]
    library: document.Library
    notes: list[document.Note] = Field(description="On the lecture notes, with corrections.")


class LessonResult(ResponseModel):
    name: str
    title: str
    model: str | None = Field(description="The model used, if any.")
    settings: dict[str, Any] = Field(description="All settings, as used.")
    text: LessonText
    exercises: list[LessonExercise]
    result: dict[str, Any] = Field(description="All computed numbers, unrounded.")


# The self-contained page


class EmbeddedTensor(ResponseModel):
    """A tensor of the self-contained page; bfloat16 is used where it is exact."""

    shape: list[int]
    dtype: Literal["float32", "bfloat16"]
    data_index: int = Field(description="Index into `data`; equal tensors are stored once.")


class EmbeddedData(ResponseModel):
    """The data of the self-contained page, in the server's own response models."""

    model: ModelInfo
    trace: Trace
    hypotheses: list[Hypothesis] = Field(description="The n-best list of the beam; empty without a beam.")
    note: str = Field(description="A remark about how it was computed, or empty.")
    vocabulary: Vocabulary
    top_tokens: TopTokens | None = Field(
        default=None, description="Of a large vocabulary, instead of the probabilities."
    )
    attention_entropy: AttentionEntropy
    logit_attributions: list[LogitAttribution] | str = Field(description="One per row, or the reason there are none.")
    tensors: dict[str, EmbeddedTensor]
    weight_infos: list[WeightInfo]
    weights: dict[str, EmbeddedTensor] = Field(description="Empty for a large model.")
    media: str = Field(default="", description="Base64 of the file of a sound, to play it; empty if it is large.")
    data: list[str] = Field(description="Base64 of little-endian values.")
