"""The rules of the source: what may lie loose, how long files and functions may be, and how code is formatted.

An exception is a debt: it is listed here by name, and a test fails when it is no longer needed, so the lists only shrink.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture import PACKAGE, PAGE, ROOT, SPINE, line_count, page

LOOSE = {"__init__.py", "__main__.py", "api.py", "errors.py"}  # config is a package
MAX_FILE, MAX_FUNCTION, MAX_FMT_SKIPS = 400, 60, 100
MAX_SPINE_FILES, MAX_SPINE_LINES = 28, 6_000

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
FMT_SKIPS = MAX_FMT_SKIPS


@cache
def sources() -> dict[str, str]:
    """The Python files of the project with their text."""
    paths = (path for folder in ("src", "tests", "recipes", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def functions() -> Iterator[tuple[str, int]]:
    """Yields every function with the lines of its body; the parameters of a command are a table of its options."""
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.name}", (node.end_lineno or 0) - node.body[0].lineno + 1


def assert_only(found: set[str], exceptions: set[str], limit: str) -> None:
    assert not found - exceptions, f"over {limit}: {sorted(found - exceptions)}"
    assert not exceptions - found, f"within {limit} now, remove from the exceptions: {sorted(exceptions - found)}"


def test_only_five_names_are_loose() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == LOOSE
    assert (PACKAGE / "config/__init__.py").exists()


def test_every_folder_says_in_one_line_what_it_is() -> None:
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        first = (folder / "__init__.py").read_text(encoding="utf-8").partition("\n")[0]
        assert first.startswith('"""') and first.rstrip('"').endswith((".", "`)")), f"{folder}: {first}"


def test_no_file_is_longer_than_two_chapters() -> None:
    assert_only(
        {path for path, text in sources().items() if text.count("\n") > MAX_FILE}, LONG_FILES, f"{MAX_FILE} lines"
    )


def test_no_function_is_longer_than_a_screen() -> None:
    assert_only({name for name, lines in functions() if lines > MAX_FUNCTION}, LONG_FUNCTIONS, f"{MAX_FUNCTION} lines")


def test_code_is_laid_out_by_the_formatter() -> None:
    found = sum(text.count("# fmt: " + "skip") for text in sources().values())
    assert found <= FMT_SKIPS, f"{found} lines skip the formatter: fewer parameters make most of these unnecessary"
    assert FMT_SKIPS == MAX_FMT_SKIPS or found > FMT_SKIPS - 100, f"lower FMT_SKIPS to {found}"


def test_text_in_a_terminal_is_never_markup() -> None:
    """What is styled is a `Text`: in a string, the brackets of a path or of a user's word would be taken for a style."""
    found = []
    for path, text in sources().items():
        if not path.startswith("src/") or path == "src/seq2see/errors.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                plain = any(keyword.arg == "markup" for keyword in node.keywords)
                wrong = name in ("Console", "from_markup") or (name == "TextColumn" and not plain)
                wrong |= name == "status" and not ast.unparse(node).count("Text(")
            else:
                wrong = isinstance(node, ast.Constant) and "[/" in str(node.value).replace("[/path", "")
                wrong |= isinstance(node, ast.ImportFrom) and node.module == "rich.markup"
            if wrong:
                found.append(f"{path}:{node.lineno}")  # type: ignore[attr-defined]
    assert not found, "use seq2see.errors.terminal, and Text for what is styled"


def test_the_architecture_page_shows_the_folders_and_the_spine_as_they_are() -> None:
    stated, current = PAGE.read_text(encoding="utf-8"), page(PAGE.read_text(encoding="utf-8"))
    assert _without_counts(stated) == _without_counts(current), "run `python -m tests.architecture`"
    for old, new in zip(_counts(stated), _counts(current), strict=True):
        assert abs(old - new) <= 0.1 * new + 20, "the line counts are out of date: run `python -m tests.architecture`"


_COUNT = re.compile(r"\| ([\d,]+) \|$", flags=re.MULTILINE)


def _counts(text: str) -> list[int]:
    return [int(count.replace(",", "")) for count in _COUNT.findall(text)]


def _without_counts(text: str) -> str:
    return _COUNT.sub("|", text)


def test_the_spine_is_short_and_never_jumps_upwards() -> None:
    assert len(SPINE) <= MAX_SPINE_FILES
    assert sum(line_count(PACKAGE / name) for name in SPINE) <= MAX_SPINE_LINES
    for i, name in enumerate(SPINE):
        later = {f"seq2see.{other.removesuffix('.py').replace('/', '.')}" for other in SPINE[i + 1 :]}
        assert not later & set(_imported(PACKAGE / name)), f"{name} imports what the reader has not seen"


def _imported(path: Path) -> Iterator[str]:
    """Yields the modules that a file imports, but not those that only its types need."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_glossary_names_files_that_exist() -> None:
    paths = re.findall(r"`([a-z_/]+(?:\.py|/))`", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
    assert len(paths) > 30
    assert not [path for path in paths if not (PACKAGE / path).exists()]
