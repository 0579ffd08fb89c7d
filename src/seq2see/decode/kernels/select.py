"""Triton kernels that select the next tokens: one pass over the logits, then one small program per sentence.

`greedy_step` selects and records the most likely token; `beam_step` is a whole step of a beam search.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.decode.kernels.attention import PDL, wait_for_previous

CHUNK = 4096  # logits per program of the first pass
PART = 256  # logits per part; a beam search reads only the best few parts again
VECTOR = 8  # logits read at once if each row begins at a multiple of it; memory is allocated in larger units
COLUMNS = 64  # tokens of a hypothesis copied per iteration


def greedy_step(
    logits: Tensor, banned: Tensor, tokens: Tensor, logprobs: Tensor, count: Tensor, limit: Tensor, done: Tensor,
    end: int,
) -> Tensor:  # fmt: skip
    """Returns the most likely token of each row that is not banned; updates tokens, logprobs, count and done in place."""
    selected = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    maxima, total, best, index = _summarize_parts(logits, banned, CHUNK)
    _greedy_step_kernel[(len(logits),)](
        maxima, total, best, index, tokens, logprobs, count, limit, done, selected, end, tokens.stride(0),
        logprobs.stride(0), maxima.shape[1], block=triton.next_power_of_2(maxima.shape[1]), **PDL,
    )  # fmt: skip
    return selected


def beam_step(
    logits: Tensor, banned: Tensor, tables: Sequence[Tensor], divisors: Tensor, end: int, stop_early: bool,
    score_at_limit: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Runs one step of `BeamSearch` on its tables, in their order there; returns the next tokens and their parents.

    Finished hypotheses are ranked by their sum of log-probabilities over divisors[length].
    """
    (size, k, max_length), logit_rows = tables[0].shape, len(logits) // len(tables[0])
    selected = torch.empty(size * k, dtype=torch.int64, device=logits.device)
    parents = torch.empty(size, k, dtype=torch.int64, device=logits.device)
    maxima, total, best, _ = _summarize_parts(logits, banned, PART)
    _beam_step_kernel[(size,)](
        logits, banned, maxima, total, best, *tables, divisors, selected, parents, end, logits.shape[1], logits.stride(0),
        maxima.shape[1], max_length, k=k, logit_rows=logit_rows, banned_count=len(banned), stop_early=stop_early,
        score_at_limit=score_at_limit, beams=triton.next_power_of_2(k), rows=triton.next_power_of_2(logit_rows), part=PART,
        block=triton.next_power_of_2(maxima.shape[1]), columns=COLUMNS, **PDL,
    )  # fmt: skip
    return selected, parents


def _summarize_parts(logits: Tensor, banned: Tensor, part: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns for each part of each row, [rows, parts]: its maximum, the sum of exponentials relative to that, the maximum
    over tokens that are not banned and, if a part is a whole chunk, the token of the latter.
    """
    rows, width = logits.shape
    parts = triton.cdiv(width, part)
    maxima, total, best = torch.empty(3, rows, parts, dtype=torch.float32, device=logits.device)
    index = torch.empty(rows, parts if part == CHUNK else 0, dtype=torch.int64, device=logits.device)
    _summarize_kernel[(rows, triton.cdiv(width, CHUNK))](
        logits, banned, maxima, total, best, index, width, logits.stride(0), parts, banned_count=len(banned), part=part,
        parts_per_program=CHUNK // part, aligned=rows == 1 or logits.stride(0) % VECTOR == 0, **PDL,
    )  # fmt: skip
    return maxima, total, best, index


@triton.jit
def _summarize_kernel(
    logits, banned, maxima, total, best, index, width, logits_row, parts, banned_count: tl.constexpr, part: tl.constexpr,
    parts_per_program: tl.constexpr, aligned: tl.constexpr, use_pdl: tl.constexpr,
):  # fmt: skip
    wait_for_previous(use_pdl)
    row = tl.program_id(0).to(tl.int64)
    part_index = tl.program_id(1) * parts_per_program + tl.arange(0, parts_per_program)
    token = part_index[:, None] * part + tl.arange(0, part)[None, :]
    loaded = width
    if (
        aligned
    ):  # these products tell the compiler that it can load 8 values at once, up to where the next row may begin
        logits_row, loaded = logits_row // 8 * 8, tl.cdiv(width, 8) * 8
    x = tl.load(logits + row * logits_row + token, mask=token < loaded, other=float("-inf")).to(tl.float32)
    x = tl.where((token < width) & (x == x), x, float("-inf"))  # unused rows may hold NaN
    offset, valid = row * parts + part_index, part_index < parts
    part_max = tl.max(x, 1)
    tl.store(maxima + offset, part_max, mask=valid)
    relative = x - tl.where(part_max == float("-inf"), 0.0, part_max)[:, None]
    tl.store(total + offset, tl.sum(tl.exp(relative), 1), mask=valid)
    for i in tl.static_range(banned_count):
        x = tl.where(token == tl.load(banned + i), float("-inf"), x)
    tl.store(best + offset, tl.max(x, 1), mask=valid)
    if parts_per_program == 1:
        tl.store(index + offset, part_index * part + tl.argmax(x, 1), mask=valid)


@triton.jit
def _greedy_step_kernel(
    maxima, total, best, index, tokens, logprobs, count, limit, done, selected, end, tokens_row, logprobs_row, parts,
    block: tl.constexpr, use_pdl: tl.constexpr,
):  # fmt: skip
    wait_for_previous(use_pdl)
    row, part = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    offset, valid = row * parts + part, part < parts
    part_maxima = tl.load(maxima + offset, mask=valid, other=float("-inf"))
    row_max = tl.max(part_maxima, 0)
    part_totals = tl.load(total + offset, mask=valid, other=0.0)
    log_total = row_max + tl.log(tl.sum(part_totals * tl.exp(part_maxima - row_max), 0))
    scores = tl.load(best + offset, mask=valid, other=float("-inf"))
    token = tl.sum(tl.where(part == tl.argmax(scores, 0), tl.load(index + offset, mask=valid, other=0), 0), 0)
    step = tl.load(count + row)
    tl.store(tokens + row * tokens_row + step, token)
    tl.store(logprobs + row * logprobs_row + step, tl.max(scores, 0) - log_total)
    was_done = tl.load(done + row)
    length = step + tl.where(was_done, 0, 1)
    tl.store(count + row, length)
    tl.store(done + row, was_done | (token == end) | (length >= tl.load(limit + row)))
    tl.store(selected + row, token)


@triton.jit
def _beam_step_kernel(
    logits, banned, maxima, total, best, tokens, done_tokens, logprobs, done_logprobs, scores, done_scores, done_count,
    count, limit, done, divisors, selected, parents, end, width, logits_row, parts, max_length, k: tl.constexpr,
    logit_rows: tl.constexpr, banned_count: tl.constexpr, stop_early: tl.constexpr, score_at_limit: tl.constexpr,
    beams: tl.constexpr, rows: tl.constexpr, part: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
    use_pdl: tl.constexpr,
):  # fmt: skip
    """One program per sentence. Of its k hypotheses, `logit_rows` have logits: one at the first step, then all."""
    wait_for_previous(use_pdl)
    sentence, beam = tl.program_id(0).to(tl.int64), tl.arange(0, beams)
    valid, own_rows = beam < k, sentence * k + beam
    if tl.load(done + sentence):  # until the host removes it
        tl.store(selected + own_rows, beam * 0, mask=valid)
        tl.store(parents + own_rows, beam, mask=valid)
        return
    step, max_tokens = tl.load(count + sentence), tl.load(limit + sentence)
    length = step + 1
    logprob, score, from_row, from_token = _candidates(
        logits, banned, maxima, total, best, scores, sentence, width, logits_row, parts, k, logit_rows, banned_count,
        beams, rows, part, block,
    )  # fmt: skip
    divisor = tl.load(divisors + length)
    next_score, next_logprob, next_token, next_parent, end_score, end_logprob, end_token, end_parent, ended = _choose(
        score, logprob, from_row, from_token, end, length >= max_tokens, divisor, k, beams, part
    )

    # Merge the hypotheses that just ended into the k best finished ones.
    merged_score = tl.load(done_scores + own_rows, mask=valid, other=float("-inf"))
    merged_count = tl.load(done_count + own_rows, mask=valid, other=0)
    merged_from = beam.to(tl.int64)
    if ended > 0:
        merged_score, merged_count, merged_from = _merge_best(merged_score, merged_count, end_score, length, k, beams)
    _copy_hypotheses(
        tokens, logprobs, done_tokens, done_logprobs, sentence * k * max_length, max_length, length, valid, next_token,
        next_logprob, next_parent, end_token, end_logprob, end_parent, merged_from, ended, beams, columns,
    )  # fmt: skip
    tl.store(scores + own_rows, next_score, mask=valid)
    tl.store(done_scores + own_rows, merged_score, mask=valid)
    tl.store(done_count + own_rows, merged_count, mask=valid)
    tl.store(selected + own_rows, next_token, mask=valid)
    tl.store(parents + own_rows, next_parent, mask=valid)
    tl.store(count + sentence, length)
    is_done = tl.min(tl.where(valid, merged_count, 1), 0) > 0
    if not stop_early:
        best_running = tl.sum(tl.where(beam == 0, next_score, 0.0), 0)
        best_running = best_running / tl.load(divisors + (max_tokens if score_at_limit else length))
        is_done = is_done & (best_running <= tl.min(tl.where(valid, merged_score, float("inf")), 0))
    tl.store(done + sentence, is_done | (length >= max_tokens))


@triton.jit
def _candidates(
    logits, banned, maxima, total, best, scores, sentence, width, logits_row, parts, k: tl.constexpr,
    logit_rows: tl.constexpr, banned_count: tl.constexpr, beams: tl.constexpr, rows: tl.constexpr, part: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """Returns log-probabilities and scores of all tokens in the 2k best parts, and the hypothesis and first token of each part.

    The 2k best continuations lie in the 2k parts whose best tokens have the highest scores.
    """
    row, part_index = tl.arange(0, rows), tl.arange(0, block)
    in_range = (row < logit_rows)[:, None] & (part_index < parts)[None, :]
    offset = (sentence * logit_rows + row)[:, None] * parts + part_index[None, :]
    part_maxima = tl.load(maxima + offset, mask=in_range, other=float("-inf"))
    row_max = tl.max(part_maxima, 1)
    row_max = tl.where(row_max == float("-inf"), 0.0, row_max)
    row_total = tl.sum(tl.load(total + offset, mask=in_range, other=0.0) * tl.exp(part_maxima - row_max[:, None]), 1)
    log_total = row_max + tl.log(tl.where(row_total > 0.0, row_total, 1.0))  # a row of NaN has no candidates
    parent_score = tl.load(scores + sentence * k + row, mask=row < logit_rows, other=0.0)
    part_best = tl.load(best + offset, mask=in_range, other=float("-inf")) - log_total[:, None] + parent_score[:, None]
    part_best, flat_index = tl.reshape(part_best, [rows * block]), tl.arange(0, rows * block)

    part_number = tl.arange(0, 2 * beams)
    from_row, from_token = tl.zeros([2 * beams], tl.int64), tl.zeros([2 * beams], tl.int64) + width
    for i in range(2 * k):
        best_score, best_index = tl.max(part_best, 0, return_indices=True)
        part_best = tl.where(flat_index == best_index, float("-inf"), part_best)
        dest = part_number == tl.where(best_score == float("-inf"), -1, i)  # fewer than 2k parts
        from_row = tl.where(dest, best_index // block, from_row)
        from_token = tl.where(dest, best_index % block * part, from_token)
    token = from_token[:, None] + tl.arange(0, part)[None, :]
    logit = tl.load(
        logits + (sentence * logit_rows + from_row)[:, None] * logits_row + token,
        mask=token < width,
        other=float("-inf"),
    ).to(tl.float32)
    for i in tl.static_range(banned_count):
        logit = tl.where(token == tl.load(banned + i), float("-inf"), logit)
    same = from_row[:, None] == row[None, :]
    logprob = logit - tl.sum(tl.where(same, log_total[None, :], 0.0), 1)[:, None]
    score = logprob + tl.sum(tl.where(same, parent_score[None, :], 0.0), 1)[:, None]
    score = tl.where(score == score, score, float("-inf"))
    return tl.reshape(logprob, [2 * beams * part]), tl.reshape(score, [2 * beams * part]), from_row, from_token


@triton.jit
def _choose(
    score,
    logprob,
    from_row,
    from_token,
    end,
    at_limit,
    divisor,
    k: tl.constexpr,
    beams: tl.constexpr,
    part: tl.constexpr,
):
    """Of the 2k best, those that end are finished if among the first k; the first k of the others continue.

    Returns scores, log-probabilities, tokens and parents of those that continue, then of those that end, and how many end.
    """
    candidate, part_number = tl.arange(0, 2 * beams * part), tl.arange(0, 2 * beams)

    beam = tl.arange(0, beams)
    zeros, int_zeros = tl.zeros([beams], tl.float32), tl.zeros([beams], tl.int64)
    next_score, next_logprob, next_token, next_parent = zeros - float("inf"), zeros, int_zeros, int_zeros
    end_score, end_logprob, end_token, end_parent = zeros - float("inf"), zeros, int_zeros, int_zeros
    continuing, ended = 0, 0
    for i in range(2 * k):
        best_score, best_index = tl.max(score, 0, return_indices=True)
        is_best, is_origin = candidate == best_index, part_number == best_index // part
        score = tl.where(is_best, float("-inf"), score)
        best_logprob = tl.sum(tl.where(is_best, logprob, 0.0), 0)
        parent = tl.sum(tl.where(is_origin, from_row, 0), 0)
        token = tl.sum(tl.where(is_origin, from_token, 0), 0) + best_index % part
        ends = ((token == end) | at_limit) & (i < k)
        dest = beam == tl.where(ends, i, -1)
        end_score = tl.where(dest, best_score / divisor, end_score)
        end_logprob = tl.where(dest, best_logprob, end_logprob)
        end_token, end_parent = tl.where(dest, token, end_token), tl.where(dest, parent, end_parent)
        ended += tl.where(ends, 1, 0)
        excluded = (token == end) | (best_score == float("-inf"))  # fewer than 2k candidates
        dest = beam == tl.where(excluded, -1, continuing)
        next_score = tl.where(dest, best_score, next_score)
        next_logprob = tl.where(dest, best_logprob, next_logprob)
        next_token, next_parent = tl.where(dest, token, next_token), tl.where(dest, parent, next_parent)
        continuing += tl.where(excluded, 0, 1)
    return (next_score, next_logprob, next_token, next_parent, end_score, end_logprob, end_token, end_parent, ended)


@triton.jit
def _copy_hypotheses(
    tokens, logprobs, done_tokens, done_logprobs, table, max_length, length, valid, next_token, next_logprob, next_parent,
    end_token, end_logprob, end_parent, merged_from, ended, beams: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Copies the tokens and log-probabilities so far to the hypotheses that continue them."""
    beam = tl.arange(0, beams)
    is_new, old_beam = merged_from >= beams, merged_from % beams
    same = old_beam[:, None] == beam[None, :]
    end_logprob = tl.sum(tl.where(same, end_logprob[None, :], 0.0), 1)
    end_token = tl.sum(tl.where(same, end_token[None, :], 0), 1)
    end_parent = tl.sum(tl.where(same, end_parent[None, :], 0), 1)
    for start in range(0, length, columns):
        column = start + tl.arange(0, columns)
        in_range, is_newest = valid[:, None] & (column < length)[None, :], (column == length - 1)[None, :]
        own_columns = table + beam[:, None] * max_length + column
        parent_columns = table + next_parent[:, None] * max_length + column
        next_tokens = tl.where(is_newest, next_token[:, None], tl.load(tokens + parent_columns, mask=in_range))
        next_logprobs = tl.where(is_newest, next_logprob[:, None], tl.load(logprobs + parent_columns, mask=in_range))
        if ended > 0:
            new_columns = table + end_parent[:, None] * max_length + column
            old_columns = table + old_beam[:, None] * max_length + column
            new_mask, old_mask = in_range & is_new[:, None], in_range & (merged_from < beams)[:, None]
            end_tokens = tl.where(is_newest, end_token[:, None], tl.load(tokens + new_columns, mask=new_mask))
            end_logprobs = tl.where(is_newest, end_logprob[:, None], tl.load(logprobs + new_columns, mask=new_mask))
            end_tokens = tl.where(new_mask, end_tokens, tl.load(done_tokens + old_columns, mask=old_mask))
            end_logprobs = tl.where(new_mask, end_logprobs, tl.load(done_logprobs + old_columns, mask=old_mask))
            tl.debug_barrier()  # everything is read before it is overwritten
            tl.store(done_tokens + own_columns, end_tokens, mask=in_range)
            tl.store(done_logprobs + own_columns, end_logprobs, mask=in_range)
        tl.debug_barrier()
        tl.store(tokens + own_columns, next_tokens, mask=in_range)
        tl.store(logprobs + own_columns, next_logprobs, mask=in_range)


@triton.jit
def _merge_best(old_score, old_count, new_score, length, k: tl.constexpr, beams: tl.constexpr):
    """Returns scores, lengths and origins of the best k of old and new, in order; the origins of new ones start at `beams`."""
    beam = tl.arange(0, beams)
    score, count, origin = old_score, old_count, beam.to(tl.int64)
    for i in range(k):
        old, old_index = tl.max(old_score, 0, return_indices=True)
        new, new_index = tl.max(new_score, 0, return_indices=True)
        is_old, is_new = beam == tl.where(new > old, -1, old_index), beam == tl.where(new > old, new_index, -1)
        best_length = tl.where(new > old, length, tl.sum(tl.where(is_old, old_count, 0), 0))
        score, count = tl.where(beam == i, tl.maximum(old, new), score), tl.where(beam == i, best_length, count)
        origin = tl.where(beam == i, tl.where(new > old, beams + new_index, old_index), origin)
        old_score, new_score = tl.where(is_old, float("-inf"), old_score), tl.where(is_new, float("-inf"), new_score)
    return score, count, origin
