"""Loaded models decode on the engine, with every option of a search, and on torch when something is looked at or changed."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

import seq2see
from seq2see.api import Model
from seq2see.config.search import Search
from seq2see.decode.constraints import Constraints
from seq2see.decode.engine_model import engine_of, why_on_torch
from seq2see.decode.generate import build_requests
from seq2see.decode.search import Hypothesis
from seq2see.engine import library
from seq2see.engine.model import STEPS_BETWEEN_CHECKS, EngineBatch
from seq2see.inspect.interventions import ablate_head
from seq2see.model.attention import Scoring
from seq2see.model.taps import attach
from seq2see.server.service.scheduler import Job, Scheduler

if library.default_library() is None:
    pytest.skip("the engine cannot be compiled here", allow_module_level=True)

LINES = ["How are you?", "I like tea.", "The train leaves at eight in the morning.", "Where is the station?"]


@pytest.fixture(scope="module")
def translator() -> Model:
    return seq2see.load("en-fr")


@pytest.fixture(scope="module")
def writer() -> Model:
    return seq2see.load("books")


def on_torch(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.setenv(library.VARIABLE, "off")
        return function()


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        for a, b in zip(one, other, strict=True):
            assert a.finished == b.finished and a.score == pytest.approx(b.score, abs=1e-4)
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
            assert len(a.alternatives) == len(b.alternatives)


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"beam": 4, "nbest": 3},
        {"temperature": 0.9, "seed": 5, "samples": 3},
        {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
        {"alternatives": 3},
    ],
)
def test_searches_give_what_torch_gives(
    translator: Model, writer: Model, search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine_of(translator.network) is not None and engine_of(writer.network) is not None
    prefixes = ["", "J'aime", "", "Où"]
    for run in (
        lambda: translator.hypotheses(LINES, **search),
        lambda: translator.hypotheses(LINES, prefixes=prefixes, max_new_tokens=12, **search),
    ):
        assert_same(run(), on_torch(monkeypatch, run))
    write = lambda: writer.generate("Once upon a time", max_new_tokens=25, **search)  # noqa: E731
    assert write() == on_torch(monkeypatch, write)


def test_constraints_stop_strings_and_streams_give_what_torch_gives(
    translator: Model, writer: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrase = tuple(translator.tokenizers[1].encode(" quai"))
    constrain = lambda: translator.search_sentences(  # noqa: E731
        LINES, Search(beam=4), constraints=[Constraints((phrase,)), None, None, Constraints((phrase,))]
    )
    assert_same(constrain(), on_torch(monkeypatch, constrain))
    for run in (
        lambda: writer.generate("It was", stop=["."], max_new_tokens=40),
        lambda: "".join(writer.stream("It was", max_new_tokens=20)),
        lambda: "".join(translator.stream(LINES[2])),
        lambda: translator.translate(" ".join(LINES), glossary={"tea": "thé vert"}, beam=2),
    ):
        assert run() == on_torch(monkeypatch, run)


def test_a_text_longer_than_the_context_window_slides_as_on_torch(
    writer: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = writer.config.model.max_positions
    prompt = " the sea" * (window // 2 - 10)
    run = lambda: writer.generate(prompt, max_new_tokens=40)  # noqa: E731
    assert run() == on_torch(monkeypatch, run)


def test_nothing_is_decoded_on_the_engine_while_it_is_looked_at(
    translator: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the engine was used")

    monkeypatch.setattr(EngineBatch, "join", refuse)
    with pytest.raises(AssertionError, match="the engine was used"):
        translator.translate("How are you?")
    ablation = ablate_head("decoder.0.cross", 0)
    with attach(translator.network, ablation):
        assert translator.translate("How are you?")
        assert "".join(translator.stream("How are you?"))


def test_changed_weights_are_packed_anew() -> None:
    model = seq2see.load("grammar-en-hi")
    before = engine_of(model.network)
    assert before is engine_of(model.network)
    with torch.no_grad():
        model.network.embedding.weight[5] += 1.0
    assert engine_of(model.network) is not before


def test_hooks_and_other_forwards_of_a_user_run_although_the_engine_was_ready() -> None:
    model = seq2see.load("grammar-en-hi")
    plain, block = model.translate("I like tea."), model.network.get_submodule("decoder.blocks.0.feed_forward")
    handle = block.register_forward_hook(lambda module, inputs, output: 0 * output)
    assert model.translate("I like tea.") != plain
    handle.remove()
    assert model.translate("I like tea.") == plain and engine_of(model.network) is not None
    block.forward = lambda x, taps: 0 * x
    assert model.translate("I like tea.") != plain
    del block.forward
    assert model.translate("I like tea.") == plain


@pytest.mark.parametrize("change", ["data", "scoring", "hook of all modules"])
def test_changes_that_pytorch_does_not_count_act(change: str) -> None:
    model = seq2see.load("grammar-en-hi")
    plain, handle = model.translate("I like tea."), None
    assert engine_of(model.network) is not None
    crosses: list[Any] = [
        model.network.get_submodule(f"decoder.blocks.{i}.cross") for i in range(model.network.config.decoder_layers)
    ]
    if change == "data":
        for cross in crosses:
            cross.project.weight.data.zero_()
    elif change == "scoring":
        for cross in crosses:
            cross.scoring = Scoring(scale=1e-6)
    else:
        handle = register_module_forward_hook(
            lambda module, inputs, output: 0 * output if module in crosses else output
        )
    try:
        changed = model.translate("I like tea.")
        assert changed != plain
        model.network.use_engine = False
        assert changed == model.translate("I like tea.")
    finally:
        if handle is not None:
            handle.remove()


def test_an_interrupt_ends_the_sessions_of_all_threads(translator: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    run = EngineBatch.run

    def interrupted(batch: EngineBatch, count: int = STEPS_BETWEEN_CHECKS) -> int:
        steps.append(count)
        if len(steps) == 1:
            raise KeyboardInterrupt
        time.sleep(0.2)  # so that the first thread has told the others
        return run(batch, count)

    monkeypatch.setattr(EngineBatch, "run", interrupted)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            translator.translate(["How are you? " * 20] * 8)
    finally:
        torch.set_num_threads(threads)
    assert len(steps) <= 4 and max(steps) <= STEPS_BETWEEN_CHECKS


def test_what_is_not_held_says_why() -> None:
    model = seq2see.load("grammar-en-hi")
    assert why_on_torch(model.network) == []
    handle = model.network.embedding.register_forward_hook(lambda *_: None)
    assert why_on_torch(model.network) == ["modules have hooks"]
    handle.remove()
    model.network.bfloat16()
    assert why_on_torch(model.network) == ["its precision is bfloat16"]
    assert engine_of(model.network) is None


def test_a_scheduler_decodes_on_the_engine(translator: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    run = EngineBatch.run

    def counted(self: EngineBatch, count: int) -> int:
        steps.append(count)
        return run(self, count)

    monkeypatch.setattr(EngineBatch, "run", counted)
    framing, scheduler = translator.tokenizers[1].framing, Scheduler(translator.network)
    searches = [Search(), Search(beam=4), Search(temperature=0.8, seed=3), Search(alternatives=2)]
    jobs = [
        Job.of(request, search, framing)
        for search in searches
        for i, line in enumerate(LINES)
        for request in build_requests(
            translator.network, i, translator.encode_source(line), framing.prompt_with(()), search
        )
    ]
    scheduler.submit(jobs)
    found = [job.future.result(timeout=60)[:1] for job in jobs]
    scheduler.stop()
    assert set(steps) == {1}
    expected = [each for search in searches for each in translator.search_sentences(LINES, search)]
    assert_same(found, expected)


def test_threads_share_the_sentences_and_give_the_same(translator: Model) -> None:
    lines = [f"{line} {number}" for number in range(9) for line in LINES]
    one = translator.hypotheses(lines, beam=2)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        several = translator.hypotheses(lines, beam=2)
    finally:
        torch.set_num_threads(threads)
    assert several == one


def test_weights_whose_changes_cannot_be_seen_decode_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        model = seq2see.load("grammar-en-hi")
    assert engine_of(model.network) is None
    assert model.translate("How are you?") == "आप कैसे हैं?"
