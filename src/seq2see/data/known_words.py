"""The words that a model saw in training, used to report the unknown words of an input.

A byte-level tokenizer encodes any word, known or not, so the words of the training text are stored with the model: a sorted
list, one word per line. A word is a run of letters, a run of up to three digits, or one symbol: the units within which the
tokenizer merges bytes. In scripts without spaces between words, it is one character.
"""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers as hf
from tokenizers.pre_tokenizers import Split

from seq2see.data.tokenizer import LETTERS, Tokenizer
from seq2see.tensors.files import atomic_write

KnownWords = frozenset[str]

MAX_WORDS = 1_000_000  # only corpora of millions of sentences have more; the rest are rare and count as unknown
_CHUNK_WORDS = 50_000  # collected before they are split, which bounds memory

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORDS = Split(
    hf.Regex(
        f"[{_UNSPACED}]\\p{{M}}*|[{LETTERS}&&[^{_UNSPACED}]]+|\\p{{N}}{{1,3}}\\p{{M}}*"
        f"|[^\\s\\p{{N}}{LETTERS}][\\p{{M}}\u200c\u200d]*"
    ),
    "removed",
    invert=True,
)


def collect_words(texts: Iterable[str], tokenizer: Tokenizer) -> KnownWords:
    """Returns the distinct words of the texts; stops at about `MAX_WORDS`."""
    words: set[str] = set()
    chunks: set[str] = set()  # splitting each chunk between spaces once is several times as fast
    for text in texts:
        chunks.update(text.split())
        if len(chunks) >= _CHUNK_WORDS:
            words.update(word for chunk in chunks for word in _split(chunk, tokenizer))
            chunks.clear()
        if len(words) >= MAX_WORDS:
            break
    words.update(word for chunk in chunks for word in _split(chunk, tokenizer))
    return frozenset(words)


def unknown_words(text: str, tokenizer: Tokenizer, known: KnownWords | None) -> tuple[str, ...] | None:
    """Returns the unknown words, each once, in order of occurrence; None if the model has no list of known words."""
    if tokenizer.kind == "word":  # its vocabulary is the list
        if tokenizer.unknown not in tokenizer.encode(text):
            return ()
        unknown = [
            text[token.start : token.end] for token in tokenizer.token_spans(text) if token.id == tokenizer.unknown
        ]
    elif known is None:
        return None
    else:
        unknown = [word for word in _split(text, tokenizer) if word not in known]
    return tuple(dict.fromkeys(unknown))


def save_words(path: Path, words: KnownWords) -> None:
    with atomic_write(path) as part:
        part.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")


def compressed(path: Path) -> Path:
    """Returns the name of a compressed list."""
    return path.with_name(f"{path.name}.gz")


def load_words(path: Path) -> KnownWords | None:
    """Loads the list, or the same list compressed; None if there is neither."""
    if path.is_file():
        content = path.read_bytes()
    elif compressed(path).is_file():
        content = gzip.decompress(compressed(path).read_bytes())
    else:
        return None
    return frozenset(content.decode("utf-8", errors="replace").split("\n"))


def _split(text: str, tokenizer: Tokenizer) -> Iterator[str]:
    return (word for word, _ in _WORDS.pre_tokenize_str(tokenizer.normalized(text)))
