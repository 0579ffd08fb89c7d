import assert from "node:assert/strict";
import test from "node:test";
import { formatCellValue, formatFloat32, formatNumber } from "../src/format";
import * as math from "../src/math";

const near = (a: number, b: number, within = 1e-12): void => assert.ok(Math.abs(a - b) <= within, `${a} is not near ${b}`);

test("softmax of known scores", () => {
  const both = math.softmax([4.62, 3.46]);
  near(both[0], 0.761, 1e-3);
  near(both[0] + both[1], 1);
  const four = math.softmax([8 / Math.sqrt(3), 6 / Math.sqrt(3), 0, 0]);
  near(four[0], 0.749, 1e-3);
  near(four[2], 0.007, 1e-3);
});

test("masked scores get weight 0, and large scores do not overflow", () => {
  assert.deepEqual([...math.softmax([1000, -Infinity])], [1, 0]);
});

test("temperature flattens and sharpens; 0 selects the maximum", () => {
  const logits = [6, -5, 4, 1.5, 9.9];
  assert.ok(math.softmax(logits, 7)[4] < math.softmax(logits)[4]);
  assert.deepEqual([...math.softmax(logits, 0)], [0, 0, 0, 0, 1]);
});

test("top-k and top-p keep the most likely tokens and renormalize", () => {
  const logits = [0.5, 0.3, 0.15, 0.05].map(Math.log);
  const kept = (topK: number, topP: number): number[] => [...math.samplingDistribution(logits, { temperature: 1, topK, topP })];
  near(kept(2, 1)[0], 0.625);
  assert.deepEqual(
    kept(2, 1).map((p) => p > 0),
    [true, true, false, false],
  );
  assert.deepEqual(
    kept(0, 0.6).map((p) => p > 0),
    [true, true, false, false],
  );
  assert.deepEqual(
    kept(0, 0.5).map((p) => p > 0),
    [true, false, false, false],
  );
  near(
    kept(3, 0.9).reduce((a, b) => a + b),
    1,
  );
});

test("a seed gives the same random numbers as in Python", () => {
  // seq2see.decode.sampling.draw_uniforms([1, 7], 3)
  const drawn = [1, 7].map((seed) => [0, 1, 2].map((step) => math.seededUniform(seed, step)));
  assert.deepEqual(drawn, DRAWN);
  assert.equal(math.sampleIndex([0.25, 0.5, 0.25], 0.25), 1);
  assert.equal(math.sampleIndex([0.25, 0.75, 0], 0.9999999999999999), 1);
});

const DRAWN = [
  [0.36818951565166946, 0.5267179955718279, 0.7376992526901169],
  [0.7215081806049702, 0.15589407130731636, 0.8743632626454936],
];

test("sinusoidal positions: d = 6, position 0", () => {
  for (const j of [0, 1, 2, 3, 4, 5])
    assert.deepEqual(math.sinusoid(0, j, 6, false), { pair: j >> 1, cosine: j % 2 === 1, angle: 0 });
  assert.deepEqual(math.sinusoid(2, 2, 6, false), { pair: 1, cosine: false, angle: 2 / 10000 ** (1 / 3) });
  assert.deepEqual(math.sinusoid(2, 4, 6, true), { pair: 1, cosine: true, angle: 2 / 10000 ** (1 / 3) });
  assert.deepEqual(math.sinusoid(2, 4, 6, true, true), { pair: 1, cosine: true, angle: 2 / 10000 ** (2 / 4) });
});

test("layer norm's mean and variance, and entropy", () => {
  near(math.mean([2, 3, 7, 5, 4]), 4.2);
  near(math.variance([2, 3, 7, 5, 4]), 2.96);
  near(math.entropy([0.25, 0.25, 0.25, 0.25]), Math.log(4));
  assert.equal(math.entropy([1, 0]), 0);
});

test("the error function equals known values", () => {
  near(math.erf(0.5), 0.5204998778130465, 1e-15);
  near(math.erf(-1.5), -0.9661051464753108, 1e-15);
  near(math.erf(3), 0.9999779095030014, 1e-15);
});

test("numbers are formatted with a minus sign, never as −0.00", () => {
  assert.equal(formatNumber(-0.345), "−0.34");
  assert.equal(formatNumber(-Infinity), "−∞");
  assert.equal(formatNumber(0.0001), "1e−4");
  assert.equal(formatCellValue(-0.001), "0.00");
  assert.equal(formatCellValue(-34.826), "−34.83");
  assert.equal(formatFloat32(1.23456789), "1.234568");
});
