// The Inspector's rules for the models of 2014 and 2015. A state needs the memory c, which a layer keeps to itself and no trace has:
// number i of it depends on number i of the c before alone, so it is worked out here, from the first token read to the one asked for.
import { copied, embedded, heads, linear, logits, n, probabilities, products, weights, type Rule } from "./formulas";
import { dot, short, type Vector } from "./numbers";
import type { At, Audit, Strip } from "./operands";

const GATES = ["i", "f", "g", "o"] as const;
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const join = (...parts: Vector[]): Vector => Float32Array.from(parts.flatMap((part) => Array.from(part)));

/** Vectors one after the other, each number still going back to where it stands. */
function side(label: string, ...strips: Strip[]): Strip {
  const starts = strips.map((_, k) => strips.slice(0, k).reduce((sum, { values }) => sum + values.length, 0));
  return {
    label,
    values: join(...strips.map(({ values }) => values)),
    part: (i) => {
      const k = starts.findLastIndex((start) => start <= i);
      return strips[k].part?.(i - starts[k]) ?? null;
    },
  };
}

/** The decoder's first states in 2015, which are no part of a trace: tanh(W_s ←h₁ + b_s), of one layer. */
async function begun(at: At, layer: number): Promise<Strip> {
  const { width } = at.config;
  const [h, w, b] = await Promise.all([
    at.values("encoder.vectors", `0,${width / 2}:`),
    at.learnedRows("decoder", "W_s", layer * width, width),
    at.learnedRows("decoder", "b_s", layer * width, width),
  ]);
  const values = Float64Array.from({ length: width }, (_, i) => Math.tanh(dot(h, w!.at(i).data) + b!.data[i]));
  return { label: "s₀", values };
}

/** One number of one layer's states: what it reads, in which order, and where it begins. */
interface Way {
  place: string; // encoder.0
  unit: number; // in its own direction
  first: number; // where its direction begins in the states
  size: number;
  arrow: string; // ← before the symbols of the way back
  rows: number[]; // as they are read, up to the one asked for
  reads: (row: number) => Promise<Strip[]>;
  start: () => Promise<{ h: Strip; c: number }>;
}

const upTo = (row: number): number[] => Array.from({ length: row + 1 }, (_, t) => t);
const downTo = (row: number, length: number): number[] => Array.from({ length: length - row }, (_, t) => length - 1 - t);

function wayOf(at: At, place: string, row: number, i: number): Way {
  const { width, kind } = at.config;
  const [stack, number] = place.split(".");
  const layer = Number(number);
  const looks = kind === "rnn-attention";
  const encoder = stack === "encoder";
  const back = encoder && (!looks || i >= width / 2); // from the last word to the first
  const size = encoder && looks ? width / 2 : width;
  const below = layer ? `${stack}.${layer - 1}.states` : `${stack}.embedded`;
  const found = looks && !encoder && !layer;
  const nothing = { label: "h before", values: new Float32Array(size) };
  return {
    place, unit: i % size, first: i - (i % size), size, arrow: back && looks ? "←" : "",
    rows: back ? downTo(row, at.context.manifest.sources.length) : upTo(row),
    reads: (t) => Promise.all([at.vector(below, [t]), ...(found ? [at.vector("decoder.0.cross.heads", [t, 0])] : [])]),
    start: async () => {
      if (encoder) return { h: nothing, c: 0 };
      if (looks) return { h: await begun(at, layer), c: 0 };
      const handed = `encoder.${layer}`; // each layer goes on from its like, read to the first word
      return { h: await at.vector(`${handed}.states`, [0]), c: (await run(at, wayOf(at, handed, 0, i))).c };
    },
  }; // prettier-ignore
}

/** The layer read up to the last of its rows: its gates there, and c before and after. */
async function run(at: At, way: Way) {
  const learned = async (symbol: string): Promise<Vector> => (await at.learned(way.place, `${way.arrow}${symbol}`, way.unit))!.data;
  const gates = await Promise.all(
    GATES.map(async (gate) => {
      const [w, u, b, d] = await Promise.all([`W_${gate}`, `U_${gate}`, `b_${gate}`, `d_${gate}`].map(learned));
      return { weights: join(w, u), bias: b[0] + d[0] };
    }),
  );
  const states = (row: number): Promise<Strip> =>
    at.vector(`${way.place}.states`, [row]).then(({ label, values, part }) => ({
      label,
      values: Array.from(values).slice(way.first, way.first + way.size),
      part: (i) => part!(way.first + i),
    }));
  const { h: begin, c: kept } = await way.start();
  const inputs = await Promise.all(
    way.rows.map(async (row, t) => side("x, h before", ...(await way.reads(row)), t ? await states(way.rows[t - 1]) : begin)),
  );
  let [before, c, open] = [kept, kept, [] as number[]];
  for (const { values } of inputs) {
    const [i, f, g, o] = gates.map(({ weights, bias }) => dot(values, weights) + bias);
    open = [sigmoid(i), sigmoid(f), Math.tanh(g), sigmoid(o)];
    before = c;
    c = open[1] * before + open[0] * open[2];
  }
  return { input: inputs[inputs.length - 1], gates, open, before, c };
}

async function states(at: At): Promise<Audit> {
  const [row, i] = at.index;
  const way = wayOf(at, at.place, row, i);
  const { input, gates, open, before, c } = await run(at, way);
  const [inwards, forget, fresh, outwards] = open;
  return {
    formula: "o × tanh(c), c = f × c before + i × g",
    numbers: `${n(outwards)} × tanh(${n(forget)}×${n(before)} + ${n(inwards)}×${n(fresh)})`,
    figures: [
      { label: `i = σ(x·${way.arrow}W_i + h·${way.arrow}U_i + b), what comes in`, value: inwards },
      { label: "f = σ(…), what is kept", value: forget },
      { label: "g = tanh(…), what is new", value: fresh },
      { label: "o = σ(…), what is shown", value: outwards },
      { label: `c before: kept by the layer to itself, worked out here over ${way.rows.length - 1} steps`, value: before },
      { label: "c", value: c },
    ],
    strips: [
      { ...input, beside: true },
      ...GATES.map((gate, k) => ({ label: `${way.arrow}W, U of ${gate}`, values: gates[k].weights, beside: true })),
    ],
    computed: outwards * Math.tanh(c),
  };
}

/** The state that the row before has left asks. */
const queries: Rule = async (at) => {
  const [row, , i] = at.index;
  const s = row ? await at.vector("decoder.0.states", [row - 1], "s before") : await begun(at, 0);
  return linear(at, s, i, "W", "b");
};

const keys: Rule = async (at) => linear(at, await at.vector("encoder.vectors", [at.index[0]], "h"), at.index[2], "U");

async function energies(at: At): Promise<Audit> {
  const [head, query, key] = at.index;
  const [q, k, v] = await Promise.all([
    at.vector(`${at.place}.queries`, [query, head], "q"),
    at.vector(`${at.place}.keys`, [key, head], "k"),
    at.learned(at.place, "v", 0),
  ]);
  const bent = Float64Array.from({ length: q.values.length }, (_, i) => Math.tanh(q.values[i] + k.values[i]));
  return {
    formula: "vᵀ tanh(q + k)",
    numbers: products(bent, v!.data),
    figures: [],
    strips: [
      { label: "tanh(q + k)", values: bent },
      { label: "v", values: v!.data },
      { ...q, beside: true },
      { ...k, beside: true },
    ],
    computed: dot(bent, v!.data),
  };
}

/** What leaves a stack: the last layer's states; in 2015 the decoder weighs them with what was found and the token. */
const vectors: Rule = async (at) => {
  const { kind, encoder_layers, decoder_layers } = at.config;
  const last = `${at.place}.${(at.place === "encoder" ? encoder_layers : decoder_layers) - 1}.states`;
  if (at.place === "encoder" || kind === "rnn") return copied(at, last, at.index, "the last layer’s states");
  const [row, i] = at.index;
  const parts = await Promise.all([at.vector(last, [row]), at.vector("decoder.0.cross.heads", [row, 0]), at.vector("decoder.embedded", [row])]);
  const sum = await linear(at, side("[s; found; token]", ...parts), i, "W_t", "b_t");
  return { ...sum, formula: `tanh(${sum.formula})`, numbers: `tanh(${sum.numbers}) = tanh(${short(sum.computed, 4)})`, computed: Math.tanh(sum.computed) };
};

export const RECURRENT: Record<string, Rule> = {
  embedded,
  states,
  keys,
  values: (at) => copied(at, "encoder.vectors", [at.index[0], at.index[2]], "h itself"),
  queries,
  energies,
  weights,
  heads,
  vectors,
  logits,
  probabilities,
};
