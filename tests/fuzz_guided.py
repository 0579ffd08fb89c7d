"""Coverage-guided fuzzing of the parsers of text: inputs that reach new code join `tests/corpus/PARSER`.

    python -m tests.fuzz_guided PARSER [SECONDS]

Needs atheris, which none of our extras installs: `pip install atheris==3.0.0` (the last with a wheel for Python 3.11). Ends at
the first failure, whose input libFuzzer writes to the working directory.
"""

import sys

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["seq2see.formats", "seq2see.data", "seq2see.translate", "json", "gettext"]):
    from seq2see.errors import UserError
    from tests.fuzz_parsers import CORPUS, PARSERS


def run(content: bytes) -> None:
    try:
        PARSERS[sys.argv[1]](content)
    except UserError as error:
        if "\n" in str(error):
            raise ValueError("an error of several lines") from error


if __name__ == "__main__":
    seconds = sys.argv[2] if len(sys.argv) > 2 else "60"
    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2500", "-max_len=300"]
    atheris.Setup([sys.argv[0], *limits, str(CORPUS / sys.argv[1])], run)
    atheris.Fuzz()
