"""Random documents with markup and placeholders, a model that makes every mistake, and what a translation must keep.

python -m tests.formats.random_documents [--count 10000] [--seed 0]
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from seq2see.data.word_spans import split_words
from seq2see.errors import no_progress
from seq2see.formats.documents import translate_content
from seq2see.formats.po import parse_entries
from seq2see.translate.warning_log import WarningLog
from tests.fake_model import FakeModel, FakeTranslator

TEXT = "The boy drinks tea, and reads a book. We are friends! Where is Dr. Smith? दो किताबें। No. 3.5 cups; (yes) 我喜欢茶。 x"
WORDS = TEXT.split()
TAGS = {
    "html": ["b", "i", "span", "a", "em", "u"],
    "md": ["b", "i", "span", "a"],
    "srt": ["b", "i", "u", "font"],
    "vtt": ["b", "i", "c", "lang"],
    "po": ["b", "i", "a"],
}
TAG = re.compile(r"<(/?)([a-z]+)((?:[^<>\"\n]|\"[^\"\n]*\")*)>")
VOID = {"img", "wbr", "br", "hr"}
VERBATIM = re.compile(r"<(code|script|pre)>.*?</\1>|<!--.*?-->|```.*?```", re.DOTALL)


class RandomDocument:
    """A document of a format, and its atoms: what must be in its translation as often as in itself."""

    def __init__(self, format: str, seed: int) -> None:
        self.format, self.random = format, random.Random(f"{format} {seed}")
        self.atoms: list[str] = []
        self.number = 0
        self.text = getattr(self, f"_{format}")()

    def atom(self, template: str) -> str:
        self.number += 1
        self.atoms.append(template.replace("#", str(self.number)))
        return self.atoms[-1]

    def words(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.choice([0, 1, 1, 2, 3, 5, 30])))

    def inline(self, depth: int = 0) -> str:
        parts = [self.part(depth) for _ in range(self.random.choice([1, 2, 3, 4] if depth < 3 else [0, 1]))]
        return re.sub(r"(https://\S+?)(?=\$)", r"\1 ", self.random.choice([" ", " ", ""]).join(parts))

    def part(self, depth: int) -> str:
        draw = self.random.random()
        if draw < 0.45:
            return self.words()
        if draw < 0.6:
            return self.atom(self.random.choice(["{p#}", "%(p#)s", "https://x.y/#", "&gt;", "%s"]))
        if draw < 0.7:
            attribute = self.random.choice(
                ["#", "# >", "data:image/png;base64," + "iVBOR/AA+" * 150 + "#", "a  b. C #"]
            )
            alone = {"html": '<img alt="{}">', "md": '<img alt="{}"/>', "vtt": "<00:#.000>"}.get(
                self.format, '<x a="{}"/>'
            )
            return self.atom(alone.format(attribute))
        special: list[Callable[[int], str]] = {
            "html": [self.html_verbatim],
            "md": [self.code, self.code, self.link, self.link, self.emphasis, self.md_alone],
            "srt": [lambda _: self.atom(r"{\an#}")],
            "vtt": [lambda _: self.atom("<v Bob#>")],
        }.get(self.format, [self.tag])
        return (self.random.choice(special) if draw < 0.85 else self.tag)(depth)

    def tag(self, depth: int) -> str:
        if self.random.random() < 0.02:
            return "<b>" * 300 + (self.words() or "x") + "</b>" * 300
        name = self.random.choice(TAGS[self.format])
        long = "x" * 700 if self.random.random() < 0.05 else ""
        opening = self.atom(f'<{name} id="#{long}">')
        return f"{opening}{self.inline(depth + 1)}</{name}>"

    def code(self, depth: int) -> str:
        return self.atom("`code# a. B" + " more. Code" * self.random.choice([0, 0, 0, 60]) + "`")

    def link(self, depth: int) -> str:
        target = self.atom("](u#" + "/x" * self.random.choice([0, 0, 0, 600]) + ' "t. T")')
        return f"{self.random.choice(['[', '[', '!['])}{self.words() or 'x'}{target}"

    def emphasis(self, depth: int) -> str:
        mark = self.random.choice(["*", "**", "_", "~~"])
        return f"{mark}{self.words() or 'x'}{mark}"

    def md_alone(self, depth: int) -> str:
        return self.atom(self.random.choice(["[^#]", "$x_# + y$", "<!-- c# -->"]))

    def html_verbatim(self, depth: int) -> str:
        name = self.random.choice(["code", "script", "pre"])
        return self.atom(self.random.choice([f"<{name}>let x# = 1. A</{name}>", "<!-- c#. A <b> -->"]))

    def lines(self, most: int) -> str:
        """Several lines of one paragraph, divided between parts."""
        return "\n".join(line for _ in range(self.random.randint(1, most)) if (line := self.inline().strip()))

    def _html(self) -> str:
        blocks = ["p", "div", "h1", "td", "li"]
        parts = []
        for _ in range(self.random.randint(1, 4)):
            name = self.random.choice(blocks)
            parts.append(f"{self.atom(f'<{name} id=#>')}\n {self.lines(3)}</{name}>")
        return self.random.choice(["", "<!doctype html>\n"]) + "\n".join(parts)

    def _md(self) -> str:
        starts = ["", "", "# ", "- ", "> ", "1. ", "  - ", "> - "]
        blocks = []
        for _ in range(self.random.randint(1, 5)):
            if self.random.random() < 0.15:
                blocks.append(self.atom("```\ncode # *x* <b>\n```"))
            else:
                blocks.append(self.random.choice(starts) + self.lines(3))
        return "\n\n".join(blocks) + "\n"

    def _srt(self) -> str:
        number = iter(range(1, 99))
        times = "{0}\n00:00:{0:02},000 --> 00:00:{0:02},900\n{1}\n"
        return "\n".join(times.format(next(number), self.lines(3)) for _ in range(self.random.randint(1, 4)))

    def _vtt(self) -> str:
        return "WEBVTT\n\n" + self._srt().replace(",", ".")

    def _po(self) -> str:
        entries = []
        for _ in range(self.random.randint(1, 4)):
            text = self.lines(3).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            entries.append(f'#: a.c:1\nmsgid "{text or "x"}"\nmsgstr ""\n')
        return "\n".join(entries)


def bad_model(draw: random.Random) -> Callable[[str], str]:
    """Returns a model that moves, loses, repeats and invents words and placeholders."""

    def translate(text: str) -> str:
        words = text.split(" ")
        kind = draw.random()
        if kind < 0.25:
            draw.shuffle(words)
        elif kind < 0.4:
            words = [word for word in words if draw.random() < 0.7]
        elif kind < 0.55:
            words = [word for word in words for _ in range(draw.choice([1, 1, 2]))]
        elif kind < 0.65:
            words = ["mot"] * draw.randint(0, 2 * len(words))
        elif kind < 0.7:
            words.insert(
                draw.randint(0, len(words)), draw.choice(["<b>", "%s", "</i>", "`", "{x}", "*", "](u)", "<", "<a", "&"])
            )
        elif kind < 0.95:
            words = [word if re.search(r"[%{&`$\[<\\]|https", word) else "mot" for word in words]
        return " ".join(words)

    return translate


class CarelessTranslator(FakeTranslator):
    """A translator whose attention is random."""

    def word_attention(self, pairs: Sequence[tuple[str, str]]) -> list[torch.Tensor]:
        generator = np.random.default_rng(len(pairs))
        shapes = ((len(split_words(target)), len(split_words(source))) for source, target in pairs)
        return [torch.from_numpy(generator.random(shape, dtype=np.float32)) for shape in shapes]


def translate(format: str, text: str, seed: int) -> str:
    draw = random.Random(seed)
    model = FakeModel(bad_model(draw), max_positions=draw.choice([12, 64, 256]))
    translator = CarelessTranslator(model, WarningLog(lambda text: None))  # type: ignore[arg-type]
    return translate_content(Path(f"a.{format}"), text.encode(), translator, False, no_progress).decode()


def problem(format: str, document: RandomDocument, seed: int) -> str:
    """Returns what the translation of a document has lost, doubled or crossed; an empty string if nothing."""
    found = translate(format, document.text, seed)
    source = document.text
    if format == "po":
        entries = list(parse_entries(found.split("\n"), Path("a.po")))
        if [entry.text("msgid") for entry in entries] != [
            entry.text("msgid") for entry in parse_entries(source.split("\n"), Path("a.po"))
        ]:
            return "the msgids changed"
        source, found = ("\n".join(entry.text(keyword) for entry in entries) for keyword in ("msgid", "msgstr"))
    for atom in dict.fromkeys(document.atoms):
        if source.count(atom) != found.count(atom):
            return f"{source.count(atom)} × {atom[:80]} became {found.count(atom)}"
    outside = [VERBATIM.sub("", text) for text in (source, found)]
    before, after = (Counter(match[0] for match in TAG.finditer(text)) for text in outside)
    if before != after:
        return f"tags lost: {(before - after).most_common(3)}, added: {(after - before).most_common(3)}"
    if crossing := crossing_tag(outside[1]):
        return f"{crossing} crosses another tag"
    return ""


def crossing_tag(text: str) -> str:
    """Returns the first closing tag that does not close the innermost open element."""
    open_names: list[str] = []
    for tag in TAG.finditer(text):
        if tag[2] in VOID or tag[3].endswith("/") or tag[2] in ("v", "x"):
            continue
        if not tag[1]:
            open_names.append(tag[2])
        elif not open_names or open_names.pop() != tag[2]:
            return tag[0]
    return ""


def failures(count: int, seed: int) -> list[str]:
    """Translates documents of all formats in turn; returns what went wrong."""
    found = []
    for number in range(seed, seed + count):
        format = list(TAGS)[number % len(TAGS)]
        document = RandomDocument(format, number)
        if said := problem(format, document, number):
            found.append(f"{format} {number}: {said}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    said = failures(options.count, options.seed)
    print(*said[:50], sep="\n")
    print(f"{options.count:,} documents, {len(said)} failures")
    raise SystemExit(bool(said))
