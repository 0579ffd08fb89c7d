"""What an intervention changed: the output before and after, token by token, with the probabilities."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from seq2see.inspect.explain import Explanation


@dataclass(frozen=True)
class Change:
    """One token before beside one token after; None where the other has one more."""

    before: str | None
    after: str | None
    p_before: float | None  # of the token before, as the model was
    p_after: float | None  # of the token after, as the model is now
    p_kept: float | None  # of the token before, as the model is now; only where both have read the same up to here

    @property
    def shift(self) -> float | None:
        """How much the token before has lost or won, in the same context."""
        return None if self.p_kept is None or self.p_before is None else self.p_kept - self.p_before


def changes(before: Explanation, after: Explanation) -> tuple[Change, ...]:
    """Both outputs side by side, equal tokens beside each other.

    Probabilities can be compared as long as both have read the same. From the first token that differs on each model reads
    its own words; to compare the whole of one output, hold it fixed: `changes(e, again(e, *interventions))`.
    """
    same = _same(before, after)
    p_before, p_after = before.chosen.exp().tolist(), after.chosen.exp().tolist()
    table = []
    for i, j in _aligned(before.write_ids, after.write_ids):
        kept = None
        if i is not None and i <= same and i < len(after.reads):
            kept = float(after.logprobs[i, before.write_ids[i]].exp())
        old, p_old = (None, None) if i is None else (before.writes[i], p_before[i])
        new, p_new = (None, None) if j is None else (after.writes[j], p_after[j])
        table.append(Change(old, new, p_old, p_new, kept))
    return tuple(table)


def _same(before: Explanation, after: Explanation) -> int:
    """The number of tokens that both outputs begin with."""
    pairs = zip(before.write_ids, after.write_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before.write_ids), len(after.write_ids)))


def _aligned(a: tuple[int, ...], b: tuple[int, ...]) -> Iterator[tuple[int | None, int | None]]:
    for _, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield from zip_longest(range(i, i_end), range(j, j_end))
