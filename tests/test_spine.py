"""The way through the code is short: few functions are called, in few files, before the first layer of the model runs.

python -m tests.test_spine        # prints the functions in the order of their first call
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import seq2see
from seq2see.config import Config
from seq2see.model.transformer import Transformer
from seq2see.train.parallel import World
from seq2see.train.prepare_data import prepare_translation, with_vocab_sizes
from seq2see.train.trainer import Trainer
from tests.corpora import SMALL_SETTINGS, write_phrases

PACKAGE = Path(seq2see.__file__).parent
FIRST_LAYER = "model/layers.py", "Block.forward"
MOST_OF_A_STEP, MOST_OF_A_TRANSLATION = (38, 23), (46, 25)  # functions and changes of file

Call = tuple[str, str]  # file and function


@dataclass
class Recorder:
    """Records the calls of our own functions, in the order of each thread; comprehensions belong to their function."""

    calls: dict[int, list[Call]] = field(default_factory=dict)  # by thread

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(str(PACKAGE))
            and not code.co_name.endswith(("comp>", "genexpr>"))
        ):
            call = Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname
            self.calls.setdefault(threading.get_ident(), []).append(call)

    def record(self, action: Callable[[], object]) -> None:
        threading.setprofile(self)  # of threads that the action starts
        sys.setprofile(self)
        try:
            action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def own(self) -> list[Call]:
        """The calls of this thread."""
        return self.calls[threading.get_ident()]


def changes_of_file(functions: list[Call]) -> int:
    """Returns how often a reader who follows the functions goes to another file."""
    return sum(one[0] != next_one[0] for one, next_one in pairwise(functions))


def functions_of_a_training_step(folder: Path) -> list[Call]:
    """Returns the functions that a step calls before its first layer, in the order of their first call: those that build its
    batch, in another thread, and then its own.
    """
    config = Config(data=write_phrases(folder)).override([*SMALL_SETTINGS, "train.steps=100"])
    data = prepare_translation(config, folder / "tokens", None, 340, static=False)
    config = with_vocab_sizes(config, data.tokenizers)
    trainer = Trainer(config, Transformer(config.model), data.batches, World(torch.device("cpu")))
    recorder, begun = Recorder(), []

    def steps() -> None:
        trainer.step()  # plans the epoch, which later steps need not do
        recorder.own.clear()
        trainer.step()
        begun.extend(recorder.own)
        trainer.step()  # now the batch of the second step was built, and that of the third

    recorder.record(steps)
    (built,) = (calls for thread, calls in recorder.calls.items() if thread != threading.get_ident())
    _, second, third, *_ = (i for i, call in enumerate(built) if call == built[0])
    return list(dict.fromkeys(built[second:third] + begun[: begun.index(FIRST_LAYER)]))


def functions_of_a_translation() -> list[Call]:
    """Returns the functions that the translation of a sentence calls before its first layer, likewise."""
    model = seq2see.load("en-fr")
    model.network.use_engine = False  # whose layers are not in Python
    model.translate("Hello.")  # imports what it needs
    recorder = Recorder()
    recorder.record(lambda: model.translate("The dog sleeps on the sofa."))
    return list(dict.fromkeys(recorder.own[: recorder.own.index(FIRST_LAYER)]))


def assert_at_most(limits: tuple[int, int], functions: list[Call]) -> None:
    assert len(functions) <= limits[0], functions
    assert changes_of_file(functions) <= limits[1], functions


def test_a_training_step_reaches_the_first_layer_by_a_short_way(tmp_path: Path) -> None:
    assert_at_most(MOST_OF_A_STEP, functions_of_a_training_step(tmp_path))


def test_a_translation_reaches_the_first_layer_by_a_short_way() -> None:
    assert_at_most(MOST_OF_A_TRANSLATION, functions_of_a_translation())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        ways = {"training step": functions_of_a_training_step(Path(temporary))}
    ways["translation"] = functions_of_a_translation()
    for name, found in ways.items():
        print(*(f"{file:28}{function}" for file, function in found), sep="\n")
        print(f"{name}: {len(found)} functions, {changes_of_file(found)} changes of file\n")
