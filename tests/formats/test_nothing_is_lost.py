"""Markup and placeholders come back whole and nested, whatever the model does, also when it reads less than a tag has."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seq2see.errors import no_progress
from seq2see.formats import documents
from tests.fake_model import fake_translator, warnings
from tests.formats.random_documents import failures

DATA = "data:image/png;base64," + "iVBORw0KGgo/AAAA+" * 80


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.html", f'<p>I like <img src="{DATA}"> tea.</p>', f'<p>x x <img src="{DATA}">x</p>'),
        ("a.html", f"<p>I {'<b>' * 200}like{'</b>' * 200} tea.</p>", f"<p>x {'<b>' * 200}x{'</b>' * 200} x</p>"),
        ("a.html", '<p>I <b title="a  b\n c">like</b> tea.</p>', '<p>x <b title="a  b\n c">x</b> x</p>'),
        ("a.html", "<p>&lt;https://x.y/?a=1&amp;b=2&gt;</p>", "<p>&lt;https://x.y/?a=1&amp;b=2&gt;</p>"),
        ("a.md", f"I like [tea]({DATA}) now.", f"x x [x]({DATA}) x"),
        ("a.md", "I like [x](u.md) now.", "x x [x](u.md) x"),
        ("a.md", f"See `{'code. More ' * 60}` and go.", f"x `{'code. More ' * 60}` x x"),
        ("a.md", "> ```\n> code\n> ```\n> two words", "> ```\n> code\n> ```\n> x x"),
        ("a.srt", f"1\n00:00:01,000 --> 00:00:02,000\na\n<font id='{DATA} b'>b</font>", None),
        ("a.po", 'msgid "one <a\\nhref=\'u\'>two</a>"\nmsgstr ""\n', 'msgstr ""\n"x <a\\n"\n"href=\'u\'>x</a>"\n'),
        ("a.po", 'msgid "https://x/%(id)s"\nmsgstr ""\n', 'msgstr "https://x/%(id)s"\n'),
    ],
)
def test_what_is_longer_than_the_model_reads_comes_back_whole(name: str, text: str, expected: str | None) -> None:
    """The model replaces every word, so that whatever it is shown of markup is lost."""
    spoil = fake_translator(lambda text: " ".join("x" for _ in text.split()))
    found = documents.translate_content(Path(name), text.encode(), spoil, False, no_progress).decode()
    assert found.endswith(expected or text.replace("\na\n", "\nx\n").replace(">b<", ">x<"))


@pytest.mark.parametrize("first", range(0, 250, 50))
def test_nothing_of_random_documents_is_lost_or_crossed(first: int) -> None:
    """The same for 10,000 documents: python -m tests.formats.random_documents."""
    assert not failures(50, first)


def translate(path: Path, function: Callable[[str], str]) -> str:
    warnings.clear()
    return documents.translate_document(path, fake_translator(function), False, no_progress).decode()


def test_a_placeholder_that_two_sentences_make_together_leaves_the_text_untranslated(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("He eats. Use `code` now.\n\nTea.\n")
    assert translate(path, lambda text: text.replace("He eats.", "A ` B.")) == path.read_text()
    assert warnings[0].startswith(f"{path}, line 1: `code` changed or lost") and "left untranslated" in warnings[0]


def test_what_a_model_writes_is_no_html(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>one</p>")
    assert translate(tmp_path / "a.html", lambda text: "a <b") == "<p>a &lt;b</p>"
