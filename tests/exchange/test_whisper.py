"""Whisper of Hugging Face and CTranslate2: the same logits, attention and tokens as transformers, from a file to its text."""

import json
import re
import struct
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as hf
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers

from seq2see.api import load
from seq2see.data.layout import Packed
from seq2see.decode.generate import translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.exchange.huggingface import from_huggingface
from seq2see.formats.media.reader import MediaReader
from seq2see.formats.media.transcription import split_segments, transcribe_segments
from seq2see.inspect.trace import trace
from tests.formats.media import cli
from tests.parity import perturbed

SECONDS = 1
TEXT_TOKENS, LANGUAGES = 256, ["en", "de", "hi"]
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|notimestamps|>",
    *(f"<|{i / 50:.2f}|>" for i in range(50 * SECONDS + 1)),
]
IDS = {token: TEXT_TOKENS + i for i, token in enumerate(SPECIAL)}


GENERATION: dict[str, Any] = {
    "lang_to_id": {f"<|{code}|>": IDS[f"<|{code}|>"] for code in LANGUAGES},
    "task_to_id": {"transcribe": IDS["<|transcribe|>"], "translate": IDS["<|translate|>"]},
    "no_timestamps_token_id": IDS["<|notimestamps|>"],
    "is_multilingual": True,
    "suppress_tokens": [5, 6, 7],
    "begin_suppress_tokens": [IDS["<|endoftext|>"]],
    "max_length": 32,
}


def whisper(**options: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": TEXT_TOKENS + len(SPECIAL),
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "max_source_positions": 50 * SECONDS,
        "max_target_positions": 32,
        "num_mel_bins": 16,
        "pad_token_id": 0,
        "bos_token_id": IDS["<|endoftext|>"],
        "eos_token_id": IDS["<|endoftext|>"],
        "decoder_start_token_id": IDS["<|startoftranscript|>"],
        "begin_suppress_tokens": None,
    }
    config = transformers.WhisperConfig(**(sizes | options))
    model = transformers.WhisperForConditionalGeneration(config).eval()
    positions = model.model.encoder.embed_positions.weight.detach().clone()
    perturbed(model)
    with torch.no_grad():
        model.model.encoder.embed_positions.weight.copy_(positions)  # fixed sinusoids
    return model


def configure(model: Any, **options: Any) -> None:
    for name, value in options.items():
        setattr(model.generation_config, name, value)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder)
    return folder


def write_whisper(folder: Path, **options: Any) -> None:
    model = whisper(**options)
    configure(model, **GENERATION)
    model.save_pretrained(folder)
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = hf.Tokenizer(models.BPE({character: id for id, character in enumerate(characters)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    backend.save(str(folder / "tokenizer.json"))


def write_noise(path: Path, seconds: float) -> NDArray[np.float32]:
    samples = (np.random.default_rng(3).normal(0, 8000, int(16_000 * seconds))).clip(-32000, 32000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return (samples / 32768).astype(np.float32)


def features(samples: NDArray[np.float32]) -> torch.Tensor:
    extract = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=SECONDS)
    return extract(samples, sampling_rate=16_000, return_tensors="pt").input_features


def test_logits_and_attention_equal_transformers() -> None:
    theirs = whisper(attn_implementation="eager").double()
    ours = from_huggingface(theirs)
    torch.manual_seed(1)
    spectrograms, target = torch.randn(2, 16, 100 * SECONDS, dtype=torch.float64), [[3, 8, 15], [4, 16, 23]]
    rows = [spectrogram.T.reshape(50 * SECONDS, 32).numpy() for spectrogram in spectrograms]
    with torch.no_grad():
        expected = theirs(input_features=spectrograms, decoder_input_ids=torch.tensor(target), output_attentions=True)
        with trace(ours) as t:
            logits = ours(Packed.from_sequences(rows), Packed.from_sequences(target))
    torch.testing.assert_close(logits, expected.logits.flatten(0, 1), atol=1e-9, rtol=1e-9)
    for layer in range(2):
        torch.testing.assert_close(
            t[f"decoder.{layer}.cross.weights"].padded().values, expected.cross_attentions[layer]
        )
        torch.testing.assert_close(
            t[f"encoder.{layer}.self.weights"].padded().values, expected.encoder_attentions[layer]
        )


@pytest.mark.parametrize(("language", "timestamps"), [("en", False), ("hi", False), ("en", True)])
def test_a_recording_is_transcribed_with_the_tokens_of_transformers(
    directory: Path, tmp_path: Path, language: str, timestamps: bool
) -> None:
    pytest.importorskip("soundfile")
    samples = write_noise(tmp_path / "a.wav", 0.7)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(directory).eval()
    configure(theirs, **GENERATION)  # their loader drops what is not in its own class
    model = load(directory).with_languages(source=language)
    special_tokens = model.tokenizers[1].framing
    special_tokens = special_tokens.with_times() if timestamps else special_tokens
    prompt = special_tokens.prompt_with(())
    names = ["<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>"]
    assert prompt == [IDS[name] for name in names[: 3 if timestamps else 4]]
    scores: list[torch.Tensor] = []  # as their search saw them

    def record(_: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        scores.append(logits)
        return logits

    with torch.no_grad():
        ids = theirs.generate(
            features(samples),
            language=language,
            task="transcribe",
            num_beams=1,
            do_sample=False,
            return_timestamps=timestamps,
            max_new_tokens=20,
            logits_processor=[record],
        )[0].tolist()
    expected = (ids[len(prompt) :] if ids[: len(prompt)] == prompt else ids)[:20]  # they may read a second window
    best = torch.cat(scores[:20]).topk(2).values
    clear = int((best[:, 0] - best[:, 1] > 1e-3).long().cumprod(0).sum())  # until the first near-tie
    assert clear >= 3

    rows = MediaReader(model.config.model).read(tmp_path / "a.wav")
    (hypotheses,) = translate_tokens(model.network, [rows], special_tokens, Search(max_new_tokens=len(expected)))
    assert list(hypotheses[0].tokens)[:clear] == [id for id in expected if id != IDS["<|endoftext|>"]][:clear]
    assert not timestamps or any(id >= IDS["<|0.00|>"] for id in expected)


def test_the_language_is_detected_as_by_transformers(directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    samples = write_noise(tmp_path / "a.wav", 0.7)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(directory).eval()
    configure(theirs, **GENERATION)
    with torch.no_grad():
        expected = int(theirs.detect_language(features(samples), generation_config=theirs.generation_config)[0])
    model, path = load(directory), str(tmp_path / "a.wav")
    heard = model.with_detected_language(path)
    (spoken,) = (code for code in LANGUAGES if IDS[f"<|{code}|>"] == expected)
    assert heard.tokenizers[0].chosen_languages(heard.tokenizers[1]) == (spoken, None)
    assert model.translate(path) == heard.translate(path) == model.with_languages(source=spoken).translate(path)
    assert model.hypotheses([path]) == heard.hypotheses([path])
    assert "".join(model.stream(path)) == "".join(heard.stream(path))
    assert f"<|{spoken}|>" in model.explain(path).decoder_input_tokens
    other = next(code for code in LANGUAGES if code != spoken)
    assert heard.with_languages(source=other).with_detected_language(path).translate(path) != heard.translate(path)


def test_segments_end_where_the_next_begins_or_the_output_does() -> None:
    first, window = 100, 50

    def split(*tokens: int) -> tuple[list[tuple[int, int, list[int]]], int]:
        segments, complete = split_segments(tokens, first, window)
        return [(start, end, list(ids)) for start, end, ids in segments], complete

    assert split(100, 7, 8, 120) == ([(0, 20, [7, 8])], window)
    assert split(100, 7, 120, 120, 8, 140) == ([(0, 20, [7]), (20, 40, [8])], window)
    # What follows the last complete segment is read again in the next window.
    assert split(100, 7, 120, 122, 8, 9) == ([(0, 20, [7])], 20)
    assert split(100, 7, 120, 120) == ([(0, 20, [7])], 20)
    assert split(100, 7) == ([(0, window, [7])], window)
    assert split(7, 120) == ([(0, 20, [7])], window)
    assert split() == ([(0, window, [])], window)
    assert split(100, 100) == ([(0, window, [])], window)  # must advance


def test_a_recording_becomes_subtitles(directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    write_noise(tmp_path / "long.wav", 2.5)
    segments = transcribe_segments(load(directory), tmp_path / "long.wav", Search(max_new_tokens=10))
    times = [time for segment in segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    assert segments and times[-1] <= 2.5
    sound = str(tmp_path / "long.wav")
    subtitles = cli("translate", "--model", directory, sound, "--timestamps", "--source-language", "hi").stdout
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n\S", subtitles)
    both = cli("translate", "--model", directory, sound, sound, "--timestamps", "--format", "jsonl").stdout
    lines = [json.loads(line) for line in both.splitlines()]
    assert [line["file"] for line in lines] == [sound, sound]
    assert lines[0]["segments"][0].keys() == {"start", "end", "text"}
    for arguments, problem in (
        ((directory, sound, sound), "the subtitles of one sound, not of 2"),
        ((directory, sound, "--beam", "2"), "timestamps need a beam of 1, not 2"),
    ):
        assert problem in str(cli("translate", "--timestamps", "--model", *arguments).exception)


def test_a_long_recording_is_read_window_by_window(directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    model = load(directory)
    write_noise(tmp_path / "long.wav", 2.5)
    text = model.translate(str(tmp_path / "long.wav"), max_new_tokens=4)
    write_noise(tmp_path / "first.wav", 1.0)  # the same noise
    assert text.startswith(model.translate(str(tmp_path / "first.wav"), max_new_tokens=4))
    with pytest.raises(UserError, match="longer than model"):
        model.hypotheses([str(tmp_path / "long.wav")])


def test_an_unknown_language_is_refused(directory: Path) -> None:
    model = load(directory)
    with pytest.raises(UserError, match='unknown language "xx"'):
        model.with_languages(source="xx")
    with pytest.raises(UserError, match="choose only the language that is spoken"):
        model.with_languages(target="de")


def test_windows_that_are_no_whole_seconds_are_refused(tmp_path: Path) -> None:
    whisper(max_source_positions=40).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="max_source_positions = 40 is not a whole number of seconds"):
        load(tmp_path)


def test_an_english_model_needs_no_language(directory: Path, tmp_path: Path) -> None:
    model = whisper()
    configure(model, no_timestamps_token_id=IDS["<|notimestamps|>"], is_multilingual=False)
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    prompt = load(tmp_path).tokenizers[1].framing.prompt
    assert prompt == (IDS["<|startoftranscript|>"], IDS["<|notimestamps|>"])
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "whisper"


def write_ctranslate2(folder: Path, model: Any, int8: bool = False, spec: str = "WhisperSpec") -> None:
    """Writes a model as CTranslate2's converter does."""
    weights = {name.removeprefix("model."): tensor.detach() for name, tensor in model.state_dict().items()}
    tensors: dict[str, NDArray[Any]] = {}

    def add(name: str, *parts: torch.Tensor) -> None:
        array = torch.cat(parts).numpy().astype(np.float16)
        if int8 and array.ndim == 2 and "position" not in name:
            scale = 127 / np.abs(array.astype(np.float32)).max(1)
            tensors[f"{name}_scale"] = scale.astype(np.float32)
            array = np.round(array * scale[:, None]).astype(np.int8)
        tensors[name] = array

    def linear(name: str, *theirs: str) -> None:
        add(f"{name}/weight", *(weights[f"{each}.weight"] for each in theirs))
        add(f"{name}/bias", *(weights.get(f"{each}.bias", torch.zeros(24)) for each in theirs))

    def norm(name: str, theirs: str) -> None:
        add(f"{name}/gamma", weights[f"{theirs}.weight"])
        add(f"{name}/beta", weights[f"{theirs}.bias"])

    for stack in ("encoder", "decoder"):
        tensors[f"{stack}/num_heads"] = np.array(3, np.int16)
        add(f"{stack}/position_encodings/encodings", weights[f"{stack}.embed_positions.weight"])
        norm(f"{stack}/layer_norm", f"{stack}.layer_norm")
        for layer in range(2):
            ours, theirs = f"{stack}/layer_{layer}", f"{stack}.layers.{layer}"
            linear(f"{ours}/self_attention/linear_0", *(f"{theirs}.self_attn.{x}_proj" for x in "qkv"))
            linear(f"{ours}/self_attention/linear_1", f"{theirs}.self_attn.out_proj")
            norm(f"{ours}/self_attention/layer_norm", f"{theirs}.self_attn_layer_norm")
            linear(f"{ours}/ffn/linear_0", f"{theirs}.fc1")
            linear(f"{ours}/ffn/linear_1", f"{theirs}.fc2")
            norm(f"{ours}/ffn/layer_norm", f"{theirs}.final_layer_norm")
            if stack == "decoder":
                linear(f"{ours}/attention/linear_0", f"{theirs}.encoder_attn.q_proj")
                linear(f"{ours}/attention/linear_1", *(f"{theirs}.encoder_attn.{x}_proj" for x in "kv"))
                linear(f"{ours}/attention/linear_2", f"{theirs}.encoder_attn.out_proj")
                norm(f"{ours}/attention/layer_norm", f"{theirs}.encoder_attn_layer_norm")
    for conv in ("conv1", "conv2"):
        linear(f"encoder/{conv}", f"encoder.{conv}")
    add("decoder/embeddings/weight", weights["decoder.embed_tokens.weight"])

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    types = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}
    content = struct.pack("<I", 6) + text(spec) + struct.pack("<II", 3, len(tensors))
    for name, array in tensors.items():
        content += text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        content += struct.pack("<BI", types[array.dtype.name], array.nbytes) + array.tobytes()
    content += struct.pack("<I", 1) + text("decoder/projection/weight") + text("decoder/embeddings/weight")
    (folder / "model.bin").write_bytes(content)
    settings = {
        "suppress_ids": [5, 6, 7],
        "suppress_ids_begin": [IDS["<|endoftext|>"]],
        "lang_ids": [],
        "alignment_heads": [],
    }
    (folder / "config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("int8", [False, True])
def test_a_model_of_ctranslate2_is_the_same_model(directory: Path, tmp_path: Path, int8: bool) -> None:
    theirs = whisper()
    write_ctranslate2(tmp_path, theirs, int8)
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    model, expected = load(tmp_path), from_huggingface(theirs)
    assert replace(model.config.model, dropout=0.0) == replace(expected.config, dropout=0.0)
    framing = model.tokenizers[1].framing  # the vocabulary is smaller than a multilingual one
    assert framing.prompt == (IDS["<|startoftranscript|>"], IDS["<|notimestamps|>"])
    assert (framing.banned, framing.banned_first) == ((5, 6, 7), (IDS["<|endoftext|>"],))
    rows = np.random.default_rng(0).normal(size=(50 * SECONDS, 32)).astype(np.float32)
    source, target = Packed.from_sequences([rows]), Packed.from_sequences([[3, 8, 15]])
    with torch.no_grad():
        atol, rtol = (0.3, 0.1) if int8 else (1e-2, 1e-2)
        torch.testing.assert_close(model.network(source, target), expected(source, target), atol=atol, rtol=rtol)


def test_damaged_and_other_models_of_ctranslate2_are_refused(directory: Path, tmp_path: Path) -> None:
    write_ctranslate2(tmp_path, whisper())
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    content = (tmp_path / "model.bin").read_bytes()
    for damaged in (
        b"",
        content[:3],
        content[:100],
        content[: len(content) // 2],
        b"\x06\0\0\0" + bytes(range(256)) * 9,
    ):
        (tmp_path / "model.bin").write_bytes(damaged)
        with pytest.raises(UserError, match=r"damaged|download|only"):
            load(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"\x01" + content[1:])
    with pytest.raises(UserError, match="version 1 of CTranslate2's format"):
        load(tmp_path)
    write_ctranslate2(tmp_path, whisper(), spec="TransformerSpec")
    with pytest.raises(UserError, match="TransformerSpec: of CTranslate2's models, only Whisper is read"):
        load(tmp_path)
