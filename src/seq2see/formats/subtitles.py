"""Subtitles, SubRip (.srt) and WebVTT (.vtt): dialogue is translated, cue numbers and timings stay unchanged.

A sentence over two lines of a cue is one sentence, and its translation is wrapped over as many lines; a line that begins
with a dash starts another speaker. Headers, notes and styles do not follow a timing line and stay unchanged.
"""

import re

from seq2see.formats.parts import Document, DocumentFormat, Part, PartsBuilder, split_lines

_TIMESTAMP = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMING = re.compile(rf"\s*{_TIMESTAMP}[ \t]*-->[ \t]*{_TIMESTAMP}")
_SPEAKER = re.compile(r"\s*[-–—]\s*")


def read(document: Document) -> list[Part]:
    builder = PartsBuilder()
    in_cue = False
    for number, line in enumerate(split_lines(document.text), 1):
        if _TIMING.match(line):
            # Without a blank line before it, the cue number was taken for dialogue of the previous cue.
            number_line = builder.pop_line() if builder.last.isdecimal() else ""
            builder.keep(number_line + line)
            in_cue = True
        elif not in_cue or not line.strip():
            builder.keep(line)
            in_cue = False
        else:
            speaker = _SPEAKER.match(line)
            if speaker:
                builder.end()
            builder.add(line, number, speaker.end() if speaker else 0)
    builder.end()
    return builder.parts


DOCUMENT = DocumentFormat(read)
