"""Readers of pictures or sounds with their texts: a list of paths, or a directory with a text file beside each file.

The source of a pair is the path of its file; the file itself is decoded later.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from seq2see.data.corpus import MediaKind, parse_columns
from seq2see.data.lines import LENIENT, ReadCallbacks, ReadIssue, read_lines
from seq2see.data.readers import PairReader, SentencePair, strip_compression_suffix
from seq2see.errors import UserError
from seq2see.formats.tabular import JsonlReader, TsvReader
from seq2see.tensors.files import require_regular_file

# In a directory, where texts and other files lie beside them; a list may name any file.
MEDIA_SUFFIXES: dict[MediaKind, tuple[str, ...]] = {
    "pictures": (
        ".png", ".jpg", ".jpeg", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".pbm", ".pnm", ".jp2",
        ".tga",
    ),
    "sounds": (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64"),
}  # fmt: skip


def is_media(path: Path) -> bool:
    """Whether the name of a file is that of a picture or sound."""
    return any(path.suffix.lower() in suffixes for suffixes in MEDIA_SUFFIXES.values())


class MediaPairReader(PairReader):
    """Pairs of a media file and its text."""

    @property
    def contents(self) -> tuple[Path, ...]:
        return *self.files, *(Path(pair.source) for pair in self.read(LENIENT))


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
class FileIssue(ReadIssue):
    """Why a whole file of a directory cannot be used; it has no line to name."""

    @property
    def message(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class MediaFolderReader(MediaPairReader):
    """Every picture or sound of a directory that has a text file of the same name: 0001.wav, 0001.txt."""

    folder: Path
    kind: MediaKind

    @property
    def files(self) -> tuple[Path, ...]:
        return self._texts(self._media())

    @property
    def format_key(self) -> str:
        return f"media folder {self.kind}"

    def _media(self) -> list[Path]:
        found = [path for path in sorted(self.folder.rglob("*")) if path.suffix.lower() in MEDIA_SUFFIXES[self.kind]]
        if not found:
            raise UserError(f"{self.folder} has no {self.kind} ({' '.join(MEDIA_SUFFIXES[self.kind])})")
        return found

    def _texts(self, media: list[Path]) -> tuple[Path, ...]:
        texts = dict.fromkeys(_text_of(path) for path in media if _text_of(path).is_file())
        if not texts:
            kind = self.kind if len(media) > 1 else self.kind.removesuffix("s")
            raise UserError(f"{self.folder} has {len(media):,} {kind}, but no text files such as {media[0].stem}.txt")
        return tuple(texts)

    def read(self, callbacks: ReadCallbacks) -> Iterator[SentencePair]:
        media = self._media()
        self._texts(media)  # without any, one error instead of one for each file
        owners: dict[Path, Path] = {}  # of the texts
        for path in media:
            text = _text_of(path)
            if not text.is_file():
                callbacks.on_issue(FileIssue("missing", path, 1, f"no text file {text.name} beside it"))
            elif text in owners:
                reason = f"shares {text.name} with {owners[text].name}: give each a name and a text of its own"
                callbacks.on_issue(FileIssue("malformed", path, 1, reason))
            else:
                owners[text] = path
                lines = list(read_lines(text, callbacks)) if text.stat().st_size else [""]
                if None not in lines:
                    yield SentencePair(str(path), "\n".join(line or "" for line in lines).strip(), 1)
        for path in self._unrecognized(owners.keys()):
            reason = f'has a text beside it, but "{path.suffix}" is not a suffix of {self.kind}: name it in a list'
            callbacks.on_issue(FileIssue("malformed", path, 1, f"{reason} (.tsv), which takes any file"))

    def _unrecognized(self, texts: Collection[Path]) -> list[Path]:
        """Returns the files beside a text that belongs to no picture or sound."""
        others = sorted(path for path in self.folder.rglob("*") if path.suffix.lower() != ".txt" and not is_media(path))
        return [path for path in others if path.is_file() and _text_of(path) not in texts and _text_of(path).is_file()]


def _text_of(path: Path) -> Path:
    return path.with_suffix(".txt")


def open_media_reader(path: Path, kind: MediaKind, columns: str = "", fields: str = "") -> MediaPairReader:
    """Opens a list (.tsv or .jsonl) or a directory."""
    if path.is_dir():
        return MediaFolderReader(path, kind)
    match Path(strip_compression_suffix(require_regular_file(path))).suffix.lower():
        case ".tsv" | ".tab" | ".txt":
            return MediaListReader(TsvReader(path, *parse_columns(columns or "1,2")))
        case ".jsonl" | ".ndjson":
            source, _, target = (fields or "path,text").partition(",")
            return MediaListReader(JsonlReader(path, source.strip(), target.strip()))
        case suffix:
            raise UserError(
                f'{path}: unsupported list "{suffix}": --{kind} takes a .tsv (path, tab, text), a .jsonl with the fields '
                '"path" and "text", or a directory with text files beside the media'
            )
