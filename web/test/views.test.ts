import assert from "node:assert/strict";
import test from "node:test";
import { Tensor, type EmbeddedData, type Trace } from "../src/api";
import { mergeLabels, difference, largestDifference } from "../src/difference";
import { decodeFloats, embeddedSource, slice } from "../src/embedded";
import { logTicks } from "../src/math";
import { body, read, told, written, type Intervention } from "../src/interventions";

const tokens = (...texts: string[]) => texts.map((text, id) => ({ id, text }));
const TRACE = { id: "a", text: "I like tea", source_tokens: tokens("I", "like", "tea", "<end>"), decoder_input_tokens: tokens("<start>", "मुझे") } as Trace;

const ALL: Intervention[] = [
  { do: "off", attention: "decoder.1.cross", head: 3 },
  { do: "even", attention: "encoder.0.self", head: null, query: 2 },
  { do: "set", attention: "decoder.1.cross", head: 0, query: null, weights: [0, 0.5, 0.5] },
  { do: "swap", name: "encoder.vectors", at: 1, from: 2, text: "We: like; क्या?" },
  { do: "swap", name: "decoder.0.feed_forward.sum", at: 1, from: 0, text: "" },
  { do: "unit", place: "decoder.1.feed_forward", unit: 17 },
];

test("interventions survive the URL, whatever text they contain", () => {
  assert.deepEqual(read(written(ALL)), ALL);
  assert.deepEqual(read(""), []);
});

test("invalid interventions in the URL are ignored, valid ones kept", () => {
  assert.deepEqual(read("off:decoder.1.cross:3;off:decoder.1.cross:x;explode:a:1;set:a:*:*:2;set:a:*:*:;off:a b:1"), [ALL[0]]);
});

test("interventions are converted to request bodies", () => {
  const traces = new Map([["We: like; क्या?", "xyz"]]);
  assert.deepEqual(
    ALL.map((one) => body(one, traces)),
    [
      { type: "ablate_head", attention: "decoder.1.cross", head: 3 },
      { type: "uniform_attention", attention: "encoder.0.self", positions: [2] },
      { type: "force_attention", attention: "decoder.1.cross", weights: [0, 0.5, 0.5], head: 0 },
      { type: "patch", name: "encoder.vectors", positions: [1], source: { position: 2, trace: "xyz" } },
      { type: "patch", name: "decoder.0.feed_forward.sum", positions: [1], source: { position: 0 } },
      { type: "scale", name: "decoder.1.feed_forward.post_activation", factor: 0, unit: 17 },
    ],
  );
});

test("interventions are described with the tokens of the sentence", () => {
  assert.deepEqual(
    ALL.map((one) => told(one, TRACE, 8)),
    [
      "decoder layer 1, cross-attention: head 3 off",
      "encoder layer 0, self-attention: all heads averaged, for “tea”",
      "decoder layer 1, cross-attention: head 0 set to like 50%, tea 50%",
      "encoder, final vectors: “like” gets the vector of token 2 of “We: like; क्या?”",
      "decoder, after layer 0: “मुझे” gets the vector of “<start>”",
      "decoder layer 1, feed-forward: unit 17 off",
    ],
  );
});

test("a single head is not named, and units of recurrent states are named by the states", () => {
  const [off, , set] = ALL;
  assert.equal(told(off, TRACE, 1), "decoder layer 1, cross-attention: off");
  assert.equal(told({ ...set, query: 1 } as Intervention, TRACE, 1), "decoder layer 1, cross-attention: for “मुझे” set to like 50%, tea 50%");
  const [unit] = read("unit:encoder.1.states:3");
  assert.deepEqual(body(unit), { type: "scale", name: "encoder.1.states", factor: 0, unit: 3 });
  assert.equal(told(unit, TRACE, 1), "encoder, after layer 1: unit 3 off");
});

test("differences are elementwise, keep masks, and need equal shapes", () => {
  const a = new Tensor([2, 2], new Float32Array([1, -Infinity, 0.25, 2]));
  const b = new Tensor([2, 2], new Float32Array([0.5, -Infinity, 0.75, 2]));
  const less = difference(a, b)!;
  assert.deepEqual([...less.data], [0.5, -Infinity, -0.5, 0]);
  assert.deepEqual(largestDifference(less), { row: 0, col: 0, value: 0.5, mean: 1 / 3 });
  assert.equal(difference(a, new Tensor([4], b.data)), null);
  assert.equal(difference(a, new Tensor([1, 4], b.data)), null);
  assert.equal(largestDifference(new Tensor([1, 1], new Float32Array([-Infinity]))), null);
  assert.deepEqual(mergeLabels(["I", "tea"], ["I", "mangoes"]), ["I", "tea / mangoes"]);
});

test("embedded float32 and bfloat16 are decoded exactly", () => {
  const values = new Float32Array([1, -2.5, 0, -Infinity, 0.15625]);
  const bytes = new Uint8Array(values.buffer);
  assert.deepEqual(decodeFloats(Buffer.from(bytes).toString("base64"), "float32"), values);
  const upper = bytes.filter((_, i) => i % 4 >= 2); // all of these have nothing in their lower halves
  assert.deepEqual(decodeFloats(Buffer.from(upper).toString("base64"), "bfloat16"), values);
});

test("slices follow Python's rules", () => {
  const whole = new Tensor([2, 3, 2], Float32Array.from({ length: 12 }, (_, i) => i));
  const of = (index: string): [readonly number[], number[]] => [slice(whole, index).shape, [...slice(whole, index).data]];
  assert.deepEqual(of("1"), [[3, 2], [6, 7, 8, 9, 10, 11]]);
  assert.deepEqual(of(":,1"), [[2, 2], [2, 3, 8, 9]]);
  assert.deepEqual(of("0,1:,0"), [[2], [2, 4]]);
  assert.deepEqual(of("-1,-1,-1"), [[], [11]]);
  assert.deepEqual(of("0,1:9"), [[2, 2], [2, 3, 4, 5]]);
  assert.deepEqual(of("0,2:1"), [[0, 2], []]);
  assert.equal(slice(whole, "").data.length, 12);
  assert.throws(() => slice(whole, "2"));
});

test("an exported file serves its own text, and rejects what needs the model", async () => {
  const data = Buffer.from(new Uint8Array(new Float32Array([1, 2, 3, 4]).buffer)).toString("base64");
  const stored = { shape: [2, 2], dtype: "float32" as const, data_index: 0 };
  const source = embeddedSource({ trace: TRACE, tensors: { a: stored }, weights: {}, data: [data] } as unknown as EmbeddedData);
  assert.equal(source.text, "I like tea");
  assert.deepEqual([...(await source.tensor("", "a", "1")).data], [3, 4]);
  await assert.rejects(source.weight("", "b", ""), /b is not in this file/);
  await assert.rejects(source.history(""), /needs the model/);
});

test("logTicks are round, and few", () => {
  assert.deepEqual(logTicks(0.08, 9), [0.1, 0.2, 0.5, 1, 2, 5]);
  assert.deepEqual(logTicks(1e-5, 9), [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]);
});
