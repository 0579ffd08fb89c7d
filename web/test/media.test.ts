import assert from "node:assert/strict";
import test from "node:test";
import { type ModelConfig, Tensor } from "../src/api";
import { pictureOf, placeOf, rowAt, spectrogramOf, tokenAt } from "../src/media/media";

const PICTURE = { source: "pictures", picture_height: 4, patch_size: 2, channels: 1, mel_bands: 80 } as ModelConfig;
const SOUND = { ...PICTURE, source: "sounds", mel_bands: 2 } as ModelConfig;

test("patches are joined column by column", () => {
  // Four patches of 2 × 2 pixels: two rows, two columns. The value of a pixel tells its patch and place.
  const patches = new Tensor(
    [4, 4],
    Float32Array.from({ length: 16 }, (_, i) => i / 7.5 - 1),
  );
  const { width, height, data } = pictureOf(patches, PICTURE);
  assert.deepEqual([width, height], [4, 4]);
  const red = Array.from({ length: 16 }, (_, i) => Math.round(data[4 * i] / 17));
  assert.deepEqual(red, [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
});

test("three channels are red, green and blue", () => {
  const pixel = new Tensor([2, 12], new Float32Array(24).fill(-1));
  pixel.data.set([1, -1, 0], 0);
  assert.deepEqual([...pictureOf(pixel, { ...PICTURE, channels: 3 }).data.slice(0, 4)], [255, 0, 128, 255]);
});

test("low bands are at the bottom of a spectrogram, and louder is lighter", () => {
  const { width, height, data } = spectrogramOf(new Tensor([1, 4], Float32Array.from([0, 0, 1, 0])), SOUND);
  assert.deepEqual([width, height], [2, 2]);
  const red = Array.from({ length: 4 }, (_, i) => data[4 * i]);
  assert.deepEqual(red, [0, 0, 0, 255]); // the lower band of the second frame
});

test("a place has the token that is there", () => {
  for (const config of [PICTURE, SOUND])
    for (let token = 0; token < 6; token++) {
      const { x, y, width, height } = placeOf(token, 6, config);
      assert.equal(tokenAt(x + width / 2, y + height / 2, 6, config), token);
    }
  assert.equal(tokenAt(1, 1, 6, PICTURE), 5); // on the edge
});

test("the row that listens is the one whose attention peaks, among those written", () => {
  const weights = new Tensor([3, 3], Float32Array.from([0.9, 0.1, 0, 0.2, 0.6, 0.2, 0, 0.1, 0.9]));
  assert.deepEqual(
    [0, 1, 2].map((token) => rowAt(weights, token, 1)),
    [1, 1, 2],
  );
  assert.deepEqual(
    [0, 1, 2].map((token) => rowAt(weights, token, 2)),
    [-1, -1, 2],
  );
});
