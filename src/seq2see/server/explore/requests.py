"""Request bodies of the HTTP API. Every field has bounds; most have an example.

With `responses`, the single source of the API's schema: the OpenAPI document and the page's TypeScript types come from here.
"""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from seq2see.config.search import Search
from seq2see.errors import did_you_mean

MAX_CHARACTERS = 8000

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Name = Annotated[str, Field(min_length=1, max_length=100)]
Position = Annotated[int, Field(ge=0, lt=1 << 16)]
Positions = Annotated[list[Position], Field(max_length=1024)]
Number = Annotated[float, Field(ge=-1e4, le=1e4, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _require_usable_temperature(value: float) -> float:
    if 0 < value < 0.01:
        raise ValueError(f"temperature {value} is too small: use 0 for greedy search, or at least 0.01")
    return value


Temperature = Annotated[float, Field(ge=0, le=100), AfterValidator(_require_usable_temperature)]
TopK = Annotated[int, Field(ge=0, le=1 << 20, description="Sample from the k most likely tokens; 0: from all.")]
TopP = Annotated[
    float, Field(ge=0.001, le=1, description="Nucleus sampling: the smallest set with this probability mass.")
]
Beam = Annotated[int, Field(ge=1, le=16, description="Beam size; 1 is greedy search.")]
Seed = Annotated[int, Field(ge=0, lt=1 << 31, description="Random seed.")]


class RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, value: Any) -> Any:
        """Names the closest known key, which pydantic's own message does not."""
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    raise ValueError(f'unknown key "{str(key)[:80]}": {did_you_mean(str(key), cls.model_fields)}')
        return value


# Interventions

ATTENTION = "An attention layer such as `decoder.1.cross`; `*` is a wildcard."
TENSOR = "A tensor of the trace such as `decoder.1.feed_forward.output`; `*` is a wildcard."


class AtPositions(RequestModel):
    positions: Positions | None = Field(
        None,
        description="Token positions, from 0, to change (queries, for an attention layer). Default: all.",
    )


class AtHead(AtPositions):
    head: Position | None = Field(None, description="A single head. Default: all heads.")


class AblateHead(AtPositions):
    """Sets the output of an attention head to zero."""

    type: Literal["ablate_head"]
    attention: Name = Field(description=ATTENTION, examples=["decoder.1.cross"])
    head: Position = Field(description="The head to ablate.")


class ForceAttention(AtHead):
    """Replaces the attention weights."""

    type: Literal["force_attention"]
    attention: Name = Field(description=ATTENTION, examples=["decoder.1.cross"])
    weights: list[Weight] = Field(
        min_length=1,
        max_length=1024,
        description="The weight of each key, from the first; the remaining keys get 0.",
        examples=[[0.0, 1.0]],
    )


class UniformAttention(AtHead):
    """Gives every visible key the same attention weight."""

    type: Literal["uniform_attention"]
    attention: Name = Field(description=ATTENTION, examples=["encoder.0.self"])


class Scale(AtHead):
    """Multiplies a tensor by a factor; 0 switches it off."""

    type: Literal["scale"]
    name: Name = Field(description=TENSOR, examples=["decoder.1.feed_forward.output"])
    factor: Number = Field(examples=[0.0])
    unit: Position | None = Field(
        None, description="A single element of each vector, such as a unit of `decoder.1.feed_forward.post_activation`."
    )


class PatchSource(RequestModel):
    trace: Name | None = Field(None, description="The id of a stored trace. Default: this text without interventions.")
    position: Position = Field(description="Position of the token, from 0, whose vector is copied.")


class Patch(RequestModel):
    """Replaces vectors with the vector of another token, of this text or of another trace (activation patching)."""

    type: Literal["patch"]
    name: Name = Field(
        description="A tensor with one vector per token, such as `encoder.vectors`.", examples=["encoder.vectors"]
    )
    positions: Positions = Field(min_length=1, description="Positions to replace.", examples=[[1]])
    head: Position | None = Field(None, description="A single head of queries, keys or values. Default: all heads.")
    source: PatchSource = Field(examples=[{"position": 3}])


Intervention = Annotated[AblateHead | ForceAttention | UniformAttention | Scale | Patch, Field(discriminator="type")]


# Bodies


class ModelRequest(RequestModel):
    model: Name | None = Field(None, description="A name from `/api/models`. Default: the first model.")
    step: int | None = Field(
        None, ge=0, le=1 << 40, description="Use the snapshot from this training step. Default: the final weights."
    )
    source_language: Name | None = Field(
        None, description="For a translator of many languages, a code from `/api/models`. Default: the model's."
    )
    target_language: Name | None = Field(None, description="The same for the target.")


class InterventionRequest(ModelRequest):
    interventions: list[Intervention] = Field(
        default_factory=list,
        max_length=32,
        description="Changes inside the model, for this request only.",
        examples=[[{"type": "ablate_head", "attention": "decoder.1.cross", "head": 0}]],
    )

    @property
    def search(self) -> Search:
        names = {each.name for each in fields(Search)}
        return Search(**{name: value for name, value in self if name in names})


class SamplingRequest(InterventionRequest):
    top_k: TopK = 0
    top_p: TopP = 1.0
    seed: Seed = 0


class TranslateRequest(InterventionRequest):
    text: Text = Field(min_length=1, examples=["How are you?"])
    beam: Beam = 1
    nbest: int = Field(1, ge=1, le=16, description="Number of hypotheses to return, at most `beam`.")
    length_penalty: float = Field(
        1.0, ge=0, le=5, description="The score is the sum of log-probabilities divided by length^length_penalty."
    )


class GenerateRequest(SamplingRequest):
    prompt: Text = Field(
        "", description="The beginning of the text; for a translator, the text to translate.", examples=["Once"]
    )
    max_new_tokens: int = Field(100, ge=1, le=500, description="Maximum number of new tokens.")
    temperature: Temperature = Field(0.8, description="Sampling temperature; 0 is greedy search.")


class TraceRequest(SamplingRequest):
    text: Text = Field(
        description="The text to translate, or the prompt; for a model of pictures or sounds, an id from `/api/media`.",
        examples=["How are you?"],
    )
    target: Text | None = Field(None, description="Trace this output instead of the model's own.")
    beam: Beam = 1
    max_new_tokens: int = Field(
        0, ge=0, le=500, description="Maximum number of new tokens; 0: a limit that depends on the text."
    )
    temperature: Temperature = Field(0.0, description="Sampling temperature; 0: no sampling.")


class ContextualEmbeddingsRequest(ModelRequest):
    word: Annotated[str, Field(min_length=1, max_length=100)] = Field(examples=["bank"])
    sentences: list[Text] = Field(
        min_length=1,
        max_length=16,
        description="Sentences that contain the word.",
        examples=[["She went to the bank.", "He sat by the bank."]],
    )


class SpaceRequest(ModelRequest):
    stack: Literal["encoder", "decoder"] = Field(description="Whose embeddings and vectors.")
    fit: Literal["vocabulary", "words", "layers"] = Field(
        "vocabulary",
        description="What the principal axes are fitted to: the shown vocabulary, the words and their "
        "neighbours, or the tokens of the traces at all layers.",
    )
    method: Literal["pca", "tsne"] = Field(
        "pca", description="t-SNE places the vocabulary only, in two dimensions; needs openTSNE on the server."
    )
    traces: list[Name] = Field(
        default_factory=list, max_length=4, description="Ids of stored traces of this model, whose tokens to place."
    )
    words: Annotated[str, Field(max_length=200)] = Field(
        "", description="A word, or an expression: `king − man + woman`, with spaces.", examples=["went − go + come"]
    )
    neighbors: int = Field(10, ge=1, le=100, description="Number of embeddings nearest to the words.")


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["first"])]


class StartTraining(RequestModel):
    name: RunName = Field(description="The directory of the new run, in the server's directory of runs.")
    files: list[Name] = Field(
        default_factory=list,
        max_length=2,
        description="Files that `/api/training` lists: none for the built-in corpus; one of plain text or of pairs; or source "
        "and target.",
    )
    minutes: float = Field(2.0, ge=0.1, le=10_000, description="Training time.")


class ResumeTraining(RequestModel):
    name: RunName = Field(description="A paused run.")


class LessonRequest(RequestModel):
    model: Name | None = Field(None, description="The model to use, for lessons with `uses_model`. Default: the first.")
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings to change, by their names in `/api/lessons`, structured like the defaults. "
        "An object may also be given as a list of pairs.",
        examples=[{"sentences": ["an apple phone"]}],
    )
