// Formulas that apply to every kind of model, and the helpers that the others share.
import { tokenText } from "../api";
import { architectureOf, keyValueHeads } from "../architecture";
import { formatNumber } from "../format";
import { dot, type Vector } from "../math";
import type { Audit, CellContext, CellRef, ScalarOperand, VectorOperand } from "./cells";

/** Recomputes one cell. A formula loads the operands, never the result. */
export type Formula = (cell: CellContext) => Promise<Audit>;

/** A number inside a formula: negative ones in parentheses. */
export const term = (x: number): string => (x < 0 ? `(${formatNumber(x, 3)})` : formatNumber(x, 3));

/** a₀×b₀ + a₁×b₁ + …, with the largest terms first; then the other summands. */
export function sumOfProducts(a: Vector, b: Vector, others: ScalarOperand[] = []): string {
  const order = Array.from({ length: a.length }, (_, i) => i).sort((i, j) => Math.abs(a[j] * b[j]) - Math.abs(a[i] * b[i]));
  const first = order.slice(0, 3).map((i) => `${term(a[i])}×${term(b[i])}`);
  const remaining = order.length - first.length;
  return [...first, ...(remaining > 0 ? [`… ${remaining} more`] : []), ...others.map(({ value }) => term(value))].join(" + ");
}

/** x · W + b for one output: a vector times one row of a weight matrix. */
export async function linear(
  cell: CellContext,
  x: VectorOperand,
  output: number,
  weight: string,
  bias = "",
  component = cell.component,
): Promise<Audit> {
  // prettier-ignore
  const w = (await cell.weightRow(component, weight, output))!.data;
  const b = bias ? await cell.weightScalar(component, bias, output) : null;
  const scalars: ScalarOperand[] = b === null ? [] : [{ label: bias, value: b }];
  return {
    formula: `${x.label} · ${weight}${b === null ? "" : ` + ${bias}`}`,
    substituted: sumOfProducts(x.values, w, scalars),
    scalars,
    vectors: [x, { label: `column of ${weight}`, values: w }],
    computed: dot(x.values, w) + (b ?? 0),
  };
}

export async function copy(cell: CellContext, name: string, index: number[], formula: string): Promise<Audit> {
  const value = await cell.scalar(name, index);
  const scalars = [{ label: name, value, cell: { name, index } }];
  return { formula, substituted: formatNumber(value, 4), scalars, vectors: [], computed: value };
}

/** The key-value head that a query head uses. */
export const keyValueHead = (cell: CellContext, head: number): number =>
  Math.floor(head / (cell.config.heads / keyValueHeads(cell.config)));

/** One element of the softmax of a row. */
export function softmaxElement(row: Vector, i: number, cellAt: (i: number) => CellRef): Audit {
  let max = -Infinity;
  for (let j = 0; j < row.length; j++) max = Math.max(max, row[j]);
  let sum = 0;
  for (let j = 0; j < row.length; j++) sum += Math.exp(row[j] - max); // the maximum cancels out
  const numerator = Math.exp(row[i] - max);
  return {
    formula: "e^x ÷ Σ e^x over the row",
    substituted:
      row[i] === -Infinity
        ? "e^(−∞) = 0"
        : `e^${term(row[i])} ÷ Σ = ${formatNumber(numerator, 4)} ÷ ${formatNumber(sum, 4)}, both ÷ e^${term(max)}`,
    scalars: [{ label: "x", value: row[i], cell: cellAt(i) }],
    vectors: [{ label: "row", values: row, cellAt }],
    computed: numerator / sum,
  };
}

/** The softmax of the previous step: masked scores in a Transformer, energies in a recurrent model. */
export async function weights(cell: CellContext): Promise<Audit> {
  const [head, query, key] = cell.index;
  const { steps } = architectureOf(cell.run.model);
  const name = `${cell.component}.${steps[steps.length - 2][0]}`;
  const row = await cell.values(name, `${head},${query}`);
  return softmaxElement(row, key, (j) => ({ name, index: [head, query, j] }));
}

export async function probabilities(cell: CellContext): Promise<Audit> {
  const [row, token] = cell.index;
  return softmaxElement(await cell.values("logits", `${row}`), token, (j) => ({ name: "logits", index: [row, j] }));
}

export async function heads(cell: CellContext): Promise<Audit> {
  const [row, head, i] = cell.index;
  const valueHead = keyValueHead(cell, head);
  const [w, v] = await Promise.all([
    cell.values(`${cell.component}.weights`, `${head},${row}`),
    cell.values(`${cell.component}.values`, `:,${valueHead},${i}`),
  ]);
  return {
    formula: "Σ weight × value, over the keys",
    substituted: sumOfProducts(w, v),
    scalars: [],
    vectors: [
      { label: "weights", values: w, cellAt: (j) => ({ name: `${cell.component}.weights`, index: [head, row, j] }) },
      { label: "values", values: v, cellAt: (j) => ({ name: `${cell.component}.values`, index: [j, valueHead, i] }) },
    ],
    computed: dot(w, v),
  };
}

export async function embedded(cell: CellContext): Promise<Audit> {
  const [row, i] = cell.index;
  const { trace } = cell.run;
  const isSource = cell.component === "encoder";
  const token = (isSource ? trace.source_tokens : trace.decoder_input_tokens)[row];
  const ownTable = isSource && cell.config.shape === "encoder-decoder" && cell.config.tie_embeddings !== "all";
  const symbol = ownTable ? "E of the source" : "E";
  const entry = (await cell.weightRow(ownTable ? "source_embedding" : "embedding", symbol, token.id))!.data[i];
  const factor = cell.config.scale_embeddings ? Math.sqrt(cell.config.width) : 1;
  return {
    formula: `E[${token.text}]${factor === 1 ? "" : " × √width"}`,
    substituted: `${formatNumber(entry, 4)}${factor === 1 ? "" : ` × √${cell.config.width}`}`,
    scalars: [
      { label: `E, row ${token.id}, dimension ${i}`, value: entry },
      ...(factor === 1 ? [] : [{ label: "√width", value: factor }]),
    ],
    vectors: [],
    computed: entry * factor,
  };
}

export async function logits(cell: CellContext): Promise<Audit> {
  const [row, token] = cell.index;
  const { outputVectors } = cell.dataflow;
  const x = await cell.values(outputVectors, `${row}`);
  const tied = cell.config.tie_embeddings !== "none";
  const embedding = (await cell.weightRow(tied ? "embedding" : "unembedding", tied ? "E" : "E of the output", token))!.data;
  const bias = cell.config.output_bias ? await cell.weightScalar("unembedding_bias", "b", token) : null;
  const word = await tokenText(cell.run.model, cell.run.trace, token);
  const scalars: ScalarOperand[] = bias === null ? [] : [{ label: "b", value: bias }];
  const { logit_scale: scale, logit_cap: cap } = cell.config;
  const sum = dot(x, embedding) * scale + (bias ?? 0);
  const scaled = `vector · E[${word}]${scale === 1 ? "" : ` × ${formatNumber(scale, 4)}`}${bias === null ? "" : " + b"}`;
  return {
    formula: cap ? `${cap} × tanh((${scaled}) ÷ ${cap})` : scaled,
    substituted: sumOfProducts(x, embedding, scalars),
    scalars,
    vectors: [
      { label: "vector", values: x, cellAt: (i) => ({ name: outputVectors, index: [row, i] }) },
      { label: `E[${word}]`, values: embedding },
    ],
    computed: cap ? cap * Math.tanh(sum / cap) : sum,
  };
}
