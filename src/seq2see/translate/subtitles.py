"""Subtitles, SubRip (.srt) and WebVTT (.vtt): numbers and times stay, what is said is translated.

A sentence over two lines of a cue is one sentence, and its translation is folded over as many lines; a line that begins
with a dash is another speaker's. Headers, notes and styles have no time above them, and so stay.
"""

import re

from seq2see.translate.slots import Part, Writer, lines_of

_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMES = re.compile(rf"\s*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_SPEAKER = re.compile(r"\s*[-–—]\s*")


def read(text: str) -> list[Part]:
    writer = Writer()
    in_cue = False
    for number, line in enumerate(lines_of(text), 1):
        if _TIMES.match(line):
            _keep_time(writer, line)
            in_cue = True
        elif not in_cue or not line.strip():
            writer.keep(line)
            in_cue = False
        else:
            speaker = _SPEAKER.match(line)
            if speaker:
                writer.end()
            writer.add(line, number, speaker.end() if speaker else 0)
    writer.end()
    return writer.parts


def _keep_time(writer: Writer, line: str) -> None:
    """Where the empty line before it is missing, the cue's number was taken for something said."""
    number = writer.take_back() if writer.last.isdecimal() else ""
    writer.keep(number + line)
