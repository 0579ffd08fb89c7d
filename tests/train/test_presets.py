"""The preset that is chosen for a corpus."""

import pytest

from seq2see.train.presets import preset_for_media, preset_for_size


@pytest.mark.parametrize(
    ("pairs", "preset"),
    [(1, "tiny"), (49_999, "tiny"), (50_000, "small"), (999_999, "small"), (1_000_000, "paper-base")],
)
def test_larger_corpora_get_larger_models(pairs: int, preset: str) -> None:
    assert preset_for_size(pairs=pairs) == preset


@pytest.mark.parametrize(("text_bytes", "preset"), [(19_999_999, "baby-gpt"), (20_000_000, "small-gpt")])
def test_larger_texts_get_larger_models(text_bytes: int, preset: str) -> None:
    assert preset_for_size(text_bytes=text_bytes) == preset


def test_pictures_and_sounds_have_presets_of_their_own() -> None:
    assert preset_for_media("pictures") == "tiny-vision"
    assert preset_for_media("sounds") == "tiny-speech"
