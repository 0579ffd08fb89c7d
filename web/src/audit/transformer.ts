// The formulas of the Inspector for Transformers.
import { headWidth, isGated, isLocal, positionEffect, positionScheme, rotaryFrequency, scoredPrefix } from "../architecture";
import { formatNumber } from "../format";
import { activate, dot, mean, relativeBucket, sinusoid, variance } from "../math";
import { convolved, mediaVector } from "../media/audit";
import { mediaKind, patchRows } from "../media/media";
import type { Audit, CellContext, CellRef, ScalarOperand } from "./cells";
import {
  copy,
  embedded,
  type Formula,
  heads,
  keyValueHead,
  linear,
  logits,
  probabilities,
  sumOfProducts,
  term,
  weights,
} from "./formulas";

const sublayerInput = (cell: CellContext): string => cell.dataflow.sublayerInput(cell.component);
const ownTensor =
  (tensor: string) =>
  (cell: CellContext): string =>
    `${cell.component}.${tensor}`;

/** Queries, keys and values: [token, head, i], one weight matrix for all heads. */
const headProjection =
  (symbol: string): Formula =>
  async (cell) => {
    const [row, head, i] = cell.index;
    const readsMemory = cell.component.endsWith(".cross") && symbol !== "_Q";
    const x = await cell.vector(readsMemory ? "encoder.vectors" : sublayerInput(cell), [row]);
    return linear(cell, x, head * headWidth(cell.config) + i, `W${symbol}`, `b${symbol}`);
  };

/** A linear map of a token's vector: x · W + b. */
const projection =
  (source: (cell: CellContext) => string, symbol: string): Formula =>
  async (cell) =>
    linear(cell, await cell.vector(source(cell), [cell.index[0]]), cell.index[1], `W${symbol}`, `b${symbol}`);

const layerOf = (cell: CellContext): number => Number(cell.component.split(".")[1]);

/** RMS norm of the queries or keys of one head. */
const normed =
  (source: string): Formula =>
  async (cell) => {
    const [row, head, i] = cell.index;
    const x = await cell.values(`${cell.component}.${source}`, `${row},${head}`);
    const gamma = (await cell.weightScalar(`${cell.component}.${source === "queries" ? "query" : "key"}_norm`, "γ", i)) ?? 1;
    const square = mean(Float64Array.from({ length: x.length }, (_, j) => x[j] ** 2));
    const epsilon = cell.config.norm_epsilon;
    return {
      formula: "x ÷ √(mean square + ε) × γ",
      substituted: `${term(x[i])} ÷ √(${formatNumber(square, 4)} + ${epsilon}) × ${term(gamma)}`,
      scalars: [
        { label: "x", value: x[i], cell: { name: `${cell.component}.${source}`, index: [row, head, i] } },
        { label: "mean square", value: square },
        { label: "γ", value: gamma },
      ],
      vectors: [{ label: "x", values: x, cellAt: (j) => ({ name: `${cell.component}.${source}`, index: [row, head, j] }) }],
      computed: (x[i] / Math.sqrt(square + epsilon)) * gamma,
    };
  };

/** Rotary position embedding: dimensions i and i ± d/2 are rotated together. */
const rotated =
  (projected: string): Formula =>
  async (cell) => {
    knownScheme(cell, "rotary");
    const source = cell.config.query_key_norm ? `normed_${projected}` : projected;
    const [row, head, i] = cell.index;
    const d = headWidth(cell.config);
    const pair = i < d / 2 ? i + d / 2 : i - d / 2;
    const angle = row * rotaryFrequency(cell.config, layerOf(cell), i % (d / 2));
    const magnitude = cell.config.rotary_magnitude;
    const x = await cell.values(`${cell.component}.${source}`, `${row},${head}`);
    const sign = i < d / 2 ? -1 : 1;
    return {
      formula: `xᵢ · cos(pos·θᵢ) ${sign < 0 ? "−" : "+"} x${sign < 0 ? "ᵢ₊" : "ᵢ₋"}d/2 · sin(pos·θᵢ)${magnitude === 1 ? "" : `, × ${formatNumber(magnitude, 4)}`}`,
      substituted: `${term(x[i])}×${term(Math.cos(angle))} ${sign < 0 ? "−" : "+"} ${term(x[pair])}×${term(Math.sin(angle))}`,
      scalars: [
        { label: "xᵢ", value: x[i], cell: { name: `${cell.component}.${source}`, index: [row, head, i] } },
        { label: "paired dimension", value: x[pair], cell: { name: `${cell.component}.${source}`, index: [row, head, pair] } },
        { label: "angle", value: angle },
      ],
      vectors: [],
      computed: (x[i] * Math.cos(angle) + sign * x[pair] * Math.sin(angle)) * magnitude,
    };
  };

async function scores(cell: CellContext): Promise<Audit> {
  const [head, query, key] = cell.index;
  const prefix = scoredPrefix(cell.config, cell.component);
  const [queries, keys] = [`${cell.component}.${prefix}queries`, `${cell.component}.${prefix}keys`];
  const keyHead = keyValueHead(cell, head);
  const [q, k] = await Promise.all([cell.values(queries, `${query},${head}`), cell.values(keys, `${key},${keyHead}`)]);
  return {
    formula: "q · k",
    substituted: sumOfProducts(q, k),
    scalars: [],
    vectors: [
      { label: "q", values: q, cellAt: (i) => ({ name: queries, index: [query, head, i] }) },
      { label: "k", values: k, cellAt: (i) => ({ name: keys, index: [key, keyHead, i] }) },
    ],
    computed: dot(q, k),
  };
}

async function scaled(cell: CellContext): Promise<Audit> {
  const d = headWidth(cell.config);
  const score = await cell.scalar(`${cell.component}.scores`, cell.index);
  const factor = cell.config.attention_scale;
  if (factor) {
    return {
      formula: `score × ${formatNumber(factor, 4)}`,
      substituted: `${formatNumber(score, 4)} × ${formatNumber(factor, 4)}`,
      scalars: [{ label: "score", value: score, cell: { name: `${cell.component}.scores`, index: cell.index } }],
      vectors: [],
      computed: score * factor,
    };
  }
  return {
    formula: "score ÷ √d",
    substituted: `${formatNumber(score, 4)} ÷ √${d} = ${formatNumber(score, 4)} ÷ ${formatNumber(Math.sqrt(d), 4)}`,
    scalars: [{ label: "score", value: score, cell: { name: `${cell.component}.scores`, index: cell.index } }],
    vectors: [],
    computed: score / Math.sqrt(d),
  };
}

/** The last step before the mask: the scaled scores, limited or biased if the model does that. */
function beforeMask(cell: CellContext): string {
  return positionEffect(cell.config, cell.component) === "bias" ? "biased" : cell.config.attention_cap ? "capped" : "scaled";
}

async function capped(cell: CellContext): Promise<Audit> {
  const cap = cell.config.attention_cap;
  const value = await cell.scalar(`${cell.component}.scaled`, cell.index);
  return {
    formula: "cap × tanh(scaled ÷ cap)",
    substituted: `${cap} × tanh(${formatNumber(value, 4)} ÷ ${cap})`,
    scalars: [{ label: "scaled", value, cell: { name: `${cell.component}.scaled`, index: cell.index } }],
    vectors: [],
    computed: cap * Math.tanh(value / cap),
  };
}

const biased: Formula = (cell) =>
  addition(
    cell,
    [`${cell.component}.${cell.config.attention_cap ? "capped" : "scaled"}`, `${cell.component.split(".")[0]}.relative_bias`],
    "scaled + bias of the distance",
  );

/** The position scheme of the cell's stack, if the page knows its formula. */
function knownScheme(cell: CellContext, ...known: readonly string[]): string {
  const scheme = positionScheme(cell.config, cell.component.split(".")[0]);
  if (!known.includes(scheme)) throw new Error(`this page does not know the formula of the positions “${scheme}”`);
  return scheme;
}

async function relativeBias(cell: CellContext): Promise<Audit> {
  knownScheme(cell, "relative");
  const [head, query, key] = cell.index;
  const { relative_buckets, relative_distance } = cell.config;
  const bucket = relativeBucket(key - query, cell.component === "decoder", relative_buckets, relative_distance);
  const entry = (await cell.weightRow(`${cell.component}.relative_bias`, "b", bucket))!.data[head];
  const scalars = [{ label: `bias of bucket ${bucket}, head ${head}`, value: entry }];
  return {
    formula: `b[bucket of distance ${key - query}]`,
    substituted: `b[${bucket}] = ${formatNumber(entry, 4)}`,
    scalars,
    vectors: [],
    computed: entry,
  };
}

async function masked(cell: CellContext): Promise<Audit> {
  const [, query, key] = cell.index;
  const input = beforeMask(cell);
  const value = await cell.scalar(`${cell.component}.${input}`, cell.index);
  const causal = cell.component.endsWith(".masked");
  const window = causal && isLocal(cell.config, layerOf(cell)) ? cell.config.attention_window : 0;
  const isMasked = causal && (key > query || (window > 0 && key <= query - window));
  const visible = window ? `i − ${window} < j ≤ i` : "j ≤ i";
  return {
    formula: causal ? `${input} + M, where M is 0 for ${visible} and −∞ elsewhere` : `${input} + 0: no mask`,
    substituted: `${formatNumber(value, 4)} + ${isMasked ? "(−∞)" : "0"}`,
    scalars: [{ label: input, value, cell: { name: `${cell.component}.${input}`, index: cell.index } }],
    vectors: [],
    computed: isMasked ? -Infinity : value,
  };
}

const concatenated: Formula = (cell) => {
  const d = headWidth(cell.config);
  const [row, j] = cell.index;
  const [head, i] = [Math.floor(j / d), j % d];
  return copy(cell, `${cell.component}.heads`, [row, head, i], `concatenated heads: dimension ${i} of head ${head}`);
};

async function addition(cell: CellContext, names: readonly string[], formula: string): Promise<Audit> {
  const scalars = await Promise.all(
    names.map(async (name) => ({ label: name, value: await cell.scalar(name, cell.index), cell: { name, index: cell.index } })),
  );
  return {
    formula,
    substituted: scalars.map(({ value }) => term(value)).join(" + "),
    scalars,
    vectors: [],
    computed: scalars.reduce((sum, { value }) => sum + value, 0),
  };
}

const sum: Formula = (cell) =>
  addition(cell, [cell.dataflow.residualInput(cell.component), cell.dataflow.addend(cell.component)], "x + sublayer(x)");

const stackOrNormInput: Formula = (cell) => {
  if (cell.component.endsWith("norm"))
    return copy(cell, cell.dataflow.normInput(cell.component), cell.index, "the input of the norm");
  const names = new Set(cell.run.trace.tensors.map(({ name }) => name));
  const summands = ["embedded", "segments", "positions"]
    .map((tensor) => `${cell.component}.${tensor}`)
    .filter((name) => names.has(name));
  return addition(cell, summands, summands.map((name) => name.split(".")[1]).join(" + "));
};

async function moments(cell: CellContext): Promise<Audit> {
  const [row] = cell.index;
  const x = await cell.values(`${cell.component}.input`, `${row}`);
  const squares = Float64Array.from({ length: x.length }, (_, i) => x[i] ** 2);
  const vectors = [{ label: "x", values: x, cellAt: (i: number) => ({ name: `${cell.component}.input`, index: [row, i] }) }];
  const formulas: Record<string, [string, number]> = {
    mean: ["Σ x ÷ width", mean(x)],
    variance: ["Σ (x − mean)² ÷ width", variance(x)],
    mean_square: ["Σ x² ÷ width", mean(squares)],
  };
  const [formula, computed] = formulas[cell.tensor];
  return { formula, substituted: `over the ${x.length} dimensions of this token`, scalars: [], vectors, computed };
}

async function normOutput(cell: CellContext): Promise<Audit> {
  const [row, i] = cell.index;
  const x = await cell.values(`${cell.component}.input`, `${row}`);
  const [gamma, beta] = await Promise.all([
    cell.weightScalar(cell.component, "γ", i),
    cell.weightScalar(cell.component, "β", i),
  ]);
  const rms = cell.config.norm === "rms";
  const squares = Float64Array.from({ length: x.length }, (_, j) => x[j] ** 2);
  const [center, spread] = rms ? [0, mean(squares)] : [mean(x), variance(x)];
  const epsilon = cell.config.norm_epsilon;
  const scale = gamma ?? 1;
  const statistic = (tensor: string): CellRef => ({ name: `${cell.component}.${tensor}`, index: [row, 0] });
  const scalars: ScalarOperand[] = [
    { label: "x", value: x[i], cell: { name: `${cell.component}.input`, index: [row, i] } },
    ...(rms ? [] : [{ label: "mean", value: center, cell: statistic("mean") }]),
    { label: rms ? "mean square" : "variance", value: spread, cell: statistic(rms ? "mean_square" : "variance") },
    { label: "γ", value: scale },
    ...(beta === null ? [] : [{ label: "β", value: beta }]),
  ];
  return {
    formula: `${rms ? "x ÷ √(mean square + ε)" : "(x − mean) ÷ √(variance + ε)"} × γ${beta === null ? "" : " + β"}`,
    substituted: `${rms ? term(x[i]) : `(${formatNumber(x[i], 3)} − ${term(center)})`} ÷ √(${formatNumber(spread, 4)} + ${epsilon}) × ${term(scale)}${beta === null ? "" : ` + ${term(beta)}`}`,
    scalars,
    vectors: [{ label: "x", values: x, cellAt: (j) => ({ name: `${cell.component}.input`, index: [row, j] }) }],
    computed: ((x[i] - center) / Math.sqrt(spread + epsilon)) * scale + (beta ?? 0),
  };
}

async function postActivation(cell: CellContext): Promise<Audit> {
  const { activation } = cell.config;
  const input = await cell.scalar(`${cell.component}.pre_activation`, cell.index);
  const scalars: ScalarOperand[] = [
    { label: "input", value: input, cell: { name: `${cell.component}.pre_activation`, index: cell.index } },
  ];
  if (isGated(cell.config)) {
    const name = activation === "swiglu" ? "silu" : "gelu";
    const gate = await cell.scalar(`${cell.component}.gate`, cell.index);
    scalars.push({ label: "gate", value: gate, cell: { name: `${cell.component}.gate`, index: cell.index } });
    const computed = activate(activation, gate) * input;
    return {
      formula: `${name}(gate) × input`,
      substituted: `${name}(${formatNumber(gate, 4)}) × ${term(input)}`,
      scalars,
      vectors: [],
      computed,
    };
  }
  const substituted = activation === "relu" ? `max(0, ${formatNumber(input, 4)})` : `${activation}(${formatNumber(input, 4)})`;
  return {
    formula: activation === "relu" ? "max(0, x)" : `${activation}(x)`,
    substituted,
    scalars,
    vectors: [],
    computed: activate(activation, input),
  };
}

const output: Formula = (cell) =>
  cell.component.endsWith("norm") ? normOutput(cell) : projection(ownTensor("post_activation"), "₂")(cell);

/** All tokens of a text belong to segment 0. */
async function segments(cell: CellContext): Promise<Audit> {
  const entry = (await cell.weightRow(cell.name, "S", 0))!.data[cell.index[1]];
  return {
    formula: "S[0]",
    substituted: formatNumber(entry, 4),
    scalars: [{ label: "learned", value: entry }],
    vectors: [],
    computed: entry,
  };
}

/** How the sinusoidal schemes differ from the paper's: all sines first, other wavelengths, positions counted from 2. */
const WAVES: Record<string, { halves?: boolean; stretched?: boolean; first?: number }> = {
  sinusoidal: {},
  "sinusoidal-halves": { halves: true },
  "sinusoidal-whisper": { halves: true, stretched: true },
  "sinusoidal-fairseq": { halves: true, stretched: true, first: 2 },
};

function wave(row: number, i: number, width: number, scheme: string): Audit {
  const { halves = false, stretched = false, first = 0 } = WAVES[scheme];
  const { pair, cosine, angle } = sinusoid(row + first, i, width, halves, stretched);
  const name = cosine ? "cos" : "sin";
  return {
    formula: `${name}(${first ? `(pos + ${first})` : "pos"} ÷ 10000^(2i/${stretched ? "(width − 2)" : "width"}))`,
    substituted: `${name}(${row + first} ÷ 10000^(${2 * pair}/${stretched ? width - 2 : width})) = ${name}(${formatNumber(angle, 4)})`,
    scalars: [],
    vectors: [],
    computed: cosine ? Math.cos(angle) : Math.sin(angle),
  };
}

async function positions(cell: CellContext): Promise<Audit> {
  const [row, i] = cell.index;
  const scheme = knownScheme(cell, "learned", "grid", ...Object.keys(WAVES));
  if (scheme === "learned") {
    const entry = (await cell.weightRow(`${cell.component}.positions`, "P", row))!.data[i];
    const scalars = [{ label: "learned", value: entry }];
    return { formula: `P[${row}]`, substituted: formatNumber(entry, 4), scalars, vectors: [], computed: entry };
  }
  if (scheme !== "grid") return wave(row, i, cell.config.width, scheme);
  const half = cell.config.width / 2; // of the width for the row of a patch, the other for its column
  const rows = patchRows(cell.config);
  const [name, place] = i < half ? ["row", row % rows] : ["column", Math.floor(row / rows)];
  const audit = wave(place, i % half, half, "sinusoidal");
  return { ...audit, formula: audit.formula.replace("pos", name).replace("width", "(width/2)") };
}

const vectors: Formula = (cell) =>
  copy(
    cell,
    cell.config.norm_first ? `${cell.component}.final_norm.output` : cell.dataflow.stackOutput(cell.component),
    cell.index,
    "the output of the stack",
  );

/** The formula of every tensor of a Transformer. */
export const TRANSFORMER: Record<string, Formula> = {
  embedded: (cell) => (cell.component === "encoder" && mediaKind(cell.config) ? mediaVector(cell) : embedded(cell)),
  convolved,
  segments,
  positions,
  input: stackOrNormInput,
  queries: headProjection("_Q"),
  keys: headProjection("_K"),
  values: headProjection("_V"),
  normed_queries: normed("queries"),
  normed_keys: normed("keys"),
  relative_bias: relativeBias,
  capped,
  biased,
  rotated_queries: rotated("queries"),
  rotated_keys: rotated("keys"),
  scores,
  scaled,
  masked,
  weights,
  heads,
  concatenated,
  projected: projection(ownTensor("concatenated"), "_O"),
  sum,
  mean: moments,
  variance: moments,
  mean_square: moments,
  pre_activation: (cell) => projection(sublayerInput, cell.component === "head" ? "" : "₁")(cell),
  gate: projection(sublayerInput, "_gate"),
  post_activation: postActivation,
  output,
  vectors,
  logits,
  probabilities,
};
