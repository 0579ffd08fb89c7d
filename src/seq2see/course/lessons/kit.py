"""What lessons compute with, under one name: `from seq2see.course.lessons import kit`."""

# mypy: implicit-reexport
# ruff: noqa: F401

from seq2see.api import Model
from seq2see.course.lessons.attention import Features, Matrix, Steps, attention, look_up, to_matrix, to_tensor
from seq2see.course.lessons.document import Table, format_small, format_vector
from seq2see.course.lessons.models import (
    block_steps,
    explain_next,
    explain_sentence,
    find_language_model,
    input_stack,
    input_words,
    next_tokens,
    relative_change,
    resolve_decoder,
    resolve_model,
    resolve_translator,
    set_causal,
)
from seq2see.course.lessons.settings import MAY_BE_EMPTY, Bounds, Seed
from seq2see.course.lessons.template import matrix
from seq2see.course.lessons.training import (
    Dataset,
    LossCurve,
    before_each_step,
    best_seconds,
    build_model,
    prepare_dataset,
    single_thread,
    train,
    translate,
)
from seq2see.errors import UserError, did_you_mean

Values = dict[str, object]  # for a lesson.md, by the names that it uses
