// Formulas that several rules of the Inspector share, and the rules that hold for every kind of model.
import { tokensOf } from "./api";
import { dot, short, type Vector } from "./numbers";
import type { At, Audit, Figure, Place, Strip } from "./operands";
import { groups, structureOf } from "./structure";

export type Rule = (at: At) => Promise<Audit>;

export const n = (x: number): string => (x < 0 ? `(${short(x, 3)})` : short(x, 3));

/** a₀×b₀ + a₁×b₁ + … with the largest terms first written out. */
export function products(a: Vector, b: Vector, rest: Figure[] = []): string {
  const terms = Array.from({ length: a.length }, (_, i) => i).sort((i, j) => Math.abs(a[j] * b[j]) - Math.abs(a[i] * b[i]));
  const first = terms.slice(0, 3).map((i) => `${n(a[i])}×${n(b[i])}`);
  const more = terms.length - first.length;
  return [...first, ...(more > 0 ? [`… ${more} more`] : []), ...rest.map(({ value }) => n(value))].join(" + ");
}

/** x · W + b: one row of a learned matrix against a vector. */
export async function linear(at: At, x: Strip, out: number, weight: string, bias = "", place = at.place): Promise<Audit> {
  const w = (await at.learned(place, weight, out))!.data;
  const b = bias ? await at.number(place, bias, out) : null;
  const figures: Figure[] = b === null ? [] : [{ label: bias, value: b }];
  return {
    formula: `${x.label} · ${weight}${b === null ? "" : ` + ${bias}`}`,
    numbers: products(x.values, w, figures),
    figures,
    strips: [x, { label: `column of ${weight}`, values: w }],
    computed: dot(x.values, w) + (b ?? 0),
  };
}

export async function copied(at: At, name: string, index: number[], formula: string): Promise<Audit> {
  const value = await at.one(name, index);
  return { formula, numbers: short(value, 4), figures: [{ label: name, value, place: { name, index } }], strips: [], computed: value };
}

export const group = (at: At, head: number): number => Math.floor(head / (at.config.heads / groups(at.config)));

/** e^x over the sum of the row's. */
export function share(row: Vector, i: number, part: (i: number) => Place): Audit {
  let most = -Infinity;
  for (let j = 0; j < row.length; j++) most = Math.max(most, row[j]);
  let sum = 0;
  for (let j = 0; j < row.length; j++) sum += Math.exp(row[j] - most); // less the largest, which divides out
  const own = Math.exp(row[i] - most);
  return {
    formula: "e^x ÷ Σ e^x over the row",
    numbers: row[i] === -Infinity ? "e^(−∞) = 0" : `e^${n(row[i])} ÷ Σ = ${short(own, 4)} ÷ ${short(sum, 4)}, both ÷ e^${n(most)}`,
    figures: [{ label: "x", value: row[i], place: part(i) }],
    strips: [{ label: "the row", values: row, part }],
    computed: own / sum,
  };
}

/** The softmax of the step before it, whichever that is. */
export async function weights(at: At): Promise<Audit> {
  const [head, query, key] = at.index;
  const { steps } = structureOf(at.context.card);
  const name = `${at.place}.${steps[steps.length - 2][0]}`;
  const row = await at.values(name, `${head},${query}`);
  return share(row, key, (j) => ({ name, index: [head, query, j] }));
}

export async function probabilities(at: At): Promise<Audit> {
  const [row, token] = at.index;
  return share(await at.values("logits", `${row}`), token, (j) => ({ name: "logits", index: [row, j] }));
}

export async function heads(at: At): Promise<Audit> {
  const [row, head, i] = at.index;
  const shared = group(at, head);
  const [w, v] = await Promise.all([
    at.values(`${at.place}.weights`, `${head},${row}`),
    at.values(`${at.place}.values`, `:,${shared},${i}`),
  ]);
  return {
    formula: "Σ weight × value, over the keys",
    numbers: products(w, v),
    figures: [],
    strips: [
      { label: "weights", values: w, part: (j) => ({ name: `${at.place}.weights`, index: [head, row, j] }) },
      { label: "values", values: v, part: (j) => ({ name: `${at.place}.values`, index: [j, shared, i] }) },
    ],
    computed: dot(w, v),
  };
}

export async function embedded(at: At): Promise<Audit> {
  const [row, i] = at.index;
  const { manifest } = at.context;
  const token = (at.place === "encoder" && at.config.shape === "encoder-decoder" ? manifest.sources : manifest.reads)[row];
  const own = at.place === "encoder" && at.config.shape === "encoder-decoder" && at.config.tie !== "all";
  const symbol = own ? "E of the source" : "E";
  const entry = (await at.learned(own ? "source_embedding" : "embedding", symbol, token.id))!.data[i];
  const factor = at.config.scale_embeddings ? Math.sqrt(at.config.width) : 1;
  return {
    formula: `E[${token.text}]${factor === 1 ? "" : " × √width"}`,
    numbers: `${short(entry, 4)}${factor === 1 ? "" : ` × √${at.config.width}`}`,
    figures: [
      { label: `row ${token.id} of E, number ${i}`, value: entry },
      ...(factor === 1 ? [] : [{ label: "√width", value: factor }]),
    ],
    strips: [],
    computed: entry * factor,
  };
}

export async function logits(at: At): Promise<Audit> {
  const [row, token] = at.index;
  const x = await at.values("decoder.vectors", `${row}`);
  const tied = at.config.tie !== "none";
  const table = (await at.learned(tied ? "embedding" : "unembedding", tied ? "E" : "E of the output", token))!.data;
  const bias = at.config.output_bias ? await at.number("unembedding_bias", "b", token) : null;
  const word = (await tokensOf(at.context.card.name)).target[token];
  const figures: Figure[] = bias === null ? [] : [{ label: "b", value: bias }];
  return {
    formula: `vector · E[${word}]${bias === null ? "" : " + b"}`,
    numbers: products(x, table, figures),
    figures,
    strips: [
      { label: "vector", values: x, part: (i) => ({ name: "decoder.vectors", index: [row, i] }) },
      { label: `E[${word}]`, values: table },
    ],
    computed: dot(x, table) + (bias ?? 0),
  };
}
