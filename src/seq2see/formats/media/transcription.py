"""Recordings of any length with the times of their segments, by a model that writes times (Whisper).

Each window starts where the last complete segment ended, so that no word is cut at the end of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2see.decode.generate import GREEDY, translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.formats.media.sounds import ROW_SAMPLES, ROWS_PER_SECOND, mel_window, read_samples
from seq2see.storage.pipeline import Pipeline


@dataclass(frozen=True)
class Segment:
    """A piece of text and when it was said, in seconds."""

    start: float
    end: float
    text: str


def transcribe_segments(model: Pipeline, path: Path | str, search: Search = GREEDY) -> list[Segment]:
    """Returns what is said in a recording, segment by segment."""
    config = model.config.model
    if config.source != "sounds" or not model.tokenizers[1].framing.timestamps:
        raise UserError("this model writes no timestamps: use a Whisper model")
    model = model.with_detected_language(path)
    target, window = model.tokenizers[1], config.window_seconds * ROWS_PER_SECOND
    special_tokens = target.framing.with_times()
    samples = read_samples(Path(path))
    segments: list[Segment] = []
    position, length = 0, -(-len(samples) // ROW_SAMPLES)  # in rows of 20 ms
    while position < length:
        rows = mel_window(samples[position * ROW_SAMPLES :], config.mel_bands, config.window_seconds)
        tokens = translate_tokens(model.network, [rows], special_tokens, search)[0][0].tokens
        pieces, complete = split_segments(tokens, special_tokens.timestamps, window)
        for start, end, ids in pieces:
            if text := target.decode(ids).strip():
                begin, stop = (min(position + row, length) / ROWS_PER_SECOND for row in (start, end))
                segments.append(Segment(begin, stop, text))
        position += complete
    return segments


def split_segments(tokens: Sequence[int], first: int, window: int) -> tuple[list[tuple[int, int, list[int]]], int]:
    """Returns the segments of a window as (start, end, text tokens), and up to where the window is read, all in rows.

    A segment is complete if another begins or the output ends after its time; the next window begins after the last one.
    """
    is_time = [token >= first for token in tokens]
    ends = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]  # where the next segment begins
    if not ends or is_time[-2:] == [False, True]:
        ends.append(len(tokens))
    segments = []
    for begin, end in zip([0, *ends], ends, strict=False):
        times = [token - first for token in tokens[begin:end] if token >= first]
        text = [token for token in tokens[begin:end] if token < first]
        closed = len(times) > 1 or (times and not is_time[begin])
        segments.append((times[0] if times and is_time[begin] else 0, times[-1] if closed else window, text))
    is_open = ends[-1] < len(tokens)
    return segments, (tokens[ends[-1] - 1] - first if is_open else 0) or window


def format_subtitles(segments: Sequence[Segment]) -> str:
    """Formats segments as SubRip (.srt)."""
    cues = (
        f"{number}\n{_clock(each.start)} --> {_clock(each.end)}\n{each.text}\n"
        for number, each in enumerate(segments, 1)
    )
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"
