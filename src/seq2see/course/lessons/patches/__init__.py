"""`patches`: pictures and sound as tokens, read by the same Transformer through cross-attention.

A picture is cut into patches, a sound into frames; each is described by a few numbers and named by the nearest entry of a code
book, which makes it a token. From there on nothing is new: one small encoder-decoder is trained to caption the pictures and to
write down the melodies, and its cross-attention shows which patch a word of the caption looks at.

Large models skip the code book. The last section cuts one sentence into tokens as they do: text, a picture of the text, and
speech (patches.npz: pixels, and sound by espeak-ng at 8 kHz). All three go through the same attention.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.data.layout import Packed
from seq2see.formats.media.pictures import cut_patches
from seq2see.formats.media.sounds import mel_rows, resample
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer

GRID, PATCH = 3, 4  # patches per side, pixels per side of a patch
SIDE = GRID * PATCH
# Shapes of 4 × 4 pixels. A picture shows two of them.
SHAPES = {
    "square": ("####", "#..#", "#..#", "####"),
    "cross": (".##.", "####", "####", ".##."),
    "slash": ("...#", "..#.", ".#..", "#..."),
    "dot": ("....", ".##.", ".##.", "...."),
    "bar": (".##.", ".##.", ".##.", ".##."),
    "roof": (".##.", "#..#", "....", "...."),
}
NUMBERS = ("one", "two", "three")
NOISE = 0.15  # of a pixel
RATE, FRAME = 800, 80  # samples per second, samples per frame
NOTES = {"do": 100.0, "re": 120.0, "mi": 140.0, "fa": 160.0, "sol": 190.0}  # frequencies in Hz; many periods per frame
MELODY = 4  # notes
EXAMPLE = ((1, "square"), (6, "cross"))  # patch and shape
SENTENCE, RECORDING_RATE = "we see what we say", 8000  # of patches.npz
SENTENCE_PATCH, MEL_BANDS = 8, 40
VOWEL = 6  # the frame in the middle of the vowel of the first “we”
SHARPNESS = 12.0  # of the attention between tokens of the sentence: their cosines are multiplied by it


@dataclass(frozen=True)
class Picture:
    pixels: kit.Matrix
    codes: tuple[str, ...]  # the token of each patch
    caption: str
    words: tuple[str, ...]  # of the model's caption
    attention: tuple[kit.Matrix, ...]  # per word: weights over the patches, as a square


@dataclass(frozen=True)
class Sound:
    samples: tuple[float, ...]
    codes: tuple[str, ...]  # the token of each frame
    frequencies: tuple[float, ...]  # the strongest of each frame, in Hz
    reference: str
    transcript: str


@dataclass(frozen=True)
class Cut:
    """A sentence as tokens of one kind, and the attention of one of them."""

    kind: str
    tokens: int
    numbers: int  # of each token
    query: int
    weights: kit.Matrix  # of the query, in the layout of the sentence: one line, or a picture


@dataclass(frozen=True)
class Result:
    picture: Picture
    sound: Sound
    picture_accuracy: float  # share of test pictures with the right caption
    sound_accuracy: float
    code_error: float  # share of patches of the test pictures that are named wrongly
    best_word: int  # the word of the caption that attends most sharply
    best_patch: int  # and where
    training_size: int  # different pictures and melodies
    curve: kit.LossCurve
    cuts: tuple[Cut, ...]  # of one sentence: text, picture, speech


def compute(steps: Annotated[int, kit.Bounds(10, 300)] = 250, seed: kit.Seed = 1) -> Result:
    """Trains one small encoder-decoder on captions of pictures and transcripts of melodies."""
    random, noise = Random(seed), torch.Generator().manual_seed(seed)
    places = list(range(GRID * GRID))
    scenes = [
        ((a, one), (b, other)) for a, b in product(places, places) if a < b for one, other in product(SHAPES, SHAPES)
    ]
    scenes.remove(EXAMPLE)
    melodies = list(product(NOTES, repeat=MELODY))
    random.shuffle(scenes)
    random.shuffle(melodies)
    test_scenes, test_melodies = [EXAMPLE, *scenes[:59]], melodies[:40]
    pictures = {scene: _picture(scene, noise) for scene in (*test_scenes, *scenes[59:])}
    sounds = {melody: _sound(melody, noise) for melody in melodies}
    pairs = {key: (" ".join(_patch_codes(pixels)), _caption(key)) for key, pixels in pictures.items()}
    heard = {key: (" ".join(_frame_codes(samples)), " ".join(key)) for key, samples in sounds.items()}
    training = [pairs[scene] for scene in scenes[59:]] + 3 * [heard[melody] for melody in melodies[40:]]
    test = [pairs[scene] for scene in test_scenes] + [heard[melody] for melody in test_melodies]
    with kit.prepare_dataset(training, test, seed) as dataset:
        model = kit.build_model(dataset.model_config, seed)
        curve = kit.train(model, dataset, steps, seed)
        outputs = kit.translate(model, dataset.tokenizer, [source for source, _ in test])
        right = [output == target for output, (_, target) in zip(outputs, test, strict=True)]
        words, weights = _attend(model, dataset, test[0][0], outputs[0])
    count = len(test_scenes)
    sharpest = max(range(len(words)), key=lambda i: float(weights[i].max())) if words else 0
    wrong = [
        code != wanted
        for scene in test_scenes
        for code, wanted in zip(_patch_codes(pictures[scene]), _true_codes(scene), strict=True)
    ]
    first_sound = test_melodies[0]
    return Result(
        Picture(
            kit.to_matrix(pictures[EXAMPLE]), tuple(test[0][0].split()), test[0][1], words,
            tuple(kit.to_matrix(row.unflatten(0, (GRID, GRID))) for row in weights),
        ),
        Sound(
            tuple(sounds[first_sound].tolist()), tuple(heard[first_sound][0].split()),
            tuple(i * RATE / FRAME for i in _strongest(sounds[first_sound])), " ".join(first_sound), outputs[count],
        ),
        sum(right[:count]) / count, sum(right[count:]) / len(test_melodies), sum(wrong) / len(wrong), sharpest,
        int(weights[sharpest].argmax()) if words else 0, len(set(training)), curve, cut_sentence(),
    )  # fmt: skip


def cut_sentence() -> tuple[Cut, ...]:
    """Cuts the sentence into words, patches of a picture and frames of speech, and compares the tokens of each by attention."""
    with np.load(Path(__file__).with_name("patches.npz")) as recorded:
        ink, samples = recorded["picture"], torch.from_numpy(recorded["sound"]).float() / 127
    words = SENTENCE.split()
    one_hot = torch.eye(len(words))[[words.index(word) for word in words]]
    patches = torch.from_numpy(cut_patches(ink[..., None], SENTENCE_PATCH)).double()
    frames = torch.from_numpy(mel_rows(resample(samples, RECORDING_RATE), MEL_BANDS)).double()
    rows = len(ink) // SENTENCE_PATCH
    return (
        _compare("text: words", one_hot, 1, 0),
        _compare("picture: patches", patches, rows, int(patches.sum(1).argmax())),
        _compare("sound: frames", frames, 1, VOWEL),
    )


def _compare(kind: str, vectors: Tensor, rows: int, query: int) -> Cut:
    """Attention without parameters: each token compares itself with all others, by the cosine of their numbers."""
    x = torch.nn.functional.normalize(vectors.double() - vectors.double().mean(0), dim=1)
    x *= (SHARPNESS * x.shape[1] ** 0.5) ** 0.5  # q · k / √d is then SHARPNESS × cosine
    weights = torch.tensor(kit.attention(x, x, x).weights)[query]
    return Cut(kind, len(vectors), vectors.shape[1], query, kit.to_matrix(weights.unflatten(0, (-1, rows)).T))


Scene = tuple[tuple[int, str], tuple[int, str]]


def _bitmap(shape: str) -> Tensor:
    return torch.tensor([[float(pixel == "#") for pixel in row] for row in SHAPES[shape]])


def _picture(scene: Scene, noise: torch.Generator) -> Tensor:
    """Draws a scene, with noise."""
    pixels = torch.zeros(SIDE, SIDE)
    for patch, shape in scene:
        y, x = (PATCH * i for i in divmod(patch, GRID))
        pixels[y : y + PATCH, x : x + PATCH] = _bitmap(shape)
    return pixels + NOISE * torch.randn(pixels.shape, generator=noise)


def cut(pixels: Tensor) -> Tensor:
    """Cuts a picture into patches, row by row: [patches, pixels]."""
    return pixels.unfold(0, PATCH, PATCH).unfold(1, PATCH, PATCH).flatten(0, 1).flatten(1)


def _patch_codes(pixels: Tensor) -> list[str]:
    """Names each patch by the nearest entry of the code book."""
    names = ["empty", *SHAPES]
    book = torch.stack([torch.zeros(PATCH * PATCH), *(_bitmap(shape).flatten() for shape in SHAPES)])
    return [f"patch{names[i]}" for i in torch.cdist(cut(pixels), book).argmin(1).tolist()]


def _true_codes(scene: Scene) -> list[str]:
    shapes = dict(scene)
    return [f"patch{shapes.get(i, 'empty')}" for i in range(GRID * GRID)]


def _caption(scene: Scene) -> str:
    """A caption names the shapes in reading order, and where the first stands."""
    (first, one), (_, other) = scene
    y = first // GRID
    return f"a {one} in row {NUMBERS[y]} before a {other}"


def _sound(melody: Sequence[str], noise: torch.Generator) -> Tensor:
    t = torch.arange(FRAME) / RATE
    samples = torch.cat([torch.sin(2 * math.pi * NOTES[note] * t) for note in melody])
    return samples + NOISE * torch.randn(samples.shape, generator=noise)


def _frame_codes(samples: Tensor) -> list[str]:
    """Names each frame by its strongest frequency, in letters: a is the lowest."""
    return [f"tone{chr(ord('a') + i)}" for i in _strongest(samples)]


def _strongest(samples: Tensor) -> list[int]:
    """The index of the strongest frequency of each frame, in steps of RATE / FRAME Hz."""
    spectrum = torch.fft.rfft(samples.unflatten(0, (-1, FRAME))).abs()
    return spectrum.argmax(1).tolist()


@torch.no_grad()
def _attend(model: Transformer, dataset: kit.Dataset, source: str, output: str) -> tuple[tuple[str, ...], Tensor]:
    """Returns the words of the caption, and the mean weights of the last layer over the patches, [words, patches]."""
    tokenizer = dataset.tokenizer
    ids = tokenizer.encode(output)
    packed = Packed.from_sequences([[*tokenizer.encode(source), tokenizer.end]])
    target = Packed.from_sequences([[tokenizer.start, *ids]])
    last = model.config.decoder_layers - 1
    with trace(model, only=f"decoder.{last}.cross.weights") as t:
        model(packed, target)
    weights = t[f"decoder.{last}.cross.weights", 0].mean(0)  # [words + 1, patches + 1]
    return tuple(output.split()), weights[: len(ids), :-1]


def values(result: Result) -> kit.Values:
    picture, (text, drawn, sound) = result.picture, result.cuts
    codes = [code.removeprefix("patch") for code in picture.codes]
    row, column = divmod(result.best_patch, GRID)
    return {
        "side": [str(i) for i in range(len(picture.pixels))],
        "output": " ".join(picture.words),
        "best": picture.words[result.best_word] if picture.words else None,
        "best_place": (row + 1, column + 1, codes[result.best_patch]),
        "best_weight": picture.attention[result.best_word][row][column] if picture.words else 0.0,
        "columns": [f"column {i + 1}" for i in range(GRID)],
        "rows": [f"row {i + 1}" for i in range(GRID)],
        "code_rows": [(f"row {i + 1}", *codes[GRID * i : GRID * i + GRID]) for i in range(GRID)],
        "attended": list(zip(picture.words, picture.attention, strict=True)),
        "text": text,
        "drawn": drawn,
        "drawn_letter": SENTENCE[drawn.query // len(drawn.weights)],
        "drawn_rows": [f"row {i + 1}" for i in range(len(drawn.weights))],
        "speech": sound,
        "vowels": [0.02 * i for i in _elsewhere(sound)],
    }


def _elsewhere(sound: Cut, gap: int = 5, count: int = 2) -> list[int]:
    """The moments with the highest weights that are not next to each other or to the query."""
    found = [sound.query]
    weights = sound.weights[0]
    for i in sorted(range(len(weights)), key=lambda i: -weights[i]):
        if all(abs(i - other) >= gap for other in found):
            found.append(i)
    return sorted(found[1 : 1 + count])


def answers() -> kit.Values:
    patches = cut(torch.zeros(2 * SIDE, 2 * SIDE))
    samples = torch.sin(2 * math.pi * 160 * torch.arange(FRAME) / RATE)
    return {
        "tokens": float(len(patches)),
        "numbers": float(patches.shape[1]),
        "periods": float(torch.fft.rfft(samples).abs().argmax()),
    }
