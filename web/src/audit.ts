// The audit of one cell: from which cells it was made, by which formula, and the same worked out again here. Every quantity that
// a trace names has its rule, those of a Transformer below; a rule fetches the operands, never the answer.
import type { ModelCard, ModelConfig } from "./api";
import { RECURRENT } from "./audit-recurrent";
import { copied, embedded, group, heads, linear, logits, n, probabilities, products, weights, type Rule } from "./formulas";
import { activate, dot, mean, short, sinusoid, variance } from "./numbers";
import { At, type Audit, type Context, type Figure, type Place } from "./operands";
import { headWidth, type Kind } from "./structure";

const read = (at: At): string => at.wiring.read(at.place);
const own =
  (what: string) =>
  (at: At): string =>
    `${at.place}.${what}`;

/** Queries, keys and values, all heads side by side: [token, head, i]. */
const projection =
  (symbol: string): Rule =>
  async (at) => {
    const [row, head, i] = at.index;
    const memory = at.place.endsWith(".cross") && symbol !== "_Q";
    const x = await at.vector(memory ? "encoder.vectors" : read(at), [row]);
    return linear(at, x, head * headWidth(at.config) + i, `W${symbol}`, `b${symbol}`);
  };

/** x · W + b, number for number of a token's vector. */
const mapped =
  (input: (at: At) => string, symbol: string): Rule =>
  async (at) =>
    linear(at, await at.vector(input(at), [at.index[0]]), at.index[1], `W${symbol}`, `b${symbol}`);

const rotated =
  (what: string): Rule =>
  async (at) => {
    const [row, head, i] = at.index;
    const d = headWidth(at.config);
    const other = i < d / 2 ? i + d / 2 : i - d / 2;
    const base = (at.config as ModelConfig & { rotary_base: number }).rotary_base;
    const angle = row / base ** ((2 * (i % (d / 2))) / d);
    const x = await at.values(`${at.place}.${what}`, `${row},${head}`);
    const sign = i < d / 2 ? -1 : 1;
    return {
      formula: `xᵢ · cos(pos·θᵢ) ${sign < 0 ? "−" : "+"} x${sign < 0 ? "ᵢ₊" : "ᵢ₋"}d/2 · sin(pos·θᵢ)`,
      numbers: `${n(x[i])}×${n(Math.cos(angle))} ${sign < 0 ? "−" : "+"} ${n(x[other])}×${n(Math.sin(angle))}`,
      figures: [
        { label: "xᵢ", value: x[i], place: { name: `${at.place}.${what}`, index: [row, head, i] } },
        { label: "its pair", value: x[other], place: { name: `${at.place}.${what}`, index: [row, head, other] } },
        { label: "angle", value: angle },
      ],
      strips: [],
      computed: x[i] * Math.cos(angle) + sign * x[other] * Math.sin(angle),
    };
  };

async function scores(at: At): Promise<Audit> {
  const [head, query, key] = at.index;
  const turned = at.config.positions === "rotary" && !at.place.endsWith(".cross") ? "rotated_" : "";
  const [queries, keys] = [`${at.place}.${turned}queries`, `${at.place}.${turned}keys`];
  const shared = group(at, head);
  const [q, k] = await Promise.all([at.values(queries, `${query},${head}`), at.values(keys, `${key},${shared}`)]);
  return {
    formula: "q · k",
    numbers: products(q, k),
    figures: [],
    strips: [
      { label: "q", values: q, part: (i) => ({ name: queries, index: [query, head, i] }) },
      { label: "k", values: k, part: (i) => ({ name: keys, index: [key, shared, i] }) },
    ],
    computed: dot(q, k),
  };
}

async function scaled(at: At): Promise<Audit> {
  const d = headWidth(at.config);
  const score = await at.one(`${at.place}.scores`, at.index);
  return {
    formula: "score ÷ √d",
    numbers: `${short(score, 4)} ÷ √${d} = ${short(score, 4)} ÷ ${short(Math.sqrt(d), 4)}`,
    figures: [{ label: "score", value: score, place: { name: `${at.place}.scores`, index: at.index } }],
    strips: [],
    computed: score / Math.sqrt(d),
  };
}

async function masked(at: At): Promise<Audit> {
  const [, query, key] = at.index;
  const value = await at.one(`${at.place}.scaled`, at.index);
  const hidden = at.place.endsWith(".masked") && key > query;
  return {
    formula: at.place.endsWith(".masked") ? "scaled + M, and M is 0 where j ≤ i, −∞ where j > i" : "scaled + 0: nothing is masked here",
    numbers: `${short(value, 4)} + ${hidden ? "(−∞)" : "0"}`,
    figures: [{ label: "scaled", value, place: { name: `${at.place}.scaled`, index: at.index } }],
    strips: [],
    computed: hidden ? -Infinity : value,
  };
}

const concatenated: Rule = (at) => {
  const d = headWidth(at.config);
  const [row, j] = at.index;
  const [head, i] = [Math.floor(j / d), j % d];
  return copied(at, `${at.place}.heads`, [row, head, i], `the heads side by side: number ${i} of head ${head}`);
};

async function added(at: At, names: readonly string[], formula: string): Promise<Audit> {
  const figures = await Promise.all(
    names.map(async (name) => ({ label: name, value: await at.one(name, at.index), place: { name, index: at.index } })),
  );
  return {
    formula,
    numbers: figures.map(({ value }) => n(value)).join(" + "),
    figures,
    strips: [],
    computed: figures.reduce((sum, { value }) => sum + value, 0),
  };
}

const sum: Rule = (at) => {
  const own = at.place.endsWith("feed_forward") ? `${at.place}.output` : `${at.place}.projected`;
  return added(at, [at.wiring.reaching(at.place), own], "x + what the sub-layer made of it");
};

const input: Rule = (at) => {
  if (at.place.endsWith("norm")) return copied(at, at.wiring.normed(at.place), at.index, "what is to be normed");
  const known = new Set(at.context.manifest.tensors.map(({ name }) => name));
  const parts = ["embedded", "segments", "positions"].map((part) => `${at.place}.${part}`).filter((name) => known.has(name));
  return added(at, parts, parts.map((name) => name.split(".")[1]).join(" + "));
};

async function moments(at: At): Promise<Audit> {
  const [row] = at.index;
  const x = await at.values(`${at.place}.input`, `${row}`);
  const squares = Float64Array.from({ length: x.length }, (_, i) => x[i] ** 2);
  const strips = [{ label: "x", values: x, part: (i: number) => ({ name: `${at.place}.input`, index: [row, i] }) }];
  const rules: Record<string, [string, number]> = {
    mean: ["Σ x ÷ width", mean(x)],
    variance: ["Σ (x − mean)² ÷ width", variance(x)],
    mean_square: ["Σ x² ÷ width", mean(squares)],
  };
  const [formula, computed] = rules[at.what];
  return { formula, numbers: `over the ${x.length} numbers of this token`, figures: [], strips, computed };
}

async function normOutput(at: At): Promise<Audit> {
  const [row, i] = at.index;
  const x = await at.values(`${at.place}.input`, `${row}`);
  const [gamma, beta] = await Promise.all([at.number(at.place, "γ", i), at.number(at.place, "β", i)]);
  const rms = at.config.norm === "rms";
  const squares = Float64Array.from({ length: x.length }, (_, j) => x[j] ** 2);
  const [centre, spread] = rms ? [0, mean(squares)] : [mean(x), variance(x)];
  const epsilon = at.config.norm_epsilon;
  const scale = gamma ?? 1;
  const place = (what: string): Place => ({ name: `${at.place}.${what}`, index: [row, 0] });
  const figures: Figure[] = [
    { label: "x", value: x[i], place: { name: `${at.place}.input`, index: [row, i] } },
    ...(rms ? [] : [{ label: "mean", value: centre, place: place("mean") }]),
    { label: rms ? "mean square" : "variance", value: spread, place: place(rms ? "mean_square" : "variance") },
    { label: "γ", value: scale },
    ...(beta === null ? [] : [{ label: "β", value: beta }]),
  ];
  return {
    formula: `${rms ? "x ÷ √(mean square + ε)" : "(x − mean) ÷ √(variance + ε)"} × γ${beta === null ? "" : " + β"}`,
    numbers: `${rms ? n(x[i]) : `(${short(x[i], 3)} − ${n(centre)})`} ÷ √(${short(spread, 4)} + ${epsilon}) × ${n(scale)}${beta === null ? "" : ` + ${n(beta)}`}`,
    figures,
    strips: [{ label: "x", values: x, part: (j) => ({ name: `${at.place}.input`, index: [row, j] }) }],
    computed: ((x[i] - centre) / Math.sqrt(spread + epsilon)) * scale + (beta ?? 0),
  };
}

async function after(at: At): Promise<Audit> {
  const kind = at.config.activation;
  const before = await at.one(`${at.place}.before`, at.index);
  const figures: Figure[] = [{ label: "before", value: before, place: { name: `${at.place}.before`, index: at.index } }];
  if (kind === "swiglu") {
    const gate = await at.one(`${at.place}.gate`, at.index);
    figures.push({ label: "gate", value: gate, place: { name: `${at.place}.gate`, index: at.index } });
    const computed = activate("silu", gate) * before;
    return { formula: "silu(gate) × before", numbers: `silu(${short(gate, 4)}) × ${n(before)}`, figures, strips: [], computed };
  }
  const numbers = kind === "relu" ? `max(0, ${short(before, 4)})` : `${kind}(${short(before, 4)})`;
  return { formula: kind === "relu" ? "max(0, x)" : `${kind}(x)`, numbers, figures, strips: [], computed: activate(kind, before) };
}

const output: Rule = (at) => (at.place.endsWith("norm") ? normOutput(at) : mapped(own("after"), "₂")(at));

async function positions(at: At): Promise<Audit> {
  const [row, i] = at.index;
  if (at.config.positions === "learned") {
    const entry = (await at.learned(`${at.place}.positions`, "P", row))!.data[i];
    const figures = [{ label: "learned", value: entry }];
    return { formula: `P[${row}]`, numbers: short(entry, 4), figures, strips: [], computed: entry };
  }
  const halves = at.config.positions.endsWith("halves");
  const { width } = at.config;
  const half = Math.ceil(width / 2);
  const pair = halves ? i % half : i >> 1;
  const wave = (halves ? i >= half : i % 2 === 1) ? "cos" : "sin";
  return {
    formula: `${wave}(pos ÷ 10000^(2i/width))`,
    numbers: `${wave}(${row} ÷ 10000^(${2 * pair}/${width})) = ${wave}(${short(row / 10000 ** ((2 * pair) / width), 4)})`,
    figures: [],
    strips: [],
    computed: sinusoid(row, i, width, halves),
  };
}

const vectors: Rule = (at) =>
  copied(at, at.config.norm_first ? `${at.place}.final_norm.output` : at.wiring.last(at.place), at.index, "what leaves the stack");

const TRANSFORMER: Record<string, Rule> = {
  embedded,
  positions,
  input,
  queries: projection("_Q"),
  keys: projection("_K"),
  values: projection("_V"),
  rotated_queries: rotated("queries"),
  rotated_keys: rotated("keys"),
  scores,
  scaled,
  masked,
  weights,
  heads,
  concatenated,
  projected: mapped(own("concatenated"), "_O"),
  sum,
  mean: moments,
  variance: moments,
  mean_square: moments,
  before: mapped(read, "₁"),
  gate: mapped(read, "_gate"),
  after,
  output,
  vectors,
  logits,
  probabilities,
};

const RULES: Record<Kind, Record<string, Rule>> = { transformer: TRANSFORMER, rnn: RECURRENT, "rnn-attention": RECURRENT };

export const canAudit = ({ config: { model } }: ModelCard, name: string): boolean =>
  name.slice(name.lastIndexOf(".") + 1) in RULES[model.kind];

/** The cell's formula worked out again, and the model's own figure beside it. */
export async function audit(context: Context, place: Place): Promise<Audit & { model: number }> {
  const at = new At(context, place.name, place.index);
  const rule = RULES[at.config.kind][at.what];
  if (!rule) throw new Error(`${place.name} is given, not computed`);
  const [found, model] = await Promise.all([rule(at), at.one(place.name, place.index)]);
  return { ...found, model };
}
