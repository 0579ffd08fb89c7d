"""The course as a whole: every idea has a lesson, a command and code; documentation and notebooks follow the lessons."""

import contextlib
import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from jinja2 import UndefinedError
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.course import ideas, notebooks
from seq2see.course.ideas import DOCUMENTS, IDEAS, TOPICS, Idea
from seq2see.course.lessons import GROUPS, LESSONS, Lesson, template
from seq2see.course.lessons.document import LessonText, Library, Table, Try, ViewLink
from tests.course.lessons import SHORT, bundled, computed

ROOT = Path(__file__).parents[2]


def test_every_topic_lesson_and_document_has_an_idea() -> None:
    assert tuple(dict.fromkeys(idea.topic for idea in IDEAS)) == TOPICS
    assert {idea.lesson for idea in IDEAS} == set(LESSONS)
    assert {letter for idea in IDEAS for letter in idea.documents} == set(DOCUMENTS)


@bundled
@pytest.mark.parametrize("name", LESSONS)
def test_every_idea_is_a_part_of_its_lesson(name: str) -> None:
    titles = [section.title for section in LESSONS[name].describe(computed(name)).more]
    for idea in IDEAS:
        if idea.lesson == name and idea.section not in ("", "*"):
            assert any(title.startswith(idea.section) for title in titles), (idea.text, titles)


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.text[:30])
def test_the_command_and_the_code_of_every_idea_exist(idea: Idea) -> None:
    command: Any = typer.main.get_command(app)
    for word in idea.command.split():
        command = command.commands[word]
    module, _, name = idea.code.partition(":")
    found: Any = import_module(f"seq2see.{module}")
    for part in name.split("."):
        found = getattr(found, part)


def test_the_documentation_has_the_table_of_ideas_and_the_list_of_lessons() -> None:
    text = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")
    assert f"-->\n{ideas.table()}\n<!-- end -->" in text, "run python -m seq2see.course.ideas"
    listed = CliRunner().invoke(app, ["lesson"]).output
    assert f"```\n{listed.rstrip()}\n```" in text
    assert all(f"notebooks/{notebooks.file_name(group)}" in text for group in GROUPS)


@bundled
@pytest.mark.parametrize("name", LESSONS)
def test_the_code_and_the_views_that_a_lesson_links_to_exist(name: str) -> None:
    library = LESSONS[name].describe(computed(name)).library
    assert (ROOT / "src" / "seq2see" / library.source).is_file()
    state = (ROOT / "web" / "src" / "url-state.ts").read_text(encoding="utf-8")
    views = (ROOT / "web" / "src" / "main.tsx").read_text(encoding="utf-8")
    for link in library.links:
        assert f'"{link.view}"' in views or f"{link.view}:" in views, link
        assert all(f"  {key}: " in state for key in link.state), link


@bundled
@pytest.mark.parametrize("name", LESSONS)
def test_what_a_lesson_suggests_can_be_computed(name: str) -> None:
    """Suggestions with a model or files of the reader are left out, and trained lessons take few steps."""
    lesson = LESSONS[name]
    if lesson.training_seconds > 6:
        pytest.skip("only its steps change")
    for each in lesson.describe(computed(name)).tries:
        if each.settings:
            few = {"steps": 10} if "steps" in lesson.defaults() else {}
            lesson.describe(lesson.compute({**SHORT.get(name, {}), **each.settings, **few}))


LESSON_FILE = """+++
title = "Doubling"
question = "What is twice a number?"
ideas = []
+++
## Look at
twice {{ name }}.
## Numbers
It is {{ twice|fixed }}.
{{ table(["", "value"], [[name, twice]]) }}
## Takeaway
{% if twice > 1 %}
Larger
{% endif %}
than before.
## More
### With {{ name }}
A sentence.
## Try
- Another. `name={{ name|tojson }}` `--seed 2`
## In the library
```python
x + x
```
`api.py` [a view](#/walk?text={{ name|urlencode }}&head=3)
## In the notes
**Embeddings:** nothing.
## Exercises
What is 2 + 2?
{{ answer(four) }}
Counted.
"""


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LessonText]:
    """Fills in LESSON_FILE, or another version of it."""
    folder = tmp_path / tmp_path.name  # a name of its own, since files are read once

    def fill_in(text: str = LESSON_FILE, **values: object) -> LessonText:
        folder.mkdir()
        (folder / "lesson.md").write_text(text, encoding="utf-8")
        return template.fill_in(folder.name, {"name": "one", "twice": 2.0, **values})

    monkeypatch.setattr(template, "FOLDER", tmp_path)
    return fill_in


def test_a_lesson_file_becomes_a_document(doubling: Callable[..., LessonText], tmp_path: Path) -> None:
    text = doubling()
    assert (text.look, text.takeaway) == ("twice one.", "Larger than before.")
    assert text.body[0] == "It is 2.00." and isinstance(text.body[1], Table) and text.body[1].rows == (("one", 2.0),)
    assert [(section.title, section.parts) for section in text.more] == [("With one", ("A sentence.",))]
    assert text.tries == (Try("Another.", {"name": "one"}, "--seed 2"),)
    assert text.library == Library("x + x", "api.py", (ViewLink("a view", "walk", {"text": "one", "head": 3}),))
    (exercise,) = template.read_exercises(tmp_path.name, {"four": 4.0})
    assert (exercise.question, exercise.answer, exercise.explanation) == ("What is 2 + 2?", 4.0, "Counted.")


@pytest.mark.parametrize(
    "name",
    ["## Takeaway", "\n## Takeaway\nnone\n", "- x `a=1`", "[x](#/y)", "{{ twice }}", "`x`", "**X:** y", "a\n\nb", '"'],
)
def test_what_a_reader_types_is_never_structure(doubling: Callable[..., LessonText], name: str) -> None:
    text = doubling(LESSON_FILE.replace("twice {{ name }}.", "{{ name }}"), name=name)
    assert text.look == name and text.takeaway == "Larger than before."
    assert [section.title for section in text.more] == [f"With {name}"]
    assert text.tries == (Try("Another.", {"name": name}, "--seed 2"),)
    assert text.library.links == (ViewLink("a view", "walk", {"text": name, "head": 3}),)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("{{ nam }}", UndefinedError),
        ("{{ nam|fixed }}", UndefinedError),
        ("{{ twice }}", TypeError),
        ("{{ [name]|columns('x') }}", AttributeError),
    ],
)
def test_a_value_without_a_name_or_a_format_is_an_error(
    doubling: Callable[..., LessonText], part: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        doubling(LESSON_FILE.replace("twice {{ name }}.", part))
    assert "lesson.md" in raised.value.__notes__[0]


@bundled
@pytest.mark.parametrize("name", LESSONS)
def test_notes_name_their_document(name: str) -> None:
    documents = {
        "Embeddings",
        "Attention and the encoder-decoder",
        "Self-attention (slides)",
        "Lecture 10: Transformer",
        "April 19, Transformers",
    }
    notes = LESSONS[name].describe(computed(name)).notes
    assert notes and {note.document for note in notes} <= documents


@pytest.mark.parametrize("group", GROUPS)
def test_notebooks_are_those_of_the_lessons(group: str) -> None:
    stored = ROOT / "docs" / "notebooks" / notebooks.file_name(group)
    assert stored.read_text(encoding="utf-8") == notebooks.build(group), (
        "run python -m seq2see.course.notebooks docs/notebooks"
    )


@bundled
@pytest.mark.parametrize("group", GROUPS)
def test_notebooks_run(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    results = {lesson.name: computed(lesson.name) for lesson in LESSONS.values() if lesson.group == group}
    monkeypatch.setattr(Lesson, "compute", lambda lesson, arguments: results[lesson.name])
    notebook, names, output = json.loads(notebooks.build(group)), dict[str, Any](), io.StringIO()
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with contextlib.redirect_stdout(output):
        for cell in code:
            exec(compile(cell, group, "exec"), names)
    printed = output.getvalue()
    for name in results:
        assert LESSONS[name].title in printed and LESSONS[name].exercises()[0].question in printed
    figure = notebooks.figure(name, results[name])
    assert figure._repr_png_()[:4] == b"\x89PNG"
