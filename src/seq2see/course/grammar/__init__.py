"""The generator of the built-in English–Hindi corpus: a grammar produces every sentence, its translation and alignment.

`generate_corpus()` samples it, `write_corpus()` writes it to files. From words to files: `tables/` and `lexicon` (the words),
`morphology` (Hindi forms), `meaning` (abstract syntax), `english`, `hindi_noun_phrases` and `hindi_clauses` (realisation),
`readings` and `english_ambiguity` (what English leaves open), `phrase_sampler`, `clauses`, `copula`, `compound_sentences` and
`sentences` (sampling), `corpus` (the four sets and their files).
"""

from seq2see.course.grammar.corpus import Corpus, Pair, generate_corpus, write_corpus
from seq2see.course.grammar.training import TRAINING_PRESET, TRAINING_SETTINGS
from seq2see.data.word_spans import split_words

__all__ = ["TRAINING_PRESET", "TRAINING_SETTINGS", "Corpus", "Pair", "generate_corpus", "split_words", "write_corpus"]
