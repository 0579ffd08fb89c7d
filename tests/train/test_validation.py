"""Scores on the validation set."""

from dataclasses import replace

import pytest

from seq2see.evaluate.metrics import RecognitionScores
from seq2see.train.validation import Scores


def test_the_metric_that_selects_the_checkpoint_is_recorded_and_printed() -> None:
    scores = Scores(2.0, 10.0, 20.0, translations=("one two",), references=[["one three"]], metric="wer")
    assert scores.metrics["wer"] == 0.5 and scores.value == pytest.approx(-0.5, abs=1e-5)
    assert str(scores).endswith("chrF++ 20.0  word error rate 50.0%")
    pictures = replace(scores, recognition=RecognitionScores(0.0, 0.4, 0.5))  # which has this rate
    assert "wer" not in pictures.metrics and str(pictures).count("50.0%") == 1
