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

import numpy as np
import torch
from torch import Tensor

from seq2see.course.lessons.attention import Matrix, attention, to_matrix
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.render import (
    ATTENTION,
    LANGUAGE_MODELS,
    HeatMap,
    LessonText,
    Library,
    Note,
    Part,
    Section,
    Table,
    Try,
)
from seq2see.course.lessons.training import Dataset, LossCurve, build_model, prepare_dataset, train, translate
from seq2see.data.layout import Packed
from seq2see.data.media.pictures import cut_patches
from seq2see.data.media.sounds import mel_rows, resample
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer

GRID, PATCH = 3, 4  # patches per side, pixels per side of a patch
SIDE = GRID * PATCH
# Shapes of 4 × 4 pixels. A picture shows two of them.
SHAPES = {
    "square": ("####", "#..#", "#..#", "####"), "cross": (".##.", "####", "####", ".##."),
    "slash": ("...#", "..#.", ".#..", "#..."), "dot": ("....", ".##.", ".##.", "...."),
    "bar": (".##.", ".##.", ".##.", ".##."), "roof": (".##.", "#..#", "....", "...."),
}  # fmt: skip
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
    pixels: Matrix
    codes: tuple[str, ...]  # the token of each patch
    caption: str
    words: tuple[str, ...]  # of the model's caption
    attention: tuple[Matrix, ...]  # per word: weights over the patches, as a square


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
    weights: Matrix  # of the query, in the layout of the sentence: one line, or a picture


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
    curve: LossCurve
    cuts: tuple[Cut, ...]  # of one sentence: text, picture, speech


def compute(steps: int = 250, seed: int = 1) -> Result:
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
    with prepare_dataset(training, test, seed) as dataset:
        model = build_model(dataset.model_config, seed)
        curve = train(model, dataset, steps, seed)
        outputs = translate(model, dataset.tokenizer, [source for source, _ in test])
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
            to_matrix(pictures[EXAMPLE]), tuple(test[0][0].split()), test[0][1], words,
            tuple(to_matrix(row.unflatten(0, (GRID, GRID))) for row in weights),
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
    weights = torch.tensor(attention(x, x, x).weights)[query]
    return Cut(kind, len(vectors), vectors.shape[1], query, to_matrix(weights.unflatten(0, (-1, rows)).T))


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
def _attend(model: Transformer, dataset: Dataset, source: str, output: str) -> tuple[tuple[str, ...], Tensor]:
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


def describe(result: Result) -> LessonText:
    picture, sound = result.picture, result.sound
    numbers = tuple(str(i) for i in range(len(picture.pixels)))
    caption = " ".join(picture.words)
    parts: list[Part] = []
    if picture.words:
        word = picture.words[result.best_word]
        y, x = divmod(result.best_patch, GRID)
        parts.append(
            f"The word that looks most sharply at one patch is “{word}”: "
            f"{picture.attention[result.best_word][y][x]:.2f} of its weight lies on row {y + 1}, column {x + 1}, which "
            f"shows: {picture.codes[result.best_patch].removeprefix('patch')}."
        )
    return LessonText(
        f"a picture of {SIDE} × {SIDE} pixels, cut into {GRID} × {GRID} patches. Each patch becomes a token, and the "
        "model describes the sequence of tokens as it would translate a sentence.",
        (HeatMap("The picture", numbers, (), picture.pixels),),
        (
            f"Caption by the model: “{caption}”"
            + (". It is right." if caption == picture.caption else f"; right would be “{picture.caption}”."),
            *parts,
        ),
        f"To a Transformer a patch is a token like any other. One model, trained on {result.training_size:,} pictures "
        f"and melodies just now, captions {result.picture_accuracy:.0%} of the test pictures and writes down "
        f"{result.sound_accuracy:.0%} of the test melodies correctly. Cross-attention takes its keys and values from "
        "patches, frames or words alike.",
        Library(
            "patches = pixels.unfold(0, 4, 4).unfold(1, 4, 4).flatten(0, 1).flatten(1)\n"
            "network(Packed.from_sequences([codes]), Packed.from_sequences([caption]))",
            "course/lessons/patches/__init__.py",
        ),
        (
            Section(
                "From pixels to tokens",
                (
                    Table(
                        ("", *(f"column {i + 1}" for i in range(GRID))),
                        tuple(
                            (
                                f"row {i + 1}",
                                *(code.removeprefix("patch") for code in picture.codes[GRID * i : GRID * i + GRID]),
                            )
                            for i in range(GRID)
                        ),
                        "The token of each patch: the nearest entry of a code book",
                    ),
                    f"{result.code_error:.1%} of the patches of the test pictures are named wrongly, because of the "
                    "noise. (Large models skip the code book: they multiply the numbers of a patch by a learned matrix "
                    "and use the result as its vector.)",
                ),
            ),
            Section(
                "Which patch each word looks at",
                tuple(
                    HeatMap(f"“{word}”", tuple(f"row {i + 1}" for i in range(GRID)), (), weights)
                    for word, weights in zip(picture.words, picture.attention, strict=True)
                ),
            ),
            Section(
                "Sound: frames instead of patches",
                (
                    f"{len(sound.samples)} samples, cut into {len(sound.codes)} frames of {FRAME}; the strongest "
                    f"frequency names each: {', '.join(f'{f:.0f} Hz' for f in sound.frequencies)}, the tokens "
                    f"{' '.join(sound.codes)}.",
                    f"The model writes “{sound.transcript}”"
                    + (
                        ", which is right."
                        if sound.transcript == sound.reference
                        else f"; right would be “{sound.reference}”."
                    )
                    + " Speech recognition works the same way, with finer frames and a larger model.",
                ),
            ),
            Section("One sentence: as text, as a picture, as speech", _sentence_parts(result.cuts)),
        ),
        (Try("Fewer steps: what does it get right first?", {"steps": 50}), Try("Other pictures.", options="--seed 2")),
        (
            Note(
                LANGUAGE_MODELS,
                "“Tokens – patches of sound / text / picture”: all three, above and in the other lessons.",
            ),
            Note(
                ATTENTION,
                "Cross-attention also serves “multi-model” tasks: “image captioning, text to speech, text to image”. "
                "Captioning and transcription are trained above; to speak or to draw, the decoder would have to "
                "produce codes of sound or picture instead of words.",
            ),
        ),
    )


def _sentence_parts(cuts: Sequence[Cut]) -> tuple[Part, ...]:
    text, picture, sound = cuts
    return (
        Table(
            ("", "tokens", "numbers in each"), tuple((each.kind, each.tokens, each.numbers) for each in cuts),
            f"“{SENTENCE}”, cut as large models cut it", decimals=0,
        ),
        f"Below, one token of each kind compares its own numbers with those of all others, by softmax({SHARPNESS:.0f} × "
        "cosine): attention before anything is learned. It finds what is like it: the same word, the same stroke of a "
        "letter, the same vowel. What a token was made of makes no difference to the computation.",
        HeatMap(f"Text: “{SENTENCE.split()[text.query]}” attends to", ("",), tuple(SENTENCE.split()), text.weights),
        HeatMap(
            f"Picture: a patch of “{SENTENCE[picture.query // len(picture.weights)]}” attends to",
            tuple(f"row {i + 1}" for i in range(len(picture.weights))), tuple(SENTENCE), picture.weights,
        ),
        HeatMap(f"Speech: the vowel of “we”, at {0.02 * sound.query:.2f} s, attends to", ("",), (), sound.weights),
        f"The same vowel is at {' and '.join(f'{0.02 * i:.2f} s' for i in _elsewhere(sound))}, in “see” and "
        "in the second “we”.",
        "`seq2see train --pictures` and `--sounds` train models that read such tokens; `seq2see explain` shows where "
        "they look.",
    )  # fmt: skip


def _elsewhere(sound: Cut, gap: int = 5, count: int = 2) -> list[int]:
    """The moments with the highest weights that are not next to each other or to the query."""
    found = [sound.query]
    weights = sound.weights[0]
    for i in sorted(range(len(weights)), key=lambda i: -weights[i]):
        if all(abs(i - other) >= gap for other in found):
            found.append(i)
    return sorted(found[1 : 1 + count])


def exercises() -> tuple[Exercise, ...]:
    patches = cut(torch.zeros(2 * SIDE, 2 * SIDE))
    samples = torch.sin(2 * math.pi * 160 * torch.arange(FRAME) / RATE)
    return (
        Exercise(
            f"A picture of {2 * SIDE} × {2 * SIDE} pixels is cut into patches of {PATCH} × {PATCH}. How many tokens "
            "does it become?",
            float(len(patches)),
            f"{2 * GRID} rows of {2 * GRID}.",
        ),
        Exercise("How many numbers describe one patch?", float(patches.shape[1]), f"{PATCH} × {PATCH} pixels."),
        Exercise(
            f"A frame of {FRAME} samples, {RATE} per second, holds a tone of 160 Hz. How many periods?",
            float(torch.fft.rfft(samples).abs().argmax()),
            f"{FRAME} / {RATE} = 0.1 s, times 160. The strongest component of its spectrum is that number.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    picture = result.picture
    shown = [(word, weights) for word, weights in zip(picture.words, picture.attention, strict=True) if word in SHAPES]
    figure, axes = subplots(1 + len(shown))
    axes[0].imshow(picture.pixels, cmap="Greys")
    axes[0].set_title(" ".join(picture.words), fontsize=10, loc="left")
    for ax, (word, weights) in zip(axes[1:], shown, strict=True):
        numbers = [str(i + 1) for i in range(GRID)]
        heatmap(ax, weights, numbers, numbers, f"“{word}” attends to")
    save_figure(figure, path)
