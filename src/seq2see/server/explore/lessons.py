"""Lessons over HTTP: their settings and the result.

A parameter whose default is None (`vectors`, `wic`) cannot be set, so no text from a request is ever used as a file name.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from seq2see.api import Model
from seq2see.course.lessons import LESSONS, Lesson
from seq2see.course.lessons.document import to_json
from seq2see.course.lessons.settings import Setting, SettingError, settings_of
from seq2see.course.lessons.training import before_each_step
from seq2see.errors import did_you_mean
from seq2see.server.explore import responses
from seq2see.server.http.errors import ApiError, suggest
from seq2see.server.http.workers import Deadline

TRAINING_WAIT = 3.0  # seconds to wait for another training to finish


class LessonRunner:
    def __init__(self) -> None:
        self._training = threading.Lock()  # torch has one random generator for all threads

    def run(
        self, lesson: Lesson, given: Mapping[str, Any], model_name: str | None, model: Model | None, deadline: Deadline
    ) -> responses.LessonResult:
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
        return responses.LessonResult(
            name=lesson.name, title=lesson.title, model=model_name, settings=to_json(used),
            text=responses.LessonText.model_validate(lesson.describe(result)), exercises=exercise_responses(lesson),
            result=to_json(result),
        )  # fmt: skip

    @contextmanager
    def _exclusive_training(self, deadline: Deadline) -> Iterator[None]:
        if not self._training.acquire(timeout=TRAINING_WAIT):
            raise ApiError(503, "another lesson is training a model", "wait for it, or stop it", retry_after=5)
        token = before_each_step.set(deadline.check)
        try:
            yield
        finally:
            before_each_step.reset(token)
            self._training.release()


def list_lessons() -> responses.LessonList:
    return responses.LessonList(lessons=[_lesson_info(lesson) for lesson in LESSONS.values()])


def find_lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise ApiError(404, f'unknown lesson "{name[:80]}"', suggest(name, LESSONS, "/api/lessons"), "lesson")
    return LESSONS[name]


def _lesson_info(lesson: Lesson) -> responses.LessonInfo:
    return responses.LessonInfo(
        name=lesson.name, group=lesson.group, title=lesson.title, question=lesson.question,
        settings=[_setting(setting) for setting in settings_of(lesson).values()],
        uses_model="model" in lesson.defaults(), training_seconds=lesson.training_seconds,
    )  # fmt: skip


def _setting(setting: Setting) -> responses.LessonSetting:
    return responses.LessonSetting(
        name=setting.name,
        kind=setting.kind,
        default=to_json(setting.default),
        minimum=setting.bounds.minimum,
        maximum=setting.bounds.maximum,
        integer=setting.is_integer,
    )


@cache  # the answers do not depend on settings
def exercise_responses(lesson: Lesson) -> list[responses.LessonExercise]:
    return [responses.LessonExercise.model_validate(exercise) for exercise in lesson.exercises()]
