"""What is answered: one schema an answer, so that the document of the API is complete."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Every error: what is wrong, where, and what to do about it."""

    what: str = Field(examples=['no model is called "en-hj"'])
    where: str = Field(examples=["model"])
    remedy: str = Field(examples=['did you mean "en-hi"?'])


class Vocabulary(BaseModel):
    source: int = Field(description="Tokens that are read.")
    target: int = Field(description="Tokens that are written.")
    shared: bool = Field(description="Both are the same tokens.")
    kind: str = Field(description="bpe, character or word.")


class ModelCard(BaseModel):
    name: str
    kind: Literal["translator", "language model", "encoder"]
    parameters: int
    vocabulary: Vocabulary
    snapshots: list[int] = Field(description="Steps of its training at which it can be asked too.")
    config: dict[str, Any] = Field(description="Its config.toml.")
    scores: dict[str, Any] = Field(description="Its scores.json, with the signatures of the metrics.")


class Models(BaseModel):
    models: list[ModelCard]


class Symbol(BaseModel):
    symbol: str = Field(description="The name in the formulas.", examples=["W_Q"])
    start: int = Field(description="Its first row.", examples=[0])
    stop: int = Field(description="The row after its last.", examples=[128])


class Weight(BaseModel):
    name: str = Field(examples=["decoder.blocks.1.cross.queries.weight"])
    shape: list[int] = Field(examples=[[128, 128]])
    place: str = Field(description="Where it acts, as the names of a trace have it.", examples=["decoder.1.cross"])
    symbols: list[Symbol]


class Weights(BaseModel):
    """A matrix has one row an output: `x · W` of the formulas is `x · rowsᵀ`."""

    model: str
    step: int | None
    weights: list[Weight]


class Tokens(BaseModel):
    """Every token as a person reads it, by its id."""

    source: list[str] = Field(description="Those that are read, of a translator.")
    target: list[str] = Field(description="Those that are written.")
    banned: list[int] = Field(description="Of these, the ids that no search ever writes.")


class Logged(BaseModel):
    step: int
    loss: float = Field(description="Cross-entropy a token, in nats.")


class Validated(Logged):
    bleu: float | None = Field(description="Of a translator.")


class History(BaseModel):
    """What its training wrote down; of a long one, points at equal distances."""

    model: str
    steps: list[Logged]
    validations: list[Validated]


class Token(BaseModel):
    id: int
    text: str = Field(description="As a person reads it.")


class Written(Token):
    logprob: float | None = Field(description="ln P of it, given all before it.")


class Hypothesis(BaseModel):
    text: str
    score: float = Field(description="What the hypotheses are ranked by.")
    finished: bool = Field(description="It ended by itself, not at the limit of its length.")
    tokens: list[Written] = Field(description="With `<end>` where it was reached.")


class Translation(BaseModel):
    model: str
    step: int | None
    hypotheses: list[Hypothesis] = Field(description="Best first.")


class Named(BaseModel):
    name: str = Field(examples=["decoder.1.cross.weights"])
    shape: list[int] = Field(examples=[[8, 6, 5]])
    axes: list[str] = Field(examples=[["head", "query", "key"]])
    formula: str = Field(examples=["softmax over the keys: rows add to 1"])


class Change(BaseModel):
    """A token before beside a token after; null where the other has one more."""

    before: str | None
    after: str | None
    p_before: float | None = Field(description="P(before) as the model was.")
    p_after: float | None = Field(description="P(after) as the model is now.")
    p_kept: float | None = Field(description="P(before) as the model is now, while both have read the same.")


class Span(BaseModel):
    """A part of the output that one token wrote, or several where they meet inside a letter."""

    text: str
    row: int = Field(description="The row that wrote its first token.")


class Manifest(BaseModel):
    """What a trace holds. Its numbers are at `/api/traces/{id}/tensors/{name}`."""

    id: str
    model: str
    step: int | None
    text: str
    output: str
    sources: list[Token] = Field(description="What the encoder read; of a language model nothing.")
    reads: list[Token] = Field(description="What each row of the decoder read.")
    writes: list[Written] = Field(description="What each row wrote.")
    first: int = Field(description="Rows before this one wrote tokens that were given.")
    finished: bool | None = Field(description="It ended by itself; null where the target was given.")
    spans: list[Span] = Field(description="The output, cut where its tokens meet but inside no grapheme.")
    changes: list[Change] = Field(description="What the interventions changed; empty without any.")
    held: list[Change] = Field(description="The same while the output is held fixed: every token in the same context.")
    tensors: list[Named]


class Link(BaseModel):
    source: int = Field(description="A word of the source, from 0.")
    target: int = Field(description="A word of the output, from 0.")


class Alignment(BaseModel):
    sources: list[str]
    targets: list[str]
    weights: list[list[float]] = Field(description="[target words, source words]")
    links: list[Link]


class Entropies(BaseModel):
    entropies: dict[str, list[float]] = Field(description="Of every attention, its heads: −Σ w ln w, in nats.")


class Guess(BaseModel):
    token: str
    probability: float


class Reading(BaseModel):
    top: list[Guess]
    probability: float = Field(description="Of the token that was chosen in the end.")
    rank: int = Field(description="Its rank among all tokens, from 1.")


class Lens(BaseModel):
    places: list[str]
    readings: list[list[Reading]] = Field(description="[place][row]")


class Part(BaseModel):
    place: str
    head: int | None
    logit: float


class Contributions(BaseModel):
    row: int
    token: str
    against: str | None
    logit: float
    parts: list[Part] = Field(description="They add up to the logit.")


class Alternative(BaseModel):
    token: str
    id: int
    logit: float
    probability: float


class Alternatives(BaseModel):
    row: int
    alternatives: list[Alternative] = Field(description="Likeliest first.")


class Senses(BaseModel):
    word: str
    sentences: list[str] = Field(description="Of each occurrence.")
    places: list[str]
    vectors: list[list[list[float]]] = Field(description="[places, occurrences, width]")
    static: list[float] = Field(description="The vector without any sentence, [width].")
    cosines: list[list[list[float]]] = Field(description="[places, occurrences, occurrences]")
    to_static: list[list[float]] = Field(description="[places, occurrences]")


Kind = Literal[
    "text", "texts", "rows", "number", "numbers", "matrix", "values", "table", "matrices", "groups", "questions",
]  # fmt: skip


class Setting(BaseModel):
    name: str = Field(examples=["table"])
    kind: Kind = Field(
        description="One `text`, many `texts`, `rows` of so many each; a `number`, many `numbers`, a `matrix`; by name: "
        "a number (`values`), numbers (`table`), a matrix (`matrices`), texts (`groups`), a text and texts (`questions`)."
    )
    default: Any = Field(description="The notes' own.")
    least: float = Field(description="Of its numbers.")
    most: float
    whole: bool = Field(description="Its numbers are whole.")


class LessonCard(BaseModel):
    name: str = Field(examples=["context"])
    title: str
    claim: str = Field(description="Of one that trains, how its story begins, to be read before; else empty.")
    settings: list[Setting]
    model: bool = Field(description="It looks into a model.")
    seconds: int = Field(description="That it trains for, about; 0: it answers at once.")


class Lessons(BaseModel):
    """In the notes' order."""

    lessons: list[LessonCard]


class Table(BaseModel):
    columns: list[str]
    rows: list[list[str | float | None]] = Field(description="Figures as they are; null where there is none, or −∞.")
    shown: list[list[str]] = Field(description="The same as a person reads them.")
    caption: str
    decimals: int
    shaded: bool = Field(description="Weights: the larger the stronger.")
    strong: list[int] = Field(description="Rows that matter most.")


class Story(BaseModel):
    claim: str = Field(description="What is done, and what the notes say of it.")
    parts: list[str | Table]
    look: str = Field(description="What to look at.")
    slips: list[str] = Field(description="What the notes wrote, and what is right.")


class Lesson(BaseModel):
    """A lesson, computed now."""

    name: str
    title: str
    model: str | None = Field(description="That it looked into.")
    given: dict[str, Any] = Field(description="Every setting, as it was used.")
    story: Story
    result: dict[str, Any] = Field(description="Every number that is told, unrounded, and more.")
