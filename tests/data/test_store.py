"""The token store: round trips, built only once, and never left incomplete or damaged."""

import itertools
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from seq2see.data import store as module
from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.store import TokenStore, store_documents, store_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from tests.waiting import HANG, wait_until

PAIRS = [(f"the cat number {i} sleeps", f"बिल्ली {i * i} सोती है।") for i in range(300)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocab_size=400)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the small test corpora take many chunks."""
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 1000)
    monkeypatch.setattr(module, "PART_CHARACTERS", 100)


def decode_side(store: TokenStore, side: int, tokenizer: Tokenizer) -> list[str]:
    sentences = [store.sides[side][i] for i in range(len(store))]
    assert all(sentence[-1] == tokenizer.end for sentence in sentences)
    return [tokenizer.decode(sentence[:-1]) for sentence in sentences]


def must_not_be_read() -> Iterator[tuple[str, str]]:
    raise AssertionError("the corpus was read although the store exists")
    yield


@pytest.mark.usefixtures("small_chunks")
def test_pairs_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pairs = [*PAIRS, ("", "empty source"), ("empty target", ""), ("", "")]
    store = store_pairs(tmp_path, iter(pairs), "key", (tokenizer, tokenizer))
    assert list(zip(decode_side(store, 0, tokenizer), decode_side(store, 1, tokenizer), strict=True)) == pairs
    assert store.sides[0].tokens.dtype == np.uint16
    assert store.sides[1].lengths.tolist() == [len(tokenizer.encode(target)) + 1 for _, target in pairs]


def test_sides_may_have_different_tokenizers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = Tokenizer.train([target for _, target in PAIRS], kind="word")
    store = store_pairs(tmp_path, PAIRS, "key", (tokenizer, words))
    assert decode_side(store, 1, words) == [target for _, target in PAIRS]


@pytest.mark.usefixtures("small_chunks")
def test_long_documents_are_tokenized_in_parts_without_changes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [" ".join(source for source, _ in PAIRS), "", "\n".join(target for _, target in PAIRS)]
    store = store_documents(tmp_path, ((text, True) for text in documents), "key", tokenizer)
    assert [side.tolist() for side in (store.sides[0][i] for i in range(3))] == [
        [*tokenizer.encode(text), tokenizer.end] for text in documents
    ]
    # The same from a reader that splits long documents into chunks.
    chunks = [(documents[0][:500], False), (documents[0][500:], True), ("", True), (documents[2], True)]
    reopened = store_documents(tmp_path, chunks, "other key", tokenizer)
    assert decode_side(reopened, 0, tokenizer) == documents


def test_store_is_built_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    reopened = store_pairs(tmp_path, must_not_be_read(), "key", (tokenizer, tokenizer))
    assert first.path == reopened.path
    assert np.array_equal(first.sides[1].tokens, reopened.sides[1].tokens)
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_another_corpus_or_tokenizer_gets_another_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = Tokenizer.train([source for source, _ in PAIRS], vocab_size=300)
    paths = {
        store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "changed", (tokenizer, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "key", (other, tokenizer)).path,
        store_pairs(tmp_path, PAIRS, "key", (tokenizer, other)).path,
        store_documents(tmp_path, ((source, True) for source, _ in PAIRS), "key", tokenizer).path,
    }
    assert len(paths) == 5


@pytest.mark.parametrize("name", ["source.tokens", "target.offsets", "store.json"])
@pytest.mark.parametrize("damage", ["truncated", "shorter", "longer", "missing", "empty"])
def test_damaged_store_is_rebuilt(tokenizer: Tokenizer, tmp_path: Path, name: str, damage: str) -> None:
    intact = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    expected = intact.sides[0].tokens.tolist()
    path = intact.path / name
    content = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(content[:-3])
        case "shorter":
            path.write_bytes(content[:-8])  # whole tokens and whole offsets are missing
        case "longer":
            path.write_bytes(content + b"}")
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
    rebuilt = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    assert rebuilt.sides[0].tokens.tolist() == expected
    assert path.read_bytes() == content


def test_store_with_an_earlier_manifest_is_not_rebuilt(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    sides = [{"name": "source", "dtype": "<u2", "row_size": 0, "sentences": 300, "tokens": 2000}]
    (first.path / "store.json").write_text(json.dumps({"epoch": None, "sides": sides}, indent=1))
    reopened = store_pairs(tmp_path, must_not_be_read(), "key", (tokenizer, tokenizer))
    assert np.array_equal(first.sides[1].tokens, reopened.sides[1].tokens)


@pytest.mark.parametrize("name", ["store.json", "source.tokens"])
def test_unreadable_store_is_an_error_and_stays(tokenizer: Tokenizer, tmp_path: Path, name: str) -> None:
    path = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer)).path
    (path / name).unlink()
    (path / name).symlink_to(name)  # a link to itself cannot be read, not even by root
    with pytest.raises(UserError, match=r"cannot read the tokens in .*Too many levels of symbolic links"):
        store_pairs(tmp_path, must_not_be_read(), "key", (tokenizer, tokenizer))
    assert (path / "target.tokens").is_file()


def test_failed_build_leaves_nothing_behind(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield from PAIRS
        raise UserError("line 301 of a.en is not UTF-8")

    with pytest.raises(UserError, match="line 301"):
        store_pairs(tmp_path, broken(), "key", (tokenizer, tokenizer))
    with pytest.raises(UserError, match="empty"):
        store_pairs(tmp_path, [], "key", (tokenizer, tokenizer))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_chunks")
def test_full_disk_is_a_one_line_error(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full fails with "no space left", like a full disk."""
    real_open = Path.open

    def open_full(path: Path, mode: str = "r", **options: str) -> object:
        return real_open(Path("/dev/full") if path.name == "target.tokens" else path, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(UserError, match=r"cannot write tokens to .*No space left") as error:
        store_pairs(tmp_path, PAIRS * 50, "key", (tokenizer, tokenizer))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


BUILDER = """
    import sys, time
    from seq2see.data.store import store_pairs
    from seq2see.data import store
    from seq2see.data.tokenizer import Tokenizer
    store.CHUNK_CHARACTERS = 1000
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


def test_killed_build_is_restarted_by_the_next_process(tokenizer: Tokenizer, tmp_path: Path) -> None:
    killed = start_builder(tokenizer, tmp_path, pause=0.01)
    wait_until(lambda: building(tmp_path))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert building(tmp_path), "the build was not killed half-way"
    output, _ = start_builder(tokenizer, tmp_path, pause=0).communicate(timeout=HANG)
    assert output.startswith("reading\n3000 ")
    (made,) = (tmp_path / "tokens").iterdir()
    assert made.suffix == ""


def test_concurrent_processes_build_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    builders = [start_builder(tokenizer, tmp_path, pause=0.0005) for _ in range(3)]
    outputs = [builder.communicate(timeout=HANG)[0] for builder in builders]
    assert sum("reading" in output for output in outputs) == 1
    assert len({output.splitlines()[-1] for output in outputs}) == 1
    assert len(list((tmp_path / "tokens").iterdir())) == 1


# BPE-dropout


@pytest.mark.usefixtures("small_chunks")
def test_each_epoch_is_segmented_anew_and_replaces_the_last(tokenizer: Tokenizer, tmp_path: Path) -> None:
    seen = []
    for epoch in (0, 1, 0):
        store = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer), BpeDropout(0.2, seed=3, epoch=epoch))
        assert list(zip(decode_side(store, 0, tokenizer), decode_side(store, 1, tokenizer), strict=True)) == PAIRS
        seen.append(store.sides[0].tokens.tolist())
        assert len(list(tmp_path.iterdir())) == 1
    assert seen[0] == seen[2] != seen[1]


def test_segmentation_does_not_depend_on_the_chunk_size(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = []
    for size in (700, 1 << 18):
        monkeypatch.setattr(module, "CHUNK_CHARACTERS", size)
        folder = tmp_path / str(size)
        stores.append(store_pairs(folder, PAIRS, "key", (tokenizer, tokenizer), BpeDropout(0.2, seed=3, epoch=1)))
    for side in (0, 1):
        assert np.array_equal(stores[0].sides[side].tokens, stores[1].sides[side].tokens)


def test_source_and_target_are_segmented_independently(tokenizer: Tokenizer, tmp_path: Path) -> None:
    same = [(source, source) for source, _ in PAIRS]
    store = store_pairs(tmp_path, same, "key", (tokenizer, tokenizer), BpeDropout(0.2, seed=3, epoch=1))
    assert store.sides[0].tokens.tolist() != store.sides[1].tokens.tolist()


def test_unwritable_directory_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write tokens to .*file"):
        store_pairs(tmp_path / "file", PAIRS, "key", (tokenizer, tokenizer))


def test_no_output_without_a_terminal(tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer))
    assert capfd.readouterr() == ("", "")


def test_progress_counts_all_sentences(tokenizer: Tokenizer, tmp_path: Path) -> None:
    counts: list[int] = []

    def progress(task: str, total: int | None) -> Callable[[int], None]:
        assert (task, total) == ("tokenizing", len(PAIRS))
        return counts.append

    store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer), total=len(PAIRS), progress=progress)
    assert sum(counts) == len(PAIRS)


def test_offsets_are_where_sentences_begin(tokenizer: Tokenizer, tmp_path: Path) -> None:
    side = store_pairs(tmp_path, PAIRS, "key", (tokenizer, tokenizer)).sides[0]
    joined = list(itertools.chain.from_iterable(side[i].tolist() for i in range(len(side))))
    assert joined == side.tokens.tolist()
