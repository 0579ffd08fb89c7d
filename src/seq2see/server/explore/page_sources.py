"""Prints what the build of the page takes from Python, as JSON: the API's schemas and the code excerpts.

    python -m seq2see.server.explore.page_sources

Besides the schemas of the OpenAPI document there are two that no endpoint declares: the data of the self-contained page,
and `LessonResults`, the result of each lesson by name, which the API declares as a plain object.
"""

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from seq2see.course.lessons import LESSONS
from seq2see.server.explore.app import create_app
from seq2see.server.explore.code_excerpts import code_excerpts
from seq2see.server.explore.static_export import EmbeddedData


def schemas() -> dict[str, Any]:
    result: dict[str, Any] = {**create_app({}).state.api.create().openapi()["components"]["schemas"]}
    # The prefix distinguishes the lessons' dataclasses from response models of the same name.
    for model, prefix in ((EmbeddedData, ""), (_lesson_results(), "Lesson_")):
        template = f"#/components/schemas/{prefix}{{model}}"
        schema = model.model_json_schema(mode="serialization", ref_template=template)
        result |= {prefix + name: definition for name, definition in schema.pop("$defs", {}).items()}
        result[model.__name__] = schema
    return result


def _lesson_results() -> type[BaseModel]:
    fields: dict[str, Any] = {name: (lesson.module.Result, ...) for name, lesson in LESSONS.items()}
    config = ConfigDict(json_schema_serialization_defaults_required=True)
    return create_model("LessonResults", __config__=config, **fields)


if __name__ == "__main__":
    print(json.dumps({"schemas": schemas(), "code": code_excerpts()}))
