import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { type ModelConfig, Tensor } from "../src/api";
import { audit } from "../src/audit/audit";
import { formatCellRef, parseCellRef, type TracedModel } from "../src/audit/cells";
import { colorFor, DARK, LIGHT, textColorOn } from "../src/color";
import { Dataflow } from "../src/dataflow";
import { drawFigure } from "../src/map/layout";
import { toCsv, toSvg } from "../src/matrix/export";
import { cellAt, computeGeometry, type Grid, isMasked, pool } from "../src/matrix/grid";
import { stagesFor } from "../src/stages/stages";
import { hasDevanagari, transliterate } from "../src/transliteration";
import { DEFAULTS, formatHash, parseHash } from "../src/url-state";
import { buildTree } from "../src/views/beam";

const CONFIG = {
  kind: "transformer",
  shape: "encoder-decoder",
  source: "tokens",
  encoder_positions: "same",
  width: 8,
  heads: 2,
  key_value_heads: 0,
  head_width: 0,
  encoder_layers: 1,
  decoder_layers: 2,
  feed_forward: 16,
  activation: "relu",
  norm: "layer",
  norm_first: true,
  norm_epsilon: 1e-5,
  positions: "sinusoidal",
  position_effects: { encoder: "vector", decoder: "vector" },
  segments: 0,
  embedding_norm: false,
  scale_embeddings: true,
  tie_embeddings: "target",
  output_bias: false,
  vocab_size: 20,
} as ModelConfig; // prettier-ignore

const GRID: Grid = {
  name: "a <b>",
  rows: 2,
  cols: 2,
  data: [0.5, -Infinity, 1, -2],
  rowLabels: ["x", 'y, "z"'],
  colLabels: ["है", "b"],
  rowAxis: "query",
  colAxis: "key",
  scale: "diverging",
}; // prettier-ignore

test("figures have enough contrast on every colour of both scales", () => {
  const luminance = (rgb: readonly number[]): number => {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const palette of [LIGHT, DARK])
    for (let value = -1; value <= 1; value += 1 / 128) {
      const color = colorFor(value, 1, palette);
      const levels = [luminance(color), textColorOn(color) === "#ffffff" ? 1 : 0].sort();
      assert.ok((levels[1] + 0.05) / (levels[0] + 0.05) >= 4.5, `${color}`);
    }
});

test("the figure of a model fits its space, and of many layers stays legible", () => {
  const open = { encoder: 0, decoder: 1 };
  for (const [width, height] of [
    [1000, 660],
    [640, 520],
    [330, 520],
  ]) {
    const figure = drawFigure(CONFIG, open, { width, height, unit: 1 });
    assert.ok(figure.height <= height + 1e-6 && figure.width <= width, `${figure.width} × ${figure.height}`);
    const tops = figure.boxes.filter(({ column }) => column === "decoder").map(({ y, height }) => y + height / 2);
    assert.ok(tops.every((top, i) => !i || tops[i - 1] - top >= 24 - 1e-6)); // pixels from one box to the next, for fingers
  }
  const deep = drawFigure({ ...CONFIG, decoder_layers: 40 } as ModelConfig, open, { width: 1000, height: 660, unit: 1 });
  assert.ok(deep.height > 660 && deep.frames[1].bars.length === 39);
});

test("Devanagari is transliterated by ISO 15919", () => {
  assert.equal(transliterate("मुझे आइसक्रीम खाना पसंद है"), "mujhē āisakrīma khānā pasaṁda hai");
  assert.equal(transliterate("पढ़ना, ज़रूर! क्या हाल है? १२"), "paṛhanā, zarūra! kyā hāla hai? 12");
  assert.ok(hasDevanagari("है") && !hasDevanagari("I am"));
});

test("a thumbnail keeps a thin diagonal", () => {
  const size = 300;
  const data = Float32Array.from({ length: size * size }, (_, i) => (i % (size + 1) === 0 ? 0.5 : 0));
  const small = pool({ ...GRID, rows: size, cols: size, data }, 100);
  assert.deepEqual([small.rows, small.cols, small.max], [100, 100, 0.5]);
  assert.ok(Array.from({ length: 100 }, (_, i) => small.data[i * 101]).every((value) => value === 0.5));
});

test("the URL holds the state, without default values", () => {
  const state = { ...DEFAULTS, view: "walk", text: "क्या हाल है? & more", head: 3, temperature: 0.5 };
  assert.deepEqual(parseHash(formatHash(state)), state);
  assert.equal(formatHash(DEFAULTS), "#/map");
  assert.equal(parseHash("#/heads?head=abc&unknown=1").head, -1);
  assert.equal(parseHash("#%").view, "%"); // no valid escape
});

test("cell keys are parsed as they are written", () => {
  const cell = { name: "decoder.1.cross.scores", index: [3, 2, 1] };
  assert.deepEqual(parseCellRef(formatCellRef(cell)), cell);
  assert.equal(parseCellRef("no such"), null);
});

const ROTARY = { encoder: "rotation", decoder: "rotation" } as const;

test("every stage of Walk shows its code", () => {
  const configs: Partial<ModelConfig>[] = [
    {},
    { norm_first: false },
    {
      norm: "rms",
      activation: "swiglu",
      positions: "rotary",
      position_effects: ROTARY,
      shape: "decoder",
      tie_embeddings: "none",
    },
    { kind: "rnn" },
    { kind: "rnn-attention" },
  ]; // prettier-ignore
  for (const config of configs)
    for (const { key, code } of stagesFor({ ...CONFIG, ...config })) {
      assert.ok(code.length, key);
      for (const { file, line } of code) assert.ok(file.endsWith(".py") && line && !line.includes("\n"), key);
    }
});

test("Walk covers all sub-layers, with the norms where the model has them", () => {
  const keys = stagesFor(CONFIG).map(({ key }) => key);
  assert.equal(keys[0], "encoder.tokens");
  assert.ok(keys.indexOf("decoder.1.cross.norm.output") < keys.indexOf("decoder.1.cross.queries"));
  assert.ok(keys.includes("decoder.final_norm.output"));
  assert.equal(keys.at(-1), "next");
  const post = stagesFor({ ...CONFIG, norm_first: false }).map(({ key }) => key);
  assert.ok(post.indexOf("decoder.1.cross.norm.output") > post.indexOf("decoder.1.cross.sum"));
  assert.equal(new Set(keys).size, keys.length);
});

test("a position scheme that the page does not know is shown by what it does, and has no formula", async () => {
  const config = { ...CONFIG, shape: "decoder", positions: "alibi", position_effects: { encoder: "vector", decoder: "bias" } };
  const stages = stagesFor(config as unknown as ModelConfig);
  assert.ok(!stages.some(({ key }) => key === "decoder.input"), "nothing is added to the embeddings");
  assert.match(stages.find(({ key }) => key === "decoder.0.masked.biased")!.description, /by the scheme “alibi”/);
  const run = { model: { config: { model: config } }, trace: { id: "" } } as unknown as TracedModel;
  await assert.rejects(audit(run, { name: "decoder.relative_bias", index: [0, 0, 0] }), /does not know .* “alibi”/);
});

test("Walk begins with patches or mel frames where the model reads pictures or sounds", () => {
  const keys = (changes: Partial<ModelConfig>): string[] =>
    stagesFor({ ...CONFIG, picture_height: 8, patch_size: 4, channels: 1, mel_bands: 8, ...changes }).map(({ key }) => key);
  assert.deepEqual(keys({ source: "pictures", encoder_positions: "grid" }).slice(0, 3), [
    "encoder.patches",
    "encoder.embedded",
    "encoder.input",
  ]);
  assert.deepEqual(keys({ source: "sounds" }).slice(0, 4), [
    "encoder.mel_frames",
    "encoder.convolved",
    "encoder.embedded",
    "encoder.input",
  ]);
  assert.ok(keys({ source: "sounds" }).includes("decoder.tokens"));
  assert.ok(!keys({ source: "pictures", position_effects: { encoder: "none", decoder: "vector" } }).includes("encoder.input"));
});

test("Walk of the 2015 model attends before each step, that of 2014 never attends", () => {
  const keys = stagesFor({ ...CONFIG, kind: "rnn-attention" }).map(({ key }) => key);
  const order = ["encoder.vectors", "cross.keys", "cross.queries", "cross.energies", "cross.weights", "cross.heads"];
  const last = ["decoder.0.states", "decoder.1.states", "decoder.vectors", "logits", "probabilities", "next"];
  const indices = [...order.map((name) => name.replace("cross", "decoder.0.cross")), ...last].map((key) => keys.indexOf(key));
  assert.ok(!indices.includes(-1));
  assert.deepEqual(
    indices,
    [...indices].sort((a, b) => a - b),
  );
  assert.equal(new Set(keys).size, keys.length);
  const withoutAttention = stagesFor({ ...CONFIG, kind: "rnn" });
  assert.ok(withoutAttention.some(({ key, highlightedRow }) => key === "final_state" && highlightedRow === 0));
  assert.ok(
    !withoutAttention.some(({ tensors }) => tensors.some((name) => name.includes("cross") || name === "encoder.vectors")),
  );
});

test("each sub-layer reads the output of the previous one", () => {
  const pre = new Dataflow(CONFIG);
  assert.equal(pre.residualInput("decoder.0.masked"), "decoder.input");
  assert.equal(pre.residualInput("decoder.1.masked"), "decoder.0.feed_forward.sum");
  assert.equal(pre.sublayerInput("decoder.1.cross"), "decoder.1.cross.norm.output");
  const post = new Dataflow({ ...CONFIG, norm_first: false });
  assert.equal(post.sublayerInput("decoder.1.cross"), "decoder.1.masked.norm.output");
  assert.equal(post.normInput("decoder.1.cross.norm"), "decoder.1.cross.sum");
});

test("a tensor is indexed by its first axes", () => {
  const t = new Tensor(
    [2, 2, 3],
    Float32Array.from({ length: 12 }, (_, i) => i),
  );
  assert.deepEqual([...t.at(1, 0).data], [6, 7, 8]);
  assert.deepEqual(t.at(1).shape, [2, 3]);
});

test("exported matrices: CSV is quoted, SVG labels are escaped", () => {
  assert.equal(toCsv(GRID), 'query \\ key,है,b\nx,0.5,-inf\n"y, ""z""",1,-2\n');
  const svg = toSvg(GRID, (text) => text.length * 7);
  assert.ok(svg.includes("a &#60;b&#62;") && !svg.includes("<b>"));
  assert.ok(svg.includes("url(#masked)"));
});

test("masked cells are those of −∞ and, with a causal mask, those right of the diagonal", () => {
  assert.ok(isMasked(GRID, { row: 0, col: 1 }));
  assert.ok(!isMasked(GRID, { row: 1, col: 1 }));
  assert.ok(isMasked({ ...GRID, data: [1, 0, 0.5, 0.5], causal: true }, { row: 0, col: 1 }));
});

test("a point is mapped to its cell, also with 512 tokens", () => {
  const big: Grid = { ...GRID, rows: 512, cols: 512, rowLabels: [], colLabels: [] };
  const geometry = computeGeometry(big, 900, 1, () => 10);
  assert.ok(geometry.cellWidth >= 3 && geometry.width > 900);
  assert.deepEqual(cellAt(big, geometry, geometry.left + 10.5 * geometry.cellWidth, geometry.top + 3.5 * geometry.cellHeight), {
    row: 3,
    col: 10,
  });
  assert.equal(cellAt(big, geometry, 0, 0), null);
});

test("color scales are monotonic in lightness", () => {
  const lightness = ([r, g, b]: readonly number[]): number => 0.21 * r + 0.72 * g + 0.07 * b;
  for (const [palette, direction] of [
    [LIGHT, -1],
    [DARK, 1],
  ] as const)
    for (const sign of [-1, 1])
      for (let i = 1; i <= 16; i++)
        assert.ok(
          direction *
            (lightness(colorFor((sign * i) / 16, 1, palette)) - lightness(colorFor((sign * (i - 1)) / 16, 1, palette))) >
            0,
        );
});

const files = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? files(join(folder, entry.name)) : [join(folder, entry.name)],
  );

test("the page uses no random numbers and no other host", () => {
  for (const file of files("src")) {
    const text = readFileSync(file, "utf8");
    assert.ok(!/Math\s*\.\s*random|crypto\s*\.\s*getRandomValues|randomUUID/.test(text), `${file} uses random numbers`);
    assert.ok(!/https?:\/\/(?!www\.w3\.org\/2000\/svg)/.test(text), `${file} names another host`);
  }
});

test("hypotheses with a common prefix share a branch of the tree", () => {
  const of = (...ids: number[]) => ({
    text: "",
    score: 0,
    finished: true,
    tokens: ids.map((id) => ({ id, text: `${id}`, logprob: -1 })),
  });
  const tree = buildTree([of(1, 2, 3), of(1, 4), of(5)]);
  assert.deepEqual(
    tree.map(({ token, best }) => [token.id, best]),
    [
      [1, true],
      [5, false],
    ],
  );
  assert.deepEqual(
    tree[0].children.map(({ token, best }) => [token.id, best]),
    [
      [2, true],
      [4, false],
    ],
  );
});
