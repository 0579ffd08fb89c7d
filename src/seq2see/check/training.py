"""The data check before a training: what it refuses, and the summary that it prints."""

from seq2see.check.media_files import check_media
from seq2see.check.pairs import CheckSettings, check_pairs
from seq2see.check.report import summary
from seq2see.data.corpus import ParallelCorpus
from seq2see.errors import ProgressFactory, UserError


def check_training_pairs(
    pairs: ParallelCorpus, valid: ParallelCorpus | None, max_length: int, media: bool, progress: ProgressFactory
) -> tuple[int, str]:
    """Returns the number of pairs and a summary; raises a UserError if they cannot be trained on."""
    settings = CheckSettings(max_length=max_length, progress=progress)
    if media:
        report = check_media(pairs, None, settings, valid)  # the files themselves are read into the token store
    else:
        report = check_pairs(pairs, settings, valid).report
    if not report.trainable:
        raise UserError(summary(report).replace("\n", "; "))
    return report.count, summary(report)
