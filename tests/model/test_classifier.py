"""Classifiers: an encoder of pictures or sounds that writes one token, read from its first vector."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from seq2see import trace
from seq2see.api import load
from seq2see.cli import app
from seq2see.config import ModelConfig
from seq2see.data.batches import ClassBatches, PairBatches, require_classes
from seq2see.data.layout import Packed
from seq2see.data.store import TokenizedSide, TokenStore
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UsageError, UserError
from seq2see.inspect.alignment import align
from seq2see.inspect.attention_flow import head_ablation
from seq2see.inspect.comparison import compare
from seq2see.inspect.embedding_space import EmbeddingSpace
from seq2see.inspect.explain import rerun
from seq2see.inspect.interventions import ablate_head
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import alternatives, logit_lens
from seq2see.model.transformer import Transformer
from tests.models import TINY

CONFIG = replace(
    TINY, shape="encoder", source="pictures", picture_height=8, patch_size=4, encoder_positions="grid", classifier=True
)
SHADES = {"black": 0, "grey": 128, "white": 255}
SMALL = (
    "model.width=32",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.feed_forward=64",
    "model.picture_height=8",
    "model.patch_size=4",
    "text.tokenizer=word",
    "train.lr=3e-3",
    "train.warmup_steps=10",
    "train.validate_every=50",
    "train.shift_pixels=0",
)


def cli(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small noisy pictures of one shade each and of different widths."""
    folder, rng = tmp_path_factory.mktemp("shades"), np.random.default_rng(0)
    lines = []
    for i in range(120):
        name = list(SHADES)[i % 3]
        pixels = SHADES[name] + rng.normal(0, 20, (8, 8 + 4 * (i % 4)))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png\t{name}\n")
    (folder / "train.tsv").write_text("".join(lines[:90]))
    (folder / "test.tsv").write_text("".join(lines[90:]))
    return folder


@pytest.fixture(scope="module")
def classifier(shades: Path) -> Path:
    out = shades / "run"
    result = cli(
        "train",
        "--pictures",
        shades / "train.tsv",
        "--valid-pictures",
        shades / "test.tsv",
        "--preset",
        "tiny-vit",
        "--steps",
        100,
        "--out",
        out,
        "--device",
        "cpu",
        *(word for each in SMALL for word in ("--set", each)),
    )
    assert result.exit_code == 0, result.output
    return out


def test_logits_are_those_of_the_first_vector_and_do_not_depend_on_the_batch() -> None:
    model, rng = Transformer(CONFIG).eval(), np.random.default_rng(0)
    rows = [rng.integers(0, 255, (length, CONFIG.row_size)).astype(np.uint8) for length in (6, 4)]
    packed = Packed.from_sequences(rows)
    with torch.no_grad(), trace(model) as t:
        logits = model(packed)
    torch.testing.assert_close(
        logits, torch.stack([vectors[0] for vectors in t["encoder.vectors"]]) @ model.embedding.weight.T
    )
    torch.testing.assert_close(t["probabilities", 1], logits[1:].softmax(-1))
    with torch.no_grad():
        alone = torch.cat([model(Packed.from_sequences([each])) for each in rows])
    torch.testing.assert_close(logits, alone)


def test_a_classifier_learns_to_name_pictures(classifier: Path, shades: Path) -> None:
    result = cli("evaluate", "--model", classifier, "--pictures", shades / "test.tsv", "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["recognition"]["exact_match"] > 0.9
    assert json.loads((classifier / "scores.json").read_text())["validation"]["exact_match"] > 0.9


def test_translate_writes_the_names(classifier: Path, shades: Path) -> None:
    paths = [str(shades / f"{i}.png") for i in range(90, 120)]
    model = load(classifier)
    names = model.translate(paths)
    assert sum(name == list(SHADES)[i % 3] for i, name in enumerate(names)) > 27
    assert cli("translate", "--model", classifier, *paths[:3]).stdout.split() == names[:3]
    best = model.hypotheses(paths[:2], beam=3, nbest=3)[0]
    assert model.text(best[0]) == names[0]
    assert best[0].score > best[1].score > best[2].score


def test_a_pass_reads_as_many_sources_as_fit(classifier: Path, shades: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(classifier)
    paths = [str(shades / f"{4 * i}.png") for i in range(5)]  # of the same size
    size = len(model.encode_source(paths[0]))
    names, sizes = model.translate(paths), []
    monkeypatch.setattr("seq2see.decode.classify.MAX_ROWS", 2 * size)
    model.network.register_forward_pre_hook(lambda _, sides: sizes.append(len(sides[0].layout)))
    assert model.translate(paths) == names and sizes == [2, 2, 1]


def test_embed_gives_each_picture_a_vector(classifier: Path, shades: Path) -> None:
    result = cli("embed", "--model", classifier, shades / "0.png", shades / "1.png")
    vectors = [json.loads(line)["vector"] for line in result.stdout.splitlines()]
    model = load(classifier)
    rows = [model.encode_source(str(shades / f"{i}.png")) for i in range(2)]
    with torch.no_grad():
        expected = [model.network.encode(Packed.from_sequences([each])).mean(0) for each in rows]
    torch.testing.assert_close(torch.tensor(vectors), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("search", "problem"), [({"temperature": 1.0}, "does not sample"), ({"prefixes": ["grey"]}, "no prefix")]
)
def test_what_a_classifier_cannot_do_is_refused(classifier: Path, shades: Path, search: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        load(classifier).hypotheses([str(shades / "0.png")], **search)


def test_a_class_is_explained_by_the_patches(classifier: Path, shades: Path) -> None:
    model, picture = load(classifier), str(shades / "0.png")
    e = model.explain(picture)
    assert [e.output] == model.transcribe([picture]) == ["black"] and e.target_tokens == ("black",)
    with torch.no_grad():
        logits = model.network(Packed.from_sequences([model.encode_source(picture)]))
    torch.testing.assert_close(e.logprobs, logits.log_softmax(-1))
    assert e.source_tokens[:3] == ("row 0, column 0", "row 1, column 0", "row 0, column 1")
    found = logit_attribution(e, 0)
    assert sum(one.logit for one in found.contributions) == pytest.approx(float(logits[0, e.target_ids[0]]), rel=1e-3)
    components = "encoder.embedded encoder.positions encoder.0.self encoder.0.feed_forward biases"
    assert {one.component for one in found.contributions} == set(components.split())
    readings = logit_lens(e).readings
    assert len(readings) == 2 and readings[-1][0].probability == pytest.approx(float(e.target_logprobs.exp()), rel=1e-3)
    ablated = rerun(e, ablate_head("encoder.0.self", 1))
    torch.testing.assert_close(head_ablation(e, "encoder.0.self")[1], e.target_logprobs - ablated.target_logprobs)
    assert len(compare(e, ablated)) == 1
    other = model.explain(picture, target="white")
    assert other.target_tokens == ("white",) and float(other.target_logprobs) < float(e.target_logprobs)
    assert len(alternatives(e, 0)) == len(model.tokenizers[1]) and e.to_dict()["logit_attribution"]
    for target in ("purple", "black white", ""):
        with pytest.raises(UserError, match="is not a class of this model"):
            model.explain(picture, target=target)
    for analysis in (lambda: EmbeddingSpace.of(model, "encoder"), lambda: align(model, [("a", "b")])):
        with pytest.raises(UserError, match=r"pictures have no vocabulary|cannot align words"):
            analysis()


def test_explain_shows_where_a_classifier_looks(classifier: Path, shades: Path, tmp_path: Path) -> None:
    arguments = ("explain", "--model", classifier, shades / "2.png")
    result = cli(*arguments, "--step", 1, "--ablate", "encoder.0.self:0", "--out", tmp_path / "a.png")
    assert result.exit_code == 0, result.output
    for shown in ("white", "columns of patches", "Logit lens", "encoder.0.feed_forward", "most at", "row "):
        assert shown in result.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(cli(*arguments, "--json").stdout)["tokens"]["target_tokens"] == ["white"]
    for refused in ((*arguments, "--out", tmp_path / "a.html"), ("explore", "--model", classifier)):
        exception = cli(*refused).exception
        assert (
            isinstance(exception, UserError)
            and "in a decoder" in str(exception)
            and "seq2see explain" in str(exception)
        )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"shape": "encoder-decoder", "source": "pictures"}, "model.classifier = True requires an encoder"),
        ({"shape": "encoder"}, 'requires model.source = "pictures"'),
        ({"shape": "encoder", "source": "pictures", "masked_head": True}, "excludes model.masked_head"),
    ],
)
def test_invalid_combinations_are_refused(changes: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        ModelConfig(classifier=True, **changes)


def test_other_encoders_are_not_trained(shades: Path, tmp_path: Path) -> None:
    settings = ("--set", "model.classifier=false")
    result = cli(
        "train", "--pictures", shades / "train.tsv", "--preset", "tiny-vit", "--out", tmp_path / "x", *settings
    )
    assert isinstance(result.exception, UsageError) and "or model.classifier=true" in str(result.exception)
    (tmp_path / "a.en").write_text("a\n" * 50)
    result = cli(
        "train",
        "--src",
        tmp_path / "a.en",
        "--tgt",
        tmp_path / "a.en",
        "--preset",
        "tiny",
        "--out",
        tmp_path / "x",
        "--set",
        "model.shape=encoder",
    )
    assert isinstance(result.exception, UsageError) and "needs an encoder-decoder" in str(result.exception)


def stored(texts: list[str]) -> tuple[TokenStore, Tokenizer]:
    """Returns a store of pictures of one, two, three … patches with these texts."""
    tokenizer = Tokenizer.train(texts, "word", 50)
    targets = [[*tokenizer.encode(text), tokenizer.end] for text in texts]
    lengths = [np.arange(1, len(texts) + 1), np.array([len(ids) for ids in targets])]
    sides = [np.zeros((lengths[0].sum(), CONFIG.row_size), np.uint8), np.concatenate(targets).astype(np.uint16)]
    offsets = [np.concatenate([[0], np.cumsum(each)]) for each in lengths]
    return TokenStore(Path(), tuple(map(TokenizedSide, sides, offsets))), tokenizer


def test_batches_have_one_target_per_picture_and_can_be_halved() -> None:
    texts = ["red", "green", "blue", "red"]
    store, tokenizer = stored(texts)
    batch = ClassBatches(store, 1000, tokenizer).batch(0, 0)
    assert batch.source is None and batch.num_targets == 4
    assert [tokenizer.decode([int(id)]) for id in batch.targets] == [texts[i] for i in batch.indices]
    assert batch.inputs.lengths.tolist() == [i + 1 for i in batch.indices]
    first, second = batch.halves()
    assert np.concatenate([first.targets, second.targets]).tolist() == batch.targets.tolist()
    assert np.concatenate([first.inputs.lengths, second.inputs.lengths]).tolist() == batch.inputs.lengths.tolist()
    assert PairBatches(store, 1000, tokenizer).batch(0, 0).num_targets == 8  # with <end>


def test_texts_of_several_words_are_refused(shades: Path, tmp_path: Path) -> None:
    require_classes(stored(["red", "blue"])[0])
    with pytest.raises(UserError, match=r"1 of 2 texts have none or several, first text 2"):
        require_classes(stored(["red", "light blue"])[0])
    for name, text, first in (("one", "red", 0), ("two", "light blue", 4)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{shades}/{first + i}.png\t{text}\n" for i in range(4)))
    for train, valid in (("two", "one"), ("one", "two")):
        result = cli(
            "train",
            "--pictures",
            tmp_path / f"{train}.tsv",
            "--valid-pictures",
            tmp_path / f"{valid}.tsv",
            "--preset",
            "tiny-vit",
            "--set",
            "text.tokenizer=word",
            "--steps",
            1,
            "--out",
            tmp_path / f"run-{train}",
        )
        assert isinstance(result.exception, UserError), result.output
        assert "4 of 4 texts have none or several" in str(result.exception)
