"""Results do not depend on the processor, nor on whether weights were loaded from a file."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2see.api import load
from seq2see.config import Config, ModelConfig, TextConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.int8 import EXACT_COLUMNS, Float32Matrix, Int8Matrix, int8_products_are_exact
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.storage.directory import save_config, save_tokenizers, save_weights
from seq2see.tensors.tensor_file import TensorFile
from tests.models import GRAMMAR_MODEL, TINY, save, tiny_model

RNN = ModelConfig(kind="rnn-attention", width=16, heads=1, encoder_layers=2, decoder_layers=3, dropout=0.0)
MODELS = {"transformer": TINY, "odd sizes": replace(TINY, width=66, feed_forward=37), "rnn": RNN}
SENTENCES = ["the cat sees the dog", "a bird sings", "बिल्ली कुत्ते को देखती है"]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
OLDER_PROCESSORS = ("AVX2", "AVX512_CORE")  # with the latter, torch._int_mm overflows for some shapes only


# Products in int8


@pytest.mark.avx2
@pytest.mark.parametrize("columns", [2, 64, EXACT_COLUMNS, EXACT_COLUMNS + 1, 3 * EXACT_COLUMNS + 7])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_products_of_int8_values_are_exact(rows: int, columns: int) -> None:
    random = torch.Generator().manual_seed(columns)

    def matrix(height: int, low: int) -> Tensor:
        return torch.randint(low, 128, (height, columns), dtype=torch.int8, generator=random)

    matrices: list[type[Int8Matrix | Float32Matrix]] = [Float32Matrix]
    if int8_products_are_exact():
        matrices.append(Int8Matrix)
    for low in (-127, 127):  # random values, and only the largest
        x, weight = matrix(rows, low), matrix(24, low)
        exact = x.long() @ weight.long().T
        for kind in matrices:
            assert torch.equal(kind(weight)(x).long(), exact)
            assert torch.equal(kind(weight)(-x).long(), -exact)


def test_int8_layers_are_exact_on_older_processors() -> None:
    """All values are the largest of their row, so nothing is rounded and the products are the largest possible."""
    script = """if True:
        import torch
        from seq2see.decode.int8 import Int8Linear
        for rows in (1, 3, 40):
            for columns, out in ((1, 8), (16, 64), (200, 48), (2048, 24)):
                for sign in (1, -1):
                    y = Int8Linear(torch.ones(out, columns), None)(torch.full((rows, columns), float(sign)))
                    torch.testing.assert_close(y, torch.full((rows, out), float(sign * columns)))
    """
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script], env=ONE_THREAD | {"ONEDNN_MAX_CPU_ISA": isa}, stderr=subprocess.PIPE
        )
        for isa in OLDER_PROCESSORS
    ]
    for isa, process in zip(OLDER_PROCESSORS, running, strict=True):
        _, errors = process.communicate()
        assert process.returncode == 0, f"{isa}: {errors.decode()[-500:]}"


def test_int8_without_its_instructions_is_reported() -> None:
    """The sentence is from the bundled model's training text, so no two tokens are nearly tied."""
    text = "I like eating ice-cream"
    done = subprocess.run(
        [sys.executable, "-m", "seq2see", "translate", "--model", GRAMMAR_MODEL, "--precision", "int8", text],
        env=ONE_THREAD | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == load(GRAMMAR_MODEL).translate(text)
    assert len(re.findall("int8 products of this CPU overflow", done.stderr)) == 1


# Weights from files


@pytest.mark.avx2
@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_computes_the_same_bits(name: str, tmp_path: Path) -> None:
    """Same process, threads and shapes; only the memory of the weights differs, which PyTorch aligns to 64 bytes."""
    model = tiny_model(SENTENCES, MODELS[name], TextConfig(tokenizer="word"))
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    loaded = load(save(model, tmp_path / "model"))
    assert {weight.data_ptr() % 64 for weight in loaded.network.parameters()} == {0}
    for text in SENTENCES:
        expected, trace = model.explain(text).trace, loaded.explain(text).trace
        assert all(torch.equal(trace[quantity, 0], expected[quantity, 0]) for quantity in expected.names())


def test_file_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, {"small": torch.ones(2), "large": torch.ones(4)})
    file = TensorFile(path)
    assert list(file) == ["large", "small"] and file["small"].tolist() == [1, 1]
    assert file.get("absent") is None
    save_weights(path, {"small": torch.zeros(2), "large": torch.zeros(4)})
    with pytest.raises(UserError, match="replaced while it was being read"):
        file["small"]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is measured with Linux's /proc")
def test_loading_needs_little_more_memory_than_the_weights(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(SENTENCES, "word", vocab_size=300)
    config = replace(TINY, vocab_size=len(tokenizer), width=512, feed_forward=1 << 14)
    save_config(tmp_path, Config(model=config, text=TextConfig(tokenizer="word")))
    save_tokenizers(tmp_path, (tokenizer, tokenizer))
    save_weights(tmp_path / "model.safetensors", Transformer(config).state_dict())
    script = """if True:
        import re, sys
        from pathlib import Path
        import seq2see

        def memory(kind):
            return 1024 * int(re.search(kind + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

        seq2see.load("grammar-en-hi")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here on
        before = memory("VmRSS")
        seq2see.load(sys.argv[1])
        print(memory("VmHWM") - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], env=ONE_THREAD, capture_output=True, text=True, check=True
    )
    size = (tmp_path / "model.safetensors").stat().st_size
    # Two copies of the weights would be 2; the allocator and the interpreter take a few MB of their own.
    assert int(done.stdout) / size < 1.2


@pytest.mark.parametrize("wrong", [None, (1, 17, 1), (16, 64, 64), (64, 17, 1)])
def test_int8_products_are_exact_only_if_all_shapes_and_orders_are(
    wrong: tuple[int, int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        exact = x.int() @ y.int()
        return exact - 1 if (*x.shape, y.shape[1]) == wrong else exact

    monkeypatch.setattr(torch, "_int_mm", product)
    assert int8_products_are_exact.__wrapped__() is (wrong is None)
