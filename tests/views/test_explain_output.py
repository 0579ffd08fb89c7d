"""Explanations as tables, plots, JSON, notebook HTML and command-line output."""

import json
import re
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib import pyplot
from rich.console import Console
from typer.testing import CliRunner

from seq2see.api import Model
from seq2see.cli import app
from seq2see.config import ModelConfig, TextConfig
from seq2see.course.lessons.figures import heatmap, subplots
from seq2see.course.lessons.figures import save_figure as save_lesson
from seq2see.errors import UsageError
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attention_names, attention_weights
from seq2see.inspect.attention_tables import AttentionTable, attention_table, find_attention, head_tables
from seq2see.inspect.comparison import TokenChange
from seq2see.inspect.explain import Explanation
from seq2see.inspect.trace import Trace
from seq2see.views import plots
from seq2see.views.terminal import draw_attention, draw_changes, has_fixed_width
from tests.models import GRAMMAR_MODEL, save, tiny_model
from tests.test_docs import python_blocks

TEXTS = ["I like tea.", "मुझे चाय पसंद है।", "We are friends, my brother!", "हम दोस्त हैं, मेरे भाई!"]
SMALL = ModelConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=24, dropout=0.0)
WORDS = TextConfig(tokenizer="word")
SOURCE, TARGET = "We like tea, brother!", "हम दोस्त हैं, भाई!"


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model(TEXTS, SMALL, WORDS)


@pytest.fixture(scope="module")
def byte_model() -> Model:
    """Returns a model with byte tokens: a Devanagari letter has three bytes and three tokens."""
    return tiny_model(["a b"], SMALL)


def render(renderable: object, width: int) -> str:
    console = Console(width=width, color_system=None, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_attention_table_has_the_weights_and_readable_labels(model: Model) -> None:
    e = model.explain(SOURCE, target=TARGET)
    table = attention_table(e, "decoder.1.cross", 1)
    assert table.rows == e.target_tokens and table.columns == e.source_tokens
    torch.testing.assert_close(table.weights, attention_weights(e, "decoder.1.cross")[1])
    assert table.probabilities == pytest.approx(e.target_logprobs.exp().tolist())
    assert torch.allclose(
        head_tables(e, "decoder.1.cross")[-1].weights, attention_weights(e, "decoder.1.cross").mean(0)
    )
    masked = attention_table(e, "decoder.0.masked")
    assert masked.causal and masked.columns == e.decoder_input_tokens
    assert masked.rows[:2] == ("<start> → हम", "हम → दोस्त")
    encoder = attention_table(e, "encoder.0.self")
    assert encoder.rows == encoder.columns == e.source_tokens and encoder.probabilities is None


def test_a_single_head_is_not_called_a_mean() -> None:
    for heads, title in ((1, "decoder.1.cross, head 0"), (2, "decoder.1.cross, mean over heads")):
        e = tiny_model(TEXTS, replace(SMALL, heads=heads), WORDS).explain(SOURCE, target=TARGET)
        assert attention_table(e, "decoder.1.cross").title == title


def test_tokens_that_split_a_grapheme_are_merged(byte_model: Model) -> None:
    e = byte_model.explain("a क्षी b", target="हैं ok")
    assert any("⟨" in token for token in e.source_tokens)
    for name in attention_names(e):
        table = attention_table(e, name)
        assert not any("⟨" in label for label in (*table.rows, *table.columns))
        assert torch.allclose(table.weights.sum(-1), torch.ones(len(table.rows)), atol=1e-5)
    table = attention_table(e, "decoder.1.cross")
    assert table.columns == ("a", "␣", "क्षी", "␣", "b", "<end>") and table.rows[0] == "हैं"
    assert len(e.source_tokens) > len(table.columns)
    first = len("हैं".encode())  # tokens of the first row
    weights = attention_weights(e, "decoder.1.cross").mean(0)
    start, end = e.source_tokens.index("␣") + 1, len(e.source_tokens) - 3
    assert torch.allclose(table.weights[0, 2], weights[:first, start:end].sum(-1).mean())
    assert table.probabilities is not None
    assert table.probabilities[0] == pytest.approx(float(e.target_logprobs[:first].sum().exp()))


def test_words_of_uncertain_width_are_at_the_end_of_a_line(model: Model) -> None:
    assert has_fixed_width("ice-cream") and has_fixed_width("日本")
    assert not any(map(has_fixed_width, ("खाना", "क्ष", "की", "ल\u200d")))
    e = model.explain(SOURCE, target=TARGET)
    cross = render(draw_attention(attention_table(e, "decoder.1.cross"), 80), 80).splitlines()
    assert cross[0].split() == ["P", *e.source_tokens]
    for line, word in zip(cross[1:], e.target_tokens, strict=True):
        assert line.rstrip().endswith(word) and line.replace("·", "").removesuffix(word).rstrip().rstrip(word).isascii()
    masked = render(draw_attention(attention_table(e, "decoder.1.masked"), 80), 80).splitlines()
    assert masked[0].split()[:4] == ["0", "<start>", "1", "हम"] and masked[1].split() == ["P", *map(str, range(7))]
    numbered = render(draw_attention(attention_table(e, "decoder.1.cross"), 40), 40).splitlines()
    assert numbered[1].split() == ["P", *map(str, range(7))] or numbered[2].split() == ["P", *map(str, range(7))]
    narrow = render(draw_attention(attention_table(e, "decoder.1.cross"), 30), 30)
    assert all(f"{word}  ←" in narrow for word in e.target_tokens)
    assert max(map(len, narrow.splitlines())) <= 30 + 4  # combining marks take no cell


def test_json_is_strict_and_complete(model: Model) -> None:
    language_model = tiny_model(TEXTS, replace(SMALL, shape="decoder"), WORDS)
    for e in (model.explain(SOURCE, max_new_tokens=6), language_model.explain("We are", max_new_tokens=4)):
        found = json.loads(json.dumps(e.to_dict(), allow_nan=False))
        assert found["format"] == "seq2see explanation 2" and found["output"] == e.output
        rows = len(e.target_tokens)
        assert found["tokens"]["target_tokens"] == list(e.target_tokens) and len(found["probabilities"]) == rows
        assert list(found["attention"]) == attention_names(e)
        for name, one in found["attention"].items():
            assert torch.allclose(torch.tensor(one["weights"]), attention_weights(e, name), atol=1e-5)
        assert len(found["logit_lens"]["readings"]) == 3 and len(found["logit_lens"]["readings"][0]) == rows
        for row, one in enumerate(found["logit_attribution"]):
            assert sum(part["logit"] for part in one["contributions"]) == pytest.approx(one["logit"], abs=1e-3)
            assert one["token"] == e.target_tokens[row]
        if e.source_tokens:
            assert [tuple(link) for link in found["alignment"]["links"]] == word_alignment(e).links
        else:
            assert found["alignment"] is None and list(found["rollout"]) == ["decoder"]


def test_notebook_html_escapes_text(model: Model) -> None:
    language_model = tiny_model(
        ["<script>alert('1')</script> & we"], replace(SMALL, shape="decoder"), TextConfig(tokenizer="character")
    )
    for e in (
        model.explain("<b>We</b> & \x1b[31m", target="<i>हम</i>"),
        language_model.explain("<script>", max_new_tokens=5),
    ):
        html = e._repr_html_()
        assert not re.search(r"<(b>We|i>|script|end|start|unknown)|\x1b", html)
        assert "&lt;end&gt;" in html or "&lt;script" in html
        assert not re.search(r"(src|href)=|@import|url\(", html)
        assert "softmax over the keys" in e.trace._repr_html_()


@pytest.fixture(scope="module")
def directory(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(model, tmp_path_factory.mktemp("model") / "model")


def run(directory: Path, *arguments: str) -> tuple[int, str, Exception | None]:
    result = CliRunner().invoke(app, ["explain", SOURCE, "--model", str(directory), *arguments])
    error = result.exception if isinstance(result.exception, Exception) else None
    return result.exit_code, result.stdout, error


def test_command_prints_attention_alignment_and_step_analysis(directory: Path, model: Model) -> None:
    e = model.explain(SOURCE, max_new_tokens=5, beam=2)
    code, out, _ = run(directory, "--max-new-tokens", "5", "--beam", "2", "--step", "2")
    assert code == 0
    for word in (
        e.output.split()[0],
        "decoder.1.cross, mean",
        "alignment: ",
        "Logit lens",
        "decoder.0.feed_forward.norm.output",
    ):
        assert word in out
    assert "Beam" in out and "decoder.1.feed_forward" in out
    code, out, _ = run(directory, "--target", TARGET, "--kind", "self", "--layer", "0", "--head", "1")
    assert code == 0 and "encoder.0.self, head 1" in out and TARGET in out
    code, out, _ = run(directory, "--target", TARGET, "--ablate", "decoder.1.cross:1", "--ablate", "decoder.0.cross:0")
    assert code == 0 and "Without decoder.1.cross:1, decoder.0.cross:0" in out and "shift" in out
    code, out, _ = run(directory, "--target", TARGET, "--json")
    assert json.loads(out)["output"] == TARGET


def test_file_suffix_sets_the_format(directory: Path, model: Model, tmp_path: Path) -> None:
    for name, options in (
        ("alignment.svg", []),
        ("head.png", ["--head", "1"]),
        ("heads.png", ["--layer", "0"]),
        ("layers.svg", ["--kind", "masked"]),
        ("all.json", []),
        ("trace.safetensors", []),
    ):
        code, _, error = run(directory, "--target", TARGET, "--out", str(tmp_path / name), *options)
        assert code == 0, error
    assert (tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "alignment.svg").read_text()
    assert "<image" in svg and "<use" in svg and "<text" not in svg  # text is stored as outlines
    assert json.loads((tmp_path / "all.json").read_text())["output"] == TARGET
    trace = Trace.load(tmp_path / "trace.safetensors")
    e = model.explain(SOURCE, target=TARGET)
    assert torch.allclose(trace["decoder.1.cross.weights", 0], e.trace["decoder.1.cross.weights", 0], atol=1e-6)


def test_a_plot_has_a_cell_for_each_weight_its_number_and_a_frame_around_each_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    weights = torch.tensor([[0.5, 0.25, 0.21, 0.04], [0.04, 0.06, 0.1, 0.8]])
    table = AttentionTable("decoder.0.cross", None, ("x", "y"), tuple("abcd"), weights, links=[(1, 0), (3, 1)])
    plots.plot_attention(table, tmp_path / "a.svg")
    (axis,) = figures[0].axes
    assert axis.get_xticks(minor=True).tolist() == [0.5, 1.5, 2.5] and axis.get_yticks(minor=True).tolist() == [0.5]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["x", "y"]
    assert sorted((text.get_position(), text.get_text()) for text in axis.texts) == [
        ((0, 0), "50"),
        ((1, 0), "25"),
        ((1, 1), "6"),
        ((2, 0), "21"),
        ((2, 1), "10"),
        ((3, 1), "80"),
    ]
    assert [frame.get_xy() for frame in axis.patches] == [(0.5, -0.5), (2.5, 0.5)]


def test_a_plot_leaves_matplotlib_and_the_warnings_of_the_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = AttentionTable("decoder.0.cross", None, ("चाय",), ("a",), torch.ones(1, 1))
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    before = dict(matplotlib.rcParams), list(warnings.filters)
    plots.plot_attention(table, tmp_path / "a.png")
    assert (dict(matplotlib.rcParams), list(warnings.filters)) == before
    assert not pyplot.get_fignums()


def test_characters_without_a_font_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = AttentionTable("decoder.0.cross", None, ("\U00012000",), ("a",), torch.ones(1, 1))  # cuneiform
    for name in ("a.png", "a.svg"):
        plots.plot_attention(table, tmp_path / name)
        assert f'{name}: no font has "\U00012000"' in capsys.readouterr().err


def test_changes_show_the_probability_before_and_after_and_both_tokens() -> None:
    changes = [TokenChange("tea", "tea", 0.9, 0.75, 0.75), TokenChange("good", "bad", 0.5, 0.6, 0.25)]
    lines = [line.split() for line in render(draw_changes(changes), 60).splitlines()]
    assert ["90.0", "75.0", "-15.0", "tea"] in lines and ["50.0", "25.0", "-25.0", "good", "→", "bad"] in lines


def test_a_missing_font_is_reported_once_and_only_if_needed(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw_lesson(table: AttentionTable, path: Path) -> None:
        figure, (axes,) = subplots(1)
        heatmap(axes, table.weights.tolist(), table.rows, table.columns, table.title)
        save_lesson(figure, path)

    monkeypatch.setattr(plots, "_devanagari_fonts", list)  # none installed
    e = model.explain(SOURCE, target=TARGET)
    english, hindi = (attention_table(e, name) for name in ("encoder.0.self", "decoder.1.cross"))
    for draw in (plots.plot_attention, draw_lesson):
        as_new = cache(plots._warn_no_devanagari.__wrapped__)  # as in a new process
        monkeypatch.setattr(plots, "_warn_no_devanagari", as_new)
        draw(english, tmp_path / "english.png")
        assert capsys.readouterr().err == ""
        draw(hindi, tmp_path / "hindi.png")
        draw(hindi, tmp_path / "again.png")
        assert capsys.readouterr().err.count("no Devanagari font found") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "a.txt"], r'unknown file type "a.txt": use one of .html .htm .json .safetensors .png .svg .pdf'),
        (["--ablate", "decoder.1.cross"], "is not a head: write ATTENTION:HEAD"),
        (["--ablate", "decoder.1.cross:2"], "heads 0 to 1"),
        (["--layer", "2"], "layer 2 is out of range: cross attention has 2 layers"),
        (["--head", "2"], "head 2 is out of range: there are 2 heads"),
        (["--step", "99"], "step 99 is out of range: the output has "),
    ],
)
def test_command_rejects_invalid_arguments(directory: Path, arguments: list[str], message: str) -> None:
    _, _, error = run(directory, "--max-new-tokens", "3", *arguments)
    assert isinstance(error, UsageError) and re.search(message, str(error))


def test_errors_name_the_available_attentions(model: Model) -> None:
    e = tiny_model(TEXTS, replace(SMALL, shape="decoder"), WORDS).explain("We", max_new_tokens=2)
    with pytest.raises(UsageError, match='no "cross" attention: choose masked'):
        find_attention(e, "cross", -1)
    with pytest.raises(UsageError, match=r'did you mean "decoder\.1\.masked"'):
        attention_table(e, "decoder.1.mask")


@pytest.mark.skipif(not GRAMMAR_MODEL.exists(), reason="the bundled model is missing")
def test_code_in_explaining_md_runs() -> None:
    names: dict[str, object] = {}
    (code,) = python_blocks("docs/explaining.md")
    exec(code, names)
    e, ablated = names["e"], names["ablated"]
    assert isinstance(e, Explanation) and isinstance(ablated, Explanation)
    assert e.output == "मुझे चाय पसंद है।"
    assert e.trace["decoder.1.cross.weights", 0].shape == (8, 6, 5)


def test_path_of_a_file_is_not_explained_as_a_sentence(directory: Path, tmp_path: Path) -> None:
    for name, problem in (
        ("my notes.txt", "is a file, but explain takes one sentence: use seq2see explain \"$(head -n 1 '"),
        ("picture.png", f"is a picture or sound, but {directory} reads text"),
    ):
        (tmp_path / name).write_bytes(b"I like tea.\n")
        result = CliRunner().invoke(app, ["explain", str(tmp_path / name), "--model", str(directory)])
        assert isinstance(result.exception, UsageError) and problem in str(result.exception)
