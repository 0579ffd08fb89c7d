"""Small models of other libraries in their directories, which no test may change."""

from pathlib import Path

import pytest

from tests.foreign_models import (
    CHAT,
    QWEN,
    byte_level,
    decoder,
    encoder,
    save,
    translator,
    unigram,
    word_piece,
)


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "qwen"
    return save(
        folder, decoder(), byte_level(QWEN), eos_token="<|im_end|>", bos_token="<|endoftext|>", chat_template=CHAT
    )


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bert"
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return save(folder, encoder(), word_piece(), **names)


@pytest.fixture(scope="session")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "nllb"
    tokenizer = unigram(("eng_Latn", "fra_Latn", "hin_Deva"))
    model = translator("M2M100ForConditionalGeneration", tokenizer.get_vocab_size())
    return save(folder, model, tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", bos_token="<s>")
