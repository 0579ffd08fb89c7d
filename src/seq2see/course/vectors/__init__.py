"""Words to numbers: one-hot, TF-IDF and Word2Vec, each one vector a word, and what can be read off such vectors.

from seq2see.course.vectors import Vectors, fit_word2vec
"""

from seq2see.course.vectors.bag_of_words import fit_one_hot, fit_tf_idf
from seq2see.course.vectors.table import Vectors
from seq2see.course.vectors.word2vec import Word2Vec, fit_word2vec

__all__ = ["Vectors", "Word2Vec", "fit_one_hot", "fit_tf_idf", "fit_word2vec"]
