"""What may be asked: the bodies of requests, each field with its bounds, and an example of each."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from seq2see.errors import nearest

CHARACTERS = 8000

Text = Annotated[str, Field(max_length=CHARACTERS)]
Name = Annotated[str, Field(min_length=1, max_length=100)]
Position = Annotated[int, Field(ge=0, lt=1 << 16)]
Number = Annotated[float, Field(ge=-1e4, le=1e4, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Body(BaseModel):
    """An unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        names = [field.alias or name for name, field in cls.model_fields.items()]
        if isinstance(value, dict):
            for key in value:
                if key not in names and key not in cls.model_fields:
                    raise ValueError(f'unknown key "{str(key)[:80]}": {nearest(str(key), names)}')
        return value


class Somewhere(Body):
    positions: list[Position] | None = Field(
        None, max_length=1024, description="Tokens, from 0, on which it acts (of an attention: the queries); or all."
    )


class InHead(Somewhere):
    head: Position | None = Field(None, description="One head only; without it, all of them.")


ATTENTION = "An attention such as `decoder.1.cross`; `*` stands for anything."
QUANTITY = "A quantity such as `decoder.1.feed_forward.output`; `*` stands for anything."


class Without(Somewhere):
    """A head of an attention adds nothing."""

    do: Literal["without"]
    attention: Name = Field(description=ATTENTION, examples=["decoder.1.cross"])
    head: Position = Field(description="The head that is switched off.")


class Attend(InHead):
    """An attention looks where it is told to."""

    do: Literal["attend"]
    attention: Name = Field(description=ATTENTION, examples=["decoder.1.cross"])
    weights: list[Share] = Field(
        min_length=1, max_length=1024, description="The weight of each key, from the first; keys beyond these get 0.",
        examples=[[0.0, 1.0]],
    )  # fmt: skip


class AttendUniformly(InHead):
    """An attention looks at all that it may look at, equally."""

    do: Literal["attend_uniformly"]
    attention: Name = Field(description=ATTENTION, examples=["encoder.0.self"])


class Scale(InHead):
    """A quantity is multiplied by a factor; by 0 it is switched off."""

    do: Literal["scale"]
    name: Name = Field(description=QUANTITY, examples=["decoder.1.feed_forward.output"])
    factor: Number = Field(examples=[0.0])
    unit: Position | None = Field(
        None, description="One number of each vector only, such as a unit of `decoder.1.feed_forward.after`."
    )


class Origin(Body):
    trace: Name | None = Field(None, description="The id of a kept trace; without it, the same text left alone.")
    position: Position = Field(description="The token, from 0, whose vector is taken.")


class Patch(Body):
    """The vectors at some positions are replaced by that of another word, or of another sentence."""

    do: Literal["patch"]
    name: Name = Field(
        description="A quantity with a vector a token, such as `encoder.vectors`.", examples=["encoder.vectors"]
    )
    positions: list[Position] = Field(min_length=1, max_length=1024, description="Where it is put.", examples=[[1]])
    head: Position | None = Field(None, description="One head only, of queries, keys or values.")
    source: Origin = Field(alias="from", description="Where it comes from.", examples=[{"position": 3}])


Intervention = Annotated[Without | Attend | AttendUniformly | Scale | Patch, Field(discriminator="do")]


class OfModel(Body):
    model: Name | None = Field(None, description="Its name in `/api/models`; without one, the first.")
    step: int | None = Field(None, ge=0, le=1 << 40, description="As it was at this step of its training, a snapshot.")


class Reaching(OfModel):
    interventions: list[Intervention] = Field(
        default_factory=list, max_length=32, description="What is changed inside the model, for this request alone.",
        examples=[[{"do": "without", "attention": "decoder.1.cross", "head": 0}]],
    )  # fmt: skip


class Translate(Reaching):
    text: Text = Field(min_length=1, examples=["How are you?"])
    beam: int = Field(1, ge=1, le=16, description="Hypotheses that the search follows.")
    nbest: int = Field(1, ge=1, le=16, description="Of them, so many are returned; at most `beam`.")
    length_penalty: float = Field(
        1.0, ge=0, le=5, description="A score is the sum of log-probabilities over length^this."
    )


class Generate(Reaching):
    prompt: Text = Field(
        "", description="What the text begins with; for a translator, the text to translate.", examples=["Once"]
    )
    tokens: int = Field(100, ge=1, le=500, description="So many new ones at most.")
    temperature: float = Field(0.8, ge=0, le=100, description="0: the likeliest token at every step.")
    top_k: int = Field(0, ge=0, le=1 << 20, description="Draw among so many of the likeliest; 0: all.")
    top_p: float = Field(1.0, ge=0.001, le=1, description="Draw among the fewest that have this probability together.")
    seed: int = Field(0, ge=0, lt=1 << 31, description="The same seed draws the same text.")

    @field_validator("temperature")
    @classmethod
    def _warm_enough(cls, value: float) -> float:
        if 0 < value < 0.01:
            raise ValueError(f"{value} is too cold to divide by: take 0, the likeliest token, or at least 0.01")
        return value


class Explain(Reaching):
    text: Text = Field(description="The text to translate, or the prompt.", examples=["How are you?"])
    target: Text | None = Field(None, description="Look at this output rather than at the model's own.")
    beam: int = Field(1, ge=1, le=16, description="Hypotheses that the search follows.")
    tokens: int = Field(0, ge=0, le=500, description="New tokens at most; 0: as many as the text suggests.")
    temperature: float = Field(0.0, ge=0, le=100, description="Of sampling; 0: the likeliest token at every step.")
    top_k: int = Field(0, ge=0, le=1 << 20, description="Draw among so many of the likeliest; 0: all.")
    top_p: float = Field(1.0, ge=0.001, le=1, description="Draw among the fewest that have this probability together.")
    seed: int = Field(0, ge=0, lt=1 << 31, description="The same seed draws the same text.")


class Senses(OfModel):
    word: Annotated[str, Field(min_length=1, max_length=100)] = Field(examples=["bank"])
    sentences: list[Text] = Field(
        min_length=1, max_length=16, description="Each has the word in it.",
        examples=[["She went to the bank.", "He sat by the bank."]],
    )  # fmt: skip


class Lesson(Body):
    model: Name | None = Field(None, description="Of a lesson that looks into one; without it, the first.")
    given: dict[str, Any] = Field(
        default_factory=dict,
        description="Your own words and tables, by the names in `/api/lessons`, built as the defaults are; what is by name may "
        "also be a list of pairs.",
        examples=[{"sentences": ["an apple phone"]}],
    )
