"""The generator of the built-in English–Hindi corpus: a grammar produces every sentence, its translation and alignment.

`python recipes/sample_corpus.py` generates it and packs its files into the package, where `seq2see.course.sample_corpus` reads
them. From words to files: `tables/` and `lexicon` (the words), `morphology` (Hindi forms), `meaning` (abstract syntax),
`english`, `hindi_noun_phrases`, `hindi_verbs` and `hindi_clauses` (realisation), `readings` and `english_ambiguity` (what
English leaves open), `phrase_sampler`, `clauses`, `copula`, `compound_sentences` and `sentences` (sampling), `corpus` (the
four sets).
"""

from grammar.corpus import GeneratedCorpus, GeneratedPair, corpus_files, generate_corpus

__all__ = ["GeneratedCorpus", "GeneratedPair", "corpus_files", "generate_corpus"]
