"""Tokenizers of other libraries, from whichever files they have, give their tokens and texts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers as hf
import transformers

import seq2see
from seq2see.exchange.foreign_tokenizer import ForeignTokenizer
from tests.foreign_models import (
    LINES,
    QWEN,
    byte_level,
    decoder,
    encoder,
    llama_bpe,
    save,
    translator,
    unigram,
    word_piece,
)
from tests.nasty import strings
from tests.parity import build, small

TEXT = "The model never sees padding, नमस्ते 東京 café!"


@pytest.mark.parametrize(
    ("make", "model"),
    [
        (
            byte_level,
            lambda size: small("GPT2LMHead", vocab_size=size),
        ),
        (lambda: byte_level(QWEN), lambda size: decoder(vocab_size=size)),
        (llama_bpe, lambda size: decoder("LlamaForCausalLM", vocab_size=size)),
        (unigram, lambda size: translator("MBartForConditionalGeneration", size)),
        (word_piece, lambda size: encoder(vocab_size=size)),
    ],
    ids=["gpt2", "qwen", "llama", "unigram", "bert"],
)
def test_tokens_equal_theirs_on_nasty_strings(make: Any, model: Any, tmp_path: Path) -> None:
    tokenizer = make()
    save(tmp_path, model(tokenizer.get_vocab_size() + 5), tokenizer)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ours = seq2see.load(tmp_path).tokenizers[0]
    for text in strings(1000):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == ids
        if not text.startswith(" ") and isinstance(ours, ForeignTokenizer) and ours.kind != "WordPiece":
            expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            assert ours.decode(ids) == expected
        spans = ours.token_spans(text)
        assert [span.id for span in spans] == ids
        assert all(0 <= span.start <= span.end <= len(text) for span in spans)
    framed = ours.frame_source(ours.encode(TEXT))
    assert framed == theirs(TEXT)["input_ids"] or ours.framing.prompt == tuple(theirs("")["input_ids"])


def test_a_tokenizer_file_that_cuts_and_pads_every_text_keeps_its_special_tokens(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "minilm")  # all-MiniLM-L6-v2 is published so
    backend = hf.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_truncation(max_length=8)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))
    ours = seq2see.load(folder).tokenizers[0]
    text = "the model never sees padding"
    assert ours.frame_source(ours.encode(text)) == transformers.AutoTokenizer.from_pretrained(bert)(text)["input_ids"]


def test_older_files_of_gpt2_and_bert_give_the_same_tokenizer(tmp_path: Path) -> None:
    gpt2, bert = byte_level(), word_piece()
    for name, tokenizer, model in (("gpt2", gpt2, small("GPT2LMHead", vocab_size=430)), ("bert", bert, encoder())):
        folder = save(tmp_path / name, model, None)
        table = json.loads(tokenizer.to_str())["model"]
        if name == "gpt2":
            (folder / "vocab.json").write_text(json.dumps(table["vocab"]))
            (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in table["merges"]))
        else:
            (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in table["vocab"]))
        ours = seq2see.load(folder).tokenizers[0]
        for text in strings(1000):
            if "<|im" not in text:
                assert ours.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
    assert ours.frame_source([7]) == [2, 7, 3]


@pytest.mark.parametrize(
    ("tokenizer_class", "file"),
    [
        ("MBartTokenizer", "tokenizer_config.json"),
        ("MBart50Tokenizer", "tokenizer_config.json"),
        (None, ""),
        ("MBart50Tokenizer", "config.json"),
    ],
)
def test_mbart_has_the_language_after_the_text_and_mbart50_before(
    tokenizer_class: str | None, file: str, tmp_path: Path
) -> None:
    tokenizer = unigram(("en_XX", "fr_XX"))
    model = translator("MBartForConditionalGeneration", tokenizer.get_vocab_size())
    save(tmp_path, model, tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", bos_token="<s>")
    for name in ("tokenizer_config.json", "config.json"):
        table = json.loads((tmp_path / name).read_text())
        table["tokenizer_class"] = tokenizer_class if name == file else None
        (tmp_path / name).write_text(json.dumps(table))
    source, target = seq2see.load(tmp_path).with_languages("en_XX", "fr_XX").tokenizers
    english, french = (tokenizer.token_to_id(code) for code in ("en_XX", "fr_XX"))
    if tokenizer_class == "MBart50Tokenizer":
        assert (source.frame_source([7]), target.framing.prompt) == ([english, 7, 2], (2, french))
    else:
        assert (source.frame_source([7]), target.framing.prompt) == ([7, 2, english], (french,))


def marian_folder(folder: Path) -> tuple[Path, Any]:
    """A Marian directory with its two SentencePiece models and the vocabulary that joins them."""
    spm = pytest.importorskip("sentencepiece")
    folder.mkdir()
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1, ">>fra<<": 2}
    for name, lines in (("source", LINES), ("target", [line.upper() for line in LINES])):
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(folder / name),
            vocab_size=400,
            minloglevel=2,
            character_coverage=0.98,
            hard_vocab_limit=False,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        processor = spm.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        for i in range(3, len(processor) - 5):  # the last ones are missing, and so unknown
            pieces.setdefault(processor.id_to_piece(i), len(pieces))
    pieces["<pad>"] = len(pieces)
    (folder / "vocab.json").write_text(json.dumps(pieces))
    model = translator(
        "MarianMT",
        len(pieces),
        pad_token_id=pieces["<pad>"],
        eos_token_id=0,
        bos_token_id=None,
        decoder_start_token_id=pieces["<pad>"],
    )
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    return folder, model


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_keeps_its_sentencepiece_models_and_vocabulary(tmp_path: Path) -> None:
    folder, _ = marian_folder(tmp_path / "opus")
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    model = seq2see.load(folder)
    source, target = model.tokenizers
    different = [
        text for text in strings(1000) if source.encode(text) != theirs(text, add_special_tokens=False)["input_ids"]
    ]
    # The libraries normalise "①" before a combining mark differently, and SentencePiece does not know <pad> in a text.
    assert len([text for text in different if "①" not in text and "<pad>" not in text]) == 0
    ids = source.encode("the model translates")
    assert target.decode(ids) == "the model translates"
    assert source.frame_source(ids) == theirs("the model translates")["input_ids"]
    assert model.with_languages(target="fra").tokenizers[0].frame_source(ids) == [2, *ids, 0]
    assert model.translate("the model", max_new_tokens=6) is not None
    e = model.explain("the model", max_new_tokens=6)
    assert "the" in [e.source[span.start : span.end].strip() for span in e.encoder.spans] or e.encoder.spans


def sentencepiece_model(path: Path, **options: Any) -> Any:
    spm = pytest.importorskip("sentencepiece")
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_prefix=str(path.with_suffix("")),
        vocab_size=400,
        minloglevel=2,
        character_coverage=0.98,
        hard_vocab_limit=False,
        **options,
    )
    path.with_suffix(".model").rename(path)
    return spm.SentencePieceProcessor(model_file=str(path))


def test_m2m100_keeps_its_sentencepiece_model_vocabulary_and_languages(tmp_path: Path) -> None:
    file = tmp_path / "sentencepiece.bpe.model"
    processor = sentencepiece_model(file, model_type="bpe")
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(processor.id_to_piece(i) for i in range(3, len(processor)))]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate(pieces)}))
    theirs = transformers.M2M100Tokenizer(vocab_file=str(tmp_path / "vocab.json"), spm_file=str(file))
    languages = [theirs.get_lang_token(code) for code in sorted(theirs.lang_code_to_token, key=theirs.get_lang_id)]
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": languages}))
    size = 1 + max(map(theirs.get_lang_id, theirs.lang_code_to_token))
    translator("M2M100ForConditionalGeneration", size).save_pretrained(tmp_path)
    source, target = seq2see.load(tmp_path).with_languages("en", "fr").tokenizers
    for text in strings(1000):
        if "①" not in text:
            assert source.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    theirs.src_lang = "en"
    assert source.frame_source(source.encode("the model")) == theirs("the model")["input_ids"]
    assert target.framing.prompt == (2, theirs.get_lang_id("fr"))


def test_t5_keeps_its_sentencepiece_model_and_extra_tokens(tmp_path: Path) -> None:
    processor = sentencepiece_model(tmp_path / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    options = {"vocab_size": 512, "d_model": 16, "d_kv": 4, "num_heads": 4, "d_ff": 20, "num_layers": 1}
    save(tmp_path, build("T5ForConditionalGeneration", {**options, "decoder_start_token_id": 0}), None)
    model = seq2see.load(tmp_path)
    tokenizer = model.tokenizers[0]
    special = ("①", "<pad>", "</s>", "<unk>")  # T5 recognises special tokens in a text, SentencePiece does not
    for text in strings(1000):
        if not any(token in text for token in special):
            assert tokenizer.encode(text) == processor.encode(text)
    assert tokenizer.encode("<extra_id_0>") == [len(processor) + 99]
    assert tokenizer.frame_source([5]) == [5, 1]
    assert isinstance(model.translate("the model", max_new_tokens=4), str)
