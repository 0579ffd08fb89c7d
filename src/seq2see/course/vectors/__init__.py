"""Word vectors: one-hot, TF-IDF and Word2Vec, one vector per word, with similarities, analogies and directions.

from seq2see.course.vectors import WordVectors, fit_word2vec
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seq2see.course.vectors.config import Word2VecConfig

if TYPE_CHECKING:
    from seq2see.course.vectors.bag_of_words import fit_one_hot, fit_tf_idf
    from seq2see.course.vectors.word2vec import fit_word2vec
    from seq2see.course.vectors.word_vectors import WordVectors

__all__ = ["Word2VecConfig", "WordVectors", "fit_one_hot", "fit_tf_idf", "fit_word2vec"]

_MODULES = {
    "WordVectors": "word_vectors",
    "fit_one_hot": "bag_of_words",
    "fit_tf_idf": "bag_of_words",
    "fit_word2vec": "word2vec",
}


def __getattr__(name: str) -> Any:
    """Imports a module, and with it torch, on first use: the help of the command needs only the settings."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
