"""Recurrent models trained by the command: they learn, align, and say what they do not have."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.course.recurrent.network import Recurrent
from seq2see.decode.int8 import quantize_int8
from seq2see.errors import UserError
from seq2see.inspect.alignment import align
from seq2see.inspect.attention_flow import attention_rollout, head_ablation
from seq2see.inspect.interventions import (
    ablate_head,
)
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import logit_lens
from seq2see.inspect.token_similarity import contextual_embeddings
from seq2see.train import start as run
from tests.corpora import SMALL_SETTINGS, WORDS, write_phrases


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recurrent")
    data = write_phrases(folder)
    settings = [setting for setting in SMALL_SETTINGS if not setting.startswith(("model.heads", "model.feed_forward"))]
    settings += ["model.width=48", "text.tokenizer=word", "train.validate_every=200", "train.steps=400"]
    for name in ("rnn-2014", "rnn-2015"):
        run.train(data, folder / name, preset=name, settings=settings)
    return {name: folder / name for name in ("rnn-2014", "rnn-2015")}


def run_cli(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", ["rnn-2014", "rnn-2015"])
def test_it_learns_short_phrases(name: str, trained: dict[str, Path]) -> None:
    m = load(trained[name])
    assert isinstance(m.network, Recurrent)
    assert m.scores["validation"]["bleu"] > 85
    assert m.translate(["red tea three"], beam=3) == ["लाल चाय तीन"]


def test_the_attention_of_2015_aligns_and_explains(trained: dict[str, Path], tmp_path: Path) -> None:
    m = load(trained["rnn-2015"])
    text, reference = "I drink red water", "मैं पीता लाल पानी"
    assert align(m, [(text, reference)]) == [[(0, 0), (1, 1), (2, 2), (3, 3)]]
    e = m.explain(text)
    assert e.output == reference
    assert head_ablation(e, "decoder.0.cross").sum() > 1  # the output depends on the attention
    output = json.loads(run_cli("explain", text, "--model", str(trained["rnn-2015"]), "--json"))
    assert list(output["attention"]) == ["decoder.0.cross"]
    assert output["logit_lens"] is None and output["alignment"]["links"] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    shown = run_cli("explain", text, "--model", str(trained["rnn-2015"]), "--step", "1", "--beam", "2")
    assert "I मैं" in shown and "decoder.0.cross, head 0" in shown
    given = {"src": text, "ref": reference, "align": "0-0 1-1 2-2 3-3"}
    for name, line in given.items():
        (tmp_path / name).write_text(f"{line}\n")
    options = [part for name in given for part in (f"--{name}", str(tmp_path / name))]
    assert "mean of heads" not in run_cli("evaluate", "--model", str(trained["rnn-2015"]), *options)
    for reading in (lambda: logit_lens(e), lambda: logit_attribution(e, 0), lambda: attention_rollout(e, "encoder")):
        with pytest.raises(UserError, match='only defined for Transformers, but this model is of kind "rnn-attention"'):
            reading()
    assert contextual_embeddings(m, "tea", ["red tea", "I drink tea"]).vectors.shape == (2, 2, 48)


def test_the_model_of_2014_reports_that_it_has_no_attention(trained: dict[str, Path]) -> None:
    m = load(trained["rnn-2014"])
    output = run_cli("explain", "I drink tea", "--model", str(trained["rnn-2014"]))
    assert "no attention" in output and WORDS["drink"] in output
    assert (
        json.loads(run_cli("explain", "I drink tea", "--model", str(trained["rnn-2014"]), "--json"))["attention"] == {}
    )
    assert "<table>" in m.explain("tea")._repr_html_()
    with pytest.raises(UserError, match="cannot align words"):
        align(m, [("tea", "चाय")])
    with pytest.raises(UserError, match=r'no tap of this model matches "decoder.0.cross.heads"'):
        m.explain("tea", interventions=[ablate_head("decoder.0.cross", 0)])
    with pytest.raises(UserError, match="int8 decoding requires a Transformer"):
        quantize_int8(m.network)


def test_the_server_shows_the_attention_of_2015_and_rejects_undefined_analyses(trained: dict[str, Path]) -> None:
    pytest.importorskip("pydantic")
    from seq2see.server.explore.analyses import alignment, logit_lens
    from seq2see.server.explore.api import Call, ServerState
    from seq2see.server.explore.endpoints import create_trace, weights
    from seq2see.server.explore.options import Limits
    from seq2see.server.explore.requests import TraceRequest
    from seq2see.server.http.workers import Deadline

    call = Call(ServerState(dict(trained), Limits()), Deadline(60))
    trace = create_trace(call, TraceRequest.model_validate({"model": "rnn-2015", "text": "red tea"}))
    assert "decoder.0.cross.weights" in {tensor.name for tensor in trace.tensors}
    assert [(link.source, link.target) for link in alignment(call, trace.id).links] == [(0, 0), (1, 1)]
    with pytest.raises(UserError, match="the logit lens is only defined for Transformers"):
        logit_lens(call, trace.id)
    named = {one.name: one for one in weights(call, "rnn-2015").weights}
    assert named["decoder.attention.score.weight"].component == "decoder.0.cross"
    assert [symbol.symbol for symbol in named["decoder.cell.weight_hh"].symbols] == ["U_i", "U_f", "U_g", "U_o"]
