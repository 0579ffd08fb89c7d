// The one place that knows where data come from: the server's endpoints, or what is embedded in a file that `seq2see explain`
// wrote. Tensors come when they are asked for, a slice at a time, as bare float32, and are kept while their trace is in use.
import { embedded } from "./embedded";
import type { LessonCard, Told, Values } from "./lessons";

export interface ModelConfig {
  kind: "transformer" | "rnn" | "rnn-attention";
  shape: "encoder-decoder" | "decoder" | "encoder";
  width: number;
  heads: number;
  key_value_heads: number;
  head_width: number;
  encoder_layers: number;
  decoder_layers: number;
  feed_forward: number;
  activation: string;
  norm: "layer" | "rms";
  norm_first: boolean;
  norm_epsilon: number;
  positions: string;
  segments: number;
  embedding_norm: boolean;
  scale_embeddings: boolean;
  tie: "all" | "target" | "none";
  output_bias: boolean;
  vocabulary: number;
}

export interface ModelCard {
  name: string;
  kind: "translator" | "language model" | "encoder";
  parameters: number;
  vocabulary: { source: number; target: number; shared: boolean; kind: string };
  snapshots: number[];
  config: { model: ModelConfig };
}

export interface Token {
  id: number;
  text: string;
}

export interface Written extends Token {
  logprob: number | null;
}

export interface Hypothesis {
  text: string;
  score: number;
  finished: boolean;
  tokens: Written[];
}

export interface Named {
  name: string;
  shape: number[];
  axes: string[];
  formula: string;
}

export interface Manifest {
  id: string;
  model: string;
  text: string;
  output: string;
  sources: Token[];
  reads: Token[];
  writes: Written[];
  first: number;
  finished: boolean | null;
  spans: { text: string; row: number }[]; // the output, cut where its tokens meet but inside no grapheme
  hypotheses?: Hypothesis[];
  changes: Change[]; // by interventions
  held: Change[]; // the same while the output is held fixed
  tensors: Named[];
}

/** A token before beside a token after an intervention; null where the other has one more. */
export interface Change {
  before: string | null;
  after: string | null;
  p_before: number | null;
  p_after: number | null;
  p_kept: number | null; // of the token before, as the model is now, while both have read the same
}

export interface History {
  steps: { step: number; loss: number }[];
  validations: { step: number; loss: number; bleu: number | null }[];
}

/** A learned tensor, where it acts, and which of its rows the notes call W_Q, b_K, γ … */
export interface Learned {
  name: string;
  shape: number[];
  place: string;
  symbols: { symbol: string; start: number; stop: number }[];
}

export interface Part {
  place: string;
  head: number | null;
  logit: number;
}

export interface Contributions {
  row: number;
  token: string;
  logit: number;
  parts: Part[];
}

export interface Vocabularies {
  source: string[];
  target: string[];
  banned: number[]; // ids that no search ever writes
}

/** What the model is asked to do with a text. */
export interface Question {
  model: string;
  text: string;
  search: string;
  beam: number;
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
  step?: number; // of the training; else the finished model
  target?: string; // an output that is given
  interventions?: Record<string, unknown>[];
}

export class Tensor {
  constructor(
    readonly shape: readonly number[],
    readonly data: Float32Array,
  ) {}

  /** The part at the first indices: of [8, 6, 7], at(2) is [6, 7] and at(2, 3) is [7]. No copy is made. */
  at(...indices: number[]): Tensor {
    let size = this.data.length;
    let start = 0;
    indices.forEach((index, axis) => {
      size /= this.shape[axis];
      start += index * size;
    });
    return new Tensor(this.shape.slice(indices.length), this.data.subarray(start, start + size));
  }
}

export class Problem extends Error {
  constructor(
    what: string,
    readonly remedy: string,
    readonly where = "",
  ) {
    super(what);
  }
}

/** Where the page gets its data from. */
export interface Source {
  live: boolean; // new questions can be asked
  text?: string; // else: the only one that there is
  note?: string; // on how it was computed
  models(): Promise<ModelCard[]>;
  explain(question: Question, signal: AbortSignal): Promise<Manifest>;
  stream(question: Question, signal: AbortSignal): AsyncIterable<string>;
  tensor(trace: string, name: string, index: string): Promise<Tensor>;
  weight(model: string, name: string, index: string): Promise<Tensor>;
  learned(model: string): Promise<Learned[]>;
  tokens(model: string): Promise<Vocabularies>;
  contributions(trace: string, row: number): Promise<Contributions>;
  entropies(trace: string): Promise<Record<string, number[]>>;
  history(model: string): Promise<History>;
  lessons(): Promise<LessonCard[]>;
  lesson(name: string, model: string, given: Values, signal: AbortSignal): Promise<Told>;
}

/** Who wants to know that the server no longer keeps a trace: it keeps the last few, and none over its own end. */
export const onLost = new Set<() => void>();

async function answer(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Problem("the server does not answer", 'is "seq2see explore" still running in its terminal?');
  }
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => null);
  const { what, where, remedy } = (body ?? {}) as { what?: string; where?: string; remedy?: string };
  if (response.status === 404 && where === "id") onLost.forEach((listener) => listener());
  const isForPrograms = /(^|\s)\/(api|docs)\b/.test(remedy ?? ""); // it names an address of the API
  throw new Problem(what ?? `the server answered ${response.status}`, isForPrograms ? "" : (remedy ?? ""), where);
}

const json = async <T>(path: string, init?: RequestInit): Promise<T> => (await answer(path, init)).json() as Promise<T>;

const post = (body: unknown, signal: AbortSignal): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

async function floats(path: string): Promise<Tensor> {
  const response = await answer(path);
  const shape = response.headers.get("x-shape") ?? "";
  return new Tensor(shape ? shape.split(",").map(Number) : [], new Float32Array(await response.arrayBuffer()));
}

const part = encodeURIComponent;
const sliced = (index: string): string => (index ? `?index=${part(index)}` : "");

function options(question: Question): Record<string, unknown> {
  if (question.search === "beam") return { beam: question.beam };
  if (question.search !== "sample") return {};
  const { temperature, topK: top_k, topP: top_p, seed } = question;
  return { temperature, top_k, top_p, seed };
}

export const http: Source = {
  live: true,
  models: async () => (await json<{ models: ModelCard[] }>("api/models")).models,
  async explain(question, signal) {
    const { model, text, beam, step, target, interventions } = question;
    const manifest = json<Manifest>("api/traces", post({ model, text, step, target, interventions, ...options(question) }, signal));
    if (question.search !== "beam" || interventions || step !== undefined) return manifest;
    const best = json<{ hypotheses: Hypothesis[] }>("api/translate", post({ model, text, beam, nbest: beam }, signal));
    // A language model has no translations, and so no n best to show.
    return { ...(await manifest), hypotheses: await best.then((found) => found.hypotheses, () => []) };
  },
  async *stream(question, signal) {
    const sampled = question.search === "sample" ? options(question) : { temperature: 0 };
    const response = await answer("api/generate", post({ model: question.model, prompt: question.text, ...sampled }, signal));
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      const lines = (rest + next.value).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        const { text, done } = JSON.parse(line) as { text?: string; done?: boolean };
        if (!done && text) yield text;
      }
    }
  },
  tensor: (trace, name, index) => floats(`api/traces/${part(trace)}/tensors/${part(name)}${sliced(index)}`),
  weight: (model, name, index) => floats(`api/models/${part(model)}/weights/${part(name)}${sliced(index)}`),
  learned: async (model) => (await json<{ weights: Learned[] }>(`api/models/${part(model)}/weights`)).weights,
  tokens: (model) => json(`api/models/${part(model)}/tokens`),
  contributions: (trace, row) => json(`api/traces/${part(trace)}/contributions?row=${row}`),
  entropies: async (trace) =>
    (await json<{ entropies: Record<string, number[]> }>(`api/traces/${part(trace)}/entropies`)).entropies,
  history: (model) => json(`api/models/${part(model)}/history`),
  lessons: async () => (await json<{ lessons: LessonCard[] }>("api/lessons")).lessons,
  lesson: (name, model, given, signal) => json(`api/lessons/${part(name)}`, post({ model, given }, signal)),
};

export const source: Source = embedded() ?? http;

const MOST_KEPT = 64 << 20; // bytes
const kept = new Map<string, { promise: Promise<Tensor>; size: number }>();

function remembered(key: string, load: () => Promise<Tensor>): Promise<Tensor> {
  const known = kept.get(key);
  if (known) {
    kept.delete(key); // and to the end: what was used last stays longest
    kept.set(key, known);
    return known.promise;
  }
  const entry = { promise: load(), size: 0 };
  kept.set(key, entry);
  entry.promise.then(
    (tensor) => {
      entry.size = tensor.data.byteLength;
      let total = [...kept.values()].reduce((sum, { size }) => sum + size, 0);
      for (const [old, { size }] of kept) {
        if (total <= MOST_KEPT) break;
        if (old !== key) kept.delete(old);
        total -= size;
      }
    },
    () => kept.delete(key),
  );
  return entry.promise;
}

/** A quantity of a trace, whole or sliced as `index` says: "2,:,0:5". */
export const tensor = (trace: string, name: string, index = ""): Promise<Tensor> =>
  remembered(`${trace} ${name} ${index}`, () => source.tensor(trace, name, index));

/** Learned numbers of a model, by their name in its state. */
export const weight = (model: string, name: string, index = ""): Promise<Tensor> =>
  remembered(`${model} weight ${name} ${index}`, () => source.weight(model, name, index));

/** What a model has once and for all, asked for once. */
function once<T>(load: (model: string) => Promise<T>): (model: string) => Promise<T> {
  const known = new Map<string, Promise<T>>();
  return (model) => {
    let promise = known.get(model);
    if (!promise) {
      promise = load(model);
      promise.catch(() => known.delete(model));
      known.set(model, promise);
    }
    return promise;
  };
}

export const tokensOf = once((model) => source.tokens(model));
export const learnedOf = once((model) => source.learned(model));
