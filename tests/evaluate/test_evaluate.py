"""Evaluation: sacreBLEU's numbers, perplexity by its definition, and one-line errors for bad input."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from seq2see.api import Model
from seq2see.cli import app
from seq2see.config import Config, ModelConfig, TextConfig
from seq2see.config.extensions import load_extension
from seq2see.data.corpus import plain_text
from seq2see.data.layout import Packed
from seq2see.errors import Notice, UserError
from seq2see.evaluate.breakdown import recall_by_frequency, scores_by_length, word_tokenizer
from seq2see.evaluate.language_model import evaluate_language_model, windows
from seq2see.evaluate.metrics import METRICS, Metric, all_metrics, exact_match, other_scores, score
from tests.corpora import SINGLE_THREAD_ENV, WORDS
from tests.models import save, tiny_model


def _corrupt(text: str, random: Random, rate: float) -> str:
    return " ".join(random.choice(list(WORDS.values())) if random.random() < rate else word for word in text.split())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty sentences with two references, two systems with different error rates, and gold alignments."""
    folder, random = tmp_path_factory.mktemp("files"), Random(3)
    english = [random.choices(list(WORDS), k=random.randint(2, 9)) for _ in range(40)]
    hindi = [" ".join(WORDS[word] for word in line) + "।" for line in english]
    sides = {
        "t.en": [" ".join(line) + "." for line in english],
        "t.hi": hindi,
        "t2.hi": [_corrupt(line, random, 0.2) for line in hindi],
        "good.hi": [_corrupt(line, random, 0.1) for line in hindi],
        "bad.hi": [_corrupt(line, random, 0.4) for line in hindi],
        "t.align": [" ".join(f"{i}-{i}" for i in range(len(line) + 1)) for line in english],
    }
    for name, lines in sides.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def translator(files: Path) -> Path:
    model = tiny_model((files / "t.en").read_text().splitlines() + (files / "t.hi").read_text().splitlines())
    return save(model, files / "translator")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def run_json(*arguments: object) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json"))


def sacrebleu(files: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "sacrebleu", *arguments, "-m", "bleu", "chrf", "ter", "--chrf-word-order", "2"]
    command += ["--tok", "intl", "-w", "4"]
    return subprocess.run(command, cwd=files, env=SINGLE_THREAD_ENV, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("references", [["t.hi"], ["t.hi", "t2.hi"]])
def test_scores_intervals_and_signatures_equal_sacrebleu(files: Path, references: list[str]) -> None:
    theirs = json.loads(sacrebleu(files, *references, "-i", "bad.hi", "--confidence"))
    ours = run_json("--hyp", files / "bad.hi", "--ref", *(files / name for name in references))["scores"]
    assert len(ours) >= len(theirs) == 3  # further metrics may follow those of sacreBLEU
    for one, other in zip(ours, theirs, strict=False):
        assert [round(one[key], 4) for key in ("value", "mean", "interval")] == [
            other[key] for key in ("score", "confidence_mean", "confidence_var")
        ]
        assert one["signature"] == other["signature"]
    assert 0 < ours[0]["value"] < 100


def test_comparison_equals_sacrebleu_paired_tests(files: Path) -> None:
    ours = run_json("--hyp", files / "good.hi", "--against", files / "t2.hi", "--ref", files / "t.hi")["comparison"]
    for test, p in (("--paired-bs", "p_bootstrap"), ("--paired-ar", "p_randomization")):
        # The table, because sacreBLEU's JSON output fails on a float32.
        table = sacrebleu(files, "t.hi", "-i", "t2.hi", "good.hi", test, "-f", "text", "--no-color")
        baseline, system, ps = (
            next(x for x in table.splitlines() if k in x) for k in (": t2.hi │", " good.hi │", "(p =")
        )
        assert [f"{row['baseline']:.4f}" for row in ours] == re.findall(r"│ +(\d+\.\d{4})", baseline)
        assert [f"{row['system']:.4f}" for row in ours] == re.findall(r"│ +(\d+\.\d{4})", system)
        assert [f"{row[p]:.4f}" for row in ours] == re.findall(r"p = (\d\.\d{4})", ps)
    assert 0.0011 < ours[0]["p_bootstrap"] < 1  # neither the minimum nor the maximum


def test_equal_systems_are_not_significantly_different(files: Path) -> None:
    given = "--hyp", files / "good.hi", "--ref", files / "t.hi", "--against"
    assert run(*given, files / "good.hi").count("not significant") == 3
    assert run(*given, files / "bad.hi").count("better") == 3
    assert run("--hyp", files / "bad.hi", *given[2:], files / "good.hi").count("worse") == 3


def test_large_sets_have_scores_without_intervals(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("metrics", "translation"):
        monkeypatch.setattr(f"seq2see.evaluate.{module}.MAX_RESAMPLED", 39)
    given = "--hyp", files / "good.hi", "--ref", files / "t.hi"
    found = run_json(*given)
    assert found["scores"][0]["value"] > 0 and found["scores"][0]["mean"] is None
    assert found["warnings"] == ["no confidence intervals: 40 sentences exceed the maximum of 39"]
    with pytest.raises(UserError, match="at most 39 sentences, not 40"):
        run(*given, "--against", files / "bad.hi")


def test_sentences_may_have_different_numbers_of_references(files: Path, tmp_path: Path) -> None:
    rows = [("A", ["एक दो तीन चार।", "पाँच छह सात आठ।"]), ("B", ["लाल चाय पानी एक।"])]
    listed = tmp_path / "t.jsonl"
    listed.write_text("".join(json.dumps({"source": s, "references": r}) + "\n" for s, r in rows))
    (tmp_path / "hyp").write_text("पाँच छह सात आठ।\nलाल चाय पानी एक।\n")
    found = run_json("--hyp", tmp_path / "hyp", "--ref", listed)
    assert (found["exact_match"], found["references"]) == (1, 3)
    assert [round(one["value"]) for one in found["scores"][:3]] == [100, 100, 0]
    assert "nrefs:var" in found["scores"][0]["signature"]
    assert found["worst"][0]["reference"] in ("पाँच छह सात आठ।", "लाल चाय पानी एक।")  # the closest one
    assert {row["source"] for row in found["worst"]} == {"A", "B"}


def test_intervals_of_few_sentences_of_which_some_score_0() -> None:
    translations, references = ["tea", "x", "y"], [("tea",), ("water",), ("milk",)]
    scores = score(translations, references, all_metrics(), resamples=1000)
    assert all(one.mean is not None and one.interval is not None and one.interval > 0 for one in scores[1:])


def test_exact_match_ignores_unicode_composition() -> None:
    # A letter with a dot below, in one code point and in two.
    assert exact_match(["\u095c", "b "], [["x", "\u0921\u093c"], ["b"]]) == 1
    assert exact_match(["a", "b"], [["a"], ["c", "d"]]) == 0.5


def test_length_buckets_have_the_scores_of_their_sentences(files: Path) -> None:
    made, right = ((files / name).read_text().splitlines() for name in ("bad.hi", "t.hi"))
    buckets = scores_by_length(made, [[line] for line in right])
    assert sum(bucket.sentences for bucket in buckets) == len(right)
    assert [(bucket.low, bucket.high) for bucket in buckets] == [(1, 4), (5, 7), (8, 10)]
    chosen = [i for i, line in enumerate(right) if 5 <= len(line.replace("।", " ।").split()) <= 7]
    bleu, chrf, _ = score([made[i] for i in chosen], [[right[i]] for i in chosen], all_metrics())
    assert (buckets[1].sentences, buckets[1].bleu, buckets[1].chrf) == (len(chosen), bleu.value, chrf.value)


def test_recall_is_grouped_by_training_frequency() -> None:
    frequencies = Counter({"चाय": 3, "।": 50})
    made, right = ["चाय चाय पानी।", "लाल।"], ["चाय पानी पानी।", "हरा।"]
    buckets = recall_by_frequency(made, right, frequencies, word_tokenizer())
    # Never in training: पानी twice, once found, and हरा, not found; 2–4 times: चाय; 10–99: both dandas.
    assert [(b.low, b.words, b.matched) for b in buckets] == [(0, 3, 1), (2, 1, 1), (10, 2, 2)]


def test_translator_is_scored_aligned_and_plotted(files: Path, translator: Path, tmp_path: Path) -> None:
    given = "--model", translator, "--src", files / "t.en", "--ref", files / "t.hi", "--align", files / "t.align"
    found = run_json(*given, "--against", files / "bad.hi", "--out", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert found["sentences"] == 40
    assert found["frequency_source"].startswith("the references (the training data cannot be read: ")
    heads = [(row["layer_head"]["layer"], row["layer_head"]["head"]) for row in found["alignment"]]
    assert heads == [(0, None), (0, 0), (0, 1), (1, None), (1, 0), (1, 1)]
    assert found["comparison"][0]["system"] < found["comparison"][0]["baseline"]
    shown = run(*given)
    for heading in (
        "BLEU",
        "tok:intl",
        "By reference length",
        "Recall of reference words",
        "Word alignment",
        "Worst translations",
    ):
        assert heading in shown


def test_words_are_counted_in_the_training_data_of_the_model(files: Path, translator: Path) -> None:
    config = Config.load(translator / "config.toml")
    data = replace(config.data, src=(str(files / "t.en"),), tgt=(str(files / "t.hi"),))
    (translator / "config.toml").write_text(replace(config, data=data).to_toml())
    try:
        found = run_json("--model", translator, "--src", files / "t.en", "--ref", files / "t.hi")
    finally:
        (translator / "config.toml").write_text(config.to_toml())
    assert found["frequency_source"] == "the training data"
    words = Counter((files / "t.hi").read_text().replace("।", " ।").split())
    rare = sum(count for count in words.values() if count < 100)
    assert sum(bucket["words"] for bucket in found["by_frequency"] if bucket["low"] < 100) == rare


def test_pairs_are_read_from_tsv(files: Path, translator: Path, tmp_path: Path) -> None:
    rows = zip((files / "t.en").read_text().splitlines(), (files / "t.hi").read_text().splitlines(), strict=True)
    (tmp_path / "t.tsv").write_text("".join(f"x\t{s}\t{t}\n" for s, t in rows))
    by_table = run_json("--model", translator, "--pairs", tmp_path / "t.tsv", "--columns", "2,3")
    by_files = run_json("--model", translator, "--src", files / "t.en", "--ref", files / "t.hi")
    assert by_table["scores"] == by_files["scores"]
    assert by_table["worst"] == by_files["worst"]


@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_windows_count_every_token_once_with_enough_context(length: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    counted: list[int] = []
    for begin, end, first in windows(length, window, stride):
        assert begin <= first < end <= begin + window
        assert begin == 0 or first - begin >= window - stride
        counted += range(first, end)
    assert counted == list(range(length))


DECODER = ModelConfig(
    shape="decoder", width=16, heads=2, decoder_layers=1, feed_forward=16, dropout=0.0, max_positions=8
)
DOCUMENTS = ["तू चाय पी।\nफिर पानी पी।", "one two", "three red tea I drink water " * 3]


def _language_model(within: bool) -> Model:
    return tiny_model(DOCUMENTS, DECODER, TextConfig(documents=within))


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("stride", [1, 4])
def test_perplexity_equals_token_by_token_computation(tmp_path: Path, within: bool, stride: int) -> None:
    model = _language_model(within)
    (tmp_path / "text").write_text("\n\n".join(DOCUMENTS), encoding="utf-8")
    found = evaluate_language_model(model, plain_text([tmp_path / "text"]), stride)
    tokenizer = model.tokenizers[1]
    ids = [[*tokenizer.encode(text), tokenizer.end] for text in DOCUMENTS]
    inputs = [[tokenizer.start, *document[:-1]] for document in ids]
    if not within:
        ids, inputs = [list(chain(*ids))], [list(chain(*inputs))]
    losses = [_loss(model, x, y, i, stride) for x, y in zip(inputs, ids, strict=True) for i in range(len(y))]
    assert found.tokens == len(losses)
    assert found.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    size = sum(len(text.encode()) for text in DOCUMENTS)
    assert found.bits_per_byte == pytest.approx(sum(losses) / math.log(2) / size, rel=1e-5)
    assert found.bits_per_character == pytest.approx(found.bits_per_byte * size / sum(map(len, DOCUMENTS)))
    assert [(bucket.low, bucket.high) for bucket in found.by_context] == [(1, 1), (2, 2), (3, 4), (5, 8)]
    if stride == 1:  # every token except the last ones is the first of one window
        first = [
            _loss_after_one_token(model, x, y, i) for x, y in zip(inputs, ids, strict=True) for i in range(len(y) - 7)
        ]
        assert found.by_context[0].loss == pytest.approx(sum(first) / len(first), rel=1e-5)


@torch.no_grad()
def _loss_after_one_token(model: Model, inputs: Sequence[int], targets: Sequence[int], i: int) -> float:
    """−ln p of token i given only the token before it."""
    return -float(model.network(Packed.from_sequences([[inputs[i]]]))[0].log_softmax(-1)[targets[i]])


@torch.no_grad()
def _loss(model: Model, inputs: Sequence[int], targets: Sequence[int], i: int, stride: int) -> float:
    """−ln p of token i in the first window that contains it."""
    end = 8
    while end <= i:
        end += stride
    end = min(end, len(inputs))
    begin = max(0, end - 8)
    logits = model.network(Packed.from_sequences([inputs[begin : i + 1]]))
    return -float(logits[-1].log_softmax(-1)[targets[i]])


def test_language_model_is_evaluated_from_the_command_line(tmp_path: Path) -> None:
    folder = save(_language_model(within=True), tmp_path / "lm")
    (tmp_path / "text").write_text("\n\n".join(DOCUMENTS), encoding="utf-8")
    found = run_json("--model", folder, "--text", tmp_path / "text", "--out", tmp_path / "p.svg")
    assert (found["documents"], found["window"], found["stride"]) == (3, 8, 4)
    assert "<svg" in (tmp_path / "p.svg").read_text()
    shown = run("--model", folder, "--text", tmp_path / "text")
    assert "each token has 5 to 8 tokens of context" in " ".join(shown.split())
    with pytest.raises(UserError, match="is a language model, not a translator: use --text FILE"):
        run("--model", folder, "--src", tmp_path / "text", "--ref", _write(tmp_path, "r", "x\n" * 6))


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_bad_input_is_rejected_with_both_counts_and_the_line(files: Path, translator: Path, tmp_path: Path) -> None:
    right = (files / "t.hi").read_text().splitlines(keepends=True)
    short = _write(tmp_path, "short.hi", "".join(right[:30]))
    lost = _write(tmp_path, "lost.hi", "".join(right[:10] + right[11:]) + right[0])
    blank = _write(tmp_path, "blank.hi", "".join([*right[:6], "  \n", *right[7:]]))
    empty = _write(tmp_path, "empty.hi", "")
    rows = _write(tmp_path, "rows.jsonl", '{"references": ["a"]}\n{"references": "b"}\n')
    given = "--model", translator, "--src", files / "t.en"
    for arguments, message in (
        (
            (*given, "--ref", short),
            r"t.en has 40 lines but .*short.hi has 30: the end of .*short.hi seems to be missing",
        ),
        (("--hyp", short, "--ref", files / "t.hi"), "short.hi has 30 lines but .*t.hi has 40"),
        ((*given, "--ref", blank), "1 of 40 references are blank, the first in line 7"),
        ((*given, "--ref", empty), "empty.hi is empty"),
        (("--hyp", rows, "--ref", rows), "rows.jsonl, line 2: expected"),
        ((*given, "--ref", files / "t.hi", "--tokenize", "intll"), 'did you mean "intl"'),
        (
            (*given, "--ref", files / "t.hi", "--align", short),
            '"[^"]+" is not a link|aligns 30 pairs, but there are 40',
        ),
        (("--model", translator, "--text", files / "t.en"), "is a translator, not a language model: use --src"),
        (("--model", translator, "--ref", files / "t.hi"), "missing sentences to translate: --src FILE"),
        (given, "missing test set"),
    ):
        with pytest.raises(UserError, match=message) as error:
            run(*arguments)
        assert "\n" not in str(error.value)
    assert (
        run_json("--hyp", lost, "--ref", files / "t.hi", "--worst", 3)["exact_match"] < 0.5
    )  # equal length, but misaligned


def test_error_names_the_line_where_files_become_misaligned(tmp_path: Path) -> None:
    random = Random(1)
    lines = [f"{'word ' * random.randint(1, 30)}{random.randint(0, 999)}\n" for _ in range(300)]
    whole = _write(tmp_path, "whole", "".join(lines))
    with pytest.raises(UserError, match=r"has 299 lines but .* has 300: they seem to be misaligned from line 120 on"):
        run("--hyp", _write(tmp_path, "less", "".join(lines[:119] + lines[120:])), "--ref", whole)


def test_blank_reference_next_to_another_is_ignored(files: Path, tmp_path: Path) -> None:
    right = (files / "t.hi").read_text().splitlines(keepends=True)
    more = _write(tmp_path, "more.hi", "".join(["\n", *right[1:]]))
    found = run_json("--hyp", files / "bad.hi", "--ref", files / "t.hi", more)
    assert found["references"] == 79


def test_a_share_is_reported_in_percent_and_a_name_belongs_to_one_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "half", Metric("half", lambda texts, references: 0.5, is_share=True))
    load_extension.cache_clear()
    (found,) = other_scores(["a"], [["a"]])
    assert (found.name, found.value) == ("half", 50)
    monkeypatch.setitem(METRICS, "half", Metric("BLEU", exact_match))
    load_extension.cache_clear()
    with pytest.raises(UserError, match='2 metrics are called "BLEU"'):
        other_scores(["a"], [["a"]])


def test_the_scores_of_a_validation_are_those_of_their_names() -> None:
    from sacrebleu import corpus_bleu, corpus_chrf

    from seq2see.train.validation import score_translations

    texts, references = ["एक दो पाँच चार।", "हम दोस्त हैं।"], ["एक दो तीन चार।", "हम अच्छे दोस्त हैं।"]
    scores = score_translations(texts, [[reference] for reference in references], 1.0)
    bleu = corpus_bleu(texts, [references], tokenize="intl").score
    chrf = corpus_chrf(texts, [references], word_order=2).score
    assert [scores.bleu, scores.chrf] == pytest.approx([bleu, chrf]) and bleu < chrf
    values = [replace(scores, metric=metric).value for metric in ("bleu", "chrf")]
    assert values == [scores.bleu, scores.chrf]
    assert "tok:intl" in scores.signatures[0] and "nw:2" in scores.signatures[1]


def test_every_metric_can_select_a_checkpoint() -> None:
    from seq2see.train.validation import score_translations

    good, bad = (score_translations([text], [["एक दो तीन चार।"]], 1.0) for text in ("एक दो तीन चार।", "एक दो पाँच चार।"))
    assert all(replace(good, metric=name).value > replace(bad, metric=name).value for name in METRICS)
    with pytest.raises(UserError, match=r'train.metric = "bleuu" is not a valid choice: did you mean "bleu"'):
        Config().override(["train.metric=bleuu"])


def test_a_bundled_model_names_its_sources_and_no_files_that_came_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("test.en", "data/train.en"):  # not the training data, though config.toml has this name
        (tmp_path / name).write_text("I like tea.\n", encoding="utf-8")
    for name in ("test.hi", "data/train.hi"):
        (tmp_path / name).write_text("मुझे चाय पसंद है।\n", encoding="utf-8")
    with pytest.warns(Notice, match="grammar-en-hi was trained on Built-in grammar: sentences from there may be in"):
        found = run_json("--model", "grammar-en-hi", "--src", "test.en", "--ref", "test.hi")
    assert found["frequency_source"] == "the references (the training data is not known)"
