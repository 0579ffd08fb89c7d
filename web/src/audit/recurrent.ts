// The formulas of the Inspector for the recurrent models. The cell state c of an LSTM is not part of a trace. Unit i of c
// depends only on unit i of the previous c, so it is recomputed here from the first token up to the requested one.
import { formatNumber } from "../format";
import { dot, type Vector } from "../math";
import type { Audit, CellContext, VectorOperand } from "./cells";
import { copy, embedded, type Formula, heads, linear, logits, probabilities, sumOfProducts, term, weights } from "./formulas";

const GATES = ["i", "f", "g", "o"] as const;
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const concatValues = (...parts: Vector[]): Vector => Float32Array.from(parts.flatMap((part) => Array.from(part)));

/** Concatenates operands; every element still refers to its own cell. */
function concat(label: string, ...operands: VectorOperand[]): VectorOperand {
  const starts = operands.map((_, k) => operands.slice(0, k).reduce((sum, { values }) => sum + values.length, 0));
  return {
    label,
    values: concatValues(...operands.map(({ values }) => values)),
    cellAt: (i) => {
      const k = starts.findLastIndex((start) => start <= i);
      return operands[k].cellAt?.(i - starts[k]) ?? null;
    },
  };
}

/** The initial decoder state of the model with attention, which is not part of a trace: tanh(W_s ←h₁ + b_s), of one layer. */
async function initialState(cell: CellContext, layer: number): Promise<VectorOperand> {
  const { width } = cell.config;
  const [h, w, b] = await Promise.all([
    cell.values("encoder.vectors", `0,${width / 2}:`),
    cell.weightRows("decoder", "W_s", layer * width, width),
    cell.weightRows("decoder", "b_s", layer * width, width),
  ]);
  const values = Float64Array.from({ length: width }, (_, i) => Math.tanh(dot(h, w!.at(i).data) + b!.data[i]));
  return { label: "s₀", values };
}

/** One unit of an LSTM layer: its inputs, the order in which it reads them, and its initial state. */
interface LstmUnit {
  component: string; // encoder.0
  unit: number; // within its direction
  offset: number; // where its direction starts in the states
  size: number;
  arrow: string; // ← before the symbols of the backward direction
  rows: number[]; // in reading order, up to the requested one
  inputs: (row: number) => Promise<VectorOperand[]>;
  initial: () => Promise<{ h: VectorOperand; c: number }>;
}

const upTo = (row: number): number[] => Array.from({ length: row + 1 }, (_, t) => t);
const downTo = (row: number, length: number): number[] => Array.from({ length: length - row }, (_, t) => length - 1 - t);

function lstmUnit(cell: CellContext, component: string, row: number, i: number): LstmUnit {
  const { width, kind } = cell.config;
  const [stack, layerName] = component.split(".");
  const layer = Number(layerName);
  const hasAttention = kind === "rnn-attention";
  const isEncoder = stack === "encoder";
  const backward = isEncoder && (!hasAttention || i >= width / 2); // from the last word to the first
  const size = isEncoder && hasAttention ? width / 2 : width;
  const below = layer ? `${stack}.${layer - 1}.states` : `${stack}.embedded`;
  const readsContext = hasAttention && !isEncoder && !layer;
  const zeros = { label: "previous h", values: new Float32Array(size) };
  return {
    component,
    unit: i % size,
    offset: i - (i % size),
    size,
    arrow: backward && hasAttention ? "←" : "",
    rows: backward ? downTo(row, cell.run.trace.source_tokens.length) : upTo(row),
    inputs: (t) =>
      Promise.all([cell.vector(below, [t]), ...(readsContext ? [cell.vector("decoder.0.cross.heads", [t, 0])] : [])]),
    initial: async () => {
      if (isEncoder) return { h: zeros, c: 0 };
      if (hasAttention) return { h: await initialState(cell, layer), c: 0 };
      const encoderLayer = `encoder.${layer}`; // its final state, after the first word, initialises the decoder layer
      return {
        h: await cell.vector(`${encoderLayer}.states`, [0]),
        c: (await runLstm(cell, lstmUnit(cell, encoderLayer, 0, i))).c,
      };
    },
  }; // prettier-ignore
}

/** Runs a unit up to the last of its rows; returns its gates there, and c before and after. */
async function runLstm(cell: CellContext, lstm: LstmUnit) {
  const { component, unit, offset, size, arrow, rows } = lstm;
  const weight = async (symbol: string): Promise<Vector> => (await cell.weightRow(component, `${arrow}${symbol}`, unit))!.data;
  const gates = await Promise.all(
    GATES.map(async (gate) => {
      const [w, u, b, d] = await Promise.all([`W_${gate}`, `U_${gate}`, `b_${gate}`, `d_${gate}`].map(weight));
      return { weights: concatValues(w, u), bias: b[0] + d[0] };
    }),
  );
  const state = async (row: number): Promise<VectorOperand> => {
    const { label, values, cellAt } = await cell.vector(`${component}.states`, [row]);
    return { label, values: Array.from(values).slice(offset, offset + size), cellAt: (i) => cellAt!(offset + i) };
  };
  const initial = await lstm.initial();
  const inputs = await Promise.all(
    rows.map(async (row, t) => concat("x, previous h", ...(await lstm.inputs(row)), t ? await state(rows[t - 1]) : initial.h)),
  );
  let [previous, c, activations] = [initial.c, initial.c, [] as number[]];
  for (const { values } of inputs) {
    const [i, f, g, o] = gates.map(({ weights, bias }) => dot(values, weights) + bias);
    activations = [sigmoid(i), sigmoid(f), Math.tanh(g), sigmoid(o)];
    previous = c;
    c = activations[1] * previous + activations[0] * activations[2];
  }
  return { input: inputs[inputs.length - 1], gates, activations, previous, c };
}

async function states(cell: CellContext): Promise<Audit> {
  const [row, index] = cell.index;
  const lstm = lstmUnit(cell, cell.component, row, index);
  const { input, gates, activations, previous, c } = await runLstm(cell, lstm);
  const [i, f, g, o] = activations;
  return {
    formula: "o × tanh(c), c = f × previous c + i × g",
    substituted: `${term(o)} × tanh(${term(f)}×${term(previous)} + ${term(i)}×${term(g)})`,
    scalars: [
      { label: `input gate i = σ(x·${lstm.arrow}W_i + h·${lstm.arrow}U_i + b)`, value: i },
      { label: "forget gate f = σ(…)", value: f },
      { label: "candidate g = tanh(…)", value: g },
      { label: "output gate o = σ(…)", value: o },
      { label: `previous c (not in the trace; recomputed over ${lstm.rows.length - 1} steps)`, value: previous },
      { label: "c", value: c },
    ],
    vectors: [
      { ...input, notMultiplied: true },
      ...GATES.map((gate, k) => ({ label: `${lstm.arrow}W, U of ${gate}`, values: gates[k].weights, notMultiplied: true })),
    ],
    computed: o * Math.tanh(c),
  };
}

/** The query comes from the decoder state of the previous row. */
const queries: Formula = async (cell) => {
  const [row, , i] = cell.index;
  const s = row ? await cell.vector("decoder.0.states", [row - 1], "previous s") : await initialState(cell, 0);
  return linear(cell, s, i, "W", "b");
};

const keys: Formula = async (cell) =>
  linear(cell, await cell.vector("encoder.vectors", [cell.index[0]], "h"), cell.index[2], "U");

async function energies(cell: CellContext): Promise<Audit> {
  const [head, query, key] = cell.index;
  const [q, k, v] = await Promise.all([
    cell.vector(`${cell.component}.queries`, [query, head], "q"),
    cell.vector(`${cell.component}.keys`, [key, head], "k"),
    cell.weightRow(cell.component, "v", 0),
  ]);
  const hidden = Float64Array.from({ length: q.values.length }, (_, i) => Math.tanh(q.values[i] + k.values[i]));
  return {
    formula: "vᵀ tanh(q + k)",
    substituted: sumOfProducts(hidden, v!.data),
    scalars: [],
    vectors: [
      { label: "tanh(q + k)", values: hidden },
      { label: "v", values: v!.data },
      { ...q, notMultiplied: true },
      { ...k, notMultiplied: true },
    ],
    computed: dot(hidden, v!.data),
  };
}

/** The output of a stack: the last layer's states; with attention, the decoder combines them with the context and the token. */
const vectors: Formula = async (cell) => {
  const { kind, encoder_layers, decoder_layers } = cell.config;
  const last = `${cell.component}.${(cell.component === "encoder" ? encoder_layers : decoder_layers) - 1}.states`;
  if (cell.component === "encoder" || kind === "rnn") return copy(cell, last, cell.index, "the last layer’s states");
  const [row, i] = cell.index;
  const parts = await Promise.all([
    cell.vector(last, [row]),
    cell.vector("decoder.0.cross.heads", [row, 0]),
    cell.vector("decoder.embedded", [row]),
  ]);
  const sum = await linear(cell, concat("[state; context; token]", ...parts), i, "W_t", "b_t");
  const substituted = `tanh(${sum.substituted}) = tanh(${formatNumber(sum.computed, 4)})`;
  return { ...sum, formula: `tanh(${sum.formula})`, substituted, computed: Math.tanh(sum.computed) };
};

/** The formula of every tensor of a recurrent model. */
export const RECURRENT: Record<string, Formula> = {
  embedded,
  states,
  keys,
  values: (cell) => copy(cell, "encoder.vectors", [cell.index[0], cell.index[2]], "h itself"),
  queries,
  energies,
  weights,
  heads,
  vectors,
  logits,
  probabilities,
};
