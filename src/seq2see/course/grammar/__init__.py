"""The built-in English–Hindi corpus: no download, every sentence and its alignment made by our own grammar.

`sample()` draws it, `write()` puts it into files. The chapters, from words to files: `tables/` and `lexicon` (the words),
`morphology` (Hindi forms), `meaning` (what is said), `english`, `phrases` and `hindi` (how it is said), `readings` and
`alike` (what English leaves open), `compose`, `clauses`, `being`, `joining` and `sentences` (what is drawn), `corpus` (the
four sets and their files).
"""

from seq2see.course.grammar.corpus import Pair, Sample, sample, write
from seq2see.text.word_spans import words

__all__ = ["Pair", "Sample", "sample", "words", "write"]
