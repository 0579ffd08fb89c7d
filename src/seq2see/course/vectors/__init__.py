"""Word vectors: one-hot, TF-IDF and Word2Vec, one vector per word, with similarities, analogies and directions.

from seq2see.course.vectors import WordVectors, fit_word2vec
"""

from seq2see.course.vectors.bag_of_words import fit_one_hot, fit_tf_idf
from seq2see.course.vectors.word2vec import Word2VecConfig, fit_word2vec
from seq2see.course.vectors.word_vectors import WordVectors

__all__ = ["Word2VecConfig", "WordVectors", "fit_one_hot", "fit_tf_idf", "fit_word2vec"]
