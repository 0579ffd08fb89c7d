"""The generated parts of docs/architecture.md: the picture of the folders, and the spine.

`python -m tests.architecture` writes them.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/seq2see"
PAGE = ROOT / "docs/architecture.md"

CORE = (
    "config",
    "tensors",
    "data",
    "model",
    "engine",
    "decode",
    "storage",
    "inspect",
    "evaluate",
    "translate",
    "train",
)
ROOMS = ("formats", "views", "check", "exchange", "course", "server", "cli")

# In reading order: no file imports a later one.
SPINE = (
    "config/training.py",
    "config/model.py",
    "data/layout.py",
    "data/tokenizer.py",
    "data/batch.py",
    "data/batches.py",
    "model/taps.py",
    "model/attention.py",
    "model/positions.py",
    "model/layers.py",
    "model/init.py",
    "model/network.py",
    "model/transformer.py",
    "train/loss.py",
    "train/schedule.py",
    "train/step.py",
    "train/trainer.py",
    "train/run.py",
    "decode/sampling.py",
    "decode/request.py",
    "decode/search.py",
    "decode/slots.py",
    "decode/cache.py",
    "decode/session.py",
    "decode/generate.py",
    "storage/pipeline.py",
    "inspect/trace.py",
    "inspect/interventions.py",
)


def summary(path: Path) -> str:
    """Returns the first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s|\n\n|:$|(?<=[a-z]):\n", docstring)[0].replace("\n", " ").rstrip(".:")


def line_count(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def picture() -> str:
    """Draws the folders, each with the first sentence of its docstring."""
    lines = ["src/seq2see/", *(_row(name, summary(PACKAGE / name)) for name in ("api.py", "errors.py"))]
    for title, folders in (("── the core", CORE), ("── rooms", ROOMS)):
        lines.append(f"  {title}")
        for name in folders:
            lines.append(_row(f"{name}/", summary(PACKAGE / name / "__init__.py")))
            inner = sorted(path.parent for path in (PACKAGE / name).glob("*/__init__.py"))
            lines += [_row(f"  {path.name}/", summary(path / "__init__.py")) for path in inner]
    return "\n".join(lines)


def _row(name: str, text: str) -> str:
    return f"  {name:<14}{text}"


def spine_table() -> str:
    rows = [(name, summary(PACKAGE / name), line_count(PACKAGE / name)) for name in SPINE]
    lines = [f"| {i} | `{name}` | {text} | {lines} |" for i, (name, text, lines) in enumerate(rows, 1)]
    total = f"| | {len(rows)} files | | {sum(lines for *_, lines in rows):,} |"
    return "\n".join(["| | file | | lines |", "|---|---|---|---|", *lines, total])


def page(text: str) -> str:
    """Returns the page with its generated parts up to date."""
    for name, content in (("picture", f"```\n{picture()}\n```"), ("spine", spine_table())):
        pattern = rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda match, new=content: f"{match[1]}{new}\n{match[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
