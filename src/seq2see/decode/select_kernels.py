"""Kernels that choose the next tokens on a GPU: a pass over the logits, and one small program for each sentence after it.

`pick` takes the likeliest token and writes it down; `branch` does so for the hypotheses of a beam.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.decode.kernels import AHEAD, in_turn

CHUNK = 4096  # logits that one program of the pass looks at
PART = 256  # of them; a beam looks into the best few parts
COLUMNS = 64  # tokens of hypotheses that are carried along together


def pick(
    logits: Tensor, banned: Tensor, tokens: Tensor, logprobs: Tensor, count: Tensor, limit: Tensor, done: Tensor,
    end: int,
) -> Tensor:  # fmt: skip
    """The likeliest token of each row that is not banned; it is written to tokens[row, count] and its log-probability beside,
    and the row is counted and, where it ends, done.
    """
    chosen = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    most, total, best, index = _searched(logits, banned, CHUNK)
    _pick[(len(logits),)](
        most, total, best, index, tokens, logprobs, count, limit, done, chosen, end, tokens.stride(0),
        logprobs.stride(0), most.shape[1], block=triton.next_power_of_2(most.shape[1]), **AHEAD,
    )  # fmt: skip
    return chosen


def branch(
    logits: Tensor, banned: Tensor, tables: Sequence[Tensor], divisors: Tensor, end: int, early: bool, hopeful: bool
) -> tuple[Tensor, Tensor]:
    """A step of `Beam`, whose tables these are, in its order: all that it writes down, its next tokens and their parents.

    A sum of log-probabilities is ranked by what the divisor of its length makes of it.
    """
    (size, k, longest), each = tables[0].shape, len(logits) // len(tables[0])
    chosen = torch.empty(size * k, dtype=torch.int64, device=logits.device)
    parents = torch.empty(size, k, dtype=torch.int64, device=logits.device)
    most, total, best, _ = _searched(logits, banned, PART)
    _branch[(size,)](
        logits, banned, most, total, best, *tables, divisors, chosen, parents, end, logits.shape[1], logits.stride(0),
        most.shape[1], longest, k=k, each=each, bans=len(banned), early=early, hopeful=hopeful,
        beams=triton.next_power_of_2(k), rows=triton.next_power_of_2(each), part=PART,
        block=triton.next_power_of_2(most.shape[1]), columns=COLUMNS, **AHEAD,
    )  # fmt: skip
    return chosen, parents


def _searched(logits: Tensor, banned: Tensor, part: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each part of each row, [rows, parts]: its maximum, the sum of the exponentials relative to that, and the largest that
    is not banned, with its token if a part is a whole chunk.
    """
    rows, width = logits.shape
    parts = triton.cdiv(width, part)
    most, total, best = torch.empty(3, rows, parts, dtype=torch.float32, device=logits.device)
    index = torch.empty(rows, parts if part == CHUNK else 0, dtype=torch.int64, device=logits.device)
    _search[(rows, triton.cdiv(width, CHUNK))](
        logits, banned, most, total, best, index, width, logits.stride(0), parts, bans=len(banned), part=part,
        some=CHUNK // part, **AHEAD,
    )  # fmt: skip
    return most, total, best, index


@triton.jit
def _search(
    logits, banned, most, total, best, index, width, logits_row, parts, bans: tl.constexpr, part: tl.constexpr,
    some: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    in_turn(ahead)
    row, which = tl.program_id(0).to(tl.int64), tl.program_id(1) * some + tl.arange(0, some)
    at = which[:, None] * part + tl.arange(0, part)[None, :]
    x = tl.load(logits + row * logits_row + at, mask=at < width, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))  # idle rows may hold no numbers
    here, real = row * parts + which, which < parts
    largest = tl.max(x, 1)
    tl.store(most + here, largest, mask=real)
    relative = x - tl.where(largest == float("-inf"), 0.0, largest)[:, None]
    tl.store(total + here, tl.sum(tl.exp(relative), 1), mask=real)
    for i in tl.static_range(bans):
        x = tl.where(at == tl.load(banned + i), float("-inf"), x)
    tl.store(best + here, tl.max(x, 1), mask=real)
    if some == 1:
        tl.store(index + here, which * part + tl.argmax(x, 1), mask=real)


@triton.jit
def _pick(
    most, total, best, index, tokens, logprobs, count, limit, done, chosen, end, tokens_row, logprobs_row, parts,
    block: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    in_turn(ahead)
    row, part = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    there, real = row * parts + part, part < parts
    maxima = tl.load(most + there, mask=real, other=float("-inf"))
    largest = tl.max(maxima, 0)
    whole = largest + tl.log(tl.sum(tl.load(total + there, mask=real, other=0.0) * tl.exp(maxima - largest), 0))
    scores = tl.load(best + there, mask=real, other=float("-inf"))
    token = tl.sum(tl.where(part == tl.argmax(scores, 0), tl.load(index + there, mask=real, other=0), 0), 0)
    at = tl.load(count + row)
    tl.store(tokens + row * tokens_row + at, token)
    tl.store(logprobs + row * logprobs_row + at, tl.max(scores, 0) - whole)
    was_done = tl.load(done + row)
    written = at + tl.where(was_done, 0, 1)
    tl.store(count + row, written)
    tl.store(done + row, was_done | (token == end) | (written >= tl.load(limit + row)))
    tl.store(chosen + row, token)


@triton.jit
def _branch(
    logits, banned, most, total, best, tokens, done_tokens, logprobs, done_logprobs, scores, done_scores, done_count,
    count, limit, done, divisors, chosen, parents, end, width, logits_row, parts, longest, k: tl.constexpr,
    each: tl.constexpr, bans: tl.constexpr, early: tl.constexpr, hopeful: tl.constexpr, beams: tl.constexpr,
    rows: tl.constexpr, part: tl.constexpr, block: tl.constexpr, columns: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """One sentence. It has k hypotheses, of which `each` have logits: one at the start, later all."""
    in_turn(ahead)
    sentence, slot = tl.program_id(0).to(tl.int64), tl.arange(0, beams)
    real, own = slot < k, sentence * k + slot
    if tl.load(done + sentence):  # it computes idly until the host looks
        tl.store(chosen + own, slot * 0, mask=real)
        tl.store(parents + own, slot, mask=real)
        return
    at, most_tokens = tl.load(count + sentence), tl.load(limit + sentence)
    written = at + 1
    logprob, score, from_row, from_token = _candidates(
        logits, banned, most, total, best, scores, sentence, width, logits_row, parts, k, each, bans, beams, rows,
        part, block,
    )  # fmt: skip
    candidate, number = tl.arange(0, 2 * beams * part), tl.arange(0, 2 * beams)

    # The 2k best: those of the first k that end are finished, and of the others the first k go on.
    zeros, none = tl.zeros([beams], tl.float32), tl.zeros([beams], tl.int64)
    on_score, on_logprob, on_token, on_parent = zeros - float("inf"), zeros, none, none
    end_score, end_logprob, end_token, end_parent = zeros - float("inf"), zeros, none, none
    going, ended = 0, 0
    divisor = tl.load(divisors + written)
    for i in range(2 * k):
        highest, place = tl.max(score, 0, return_indices=True)
        taken, origin = candidate == place, number == place // part
        score = tl.where(taken, float("-inf"), score)
        its_logprob = tl.sum(tl.where(taken, logprob, 0.0), 0)
        parent = tl.sum(tl.where(origin, from_row, 0), 0)
        token = tl.sum(tl.where(origin, from_token, 0), 0) + place % part
        ends = ((token == end) | (written >= most_tokens)) & (i < k)
        to = slot == tl.where(ends, i, -1)
        end_score, end_logprob = tl.where(to, highest / divisor, end_score), tl.where(to, its_logprob, end_logprob)
        end_token, end_parent = tl.where(to, token, end_token), tl.where(to, parent, end_parent)
        ended += tl.where(ends, 1, 0)
        stops = (token == end) | (highest == float("-inf"))  # there may be fewer
        to = slot == tl.where(stops, -1, going)
        on_score, on_logprob = tl.where(to, highest, on_score), tl.where(to, its_logprob, on_logprob)
        on_token, on_parent = tl.where(to, token, on_token), tl.where(to, parent, on_parent)
        going += tl.where(stops, 0, 1)

    # What has just ended joins what had ended before, if it is better.
    kept_score = tl.load(done_scores + own, mask=real, other=float("-inf"))
    kept_count = tl.load(done_count + own, mask=real, other=0)
    kept_from = slot.to(tl.int64)
    if ended > 0:
        kept_score, kept_count, kept_from = _better(kept_score, kept_count, end_score, written, k, beams)
    is_new, old = kept_from >= beams, kept_from % beams
    same = old[:, None] == slot[None, :]
    end_logprob = tl.sum(tl.where(same, end_logprob[None, :], 0.0), 1)
    end_token = tl.sum(tl.where(same, end_token[None, :], 0), 1)
    end_parent = tl.sum(tl.where(same, end_parent[None, :], 0), 1)

    # All that was written so far goes along with those that it belongs to now.
    table = sentence * k * longest
    for start in range(0, written, columns):
        column = start + tl.arange(0, columns)
        inside, newest = real[:, None] & (column < written)[None, :], (column == at)[None, :]
        mine = table + slot[:, None] * longest + column
        of_parent = table + on_parent[:, None] * longest + column
        on_tokens = tl.where(newest, on_token[:, None], tl.load(tokens + of_parent, mask=inside))
        on_logprobs = tl.where(newest, on_logprob[:, None], tl.load(logprobs + of_parent, mask=inside))
        if ended > 0:
            of_new, of_old = table + end_parent[:, None] * longest + column, table + old[:, None] * longest + column
            is_one, was_one = inside & is_new[:, None], inside & (kept_from < beams)[:, None]
            end_tokens = tl.where(newest, end_token[:, None], tl.load(tokens + of_new, mask=is_one))
            end_logprobs = tl.where(newest, end_logprob[:, None], tl.load(logprobs + of_new, mask=is_one))
            end_tokens = tl.where(is_one, end_tokens, tl.load(done_tokens + of_old, mask=was_one))
            end_logprobs = tl.where(is_one, end_logprobs, tl.load(done_logprobs + of_old, mask=was_one))
            tl.debug_barrier()  # all is read before it is overwritten
            tl.store(done_tokens + mine, end_tokens, mask=inside)
            tl.store(done_logprobs + mine, end_logprobs, mask=inside)
        tl.debug_barrier()
        tl.store(tokens + mine, on_tokens, mask=inside)
        tl.store(logprobs + mine, on_logprobs, mask=inside)

    tl.store(scores + own, on_score, mask=real)
    tl.store(done_scores + own, kept_score, mask=real)
    tl.store(done_count + own, kept_count, mask=real)
    tl.store(chosen + own, on_token, mask=real)
    tl.store(parents + own, on_parent, mask=real)
    tl.store(count + sentence, written)
    over = tl.min(tl.where(real, kept_count, 1), 0) > 0
    if not early:
        leader = tl.sum(tl.where(slot == 0, on_score, 0.0), 0)
        leader = leader / tl.load(divisors + (most_tokens if hopeful else written))
        over = over & (leader <= tl.min(tl.where(real, kept_score, float("inf")), 0))
    tl.store(done + sentence, over | (written >= most_tokens))


@triton.jit
def _candidates(
    logits, banned, most, total, best, scores, sentence, width, logits_row, parts, k: tl.constexpr,
    each: tl.constexpr, bans: tl.constexpr, beams: tl.constexpr, rows: tl.constexpr, part: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """The log-probabilities of all continuations that may be among the 2k best, and the scores that they lead to; and of each
    part that they come from the hypothesis and the first token.

    The 2k best lie in no more than 2k parts, those whose best lead to the highest scores.
    """
    row, which = tl.arange(0, rows), tl.arange(0, block)
    there = (row < each)[:, None] & (which < parts)[None, :]
    here = (sentence * each + row)[:, None] * parts + which[None, :]
    maxima = tl.load(most + here, mask=there, other=float("-inf"))
    largest = tl.max(maxima, 1)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    whole = tl.sum(tl.load(total + here, mask=there, other=0.0) * tl.exp(maxima - largest[:, None]), 1)
    whole = largest + tl.log(tl.where(whole > 0.0, whole, 1.0))  # of a row without numbers there is nothing
    before = tl.load(scores + sentence * k + row, mask=row < each, other=0.0)
    best_of = tl.load(best + here, mask=there, other=float("-inf")) - whole[:, None] + before[:, None]
    best_of, place = tl.reshape(best_of, [rows * block]), tl.arange(0, rows * block)

    number = tl.arange(0, 2 * beams)
    from_row, from_token = tl.zeros([2 * beams], tl.int64), tl.zeros([2 * beams], tl.int64) + width
    for i in range(2 * k):
        highest, at = tl.max(best_of, 0, return_indices=True)
        best_of = tl.where(place == at, float("-inf"), best_of)
        to = number == tl.where(highest == float("-inf"), -1, i)  # there may be fewer
        from_row, from_token = tl.where(to, at // block, from_row), tl.where(to, at % block * part, from_token)
    token = from_token[:, None] + tl.arange(0, part)[None, :]
    logit = tl.load(
        logits + (sentence * each + from_row)[:, None] * logits_row + token, mask=token < width, other=float("-inf")
    ).to(tl.float32)
    for i in tl.static_range(bans):
        logit = tl.where(token == tl.load(banned + i), float("-inf"), logit)
    same = from_row[:, None] == row[None, :]
    logprob = logit - tl.sum(tl.where(same, whole[None, :], 0.0), 1)[:, None]
    score = logprob + tl.sum(tl.where(same, before[None, :], 0.0), 1)[:, None]
    score = tl.where(score == score, score, float("-inf"))
    return tl.reshape(logprob, [2 * beams * part]), tl.reshape(score, [2 * beams * part]), from_row, from_token


@triton.jit
def _better(old_score, old_count, new_score, written, k: tl.constexpr, beams: tl.constexpr):
    """The best k of old and new, in their order: scores, lengths and numbers, of which those of new ones begin at beams."""
    slot = tl.arange(0, beams)
    score, count, number = old_score, old_count, slot.to(tl.int64)
    for i in range(k):
        old, at_old = tl.max(old_score, 0, return_indices=True)
        new, at_new = tl.max(new_score, 0, return_indices=True)
        of_old, of_new = slot == tl.where(new > old, -1, at_old), slot == tl.where(new > old, at_new, -1)
        length = tl.where(new > old, written, tl.sum(tl.where(of_old, old_count, 0), 0))
        score, count = tl.where(slot == i, tl.maximum(old, new), score), tl.where(slot == i, length, count)
        number = tl.where(slot == i, tl.where(new > old, beams + at_new, at_old), number)
        old_score, new_score = tl.where(of_old, float("-inf"), old_score), tl.where(of_new, float("-inf"), new_score)
    return score, count, number
