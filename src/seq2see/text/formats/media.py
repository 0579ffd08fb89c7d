"""Readers of pictures or sounds with their texts: a list of paths, or a directory with a text file beside each file.

The source of a pair is the path of its file; the file itself is decoded later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seq2see.errors import UserError
from seq2see.files import require_regular_file
from seq2see.text.formats.lines import LENIENT, ReadCallbacks, ReadIssue, read_lines
from seq2see.text.formats.tabular import JsonlReader, PairReader, SentencePair, TsvReader, strip_compression_suffix

MediaKind = Literal["pictures", "sounds"]

MEDIA_SUFFIXES: dict[MediaKind, tuple[str, ...]] = {
    "pictures": (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".pgm", ".ppm"),
    "sounds": (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au"),
}


def is_media(path: Path) -> bool:
    """Whether the name of a file is that of a picture or sound."""
    return any(path.suffix.lower() in suffixes for suffixes in MEDIA_SUFFIXES.values())


class MediaPairReader(PairReader):
    """Pairs of a media file and its text."""

    @property
    def contents(self) -> tuple[Path, ...]:
        return *self.files, *(Path(pair.source) for pair in self.read(LENIENT))

    @property
    def output_names(self) -> tuple[str, str]:
        raise UserError("a cleaned copy of pictures or sounds is not supported: remove the rows from the list")


@dataclass(frozen=True)
class MediaListReader(MediaPairReader):
    """Rows of a path, relative to the list, and a text."""

    rows: TsvReader | JsonlReader

    @property
    def files(self) -> tuple[Path, ...]:
        return self.rows.files

    @property
    def format_key(self) -> str:
        return f"media {self.rows.format_key}"

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        folder = self.rows.path.parent
        for source, target, line in self.rows.read(callbacks):
            path = folder / source
            if path.is_file():
                yield SentencePair(str(path), target, line)
            else:
                callbacks.on_issue(ReadIssue("missing", self.rows.path, line, f"{path}: no such file"))


@dataclass(frozen=True)
class MediaFolderReader(MediaPairReader):
    """Every picture or sound of a directory that has a text file of the same name: 0001.wav, 0001.txt."""

    folder: Path
    kind: MediaKind

    @property
    def files(self) -> tuple[Path, ...]:
        media = self._media()
        texts = tuple(path.with_suffix(".txt") for path in media if path.with_suffix(".txt").is_file())
        if not texts:
            raise UserError(
                f"{self.folder} has {len(media):,} {self.kind}, but no text files such as {media[0].stem}.txt"
            )
        return texts

    @property
    def format_key(self) -> str:
        return f"media folder {self.kind}"

    def _media(self) -> list[Path]:
        found = [path for path in sorted(self.folder.rglob("*")) if path.suffix.lower() in MEDIA_SUFFIXES[self.kind]]
        if not found:
            raise UserError(f"{self.folder} has no {self.kind} ({' '.join(MEDIA_SUFFIXES[self.kind])})")
        return found

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        for path in self._media():
            text = path.with_suffix(".txt")
            if not text.is_file():
                callbacks.on_issue(ReadIssue("missing", path, 1, f"no text file {text.name} beside it"))
                continue
            lines = list(read_lines(text, callbacks)) if text.stat().st_size else [""]
            if None not in lines:
                yield SentencePair(str(path), "\n".join(line or "" for line in lines).strip(), 1)


def open_media_reader(
    path: Path, kind: MediaKind, columns: tuple[int | str, int | str], fields: str = ""
) -> MediaPairReader:
    """Opens a list (.tsv or .jsonl) or a directory."""
    if path.is_dir():
        return MediaFolderReader(path, kind)
    match Path(strip_compression_suffix(path)).suffix.lower():
        case ".tsv" | ".tab" | ".txt":
            return MediaListReader(TsvReader(require_regular_file(path), *columns))
        case ".jsonl" | ".ndjson":
            source, _, target = (fields or "path,text").partition(",")
            return MediaListReader(JsonlReader(require_regular_file(path), source.strip(), target.strip()))
        case suffix:
            raise UserError(
                f'{path}: unsupported list "{suffix}": --{kind} takes a .tsv (path, tab, text), a .jsonl with the fields '
                '"path" and "text", or a directory with text files beside the media'
            )
