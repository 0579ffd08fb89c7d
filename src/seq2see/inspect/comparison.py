"""What an intervention changed: the outputs before and after, token by token, with probabilities."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest

from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, takes_explanation


@dataclass(frozen=True)
class TokenChange:
    """A token of the original output and the aligned token of the new one; None where only the other has a token."""

    before: str | None
    after: str | None
    p_before: float | None = field(metadata={"description": "P(before) without the interventions."})
    p_after: float | None = field(metadata={"description": "P(after) with them."})
    p_same_token: float | None = field(
        metadata={"description": "P(before) with them; null from the first differing token on."}
    )

    @property
    def shift(self) -> float | None:
        """The change in probability of the token before, in the same context."""
        return None if self.p_same_token is None or self.p_before is None else self.p_same_token - self.p_before


@takes_explanation
def compare(before: Explanation, after: Explanation) -> tuple[TokenChange, ...]:
    """Aligns two outputs token by token.

    Probabilities are comparable up to the first token that differs; from there on each model continues its own output. To
    compare a whole output, hold it fixed: `compare(e, rerun(e, *interventions))`.
    """
    sizes = [len(e.model.tokenizers[1]) for e in (before, after)]
    if sizes[0] != sizes[1] or [*map(after.token_label, before.target_ids)] != [
        *map(before.token_label, before.target_ids)
    ]:
        raise UserError("cannot compare the outputs of models with different vocabularies")
    pairs = enumerate(zip(before.target_ids, after.target_ids, strict=False))
    differ = next((i for i, (a, b) in pairs if a != b), len(after.target_ids))
    p_before, p_after = before.target_logprobs.exp().tolist(), after.target_logprobs.exp().tolist()
    table = []
    for i, j in _aligned(before.target_ids, after.target_ids):
        p_same_token = None
        if i is not None and i <= differ and i < len(after.target_ids):
            p_same_token = float(after.logprobs[i, before.target_ids[i]].exp())
        old, p_old = (None, None) if i is None else (before.target_tokens[i], p_before[i])
        new, p_new = (None, None) if j is None else (after.target_tokens[j], p_after[j])
        table.append(TokenChange(old, new, p_old, p_new, p_same_token))
    return tuple(table)


def _aligned(a: tuple[int, ...], b: tuple[int, ...]) -> Iterator[tuple[int | None, int | None]]:
    for _, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield from zip_longest(range(i, i_end), range(j, j_end))
