"""What is told about a text, as plain values: to whoever asks the server, and to the page that is one file.

Nothing here needs a server installed; the schemas of the API check the same values.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from seq2see.decode.search import Hypothesis
from seq2see.decode.session import Vocabulary
from seq2see.inspect.comparison import changes
from seq2see.inspect.explain import Explanation, again, readable
from seq2see.pipeline import Pipeline
from seq2see.text.token_spans import cut_points

Values = dict[str, Any]


def tokens(model: Pipeline) -> Values:
    source, target = (readable(tokenizer, range(len(tokenizer))) for tokenizer in model.tokenizers)
    return {"source": source, "target": target, "banned": list(Vocabulary.of(model.tokenizers[1]).banned)}


def hypothesis(model: Pipeline, found: Hypothesis) -> Values:
    own = model.tokenizers[1]
    ids = [*found.tokens, own.end] if found.finished else list(found.tokens)
    written = _written(ids, readable(own, ids), found.logprobs)
    return {"text": model.text(found), "score": found.score, "finished": found.finished, "tokens": written}


def manifest(id: str, name: str, step: int | None, e: Explanation, before: Explanation | None = None) -> Values:
    """What a trace holds, without its numbers; and what changed, where the model was left alone before."""
    changed, held = (changes(before, e), changes(before, again(before, *e.interventions))) if before else ((), ())
    return {
        "id": id, "model": name, "step": step, "text": e.source, "output": e.output,
        "sources": _tokens(e.source_ids, e.sources), "reads": _tokens(e.read_ids, e.reads),
        "writes": _written(e.write_ids, e.writes, e.chosen.tolist()), "first": e.first,
        "finished": None if e.hypothesis is None else e.hypothesis.finished, "spans": _spans(e),
        "changes": [asdict(one) for one in changed], "held": [asdict(one) for one in held],
        "tensors": [_named(e, tensor) for tensor in e.trace.names()],
    }  # fmt: skip


def _tokens(ids: Sequence[int], texts: Sequence[str]) -> list[Values]:
    return [{"id": id, "text": text} for id, text in zip(ids, texts, strict=True)]


def _written(ids: Sequence[int], texts: Sequence[str], logprobs: Sequence[float]) -> list[Values]:
    return [token | {"logprob": p} for token, p in zip(_tokens(ids, texts), logprobs, strict=True)]


def _spans(e: Explanation) -> list[Values]:
    """The output, cut where its tokens meet but inside no grapheme."""
    whole = e.output if e.sources else e.model.tokenizers[1].decode([piece.id for piece in e.output_pieces])
    cuts = cut_points(whole)
    begun = len(whole) - len(e.output)  # after a language model's prompt
    rows: list[int] = []
    spans = []
    for row, piece in enumerate(e.output_pieces):
        if piece.end <= begun:
            continue
        rows.append(row)
        following = e.output_pieces[row + 1 : row + 2]
        if piece.end in cuts and all(after.start >= piece.end for after in following):
            spans.append({"text": whole[begun : piece.end], "row": rows[0]})
            begun, rows = piece.end, []
    return spans


def _named(e: Explanation, name: str) -> Values:
    about = e.trace.quantity(name)
    axes = about.axes[1:] if about.axes[0] == "sentence" else about.axes
    return {"name": name, "shape": list(e.trace[name, 0].shape), "axes": list(axes), "formula": about.formula}
