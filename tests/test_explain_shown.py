"""Explanations as a person or a program meets them: tables, pictures, JSON, notebooks, the command."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from seq2see.api import Model
from seq2see.cli import app
from seq2see.config import ModelConfig, TextConfig
from seq2see.course.lessons.pictures import heat, panels
from seq2see.course.lessons.pictures import save as save_lesson
from seq2see.directory import BUNDLED
from seq2see.errors import UsageError
from seq2see.inspect import plots
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attentions, weights
from seq2see.inspect.attention_tables import AttentionTable, all_heads, attention_name, attention_table
from seq2see.inspect.explain import Explanation
from seq2see.inspect.terminal import draw_attention, steady
from seq2see.inspect.trace import Trace
from tests.models import save, tiny_model
from tests.test_docs import blocks

TEXTS = ["I like tea.", "मुझे चाय पसंद है।", "We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"]
SMALL = ModelConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.0)
WORDS = TextConfig(tokenizer="word")
SOURCE, TARGET = "We like tea, brother!", "हम दोस्त हैं, भाई!"


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model(TEXTS, SMALL, WORDS)


@pytest.fixture(scope="module")
def bytes_model() -> Model:
    """One whose tokens are little more than bytes: of three bytes, a Devanagari letter has three tokens."""
    return tiny_model(["a b"], SMALL)


def printed(drawn: object, width: int) -> str:
    console = Console(width=width, color_system=None, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def test_a_table_has_the_models_weights_and_the_words_that_look(model: Model) -> None:
    e = model.explain(SOURCE, target=TARGET)
    table = attention_table(e, "decoder.1.cross", 1)
    assert table.rows == e.writes and table.columns == e.sources
    assert torch.equal(table.weights, weights(e, "decoder.1.cross")[1])
    assert table.probabilities == pytest.approx(e.chosen.exp().tolist())
    assert torch.allclose(all_heads(e, "decoder.1.cross")[-1].weights, weights(e, "decoder.1.cross").mean(0))
    masked = attention_table(e, "decoder.0.masked")
    assert masked.causal and masked.columns == e.reads
    assert masked.rows[:2] == ("<start> → हम", "हम → दोस्त")
    own = attention_table(e, "encoder.0.self")
    assert own.rows == own.columns == e.sources and own.probabilities is None


def test_only_several_heads_have_a_mean() -> None:
    for heads, title in ((1, "decoder.1.cross, head 0"), (2, "decoder.1.cross, mean of its heads")):
        e = tiny_model(TEXTS, replace(SMALL, heads=heads), WORDS).explain(SOURCE, target=TARGET)
        assert attention_table(e, "decoder.1.cross").title == title


def test_tokens_that_cut_a_letter_are_joined_until_it_can_be_read(bytes_model: Model) -> None:
    e = bytes_model.explain("a क्षी b", target="हैं ok")
    assert any("⟨" in token for token in e.sources)
    for name in attentions(e):
        table = attention_table(e, name)
        assert not any("⟨" in label for label in (*table.rows, *table.columns))
        assert torch.allclose(table.weights.sum(-1), torch.ones(len(table.rows)), atol=1e-5)
    table = attention_table(e, "decoder.1.cross")
    assert table.columns == ("a", "␣", "क्षी", "␣", "b", "<end>") and table.rows[0] == "हैं"
    assert len(e.sources) > len(table.columns)
    first = len("हैं".encode())  # tokens of the first row
    own = weights(e, "decoder.1.cross").mean(0)
    start, end = e.sources.index("␣") + 1, len(e.sources) - 3
    assert torch.allclose(table.weights[0, 2], own[:first, start:end].sum(-1).mean())
    assert table.probabilities is not None
    assert table.probabilities[0] == pytest.approx(float(e.chosen[:first].sum().exp()))


def test_words_of_uncertain_width_stand_where_they_can_push_nothing_aside(model: Model) -> None:
    assert steady("ice-cream") and steady("日本") and not any(map(steady, ("खाना", "क्ष", "की", "ल\u200d")))
    e = model.explain(SOURCE, target=TARGET)
    cross = printed(draw_attention(attention_table(e, "decoder.1.cross"), 80), 80).splitlines()
    assert cross[0].split() == ["P", *e.sources]
    for line, word in zip(cross[1:], e.writes, strict=True):
        assert line.rstrip().endswith(word) and line.replace("·", "").removesuffix(word).rstrip().rstrip(word).isascii()
    masked = printed(draw_attention(attention_table(e, "decoder.1.masked"), 80), 80).splitlines()
    assert masked[0].split()[:4] == ["0", "<start>", "1", "हम"] and masked[1].split() == ["P", *map(str, range(7))]
    numbered = printed(draw_attention(attention_table(e, "decoder.1.cross"), 40), 40).splitlines()
    assert numbered[1].split() == ["P", *map(str, range(7))] or numbered[2].split() == ["P", *map(str, range(7))]
    narrow = printed(draw_attention(attention_table(e, "decoder.1.cross"), 30), 30)
    assert all(f"{word}  ←" in narrow for word in e.writes)
    assert max(map(len, narrow.splitlines())) <= 30 + 4  # marks take no cell


def test_json_holds_everything_and_is_strict(model: Model) -> None:
    speaker = tiny_model(TEXTS, replace(SMALL, shape="decoder"), WORDS)
    for e in (model.explain(SOURCE, longest=6), speaker.explain("We are", longest=4)):
        found = json.loads(json.dumps(e.to_dict(), allow_nan=False))
        assert found["format"] == "seq2see explanation 1" and found["output"] == e.output
        rows = len(e.writes)
        assert found["tokens"]["writes"] == list(e.writes) and len(found["probabilities"]) == rows
        assert list(found["attention"]) == attentions(e)
        for name, one in found["attention"].items():
            assert torch.allclose(torch.tensor(one["weights"]), weights(e, name), atol=1e-5)
        assert len(found["lens"]["readings"]) == 3 and len(found["lens"]["readings"][0]) == rows
        for row, one in enumerate(found["contributions"]):
            assert sum(part["logit"] for part in one["parts"]) == pytest.approx(one["logit"], abs=1e-3)
            assert one["token"] == e.writes[row]
        if e.sources:
            assert [tuple(link) for link in found["alignment"]["links"]] == word_alignment(e).links
        else:
            assert found["alignment"] is None and list(found["rollout"]) == ["decoder"]


def test_notebooks_show_text_as_text(model: Model) -> None:
    speaker = tiny_model(
        ["<script>alert('1')</script> & we"], replace(SMALL, shape="decoder"), TextConfig(tokenizer="character")
    )
    for e in (model.explain("<b>We</b> & \x1b[31m", target="<i>हम</i>"), speaker.explain("<script>", longest=5)):
        page = e._repr_html_()
        assert not re.search(r"<(b>We|i>|script|end|start|unknown)|\x1b", page)
        assert "&lt;end&gt;" in page or "&lt;script" in page
        assert not re.search(r"(src|href)=|@import|url\(", page)
        assert "softmax over the keys" in e.trace._repr_html_()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(model, tmp_path_factory.mktemp("model") / "model")


def run(folder: Path, *arguments: str) -> tuple[int, str, Exception | None]:
    done = CliRunner().invoke(app, ["explain", SOURCE, "--model", str(folder), *arguments])
    error = done.exception if isinstance(done.exception, Exception) else None
    return done.exit_code, done.stdout, error


def test_the_command_tells_where_it_looked_and_why(folder: Path, model: Model) -> None:
    e = model.explain(SOURCE, longest=5, beam=2)
    code, out, _ = run(folder, "--tokens", "5", "--beam", "2", "--step", "2")
    assert code == 0
    for word in (
        e.output.split()[0],
        "decoder.1.cross, mean",
        "linked",
        "The lens",
        "decoder.0.feed_forward.norm.output",
    ):
        assert word in out
    assert "The beam" in out and "decoder.1.feed_forward" in out
    code, out, _ = run(folder, "--target", TARGET, "--kind", "self", "--layer", "0", "--head", "1")
    assert code == 0 and "encoder.0.self, head 1" in out and TARGET in out
    code, out, _ = run(folder, "--target", TARGET, "--without", "decoder.1.cross:1", "--without", "decoder.0.cross:0")
    assert code == 0 and "Without decoder.1.cross:1, decoder.0.cross:0" in out and "shift" in out
    code, out, _ = run(folder, "--target", TARGET, "--json")
    assert json.loads(out)["output"] == TARGET


def test_files_are_written_by_their_endings(folder: Path, model: Model, tmp_path: Path) -> None:
    for name, options in (
        ("alignment.svg", []), ("head.png", ["--head", "1"]), ("heads.png", ["--layer", "0"]),
        ("layers.svg", ["--kind", "masked"]), ("all.json", []), ("trace.safetensors", []),
    ):  # fmt: skip
        code, _, error = run(folder, "--target", TARGET, "--out", str(tmp_path / name), *options)
        assert code == 0, error
    assert (tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")
    picture = (tmp_path / "alignment.svg").read_text()
    assert "<image" in picture and "<use" in picture and "<text" not in picture  # letters are outlines
    assert json.loads((tmp_path / "all.json").read_text())["output"] == TARGET
    trace = Trace.load(tmp_path / "trace.safetensors")
    e = model.explain(SOURCE, target=TARGET)
    assert torch.allclose(trace["decoder.1.cross.weights", 0], e.trace["decoder.1.cross.weights", 0], atol=1e-6)


def test_a_missing_font_is_told_once_and_only_when_a_picture_needs_it(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lesson(table: AttentionTable, path: Path) -> None:
        figure, (axes,) = panels(1, any_script=True)
        heat(axes, table.weights.tolist(), table.rows, table.columns, table.title)
        save_lesson(figure, path)

    monkeypatch.setattr(plots, "_fonts", list)  # there are none
    e = model.explain(SOURCE, target=TARGET)
    english, hindi = (attention_table(e, name) for name in ("encoder.0.self", "decoder.1.cross"))
    for draw in (plots.draw_attention, lesson):
        monkeypatch.setattr(plots, "_no_font", cache(plots._no_font.__wrapped__))  # as in a new process
        draw(english, tmp_path / "english.png")
        assert capsys.readouterr().err == ""
        draw(hindi, tmp_path / "hindi.png")
        draw(hindi, tmp_path / "again.png")
        assert capsys.readouterr().err.count("no font for Devanagari was found") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "a.txt"], r'"a.txt" ends in none of .html .htm .png .svg .json .safetensors'),
        (["--without", "decoder.1.cross"], "names no head: write ATTENTION:HEAD"),
        (["--without", "decoder.1.cross:2"], "up to 1"),
        (["--layer", "2"], "layer 2 of 2 layers"),
        (["--head", "2"], "head 2 of 2 heads"),
        (["--step", "99"], "step 99 of an output of"),
    ],
)
def test_the_command_refuses_what_cannot_be_meant(folder: Path, arguments: list[str], complaint: str) -> None:
    _, _, error = run(folder, "--tokens", "3", *arguments)
    assert isinstance(error, UsageError) and re.search(complaint, str(error))


def test_an_attention_that_is_not_there_is_named(model: Model) -> None:
    e = tiny_model(TEXTS, replace(SMALL, shape="decoder"), WORDS).explain("We", longest=2)
    with pytest.raises(UsageError, match='no "cross" attention, but masked'):
        attention_name(e, "cross", -1)
    with pytest.raises(UsageError, match=r'did you mean "decoder\.1\.masked"'):
        attention_table(e, "decoder.1.mask")


@pytest.mark.skipif(not BUNDLED.exists(), reason="the bundled model is not here")
def test_the_document_on_explaining_runs() -> None:
    names: dict[str, object] = {}
    (code,) = blocks("docs/explaining.md")
    exec(code, names)
    e, less = names["e"], names["less"]
    assert isinstance(e, Explanation) and isinstance(less, Explanation)
    assert e.output == "मुझे चाय पसंद है।"
    assert e.trace["decoder.1.cross.weights", 0].shape == (8, 6, 5)
