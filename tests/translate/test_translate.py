"""Translation and generation: no line, sentence or placeholder is lost, and everything but the text stays unchanged."""

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from seq2see.cli import app
from seq2see.cli.lines import read_chunks, translate_lines, translate_lines_as_json
from seq2see.config import Config, ModelConfig, Shape
from seq2see.config.search import Search
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.storage.directory import save_config, save_tokenizers, save_weights
from seq2see.translate.segmentation import SplitText, sentence_spans, split_long_sentence
from seq2see.translate.warning_log import WarningLog
from tests.commands import COLD, Command
from tests.corpora import SINGLE_THREAD_ENV
from tests.fake_model import TOKENIZER, fake_translator, identity, warnings


@pytest.fixture(autouse=True)
def _clear_warnings() -> None:
    warnings.clear()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained translator, language model and encoder."""
    shapes: dict[str, Shape] = {"translator": "encoder-decoder", "language_model": "decoder", "encoder": "encoder"}
    folder = tmp_path_factory.mktemp("models")
    for name, shape in shapes.items():
        torch.manual_seed(3)
        config = ModelConfig(
            shape=shape,
            vocab_size=len(TOKENIZER),
            width=32,
            heads=2,
            encoder_layers=1,
            decoder_layers=1,
            feed_forward=32,
            max_positions=48,
        )
        (folder / name).mkdir()
        save_config(folder / name, Config(model=config))
        save_tokenizers(folder / name, (TOKENIZER, TOKENIZER))
        save_weights(folder / name / "model.safetensors", Transformer(config).state_dict())
    return folder


def run(*arguments: str | Path, given: bytes = b"") -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=given)


def split_sentences(text: str) -> SplitText:
    return SplitText.from_spans(text, list(sentence_spans(text)))


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith met J. R. R. Tolkien at 5 p.m. on Main St. in Leeds.", "It cost $3.50.", "OK."],
        [
            'He asked "Really?" and left.',
            '"Yes!" she said.',
            '"No."',
            "Then... nothing.",
            "Wait… what?",
            "(Go.)",
            "Now.",
        ],
        ["मैं घर जाता हूँ।", "तुम कहाँ हो?", "डॉ. शर्मा ए. पी. जे. के साथ आए।", "वह आई.", "फिर गई."],
        ["श्लोक यह है ॥ १ ॥", "दूसरा ॥ २ ॥"],
        ["1. First one.", "2. Second one.", "See Fig. 3 and No. 5.", "No.", "I won't."],
        ["So did I.", "We live in the U.S.", "The U.S. Army came.", "George W. Bush met the Ph.D. Committee."],
        ["Yahoo! is at example.com, e.g. Mail.", "What?!", "Version 2.0.1 is out."],
    ],
)
def test_sentences_are_split_correctly(sentences: list[str]) -> None:
    assert list(split_sentences(" ".join(sentences)).sentences) == sentences


def test_danda_needs_no_space_after_it() -> None:
    assert split_sentences("मैं हूँ।तुम हो।").sentences == ("मैं हूँ।", "तुम हो।")


@given(st.text(alphabet=st.sampled_from('aB.?!…।॥ "\n\t\u2028\x0b1I(') | st.characters(exclude_categories=["Cs"])))
def test_sentences_and_gaps_reconstruct_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert parts.join(parts.sentences) == text
    assert all(sentence == sentence.strip() != "" for sentence in parts.sentences)
    assert not any(gap.strip() for gap in parts.gaps)


@given(st.text(alphabet="ab, ।क्ष", max_size=80), st.integers(1, 7))
def test_split_sentence_parts_are_short_enough_and_complete(text: str, max_tokens: int) -> None:
    spans = split_long_sentence(text, len, max_tokens)
    assert all(len(text[start:end]) <= max_tokens for start, end in spans if end - start > 1)
    assert "".join(text[start:end] for start, end in spans).replace(" ", "") == text.replace(" ", "")


def test_long_sentence_is_split_after_clauses_then_at_spaces_then_between_graphemes() -> None:
    def parts(text: str, max_tokens: int) -> list[str]:
        return [text[start:end] for start, end in split_long_sentence(text, len, max_tokens)]

    text = "one two three, four five six seven; eight nine ten eleven twelve"
    assert parts(text, 24) == ["one two three,", "four five six seven;", "eight nine ten eleven", "twelve"]
    assert parts("क्षत्रियक्षत्रिय", 9) == ["क्षत्रिय"] * 2


def test_paragraph_is_translated_sentence_by_sentence() -> None:
    upper = fake_translator(str.upper)
    assert upper.translate(["  It is. Is it?\tYes "], ["x"]) == ["  IT IS. IS IT?\tYES "]
    assert fake_translator(lambda text: f"[{text}]").translate(["It is. Is it?"], ["x"]) == ["[It is.] [Is it?]"]


def test_sentence_longer_than_the_maximum_is_split_with_a_warning() -> None:
    seen: list[str] = []
    short = fake_translator(lambda text: seen.append(text) or text, max_positions=8)  # type: ignore[func-returns-value]
    text = "the boy drinks tea " * 20
    assert short.translate([text], ["a.txt, line 3"]) == [text]
    assert all(len(TOKENIZER.encode(part)) <= 7 for part in seen)
    (warning,) = warnings
    assert re.match(r"a\.txt, line 3: \d+ tokens exceed the model's maximum of 7: translated in \d+ parts", warning)


class ChunkedStream:
    """A stream that arrives in chunks of a given size, like a pipe."""

    def __init__(self, data: bytes, size: int) -> None:
        self.chunks = [data[i : i + size] for i in range(0, len(data), size)]

    def read1(self, size: int, /) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


@given(st.binary() | st.text().map(str.encode), st.integers(1, 9))
def test_translation_has_as_many_lines_as_the_input(data: bytes, size: int) -> None:
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        data = b" " + data
    broken = fake_translator(lambda text: f"\n{text}\r\n\u2028")  # a model may output anything
    chunks = list(read_chunks(ChunkedStream(data, size), "in", broken.warnings))
    out = "".join(translate_lines(chunk, broken) for chunk in chunks)
    assert out.count("\n") == data.count(b"\n")
    for before, after in zip(data.split(b"\n"), out.split("\n"), strict=True):
        text = before.decode(errors="replace")
        assert bool(text.strip()) == bool(after.strip())
        assert before.endswith(b"\r") == after.endswith("\r") or not text.strip() or before is data.split(b"\n")[-1]


def test_only_a_line_feed_ends_a_line_and_line_endings_are_kept() -> None:
    data = "a\u2028b\x0bc\x0cd\x85e\r\n\r\n  \n\x00z".encode()
    (first, second, third), (fourth,) = read_chunks(ChunkedStream(data, 1000), "in", WarningLog(warnings.append))
    assert (first.text, first.ending) == ("a\u2028b\x0bc\x0cd\x85e", "\r\n")
    assert (second.text, second.ending, third.text, third.ending) == ("", "\r\n", "  ", "\n")
    assert (fourth.text, fourth.ending) == ("\x00z", "")


def test_invalid_utf8_is_replaced_with_a_warning_naming_line_and_byte() -> None:
    log = WarningLog(warnings.append)
    chunks = list(read_chunks(ChunkedStream(b"ok\nab\xffc\n" + b"\xe0\n" * 9, 99), "in", log))
    assert [line.text for line in chunks[0][:3]] == ["ok", "ab\ufffdc", "\ufffd"]
    assert warnings[0] == "in, line 2: byte 3 (0xff) is not UTF-8: replaced by U+FFFD"
    log.summarize()
    assert warnings[-1] == "10 lines were not UTF-8 (first 5 shown)"
    assert len(warnings) == 6


def test_line_of_a_million_characters_is_translated() -> None:
    text = "the boy, drinks tea " * 50_000
    assert fake_translator(identity, max_positions=1024).translate([text, "x" * 1_000_000], ["a", "b"]) == [
        text,
        "x" * 1_000_000,
    ]


def test_lines_are_translated_by_a_real_model(models: Path, tmp_path: Path) -> None:
    model = models / "translator"
    done = run("translate", "--model", model, given=b"The boy.\n\n  \nThe boy drinks. Tea.\r\nlast")
    assert done.exit_code == 0, done.output
    lines = done.stdout_bytes.split(b"\n")
    assert lines[1:3] == [b"", b"  "]
    assert len(lines) == 5
    assert lines[3].endswith(b"\r")
    assert run("translate", "--model", model, "The boy.").stdout_bytes == lines[0] + b"\n"
    assert run("translate", "--model", model, "The", "boy.").stdout_bytes == lines[0] + b"\n"
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfThe boy."))
    (tmp_path / "b.txt").write_bytes(b"The boy.\n")
    run("translate", "--model", model, tmp_path / "a.gz", tmp_path / "b.txt", "--out", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == (lines[0] + b"\n") * 2


def test_documents_are_written_to_a_directory(models: Path, tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("# 1\n\n`code`\n")
    done = run(
        "translate", "--model", models / "translator", tmp_path / "a.md", tmp_path / "b.md", "--out", tmp_path / "hi"
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "hi" / "b.md").read_text() == "# 1\n\n`code`\n"


def error_message(*arguments: str | Path, given: bytes = b"") -> str:
    """Returns the one-line error of a command that fails."""
    error = run(*arguments, given=given).exception
    assert isinstance(error, UserError), error
    assert "\n" not in str(error)
    return str(error)


def test_bad_input_gives_a_one_line_error(models: Path, tmp_path: Path) -> None:
    model = models / "translator"
    translate = ("translate", "--model", model)
    assert "no such file" in error_message(*translate, "missing.txt")
    assert "is a directory" in error_message(*translate, tmp_path)
    assert "is not a model directory" in error_message("translate", "--model", tmp_path, "x")
    assert "UTF-16" in error_message(*translate, given="hello".encode("utf-16"))
    assert "add --format jsonl" in error_message(*translate, "--nbest", "3", "x")
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(1000))[:500])
    assert "truncated or damaged" in error_message(*translate, tmp_path / "a.gz")
    (tmp_path / "a.md").write_text("x")
    assert "need an output directory" in error_message(*translate, tmp_path / "a.md", tmp_path / "a.md")
    assert "cannot write" in error_message(*translate, "x", "--out", "/proc/none/x")


def test_wrong_kind_of_model_names_the_right_command(models: Path) -> None:
    assert 'is a language model, not a translator: use "seq2see generate"' in error_message(
        "translate", "--model", models / "language_model", "x"
    )
    assert 'is a translator, not a language model: use "seq2see translate"' in error_message(
        "generate", "--model", models / "translator", "--prompt", "x"
    )
    assert 'is an encoder, not a language model: use "seq2see embed"' in error_message(
        "generate", "--model", models / "encoder", "--prompt", "x"
    )


def test_empty_file_gives_an_empty_translation(models: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    done = run("translate", "--model", models / "translator", tmp_path / "empty")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"seq2see: {tmp_path / 'empty'} is empty\n")


def test_each_line_is_answered_immediately_and_a_closed_pipe_is_silent(models: Path) -> None:
    command = [*COLD, "translate", "--model", str(models / "translator")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=SINGLE_THREAD_ENV) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"The boy.\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"The boy.\n" * 1000)
        process.stdin.close()
        assert process.stderr.read() == b""


def test_interactive_translation_in_a_terminal(models: Path) -> None:
    main, other = pty.openpty()
    streams: dict[str, Any] = {"stdin": other, "stdout": other, "stderr": other, "terminal": True}
    process = Command("translate", "--model", models / "translator", **streams, env={**os.environ, "TERM": "dumb"})
    os.close(other)
    shown = _read_until(main, b"> ")
    assert b"Ctrl-D to exit" in shown
    os.write(main, b"The boy.\n")
    assert len(_read_until(main, b"> ").splitlines()) == 3  # the input, its translation, the next prompt
    os.write(main, b"\x04")
    assert process.wait() == 0


def _read_until(terminal: int, until: bytes) -> bytes:
    shown = b""
    while not shown.endswith(until):
        shown += os.read(terminal, 1000)
    return shown


def test_json_has_each_sentence_with_its_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    alignment = ModuleType("seq2see.inspect.alignment")
    alignment.align = lambda model, pairs: [[(0, 1)] for _ in pairs]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "seq2see.inspect.alignment", alignment)
    data = b"The boy. Tea?\n\n"
    (lines,) = read_chunks(ChunkedStream(data, 99), "in", WarningLog(warnings.append))
    translator = replace(fake_translator(str.upper), search=Search(beam=2, nbest=2))
    first, blank = map(json.loads, translate_lines_as_json(lines, translator).splitlines())
    assert first["translation"] == "THE BOY. TEA?"
    boy, tea = first["sentences"]
    assert boy["source"] == "The boy."
    assert tea["translations"] == [
        {"translation": "TEA?", "score": score, "alignment": [[0, 1]]} for score in (0.0, -1.0)
    ]
    assert (blank["source"], blank["translation"], blank["sentences"]) == ("", "", [])


def test_json_from_a_real_model_has_scores_and_alignments(models: Path) -> None:
    pytest.importorskip("seq2see.inspect.alignment")
    arguments = ("translate", "--model", models / "translator", "--nbest", "2", "--format", "jsonl")
    done = run(*arguments, given=b"The boy. Tea?\n\n")
    assert done.exit_code == 0, done.output
    first, blank = map(json.loads, done.stdout.splitlines())
    for sentence in first["sentences"]:
        best, second = sentence["translations"]
        assert best["score"] >= second["score"]
        assert all(len(link) == 2 for link in best["alignment"])
    assert blank["sentences"] == []


def test_language_model_continues_a_prompt(models: Path) -> None:
    generate = ("generate", "--model", models / "language_model", "--max-new-tokens", "9", "--seed", "1")
    text = run(*generate, "--prompt", "The boy").stdout
    assert text.startswith("The boy") and len(text) > len("The boy\n")
    assert run(*generate, given=b"The boy\n").stdout == text
    assert run(*generate, "--prompt", "The boy", "--seed", "2").stdout != text
    output = json.loads(run(*generate, "--prompt", "The boy", "--samples", "3", "--json").stdout)
    assert output["prompt"] == "The boy"
    assert len(set(output["samples"])) == 3
    assert text == f"The boy{output['samples'][0]}\n"
    assert run(*generate, "--prompt", "The boy", "--samples", "3").stdout.count("\n---\nThe boy") == 2
    stopped = json.loads(run(*generate, "--prompt", "The boy", "--stop", output["samples"][0][2], "--json").stdout)
    assert output["samples"][0].startswith(stopped["samples"][0]) and len(stopped["samples"][0]) <= 2
    assert "would all be identical" in error_message(*generate, "--prompt", "x", "--samples", "2", "--temperature", "0")
    for option, limit in (("--samples", "10,000"), ("--max-new-tokens", "1,000,000")):
        for number in ("9000000000000000000", "9" * 20):
            assert f"must be at most {limit}" in error_message(*generate, "--prompt", "x", option, number)
