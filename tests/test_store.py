"""The store of tokens: what goes in comes out, it is made once, and no accident leaves a wrong one behind."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from seq2see.errors import UserError
from seq2see.text import store as module
from seq2see.text.bpe_dropout import Dropout
from seq2see.text.store import Store, store_pairs, store_texts
from seq2see.text.tokenizer import Tokenizer

PAIRS = [(f"the cat number {i} sleeps", f"बिल्ली {i * i} सोती है।") for i in range(300)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary=400)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even these corpora take many."""
    monkeypatch.setattr(module, "_PORTION", 1000)
    monkeypatch.setattr(module, "_PART", 100)


def texts_of(store: Store, side: int, tokenizer: Tokenizer) -> list[str]:
    sentences = [store.sides[side][i] for i in range(len(store))]
    assert all(sentence[-1] == tokenizer.end for sentence in sentences)
    return [tokenizer.decode(sentence[:-1]) for sentence in sentences]


def never() -> Iterator[tuple[str, str]]:
    raise AssertionError("the store was made already, and yet the corpus is read")
    yield


@pytest.mark.usefixtures("small_portions")
def test_pairs_come_out_as_they_went_in(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pairs = [*PAIRS, ("", "empty source"), ("empty target", ""), ("", "")]
    store = store_pairs(tmp_path, iter(pairs), "key", (tokenizer, tokenizer))
    assert list(zip(texts_of(store, 0, tokenizer), texts_of(store, 1, tokenizer), strict=True)) == pairs
    assert store.sides[0].tokens.dtype == np.uint16
    assert store.sides[1].lengths.tolist() == [len(tokenizer.encode(target)) + 1 for _, target in pairs]


def test_each_side_may_have_its_own_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = Tokenizer.train([target for _, target in PAIRS], kind="word")
    store = store_pairs(tmp_path, PAIRS, "key", (tokenizer, words))
    assert texts_of(store, 1, words) == [target for _, target in PAIRS]


@pytest.mark.usefixtures("small_portions")
def test_a_long_document_is_tokenized_in_parts_as_if_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [" ".join(source for source, _ in PAIRS), "", "\n".join(target for _, target in PAIRS)]
    store = store_texts(tmp_path, ((text, True) for text in documents), "key", tokenizer)
    assert [side.tolist() for side in (store.sides[0][i] for i in range(3))] == [
        [*tokenizer.encode(text), tokenizer.end] for text in documents
    ]
    # The same from a reader that hands long documents on in passages.
    passages = [(documents[0][:500], False), (documents[0][500:], True), ("", True), (documents[2], True)]
    again = store_texts(tmp_path, passages, "other key", tokenizer)
    assert texts_of(again, 0, tokenizer) == documents


def test_a_store_is_made_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    again = store_pairs(tmp_path, never(), "key", (tokenizer, tokenizer))
    assert first.path == again.path
    assert np.array_equal(first.sides[1].tokens, again.sides[1].tokens)
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_another_corpus_or_tokenizer_makes_another_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = Tokenizer.train([source for source, _ in PAIRS], vocabulary=300)
    paths = {
        store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "changed", (tokenizer, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "key", (other, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "key", (tokenizer, other)).path,
        store_texts(tmp_path, ((source, True) for source, _ in PAIRS), "key", tokenizer).path,
    }
    assert len(paths) == 5


@pytest.mark.parametrize("name", ["source.tokens", "target.offsets", "store.json"])
@pytest.mark.parametrize("damage", ["truncated", "longer", "gone", "empty"])
def test_a_damaged_store_is_made_again(tokenizer: Tokenizer, tmp_path: Path, name: str, damage: str) -> None:
    whole = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    expected = whole.sides[0].tokens.tolist()
    path = whole.path / name
    content = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(content[:-3])
        case "longer":
            path.write_bytes(content + b"}")
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
    mended = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    assert mended.sides[0].tokens.tolist() == expected
    assert path.read_bytes() == content


def test_a_failed_build_leaves_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield from PAIRS
        raise UserError("line 301 of a.en is not UTF-8")

    with pytest.raises(UserError, match="line 301"):
        store_pairs(tmp_path, broken(), "key", (tokenizer, tokenizer))
    with pytest.raises(UserError, match="empty"):
        store_pairs(tmp_path, [], "key", (tokenizer, tokenizer))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_portions")
def test_a_full_disk_is_told_in_one_line(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full takes what is written and then finds no space, as a full disk does."""
    opened = Path.open

    def full(path: Path, mode: str = "r", **options: str) -> object:
        return opened(Path("/dev/full") if path.name == "target.tokens" else path, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match=r"cannot write tokens to .*No space left") as caught:
        store_pairs(tmp_path, PAIRS * 50, "key", (tokenizer, tokenizer))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


BUILDER = """
    import sys, time
    from seq2see.text.store import store_pairs
    from seq2see.text import store
    from seq2see.text.tokenizer import Tokenizer
    store._PORTION = 1000
    tokenizer = Tokenizer.load(sys.argv[1])
    def pairs():
        print("reading", flush=True)
        for i in range(3000):
            time.sleep(float(sys.argv[3]))
            yield f"the cat number {i}", f"बिल्ली {i * i}"
    made = store_pairs(sys.argv[2], pairs(), "key", (tokenizer, tokenizer))
    print(len(made), int(made.sides[0].tokens.sum()), int(made.sides[1].tokens.sum()), flush=True)
"""


def start_builder(tokenizer: Tokenizer, folder: Path, pause: float) -> subprocess.Popen[str]:
    tokenizer.save(folder / "tokenizer.json")
    arguments = [str(folder / "tokenizer.json"), str(folder / "tokens"), str(pause)]
    command = [sys.executable, "-c", textwrap.dedent(BUILDER), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def building(folder: Path) -> bool:
    return any(path.stat().st_size > 0 for path in (folder / "tokens").glob("*.building/*.tokens"))


def test_a_killed_build_is_taken_over(tokenizer: Tokenizer, tmp_path: Path) -> None:
    killed = start_builder(tokenizer, tmp_path, pause=0.01)
    deadline = time.monotonic() + 30
    while not building(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert building(tmp_path), "the build was to be killed half-way"
    output, _ = start_builder(tokenizer, tmp_path, pause=0).communicate(timeout=60)
    assert output.startswith("reading\n3000 ")
    (made,) = (tmp_path / "tokens").iterdir()
    assert made.suffix == ""


def test_processes_that_ask_at_once_make_it_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    builders = [start_builder(tokenizer, tmp_path, pause=0.0005) for _ in range(3)]
    outputs = [builder.communicate(timeout=60)[0] for builder in builders]
    assert sum("reading" in output for output in outputs) == 1
    assert len({output.splitlines()[-1] for output in outputs}) == 1
    assert len(list((tmp_path / "tokens").iterdir())) == 1


# BPE-dropout


@pytest.mark.usefixtures("small_portions")
def test_each_epoch_is_cut_anew_and_takes_the_place_of_the_last(tokenizer: Tokenizer, tmp_path: Path) -> None:
    seen = []
    for epoch in (0, 1, 0):
        store = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer), Dropout(0.2, seed=3, epoch=epoch))
        assert list(zip(texts_of(store, 0, tokenizer), texts_of(store, 1, tokenizer), strict=True)) == PAIRS
        seen.append(store.sides[0].tokens.tolist())
        assert len(list(tmp_path.iterdir())) == 1
    assert seen[0] == seen[2] != seen[1]


def test_an_epoch_is_the_same_however_it_is_portioned(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = []
    for portion in (700, 1 << 18):
        monkeypatch.setattr(module, "_PORTION", portion)
        folder = tmp_path / str(portion)
        stores.append(store_pairs(folder, PAIRS, "key", (tokenizer, tokenizer), Dropout(0.2, seed=3, epoch=1)))
    for side in (0, 1):
        assert np.array_equal(stores[0].sides[side].tokens, stores[1].sides[side].tokens)


def test_both_sides_are_cut_by_their_own_numbers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    same = [(source, source) for source, _ in PAIRS]
    store = store_pairs(tmp_path, same, "key", (tokenizer, tokenizer), Dropout(0.2, seed=3, epoch=1))
    assert store.sides[0].tokens.tolist() != store.sides[1].tokens.tolist()


def test_a_folder_that_cannot_be_written_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write tokens to .*file"):
        store_pairs(tmp_path / "file", PAIRS, "key", (tokenizer, tokenizer))


def test_nothing_is_printed_where_nobody_looks(
    tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    assert capfd.readouterr() == ("", "")


def test_a_terminal_sees_a_bar(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    with open(terminal, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer), total=len(PAIRS))
    shown = os.read(controller, 1 << 16).decode()
    os.close(controller)
    assert "tokenizing" in shown
    assert "300 sentences" in shown


def test_offsets_lie_where_sentences_begin(tokenizer: Tokenizer, tmp_path: Path) -> None:
    side = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer)).sides[0]
    joined = list(itertools.chain.from_iterable(side[i].tolist() for i in range(len(side))))
    assert joined == side.tokens.tolist()
