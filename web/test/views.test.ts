import assert from "node:assert/strict";
import test from "node:test";
import { type EmbeddedData, Tensor, type Trace } from "../src/api";
import { difference, largestDifference, mergeLabels } from "../src/difference";
import { decodeFloats, embeddedSource, slice } from "../src/embedded";
import {
  describe,
  formatInterventions,
  type Intervention,
  parseInterventions,
  summarize,
  toRequest,
} from "../src/interventions";
import { logTicks } from "../src/math";

const tokens = (...texts: string[]) => texts.map((text, id) => ({ id, text }));
const TRACE = {
  id: "a",
  text: "I like tea",
  source_tokens: tokens("I", "like", "tea", "<end>"),
  decoder_input_tokens: tokens("<start>", "मुझे"),
} as Trace;

const ALL: Intervention[] = [
  { type: "ablate", attention: "decoder.1.cross", head: 3 },
  { type: "uniform", attention: "encoder.0.self", head: null, query: 2 },
  { type: "set", attention: "decoder.1.cross", head: 0, query: null, weights: [0, 0.5, 0.5] },
  { type: "patch", name: "encoder.vectors", position: 1, sourcePosition: 2, text: "We: like; क्या?" },
  { type: "patch", name: "decoder.0.feed_forward.sum", position: 1, sourcePosition: 0, text: "" },
  { type: "zero", component: "decoder.1.feed_forward", unit: 17 },
];

test("interventions survive the URL, whatever text they contain", () => {
  assert.deepEqual(parseInterventions(formatInterventions(ALL)), ALL);
  assert.deepEqual(parseInterventions(""), []);
});

test("invalid interventions in the URL are ignored, valid ones kept", () => {
  assert.deepEqual(
    parseInterventions("ablate:decoder.1.cross:3;ablate:decoder.1.cross:x;explode:a:1;set:a:*:*:2;set:a:*:*:;ablate:a b:1"),
    [ALL[0]],
  );
});

test("interventions are converted to request bodies", () => {
  const traces = new Map([["We: like; क्या?", "xyz"]]);
  assert.deepEqual(
    ALL.map((one) => toRequest(one, traces)),
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
    ALL.map((one) => describe(one, TRACE, 8)),
    [
      "decoder layer 1, cross-attention, head 3: ablated",
      "encoder layer 0, self-attention, all heads, query “tea”: uniform weights",
      "decoder layer 1, cross-attention, head 0: weights set to like 50%, tea 50%",
      "encoder, final vectors: vector of “like” replaced by that of token 2 of “We: like; क्या?”",
      "decoder, after layer 0: vector of “मुझे” replaced by that of “<start>”",
      "decoder layer 1, feed-forward: unit 17 set to 0",
    ],
  );
});

test("a single head is not named, and units of recurrent states are named by the states", () => {
  const [ablated, , set] = ALL;
  assert.equal(describe(ablated, TRACE, 1), "decoder layer 1, cross-attention: ablated");
  assert.equal(
    describe({ ...set, query: 1 } as Intervention, TRACE, 1),
    "decoder layer 1, cross-attention, query “मुझे”: weights set to like 50%, tea 50%",
  );
  const [unit] = parseInterventions("zero:encoder.1.states:3");
  assert.deepEqual(toRequest(unit), { type: "scale", name: "encoder.1.states", factor: 0, unit: 3 });
  assert.equal(describe(unit, TRACE, 1), "encoder, after layer 1: unit 3 set to 0");
});

test("heads of one attention that are switched off are named together", () => {
  const off = (head: number): Intervention => ({ type: "ablate", attention: "decoder.1.cross", head });
  assert.deepEqual(summarize([off(3), off(1)], TRACE, 8), ["heads 1 and 3 of decoder layer 1, cross-attention switched off"]);
  assert.deepEqual(summarize([off(1), off(0)], TRACE, 2), ["all 2 heads of decoder layer 1, cross-attention switched off"]);
  assert.deepEqual(summarize([off(0), ALL[5]], TRACE, 1), [
    "decoder layer 1, cross-attention switched off",
    "decoder layer 1, feed-forward: unit 17 set to 0",
  ]);
});

test("differences are elementwise, keep masks, and need equal shapes", () => {
  const a = new Tensor([2, 2], new Float32Array([1, -Infinity, 0.25, 2]));
  const b = new Tensor([2, 2], new Float32Array([0.5, -Infinity, 0.75, 2]));
  const result = difference(a, b)!;
  assert.deepEqual([...result.data], [0.5, -Infinity, -0.5, 0]);
  assert.deepEqual(largestDifference(result), { row: 0, col: 0, value: 0.5, mean: 1 / 3 });
  assert.equal(difference(a, new Tensor([4], b.data)), null);
  assert.equal(difference(a, new Tensor([1, 4], b.data)), null);
  assert.equal(largestDifference(new Tensor([1, 1], new Float32Array([-Infinity]))), null);
  assert.deepEqual(mergeLabels(["I", "tea"], ["I", "mangoes"]), ["I", "tea / mangoes"]);
});

test("embedded float32 and bfloat16 are decoded exactly", () => {
  const values = new Float32Array([1, -2.5, 0, -Infinity, 0.15625]);
  const bytes = new Uint8Array(values.buffer);
  assert.deepEqual(decodeFloats(Buffer.from(bytes).toString("base64"), "float32"), values);
  const upper = bytes.filter((_, i) => i % 4 >= 2); // the lower halves of these values are 0
  assert.deepEqual(decodeFloats(Buffer.from(upper).toString("base64"), "bfloat16"), values);
});

test("slices follow Python's rules", () => {
  const whole = new Tensor(
    [2, 3, 2],
    Float32Array.from({ length: 12 }, (_, i) => i),
  );
  const of = (index: string): [readonly number[], number[]] => [slice(whole, index).shape, [...slice(whole, index).data]];
  assert.deepEqual(of("1"), [
    [3, 2],
    [6, 7, 8, 9, 10, 11],
  ]);
  assert.deepEqual(of(":,1"), [
    [2, 2],
    [2, 3, 8, 9],
  ]);
  assert.deepEqual(of("0,1:,0"), [[2], [2, 4]]);
  assert.deepEqual(of("-1,-1,-1"), [[], [11]]);
  assert.deepEqual(of("0,1:9"), [
    [2, 2],
    [2, 3, 4, 5],
  ]);
  assert.deepEqual(of("0,2:1"), [[0, 2], []]);
  assert.deepEqual(of(":,::2,0"), [
    [2, 2],
    [0, 4, 6, 10],
  ]);
  assert.deepEqual(of("0,1::2"), [
    [1, 2],
    [2, 3],
  ]);
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

test("logarithmic ticks are few round numbers", () => {
  assert.deepEqual(logTicks(0.08, 9), [0.1, 0.2, 0.5, 1, 2, 5]);
  assert.deepEqual(logTicks(1e-5, 9), [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]);
});
