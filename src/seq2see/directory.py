"""A model is a directory: what it is, its words, its weights, how good it is, and a card that tells a person.

    config.toml   tokenizer.json   (source.json, where the source has words of its own)   model.safetensors
    scores.json   README.md   snapshots/   (chat.toml, the form of a conversation, where a language model has one)

No pickle anywhere. `load` gives the model with its tokenizers, ready for text; without a directory, the small
English–Hindi model that comes with seq2see.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2see.compact import expand
from seq2see.config import Config
from seq2see.decode.engine import continuations, requests_for, stream, translations
from seq2see.decode.int8 import quantised
from seq2see.decode.ready import ready
from seq2see.decode.search import Hypothesis, Search, SearchOptions
from seq2see.decode.session import Vocabulary
from seq2see.decode.text import Chat, Turn, end_of, readable
from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.look.intervene import Intervention, intervene, without
from seq2see.model.kinds import kind_of
from seq2see.model.network import Network
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.precision import bf16_works

if TYPE_CHECKING:
    from seq2see.look.explain import Explanation

Compute = Literal["float32", "bf16", "int8"]
BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True)
class Model:
    """A trained model with its words. `search` takes the fields of `Search`: beam=4, temperature=0.8, top_p=0.95 …"""

    config: Config
    transformer: Network  # or what came before it
    tokenizers: tuple[Tokenizer, Tokenizer]
    scores: Mapping[str, Any]
    form: Chat = field(default_factory=Chat)

    def translate(
        self, texts: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[str]:
        """The translation of each text; with prefixes, one that begins so."""
        found = self.hypotheses(texts, prefixes=prefixes, **search)
        return [self.text(best, prefixes[i] if prefixes else "") for i, (best, *_) in enumerate(found)]

    def hypotheses(
        self, texts: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[list[Hypothesis]]:
        """The n best translations of each text, best first, with their log-probabilities."""
        self._require("encoder-decoder", "translates")
        source, target = self.tokenizers
        tokens = [[*source.encode(text), source.end] for text in texts]
        begun = [target.encode(prefix) for prefix in prefixes]
        return translations(self.transformer, tokens, Vocabulary.of(target), Search(**search), begun)

    def text(self, hypothesis: Hypothesis, prefix: str = "") -> str:
        target = self.tokenizers[1]
        return target.decode([*target.encode(prefix), *hypothesis.tokens])

    def generate(
        self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[str]:
        """What a language model writes after the prompt: one continuation, or as many as `samples` or `nbest` say."""
        return self._continued(self.tokenizers[1].encode(prompt), tokens, stop, search)

    def chat(
        self, turns: Sequence[Turn], *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> str:
        """The model's next turn in a conversation of ("system" | "user" | "model", text)."""
        prompt = self.form.prompt(self.tokenizers[1], turns)
        return self._continued(prompt, tokens, [self.form.stop, *stop], search)[0].strip()

    def _continued(self, prompt: list[int], tokens: int, stop: Sequence[str], search: SearchOptions) -> list[str]:
        self._require("decoder", "writes on from a prompt")
        target = self.tokenizers[1]
        options = replace(Search(**search), longest=tokens)
        enough = (lambda ids: end_of(target.decode(ids), stop) is not None) if stop else None
        (found,) = continuations(self.transformer, [prompt], Vocabulary.of(target), options, enough)
        texts = [target.decode(one.tokens) for one in found]
        return [text[: end_of(text, stop)] for text in texts]

    def stream(
        self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> Iterator[str]:
        """`generate`, or for a translator `translate`, in readable pieces as they are written."""
        source, target = self.tokenizers
        words, options = Vocabulary.of(target), replace(Search(**search), longest=tokens)
        if self.config.model.shape == "decoder":
            request, *_ = requests_for(self.transformer, 0, (), [words.start, *target.encode(prompt)], options)
        else:
            self._require("encoder-decoder", "translates")
            ids = [*source.encode(prompt), source.end]
            request, *_ = requests_for(self.transformer, 0, ids, [words.start], options)
        return readable(target, stream(self.transformer, request, options, words), stop)

    def explain(
        self, text: str, *, target: str | None = None, interventions: Sequence[Intervention] = (),
        **search: Unpack[SearchOptions],
    ) -> "Explanation":  # fmt: skip
        """The translation or continuation of a text, or the one given, with every number that led to it."""
        from seq2see.look.explain import explain

        return explain(self, text, target=target, interventions=interventions, search=Search(**search))

    @contextmanager
    def without(self, attention: str, head: int) -> Iterator["Model"]:
        """This model with one head of an attention such as `decoder.3.cross` switched off; the model itself stays."""
        less = replace(self, transformer=copy(self.transformer))  # the same weights
        with intervene(less.transformer, without(attention, head)):
            yield less

    def _require(self, shape: str, does: str) -> None:
        if self.config.model.shape != shape:
            raise UserError(f"this model is a {self.config.model.shape}, and only a model of shape {shape} {does}")


def load(
    path: Path | str | None = None, device: str = "cpu", *, step: int | None = None, precision: Compute = "float32"
) -> Model:
    """The model in a directory, or the bundled one; with `step`, as it was at that step of its training. It is ready to
    compute in this precision; int8 is for decoding on a CPU.
    """
    folder = BUNDLED if path is None else Path(path)
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder} is no model directory: it has no config.toml")
    config = Config.load(folder / "config.toml")
    tokenizers = load_tokenizers(folder)
    file = folder / "model.safetensors" if step is None else _snapshot(folder, step)
    try:
        model = kind_of(config.model).from_weights(config.model, expand(load_file(file, device=device)))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"cannot read {file}: {reason}; is the training finished?") from error
    scores = folder / "scores.json"
    return Model(
        config, _computing_in(precision, model.eval()), tokenizers,
        json.loads(scores.read_text()) if scores.is_file() else {}, Chat.load(folder / "chat.toml"),
    )  # fmt: skip


def snapshots(path: Path | str | None = None) -> list[int]:
    """The steps of a model's training at which its weights were kept."""
    folder = BUNDLED if path is None else Path(path)
    return sorted(int(file.stem.removeprefix("step-")) for file in folder.glob("snapshots/step-*.safetensors"))


def snapshot_file(folder: Path, step: int) -> Path:
    return folder / "snapshots" / f"step-{step:08d}.safetensors"


def _snapshot(folder: Path, step: int) -> Path:
    known = snapshots(folder)
    if step not in known:
        raise UserError(f"{folder} has no snapshot of step {step:,}, but of {', '.join(map(str, known)) or 'none'}")
    return snapshot_file(folder, step)


def _computing_in(precision: Compute, model: Network) -> Network:
    if precision == "int8":
        return quantised(model)
    if precision == "float32":
        return ready(model)
    if not model.embedding.weight.is_cuda and not bf16_works():
        raise UserError(
            "this CPU does not compute in bf16 (or says that it can, and fails: then ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 "
            'in the environment may help): take precision "int8", which is faster still'
        )
    return ready(model.to(torch.bfloat16))


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype | None = torch.float32) -> None:
    """In this precision, or each in its own."""
    with written_whole(path) as part:
        # Not save_file, whose error on a full disk is none of the system's.
        part.write_bytes(save({name: w.detach().to("cpu", dtype).contiguous() for name, w in weights.items()}))


def save_tokenizers(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    target.save(folder / "tokenizer.json")
    if source is not target:
        source.save(folder / "source.json")


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    target = Tokenizer.load(folder / "tokenizer.json")
    own = folder / "source.json"
    return (Tokenizer.load(own) if own.is_file() else target), target


def save_config(folder: Path, config: Config) -> None:
    with written_whole(folder / "config.toml") as part:
        part.write_text(config.to_toml(), encoding="utf-8")
