"""The code in the documentation runs and gives the documented results, and its command lines have valid options."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pytest
import torch
import typer
from PIL import Image

from seq2see.cli import app
from seq2see.config.search import Search
from seq2see.train.presets import PRESETS, preset_config
from tests.models import TINY, save, tiny_model

ROOT = Path(__file__).parent.parent
GUIDES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "recipes/grammar/README.md")
DOCUMENTS = [str(path.relative_to(ROOT)) for path in GUIDES]


def code_blocks(document: str) -> list[tuple[str, str]]:
    """Returns the language and the code of each code block of a Markdown file."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def python_blocks(document: str) -> list[str]:
    return [code for language, code in code_blocks(document) if language == "python"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the documentation mentions."""
    from tests.parity import small

    folder = tmp_path_factory.mktemp("workplace")
    texts = ["How are you? I like tea.", "आप कैसे हैं? मुझे चाय पसंद है।"] * 5
    shape = replace(TINY, heads=8, decoder_layers=4)
    for name in ("runs/en-hi", "runs/demo", "runs/books"):
        (folder / name).mkdir(parents=True)
        model = shape if name != "runs/books" else replace(shape, shape="decoder", max_positions=64)
        save(tiny_model(texts, model), folder / name)
    (folder / "train.en").write_text("How are you?\nI like tea.\n")
    (folder / "train.hi").write_text("आप कैसे हैं?\nमुझे चाय पसंद है।\n")
    (folder / "books").mkdir()
    (folder / "books" / "a.txt").write_text("Once upon a time.\n")
    pictures = replace(TINY, source="pictures", encoder_positions="grid")
    save(tiny_model(["0123456789"], pictures), folder / "runs/numbers")
    save(tiny_model(["zero one"], replace(pictures, shape="encoder", classifier=True)), folder / "runs/digits-vit")
    for name in ("a.png", "b.png"):
        Image.new("L", (40, 32)).save(folder / name)
    small("MarianMT").save_pretrained(folder / "path/to/opus-mt-en-de")
    return folder


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if python_blocks(document)])
def test_python_code_runs(document: str, workplace: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, object] = {}
    if document == "docs/serving.md":
        trace = httpx.post(f"{address}/api/traces", json={"text": "How are you?"}, timeout=60).raise_for_status()
        names = {"A": f"{address}/api", "id": trace.json()["id"]}
    exec("\n".join(python_blocks(document)), names)


def test_code_in_the_quickstart_gives_the_documented_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    tracing, intervening, _huggingface = python_blocks("docs/quickstart.md")
    exec(tracing + intervening, names)
    t, logits = names["t"], names["logits"]
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (5, 8000)
    assert t["decoder.3.cross.weights", 0].shape == (4, 2, 3)  # type: ignore[index]
    assert t.quantity("decoder.3.cross.weights").formula in tracing  # type: ignore[attr-defined]


def test_code_in_the_readme_gives_the_documented_results() -> None:
    names: dict[str, object] = {}
    _training, tracing = python_blocks("README.md")
    exec(tracing, names)
    assert names["t"]["decoder.3.cross.weights", 0].shape == (8, 2, 3)  # type: ignore[index]


# Figures


@pytest.fixture(scope="module")
def results() -> Any:
    """The recipes' module that writes docs/results.md."""
    spec = importlib.util.spec_from_file_location("results", ROOT / "recipes" / "results.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_page_is_generated_from_the_recorded_results(results: Any) -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == results.page(results.read_results())


TATOEBA = "Tatoeba, held-out sources"
QUOTED = [  # file, text, and for each figure in it: recipe, run, test set, score
    ("README.md", "{:.1f} chrF++", ("bundled", "en-hi", TATOEBA, "chrF++")),
    ("README.md", "{:.1f} BLEU", ("bundled", "en-fr", TATOEBA, "BLEU")),
    (
        "docs/translating.md",
        "BLEU {:.1f}, chrF++ {:.1f} |",
        ("bundled", "en-fr", TATOEBA, "BLEU"),
        ("bundled", "en-fr", TATOEBA, "chrF++"),
    ),
    (
        "docs/translating.md",
        "BLEU {:.1f}, chrF++ {:.1f} |",
        ("bundled", "en-hi", TATOEBA, "BLEU"),
        ("bundled", "en-hi", TATOEBA, "chrF++"),
    ),
    (
        "docs/translating.md",
        "BLEU {:.1f}, chrF++ {:.1f} |",
        ("bundled", "en-fr", "Multi30k val", "BLEU"),
        ("bundled", "en-fr", "Multi30k val", "chrF++"),
    ),
    (
        "docs/translating.md",
        "BLEU {:.1f}, chrF++ {:.1f} |",
        ("bundled", "en-hi", "Hindi Visual Genome dev", "BLEU"),
        ("bundled", "en-hi", "Hindi Visual Genome dev", "chrF++"),
    ),
    ("docs/training.md", "this gives {:.1f} ±", ("multi30k", "en-de", "val", "BLEU")),
    *(
        (
            "docs/media.md",
            f"{sounds} | {{:.1f}}% | {{:.1f}}% |",
            ("spoken-digits", run, test, "exact"),
            ("spoken-digits", run, test, "CER"),
        )
        for sounds, run, test in (
            ("single recordings", "all-speakers", "single"),
            ("strings of 1 to 4 digits", "all-speakers", "strings-4"),
            ("strings of 1 to 6 digits", "all-speakers", "strings"),
            ("never heard", "without-george", "single"),
            ("digits of this speaker", "without-george", "strings-4"),
        )
    ),
    (
        "docs/media.md",
        "by a classifier | {:.1f}% | {:.1f}% |",
        ("written-numbers", "digits", "test", "exact"),
        ("written-numbers", "digits", "test", "CER"),
    ),
    (
        "docs/media.md",
        "written numbers of 1 to 6 digits | {:.1f}% | {:.1f}% |",
        ("written-numbers", "mnist", "test", "exact"),
        ("written-numbers", "mnist", "test", "CER"),
    ),
]


@pytest.mark.parametrize(("document", "text", "figures"), [(document, text, rest) for document, text, *rest in QUOTED])
def test_quoted_scores_are_the_recorded_ones(document: str, text: str, figures: Any, results: Any) -> None:
    recorded = results.read_results()
    means = [
        fmean(result["scores"][test][score] for result in recorded[recipe][run]) for recipe, run, test, score in figures
    ]
    assert text.format(*means) in (ROOT / document).read_text(encoding="utf-8")


def test_the_table_of_search_options_is_that_of_the_code() -> None:
    rows = "".join(f"| `{field.name}` | {field.default} | {field.metadata['help']} |\n" for field in fields(Search))
    assert f"|---|---|---|\n{rows}\n" in (ROOT / "docs/decoding.md").read_text(encoding="utf-8")


# Command lines


def subcommands(command: Any) -> Iterator[Any]:
    for each in getattr(command, "commands", {}).values():
        yield from subcommands(each)
        yield each


COMMAND = typer.main.get_command(app)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yields the arguments of each seq2see command in a shell script; other lines are skipped."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r"\s*(\$ |Examples?: )?(seq2see|torchrun|srun) ", line):
            words = shlex.split(re.sub(r"^\s*(\$ |Examples?: )", "", line), comments=True)
            for is_separator, group in groupby(words, lambda word: word in ("&&", "|", "<", ">", ">>")):
                command = [word for word in group if not word.startswith("$")]
                if not is_separator and "seq2see" in command:
                    yield command[command.index("seq2see") + 1 :]


def find_command(arguments: list[str]) -> tuple[Any, list[str]]:
    """Returns the subcommand that the arguments name, and the rest of them."""
    command: Any = COMMAND
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command, arguments


EXAMPLES = [
    *(
        (document, line)
        for document in DOCUMENTS
        for language, code in code_blocks(document)
        if language != "python"
        for line in command_lines(code)
    ),
    *(("--help", line) for each in subcommands(COMMAND) for line in command_lines(each.help or "")),
]


@pytest.mark.parametrize(
    ("place", "arguments"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_command_lines_are_valid(place: str, arguments: list[str]) -> None:
    command, rest = find_command(arguments)
    context = command.make_context("seq2see", rest)  # raises an error if an option does not exist, but runs nothing
    if command.name == "train" and context.params["settings"]:
        preset_config(context.params["preset"] or "tiny").override(context.params["settings"])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_within_the_text_exist_and_have_these_options(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for code in re.findall(r"`seq2see ([^`\n]+)`", text):
        command, rest = find_command(code.split())
        assert command is not COMMAND or rest[0].startswith("-"), code
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in rest:
            if word.startswith("-"):
                assert word.partition("=")[0] in known, code


def test_presets_state_their_number_of_parameters() -> None:
    from seq2see.model.summary import summarize

    for name in ("paper-base", "paper-big"):
        millions = round(summarize(PRESETS[name].model, name).parameters / 1e6)
        assert f"{millions} million parameters" in PRESETS[name].reason
