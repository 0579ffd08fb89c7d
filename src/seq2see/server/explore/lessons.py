"""Lessons over HTTP: their settings and the result.

A parameter whose default is None (`vectors`, `wic`) cannot be set, so no text from a request is ever used as a file name.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from seq2see.api import Model
from seq2see.course.lessons import LESSONS, Lesson, document
from seq2see.course.lessons.settings import Setting, SettingError, SettingKind, settings_of
from seq2see.course.lessons.training import before_each_step
from seq2see.errors import did_you_mean
from seq2see.server.explore.responses import ResponseModel
from seq2see.server.http.errors import ApiError, suggest
from seq2see.server.http.workers import Deadline
from seq2see.tensors.files import to_json

TRAINING_WAIT = 3.0  # seconds to wait for another training to finish


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


class LessonRunner:
    def __init__(self) -> None:
        self.training = threading.Lock()  # torch has one random generator for all threads

    def run(
        self, lesson: Lesson, given: Mapping[str, Any], model_name: str | None, model: Model | None, deadline: Deadline
    ) -> LessonResult:
        """Computes a lesson; `model` is for lessons that use one."""
        known = settings_of(lesson)
        for name in given:
            if name not in known:
                message = f'the lesson "{lesson.name}" has no setting "{name[:80]}"'
                raise ApiError(422, message, did_you_mean(name, known), "settings")
        try:
            arguments = {name: known[name].validate(value) for name, value in given.items()}
        except SettingError as error:
            hint = error.hint or "see /api/lessons for the settings of each lesson"
            raise ApiError(422, error.message, hint, error.location) from error
        used = {name: setting.default for name, setting in known.items()} | arguments
        if model is not None:
            arguments["model"] = model
        with self._exclusive_training(deadline) if lesson.training_seconds else nullcontext():
            result = lesson.compute(arguments)
        return LessonResult(
            name=lesson.name,
            title=lesson.title,
            model=model_name,
            settings=to_json(used),
            text=LessonText.model_validate(lesson.describe(result)),
            exercises=exercise_responses(lesson),
            result=to_json(result),
        )

    @contextmanager
    def _exclusive_training(self, deadline: Deadline) -> Iterator[None]:
        if not self.training.acquire(timeout=TRAINING_WAIT):
            raise ApiError(503, "another lesson is training a model", "wait for it, or stop it", retry_after=5)
        token = before_each_step.set(deadline.check)
        try:
            yield
        finally:
            before_each_step.reset(token)
            self.training.release()


def list_lessons() -> LessonList:
    return LessonList(lessons=[_lesson_info(lesson) for lesson in LESSONS.values()])


def find_lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise ApiError(404, f'unknown lesson "{name[:80]}"', suggest(name, LESSONS, "/api/lessons"), "lesson")
    return LESSONS[name]


def _lesson_info(lesson: Lesson) -> LessonInfo:
    return LessonInfo(
        name=lesson.name,
        group=lesson.group,
        title=lesson.title,
        question=lesson.question,
        settings=[_setting(setting) for setting in settings_of(lesson).values()],
        uses_model="model" in lesson.defaults(),
        training_seconds=lesson.training_seconds,
    )


def _setting(setting: Setting) -> LessonSetting:
    return LessonSetting(
        name=setting.name,
        kind=setting.kind,
        default=to_json(setting.default),
        minimum=setting.bounds.minimum,
        maximum=setting.bounds.maximum,
        integer=setting.is_integer,
    )


@cache  # the answers do not depend on settings
def exercise_responses(lesson: Lesson) -> list[LessonExercise]:
    return [LessonExercise.model_validate(exercise) for exercise in lesson.exercises()]
