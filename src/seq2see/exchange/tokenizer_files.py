"""The tokenizers of a Hugging Face directory, from whichever files it has, and the special tokens that its model expects.

In order: tokenizer.json, and target/tokenizer.json if the target has its own; source.spm and target.spm with vocab.json
(Marian); sentencepiece.bpe.model (mBART, NLLB; with vocab.json M2M100); spiece.model or tokenizer.model (T5, Llama);
vocab.json with merges.txt (GPT-2); vocab.txt (BERT).
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from seq2see.data.framing import Framing, Languages, LanguageStyle
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import Notice, UserError, foreign
from seq2see.exchange.files import ModelFolder, read_json, read_text
from seq2see.exchange.foreign_tokenizer import ForeignTokenizer, Notation, Vocabulary, ids_tokenizer, with_languages
from seq2see.exchange.sentencepiece import CONTROL, UNKNOWN, SentencePieceModel
from seq2see.tensors.files import require_regular_file

WORD_PREFIX = "\0"  # of no token: marks the decoder of our word tokenizer
TARGET = "target"  # the directory of a target tokenizer of its own
_MBART = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO
    ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART50 = """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN
    th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
_LANGUAGE_TOKEN = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")  # en_XX, eng_Latn


def load_foreign_tokenizers(folder: ModelFolder) -> tuple[Tokenizer, Tokenizer]:
    """Returns the tokenizers of source and target, often the same object."""
    path, model = folder.path, folder.model
    source_size = model.source_vocab_size or model.vocab_size
    if (path / "tokenizer.json").exists() and (path / TARGET / "tokenizer.json").exists():
        return _fast(folder, path, source_size), _fast(folder, path / TARGET, model.vocab_size)
    if not (path / "tokenizer.json").exists() and (path / "source.spm").exists() and (path / "target.spm").exists():
        return _marian(folder)
    if tokenizer := _joint_tokenizer(folder):
        return tokenizer, tokenizer
    message = f'{path} has no tokenizer that can be read: texts are lists of token ids, such as "12 7 99"'
    warnings.warn(message, Notice, stacklevel=2)
    framing = _framing(folder, None)
    target = ids_tokenizer(model.vocab_size, framing)
    return (target if source_size == model.vocab_size else ids_tokenizer(source_size, framing)), target


def _joint_tokenizer(folder: ModelFolder) -> Tokenizer | None:
    """Returns the tokenizer of source and target from the newest of its files, or None if there is none."""
    path, size = folder.path, folder.model.vocab_size
    if (path / "tokenizer.json").exists():
        return _fast(folder, path, size)
    for name in ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model"):
        if (path / name).exists():
            return _sentencepiece(folder, SentencePieceModel.load(path / name))
    if (path / "vocab.json").exists() and (path / "merges.txt").exists():
        return _frame(folder, _byte_level_bpe(folder), Vocabulary(size, "bytes", False))
    if (path / "vocab.txt").exists():
        return _frame(folder, _wordpiece(folder), Vocabulary(size, "wordpiece", True))
    return None


def _fast(folder: ModelFolder, path: Path, size: int) -> ForeignTokenizer:
    file = path / "tokenizer.json"
    backend = read_backend(read_text(file), str(file))
    notation, strips = notation_of(backend)
    return _frame(folder, backend, Vocabulary(size, notation, strips))


def read_backend(text: str, name: str) -> hf.Tokenizer:
    """Reads the content of a tokenizer.json; `name` is shown in an error."""
    with foreign(f"{name} is not a tokenizer.json"):
        backend = hf.Tokenizer.from_str(text)
    # Some published files cut or pad every text to a fixed length, which is for batches of theirs.
    backend.no_truncation()
    backend.no_padding()
    return backend


def notation_of(backend: hf.Tokenizer) -> tuple[Notation, bool]:
    """Returns how the vocabulary writes spaces, and whether a decoded text loses the space before its first word."""
    decoder = json.loads(backend.to_str())["decoder"] or {}
    parts = {part["type"]: part for part in decoder.get("decoders", [decoder]) if part}
    if "ByteLevel" in parts:
        return "bytes", False
    if "WordPiece" in parts:
        ours = parts["WordPiece"].get("prefix") == WORD_PREFIX
        return ("our words", False) if ours else ("wordpiece", True)
    if "Metaspace" in parts:
        return "metaspace", parts["Metaspace"].get("prepend_scheme", "always") != "never"
    if isinstance(backend.model, models.WordLevel) and parts.keys() == {"Fuse"}:
        return "characters", False
    if isinstance(backend.model, models.WordLevel | models.WordPiece):
        return "words", True
    return "metaspace", parts.get("Strip", {}).get("start", 0) > 0


def _frame(folder: ModelFolder, backend: hf.Tokenizer, vocabulary: Vocabulary) -> ForeignTokenizer:
    return _with_languages(folder, backend, _framing(folder, backend), vocabulary, _find_languages(folder, backend))


def _framing(folder: ModelFolder, backend: hf.Tokenizer | None, vocabulary: Mapping[str, int] | None = None) -> Framing:
    """Reads the special tokens from the files, and their places from the tokenizer's own template."""
    shape, model = folder.model.shape, folder.model

    def token(name: str) -> int | None:
        if found := folder.ids(f"{name}_id"):
            return found[0]
        text = folder.special_token(name)
        if text is None:
            return None
        if vocabulary is not None:
            return vocabulary.get(text)
        return None if backend is None else backend.token_to_id(text)

    before, after = ((), ()) if backend is None else template(backend)
    ends = folder.ids("eos_token_id") or [id for id in (token("eos_token"), token("sep_token")) if id is not None]
    bos = next((id for id in (token("bos_token"), token("cls_token")) if id is not None), None)
    end = ends[0] if ends else after[-1] if after else 0
    start = end if bos is None else bos
    pad = token("pad_token")
    bad_words = folder.generation_config.get("bad_words_ids") or folder.config.get("bad_words_ids") or []
    banned = {ids[0] for ids in bad_words if isinstance(ids, list) and len(ids) == 1 and type(ids[0]) is int}
    framing = Framing(
        pad=end if pad is None else pad,
        start=start,
        end=end,
        prompt=before,
        before=before,
        after=after,
        other_ends=tuple(ends[1:]),
        banned=tuple(sorted(id for id in banned if 0 <= id < model.vocab_size)),
    )
    if shape != "encoder-decoder":
        return framing
    first = folder.ids("decoder_start_token_id") or [start]
    if folder.config.get("model_type") == "whisper":
        return _whisper_framing(folder, framing, first[0])
    forced = folder.ids("forced_bos_token_id")[:1]
    return replace(framing, prompt=(first[0], *forced), forced=len(forced), start=first[0], after=after or (end,))


def _whisper_framing(folder: ModelFolder, framing: Framing, start: int) -> Framing:
    """The decoder's prompt: start of transcript, task (if multilingual), no timestamps; the language is chosen later."""
    generation = folder.generation
    task = (generation.get("task_to_id") or {}).get("transcribe") if generation.get("lang_to_id") else None
    without_times = generation.get("no_timestamps_token_id")
    prompt = tuple(id for id in (start, task, without_times) if type(id) is int and 0 <= id < folder.model.vocab_size)
    has_times = prompt[-1] == without_times and prompt[-1] + 1 < folder.model.vocab_size
    banned, banned_first = (tuple(folder.ids(f"{when}suppress_tokens")) for when in ("", "begin_"))
    framing = replace(framing, start=start, prompt=prompt, before=(), after=(framing.end,))
    return replace(framing, banned=banned, banned_first=banned_first, timestamps=prompt[-1] + 1 if has_times else 0)


def template(backend: hf.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the special tokens that a tokenizer puts before and after a text."""
    encoding, plain = backend.encode("a"), backend.encode("a", add_special_tokens=False)
    for start in range(len(encoding.ids) - len(plain.ids) + 1):
        if encoding.ids[start : start + len(plain.ids)] == plain.ids:
            return tuple(encoding.ids[:start]), tuple(encoding.ids[start + len(plain.ids) :])
    raise UserError("the tokenizer's post-processor changes the tokens of a text, which is not supported")


# Languages


def _find_languages(folder: ModelFolder, backend: hf.Tokenizer) -> Languages:
    if folder.model.shape != "encoder-decoder":
        return Languages()
    spoken = folder.generation.get("lang_to_id") if folder.config.get("model_type") == "whisper" else None
    if spoken:
        return Languages({token.strip("<|>"): id for token, id in spoken.items()}, "spoken")
    codes = {
        token.content: id
        for id, token in backend.get_added_tokens_decoder().items()
        if _LANGUAGE_TOKEN.fullmatch(token.content)
    }
    return Languages(codes, _language_style(folder))


def _is_mbart50(folder: ModelFolder) -> bool:
    return "50" in str(folder.tokenizer_config.get("tokenizer_class") or folder.config.get("tokenizer_class"))


def _language_style(folder: ModelFolder) -> LanguageStyle:
    """Only the first mBART has the language after the text. (NLLB's files say so, too, but its library overrides them.)"""
    return "after" if folder.config.get("model_type") == "mbart" and not _is_mbart50(folder) else "before"


def _with_languages(
    folder: ModelFolder, backend: hf.Tokenizer, framing: Framing, vocabulary: Vocabulary, languages: Languages
) -> ForeignTokenizer:
    """Chooses the languages that the files name; the source is English unless they say otherwise."""
    if not languages.codes or languages.style in ("source", "spoken"):
        return ForeignTokenizer(backend, framing, vocabulary, languages)
    by_id = {id: code for code, id in languages.codes.items()}
    source = str(folder.tokenizer_config.get("src_lang"))
    default = next(code for code in ("eng_Latn", "en_XX", "en", *languages.codes) if code in languages.codes)
    framing = with_languages(framing, languages, source=source if source in languages.codes else default)
    target = str(folder.tokenizer_config.get("tgt_lang") or by_id.get(framing.prompt[-1]))
    if target not in languages.codes:
        return ForeignTokenizer(backend, framing, vocabulary, languages, needs_language=True)
    return ForeignTokenizer(backend, with_languages(framing, languages, target=target), vocabulary, languages)


# Other files


def _marian(folder: ModelFolder) -> tuple[Tokenizer, Tokenizer]:
    """Marian splits by SentencePiece, but numbers the pieces by vocab.json, in which both languages share ids."""
    source_ids = _vocabulary(folder.path / "vocab.json")
    target_file = folder.path / "target_vocab.json"
    target_ids = _vocabulary(target_file) if target_file.exists() else source_ids
    codes = {token[2:-2]: id for token, id in source_ids.items() if token.startswith(">>") and token.endswith("<<")}
    sizes = (folder.model.source_vocab_size or folder.model.vocab_size, folder.model.vocab_size)
    tokenizers = []
    for name, ids, size in (("source.spm", source_ids, sizes[0]), ("target.spm", target_ids, sizes[1])):
        framing = _framing(folder, None, ids)
        backend, vocabulary = _renumber(SentencePieceModel.load(folder.path / name), ids, size)
        tokenizers.append(ForeignTokenizer(backend, framing, vocabulary, Languages(codes, "source")))
    return tokenizers[0], tokenizers[1]


def _vocabulary(path: Path) -> dict[str, int]:
    table = read_json(path)
    if not all(type(id) is int and id >= 0 for id in table.values()):
        raise UserError(f"{path} must map tokens to ids")
    return table


def _renumber(model: SentencePieceModel, ids: Mapping[str, int], size: int) -> tuple[hf.Tokenizer, Vocabulary]:
    """Gives the pieces of a SentencePiece model the ids of another vocabulary; a piece without one is unknown.

    Of the other tokens, those in angle brackets are recognised in a text, as they are special.
    """
    backend = model.tokenizer()
    texts = {piece.text for piece in model.pieces}
    special = [token for token in ids if token not in texts and re.fullmatch(r"(<.*>|>>.*<<|__\w+__)", token)]
    special += [piece.text for piece in model.pieces if piece.type in (CONTROL, UNKNOWN) and piece.text in ids]
    backend.add_special_tokens([hf.AddedToken(token, normalized=False, special=True) for token in special])
    unknown = ids.get("<unk>", 0)
    tokens = [""] * max([size, *(id + 1 for id in ids.values())])
    for token, id in ids.items():
        tokens[id] = token
    numbers = []
    for id in range(backend.get_vocab_size()):
        piece = model.pieces[id] if id < len(model.pieces) else None
        text = backend.id_to_token(id) if piece is None or piece.type not in (CONTROL, UNKNOWN) else piece.text
        numbers.append(ids.get(text or "", unknown))
    return backend, Vocabulary(size, "metaspace", True, tuple(tokens[:size]), tuple(numbers))


def _sentencepiece(folder: ModelFolder, model: SentencePieceModel) -> ForeignTokenizer:
    size, model_type = folder.model.vocab_size, folder.config.get("model_type")
    codes: dict[str, int] = {}
    if model_type == "pegasus":
        raise UserError(f"{folder.path} has no tokenizer.json: Pegasus's SentencePiece files are not supported")
    if (folder.path / "vocab.json").exists():  # M2M100
        ids = _vocabulary(folder.path / "vocab.json")
        added = _m2m100_languages(folder, len(ids))
        codes = {name.strip("_"): id for name, id in added.items()}
        ids |= added
    elif model_type in ("mbart", "m2m_100", "xlm-roberta", "camembert"):  # fairseq's numbers
        ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        ids |= {piece.text: i + 1 for i, piece in enumerate(model.pieces) if i >= 3}
        if model_type == "mbart":
            languages = (_MBART + _MBART50 if _is_mbart50(folder) else _MBART).split()
            codes = {code: len(ids) + i for i, code in enumerate(languages)}
            ids |= {**codes, "<mask>": len(ids) + len(codes)}
    else:
        ids = {piece.text: i for i, piece in enumerate(model.pieces)}
        extra = folder.tokenizer_config.get("extra_ids", 100 if model_type == "t5" else 0)
        ids |= {f"<extra_id_{extra - 1 - i}>": len(model.pieces) + i for i in range(extra)}
    backend, vocabulary = _renumber(model, ids, size)
    framing = _framing(folder, None, ids)
    if folder.model.shape == "decoder" and folder.tokenizer_config.get("add_bos_token", True):
        framing = replace(framing, prompt=(framing.start,))
    if folder.model.shape == "encoder":
        framing = replace(framing, before=(framing.start,), after=(framing.end,))
    return _with_languages(folder, backend, framing, vocabulary, Languages(codes, _language_style(folder)))


def _m2m100_languages(folder: ModelFolder, first: int) -> dict[str, int]:
    """Returns the ids of tokens such as `__fr__`: as newer files list them, or numbered in the order of older files."""
    table = folder.tokenizer_config.get("added_tokens_decoder") or {}
    contents = {int(id): str(token.get("content")) for id, token in table.items() if isinstance(token, dict)}
    found = {name: id for id, name in sorted(contents.items()) if re.fullmatch(r"__\w+__", name)}
    listed = folder.special_tokens_map.get("additional_special_tokens", [])
    names = [token if isinstance(token, str) else str(token.get("content")) for token in listed]
    return found or {name: first + i for i, name in enumerate(names)}


def _byte_level_bpe(folder: ModelFolder) -> hf.Tokenizer:
    """GPT-2's tokenizer, also of RoBERTa and BART, which put the text between <s> and </s>."""
    files = [str(require_regular_file(folder.path / name)) for name in ("vocab.json", "merges.txt")]
    vocabulary = _vocabulary(folder.path / "vocab.json")
    with foreign(f"cannot read {files[1]}"):
        backend = hf.Tokenizer(models.BPE(*models.BPE.read_file(*files)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    _add_special_tokens(backend, vocabulary, ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"))
    if folder.model.shape != "decoder":
        _put_between(backend, vocabulary, "<s>", "</s>")
    return backend


def _wordpiece(folder: ModelFolder) -> hf.Tokenizer:
    """BERT's tokenizer."""
    lines, settings = read_text(folder.path / "vocab.txt").split("\n"), folder.tokenizer_config
    vocabulary = {line.rstrip("\r"): id for id, line in enumerate(lines) if line}
    backend = hf.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    _add_special_tokens(backend, vocabulary, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    _put_between(backend, vocabulary, "[CLS]", "[SEP]")
    return backend


def _add_special_tokens(backend: hf.Tokenizer, vocabulary: Mapping[str, int], tokens: Sequence[str]) -> None:
    known = [token for token in tokens if token in vocabulary]
    backend.add_special_tokens(
        [hf.AddedToken(token, normalized=False, special=True, lstrip=token == "<mask>") for token in known]
    )


def _put_between(backend: hf.Tokenizer, vocabulary: Mapping[str, int], before: str, after: str) -> None:
    if before in vocabulary and after in vocabulary:
        pairs = [(token, vocabulary[token]) for token in (before, after)]
        backend.post_processor = processors.TemplateProcessing(single=f"{before} $A {after}", special_tokens=pairs)
