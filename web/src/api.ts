// The data source of the page: the server's endpoints, or the data embedded in a file that `seq2see explain` wrote. The types are
// generated from the server's own. Tensors are fetched on demand, a slice at a time, as float32, and cached.
import { embedded } from "./embedded";
import type {
  AttentionEntropy,
  ErrorResponse,
  ModelConfig as GeneratedConfig,
  ModelInfo as GeneratedInfo,
  GenerateRequest,
  History,
  Hypothesis,
  LessonInfo,
  LessonList,
  LessonRequest,
  LessonResult,
  LogitAttribution,
  Media,
  ModelList,
  NearestEmbeddings,
  NextToken,
  Space,
  SpaceRequest,
  TopTokens,
  Trace,
  TraceRequest,
  Training,
  TrainingReport,
  TranslateRequest,
  Translation,
  Vocabulary,
  WeightInfo,
  WeightList,
} from "./generated/api"; // prettier-ignore
import type { Sampling } from "./math";

export type * from "./generated/api";

/** A configuration, with what the server says of its positions: a scheme may be newer than the page. */
export type ModelConfig = GeneratedConfig & { position_effects: GeneratedInfo["position_effects"] };
export type ModelInfo = GeneratedInfo & { config: { model: ModelConfig } };

export const withEffects = (info: GeneratedInfo): ModelInfo => {
  const model = { ...info.config.model, position_effects: info.position_effects };
  return { ...info, config: { ...info.config, model } };
};

export type InterventionRequest = NonNullable<TraceRequest["interventions"]>[number];

/** A trace, with the n-best list if a beam search produced it. */
export interface Explanation extends Trace {
  hypotheses?: Hypothesis[];
}

/** What to explain, and how to decode. */
export interface ExplainOptions {
  model: string;
  text: string;
  sourceLanguage?: string | null; // of a translator of many languages
  targetLanguage?: string | null;
  search: string; // greedy, beam or sample
  beam: number;
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
  step?: number; // of a training snapshot; default: the final weights
  target?: string; // default: the model's own output
  interventions?: InterventionRequest[];
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

export class ApiError extends Error {
  constructor(
    message: string,
    readonly hint: string,
    readonly location = "",
  ) {
    super(message);
  }
}

/** Where the page gets its data from. */
export interface Source {
  live: boolean; // whether there is a model behind it
  hasMedia: boolean; // whether `media` returns the file of a sound
  text?: string; // otherwise: the only text
  note?: string; // on how it was computed
  models(): Promise<ModelInfo[]>;
  explain(options: ExplainOptions, signal: AbortSignal): Promise<Explanation>;
  stream(options: ExplainOptions, signal: AbortSignal): AsyncIterable<string>;
  tensor(trace: string, name: string, index: string): Promise<Tensor>;
  weight(model: string, name: string, index: string): Promise<Tensor>;
  weightInfos(model: string): Promise<WeightInfo[]>;
  vocabulary(model: string): Promise<Vocabulary>;
  topTokens(trace: string): Promise<TopTokens>;
  nextToken(trace: string, row: number, sampling: Sampling & { seed: number }, signal: AbortSignal): Promise<NextToken>;
  logitAttribution(trace: string, row: number): Promise<LogitAttribution>;
  attentionEntropy(trace: string): Promise<AttentionEntropy>;
  headAblation(trace: string, attention: string): Promise<Tensor>; // [heads, rows]: the drop in ln P of each output token
  history(model: string): Promise<History>;
  space(body: SpaceRequest, signal: AbortSignal): Promise<Space>;
  nearestEmbeddings(trace: string, stack: string, position: number): Promise<NearestEmbeddings>;
  training(): Promise<Training>;
  train(command: string, body?: object): Promise<Training>; // "" starts; /pause, /resume, /stop
  trainingReport(step: number, text: string, attention: string, head: number, signal: AbortSignal): Promise<TrainingReport>;
  lessons(): Promise<LessonInfo[]>;
  upload(file: Blob): Promise<string>; // the id of a picture or sound, which is the text to explain
  media(id: string): Promise<ArrayBuffer>;
  lesson(name: string, model: string, settings: LessonRequest["settings"], signal: AbortSignal): Promise<LessonResult>;
}

/** Called when the server has evicted a trace, or was restarted. */
export const onTraceEvicted = new Set<() => void>();

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError("the server does not respond", 'is "seq2see explore" still running?');
  }
  if (response.ok) return response;
  const body = ((await response.json().catch(() => null)) ?? {}) as Partial<ErrorResponse>;
  const { message = `the server responded with status ${response.status}`, location, hint = "" } = body;
  if (response.status === 404 && location === "id") onTraceEvicted.forEach((listener) => listener());
  const isForPrograms = /(^|\s)\/(api|docs)\b/.test(hint); // it names an endpoint
  throw new ApiError(message, isForPrograms ? "" : hint, location);
}

const json = async <T>(path: string, init?: RequestInit): Promise<T> => (await request(path, init)).json() as Promise<T>;

const post = (body: unknown, signal: AbortSignal | null = null): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

async function fetchTensor(path: string): Promise<Tensor> {
  const response = await request(path);
  const shape = response.headers.get("x-shape") ?? "";
  return new Tensor(shape ? shape.split(",").map(Number) : [], new Float32Array(await response.arrayBuffer()));
}

const part = encodeURIComponent;
const indexQuery = (index: string): string => (index ? `?index=${part(index)}` : "");

function searchOptions(options: ExplainOptions): Partial<TraceRequest> {
  if (options.search === "beam") return { beam: options.beam };
  if (options.search !== "sample") return {};
  const { temperature, topK: top_k, topP: top_p, seed } = options;
  return { temperature, top_k, top_p, seed };
}

const languageOptions = ({ sourceLanguage = null, targetLanguage = null }: ExplainOptions): Partial<TraceRequest> => ({
  source_language: sourceLanguage,
  target_language: targetLanguage,
});

export const http: Source = {
  live: true,
  hasMedia: true,
  models: async () => (await json<ModelList>("api/models")).models.map(withEffects),
  async explain(options, signal) {
    const { model, text, beam, step = null, target = null, interventions = [] } = options;
    const body: TraceRequest = {
      model,
      text,
      step,
      target,
      interventions,
      ...languageOptions(options),
      ...searchOptions(options),
    };
    const trace = json<Trace>("api/traces", post(body, signal));
    if (options.search !== "beam" || interventions.length || step !== null) return trace;
    const nbest: TranslateRequest = { model, text, beam, nbest: beam, ...languageOptions(options) };
    const translation = json<Translation>("api/translate", post(nbest, signal));
    // Fails for a language model, which has no n-best list. A trace is of one sentence.
    const hypotheses = await translation.then(
      ({ sentences }) => (sentences.length === 1 ? sentences[0].hypotheses : []),
      () => [],
    );
    return { ...(await trace), hypotheses };
  },
  async *stream(options, signal) {
    const sampling = options.search === "sample" ? searchOptions(options) : { temperature: 0 };
    const body: GenerateRequest = { model: options.model, prompt: options.text, ...languageOptions(options), ...sampling };
    const response = await request("api/generate", post(body, signal));
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
  tensor: (trace, name, index) => fetchTensor(`api/traces/${part(trace)}/tensors/${part(name)}${indexQuery(index)}`),
  weight: (model, name, index) => fetchTensor(`api/models/${part(model)}/weights/${part(name)}${indexQuery(index)}`),
  weightInfos: async (model) => (await json<WeightList>(`api/models/${part(model)}/weights`)).weights,
  vocabulary: (model) => json(`api/models/${part(model)}/vocabulary`),
  topTokens: (trace) => json(`api/traces/${part(trace)}/top-tokens`),
  nextToken: (trace, row, { temperature, topK, topP, seed }, signal) =>
    json(
      `api/traces/${part(trace)}/next-token?row=${row}&temperature=${temperature}&top_k=${topK}&top_p=${topP}&seed=${seed}`,
      { signal },
    ),
  logitAttribution: (trace, row) => json(`api/traces/${part(trace)}/logit-attribution?row=${row}`),
  attentionEntropy: (trace) => json(`api/traces/${part(trace)}/attention-entropy`),
  headAblation: (trace, attention) => fetchTensor(`api/traces/${part(trace)}/head-ablation/${part(attention)}`),
  history: (model) => json(`api/models/${part(model)}/history`),
  upload: async (file) =>
    (await json<Media>("api/media", { method: "POST", headers: { "content-type": "application/octet-stream" }, body: file }))
      .id,
  media: async (id) => (await request(`api/media/${part(id)}`)).arrayBuffer(),
  space: (body, signal) => json("api/space", post(body, signal)),
  nearestEmbeddings: (trace, stack, position) =>
    json(`api/traces/${part(trace)}/nearest-embeddings?stack=${stack}&position=${position}`),
  training: () => json("api/training"),
  train: (command, body = {}) => json(`api/training${command}`, post(body)),
  trainingReport: (step, text, attention, head, signal) =>
    json(`api/training/report?step=${step}&text=${part(text)}&attention=${part(attention)}${head < 0 ? "" : `&head=${head}`}`, {
      signal,
    }),
  lessons: async () => (await json<LessonList>("api/lessons")).lessons,
  lesson: (name, model, settings, signal) => {
    const body: LessonRequest = { model, ...(settings ? { settings } : {}) };
    return json(`api/lessons/${part(name)}`, post(body, signal));
  },
};

export const source: Source = embedded() ?? http;

const MAX_CACHED = 64 << 20; // bytes
const cache = new Map<string, { promise: Promise<Tensor>; size: number }>();

function cached(key: string, load: () => Promise<Tensor>): Promise<Tensor> {
  const known = cache.get(key);
  if (known) {
    cache.delete(key); // reinserted at the end: the least recently used come first
    cache.set(key, known);
    return known.promise;
  }
  const entry = { promise: load(), size: 0 };
  cache.set(key, entry);
  entry.promise.then(
    (tensor) => {
      entry.size = tensor.data.byteLength;
      let total = [...cache.values()].reduce((sum, { size }) => sum + size, 0);
      for (const [old, { size }] of cache) {
        if (total <= MAX_CACHED) break;
        if (old !== key) cache.delete(old);
        total -= size;
      }
    },
    () => cache.delete(key),
  );
  return entry.promise;
}

/** A tensor of a trace, whole or a slice such as "2,:,0:5". */
export const tensor = (trace: string, name: string, index = ""): Promise<Tensor> =>
  cached(`${trace} ${name} ${index}`, () => source.tensor(trace, name, index));

/** A weight of a model, by its name in the state dict. */
export const weight = (model: string, name: string, index = ""): Promise<Tensor> =>
  cached(`${model} weight ${name} ${index}`, () => source.weight(model, name, index));

/** Requests what never changes only once per model or trace. */
function once<T>(load: (key: string) => Promise<T>): (key: string) => Promise<T> {
  const known = new Map<string, Promise<T>>();
  return (key) => {
    let promise = known.get(key);
    if (!promise) {
      promise = load(key);
      promise.catch(() => known.delete(key));
      known.set(key, promise);
    }
    return promise;
  };
}

export const vocabularyOf = once((model) => source.vocabulary(model));
export const topTokensOf = once((trace) => source.topTokens(trace));

/** Of a larger vocabulary, the page requests and shows only the most likely tokens. */
const MAX_VOCABULARY = 20_000;
export const isLargeVocabulary = (model: ModelInfo): boolean => model.tokenizer.target_vocab_size > MAX_VOCABULARY;

/** The text of a token of the target vocabulary. */
export async function tokenText(model: ModelInfo, trace: Trace, id: number): Promise<string> {
  if (!isLargeVocabulary(model)) return (await vocabularyOf(model.name)).target[id];
  const { ids, tokens } = await topTokensOf(trace.id);
  return tokens[ids.indexOf(id)] ?? `token ${id}`;
}
export const weightInfosOf = once((model) => source.weightInfos(model));
