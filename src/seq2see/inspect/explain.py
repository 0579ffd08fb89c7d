"""An explanation: what a model said, and every number that led to it.

    e = model.explain("How are you?", beam=4)
    e.trace["decoder.1.cross.weights", 0]           # [heads, rows, source tokens]
    rollout(e, "encoder"), lens(e), contributions(e, row=2)

The model first decodes as it always does, fast and with its cache. Then one open forward pass over the source and the
finished output shows all steps at once: row t of the decoder has read what was written up to t and predicts the next
token, just as it did when it was decoding. With a target given, nothing is decoded, and the rows show how likely each of
its tokens would have been, and why. The readings are in their own files and take an explanation.
"""

import unicodedata
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from seq2see.decode.engine import continuations, translations
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import Vocabulary
from seq2see.errors import UsageError, UserError
from seq2see.inspect.interventions import Intervention, intervene
from seq2see.inspect.trace import Trace, trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer
from seq2see.pipeline import Pipeline
from seq2see.text.token_spans import Piece
from seq2see.text.tokenizer import END, START, Tokenizer

CONTINUATION = 20  # tokens that a language model writes on to be explained, unless `longest` says otherwise


@dataclass(frozen=True, eq=False)
class Explanation:
    """One output with its trace. The rows are the decoder's: row t has read reads[: t + 1] and predicts writes[t]."""

    model: Pipeline  # the one that was run; the interventions below are over when this is returned
    source: str  # the text given; of a language model the prompt
    output: str  # the translation, or the continuation
    sources: tuple[str, ...]  # readable source tokens, <end> last; of a language model ()
    reads: tuple[str, ...]  # what the decoder read: <start> y1 … yn; of a language model <start> prompt y1 …
    writes: tuple[str, ...]  # what each row predicts, and what was chosen: y1 … yn <end>
    source_ids: tuple[int, ...]
    read_ids: tuple[int, ...]
    write_ids: tuple[int, ...]
    first: int  # the row that writes the first token of the output: 0, or of a language model where its prompt ends
    source_pieces: tuple[Piece, ...]  # where the tokens stand in the source, without <end>
    output_pieces: tuple[
        Piece, ...
    ]  # where what was written stands in the output; of a language model, in both together
    hypothesis: Hypothesis | None  # None where the target was given
    interventions: tuple[Intervention, ...]
    trace: Trace  # one open pass over source and output: trace["decoder.1.cross.weights", 0] …

    @cached_property
    def logprobs(self) -> Tensor:
        """ln P(token | what the row has read), [rows, vocabulary]."""
        return self.trace["logits", 0].float().cpu().log_softmax(-1)

    @cached_property
    def chosen(self) -> Tensor:
        """ln P of what each row wrote, [rows]."""
        return self.logprobs.gather(1, torch.tensor(self.write_ids)[:, None])[:, 0]

    def row(self, row: int) -> int:
        """The number of a row, counted from the end if negative."""
        rows = len(self.reads)
        if not -rows <= row < rows:
            raise UsageError(f"row {row} of an output of {rows} tokens, which are counted from 0")
        return row % rows

    def transformer(self, reading: str) -> Transformer:
        """The model, for a reading that is only of Transformers."""
        model = self.model.network
        if not isinstance(model, Transformer):
            raise UserError(
                f'{reading} is a reading of Transformers, and this model is of the kind "{model.config.kind}"'
            )
        return model

    def token(self, id: int) -> str:
        """A token of the output's vocabulary as a person reads it."""
        return readable(self.model.tokenizers[1], [id])[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything that a program may want, as plain values."""
        from seq2see.inspect.export import as_dict

        return as_dict(self)

    def _repr_html_(self) -> str:
        from seq2see.inspect.notebook import explanation_html

        return explanation_html(self)


@torch.no_grad()
def explain(
    model: Pipeline, text: str, *, target: str | None = None, interventions: Sequence[Intervention] = (),
    search: Search | None = None,
) -> Explanation:  # fmt: skip
    """The output for a text, or a target that is given, with a trace of everything; under interventions, if any."""
    if not model.config.model.has_decoder:
        raise UserError("this model is an encoder, which writes nothing that could be explained: use seq2see.trace")
    search = replace(search or Search(), window="stop")  # a window that slid away could not be read in one pass
    if interventions:
        model = replace(model, network=copy(model.network))  # the same weights, reached into for us alone
    with intervene(model.network, *interventions) if interventions else nullcontext():
        if model.config.model.shape == "decoder":
            return _of_language_model(model, text, target, tuple(interventions), search)
        return _of_translator(model, text, target, tuple(interventions), search)


def _of_translator(
    model: Pipeline, text: str, target: str | None, interventions: tuple[Intervention, ...], search: Search
) -> Explanation:
    words, own = model.tokenizers
    pieces = words.pieces(text)
    source = [*(piece.id for piece in pieces), words.end]
    hypothesis = None
    if target is None:
        hypothesis = translations(model.network, [source], Vocabulary.of(own), search)[0][0]
        written = list(hypothesis.tokens)
        made = own.pieces_of(written)
        target = own.decode(written)
    else:
        made = own.pieces(target)
        written = [piece.id for piece in made]
    ends = hypothesis is None or hypothesis.finished
    reads, writes = _rows(own, written, ends)
    with trace(model.network) as t:
        device = model.network.embedding.weight.device
        model.network(Packed.of([source], device), Packed.of([reads], device))
    return Explanation(
        model, text, target, (*map(shown, pieces), END), (START, *map(shown, made))[: len(reads)],
        (*map(shown, made), END)[: len(writes)], tuple(source), tuple(reads), tuple(writes),
        0, tuple(pieces), tuple(made), hypothesis, interventions, t,
    )  # fmt: skip


def _of_language_model(
    model: Pipeline, prompt: str, target: str | None, interventions: tuple[Intervention, ...], search: Search
) -> Explanation:
    own = model.tokenizers[1]
    given, hypothesis = own.encode(prompt), None
    if target is None:
        search = replace(search, longest=search.longest or CONTINUATION)
        hypothesis = continuations(model.network, [given], Vocabulary.of(own), search)[0][0]
        written = [*given, *hypothesis.tokens]
        target = own.decode(hypothesis.tokens)
    else:
        written = [*given, *own.encode(target)]
    made = own.pieces_of(written)
    reads, writes = _rows(own, written, hypothesis is None or hypothesis.finished)
    longest = model.config.model.longest
    if len(reads) > longest:
        raise UserError(f"{len(reads):,} tokens to explain, but the model's window is {longest:,}: shorten the text")
    with trace(model.network) as t:
        model.network(Packed.of([reads], model.network.embedding.weight.device))
    return Explanation(
        model, prompt, target, (), (START, *map(shown, made))[: len(reads)], (*map(shown, made), END)[: len(writes)],
        (), tuple(reads), tuple(writes), len(given), (), tuple(made), hypothesis,
        interventions, t,
    )  # fmt: skip


def _rows(own: Tokenizer, written: list[int], ends: bool) -> tuple[list[int], list[int]]:
    """What each row reads and what it writes; where the search was cut short, no row has read the last token."""
    return ([own.start, *written], [*written, own.end]) if ends else ([own.start, *written[:-1]], written)


@torch.no_grad()
def again(e: Explanation, *interventions: Intervention) -> Explanation:
    """The very same tokens through the model once more, under these interventions: nothing is decoded."""
    model = replace(e.model, network=copy(e.model.network))
    device = model.network.embedding.weight.device
    inputs = [Packed.of([ids], device) for ids in (e.source_ids, e.read_ids) if ids]
    with intervene(model.network, *interventions), trace(model.network) as t:
        model.network(*inputs)
    return replace(e, model=model, hypothesis=None, interventions=interventions, trace=t)


def beam_at(
    model: Pipeline, text: str, step: int, *, interventions: Sequence[Intervention] = (), search: Search
) -> list[Hypothesis]:
    """The k best hypotheses of a beam search after so many tokens, best first, with their scores at that moment.

    Nothing in the search is touched: it runs again, allowed only `step` tokens, and hands over all of its beam. At that
    limit those that go on are ranked, at their present length, together with those that have ended: `finished` tells the
    two apart. A search that ends sooner shows its last beam.
    """
    if step < 1:
        raise UsageError(f"step {step} of a search, whose steps are counted from 1")
    wide = replace(search, nbest=search.beam, longest=step, window="stop")
    own = model.tokenizers[1]
    model = replace(model, network=copy(model.network))
    with intervene(model.network, *interventions):
        if model.config.model.shape == "decoder":
            return continuations(model.network, [own.encode(text)], Vocabulary.of(own), wide)[0]
        words = model.tokenizers[0]
        return translations(model.network, [[*words.encode(text), words.end]], Vocabulary.of(own), wide)[0]


def shown(piece: Piece) -> str:
    """A piece for a table: without the space that a word begins with, which is only shown where there is nothing else.

    A vowel sign alone sits on a dotted circle.
    """
    text = harmless(piece.text.strip(" ") or piece.text.replace(" ", "␣") or "∅")
    return f"◌{text}" if unicodedata.category(text[0])[0] == "M" else text


def harmless(text: str) -> str:
    """With control characters by name, so that no terminal takes them for commands."""
    return "".join(_WHITE.get(c) or (c if c.isprintable() or c in _JOINERS else f"⟨U+{ord(c):04X}⟩") for c in text)


_WHITE = {"\n": "⏎", "\r": "␍", "\t": "⇥"}
_JOINERS = "\u200c\u200d"


def readable(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Tokens one by one, each as a person reads it."""
    return [shown(tokenizer.pieces_of([id])[0]) for id in ids]
