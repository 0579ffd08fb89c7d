// What the page knows about each kind of model: its attentions, their names and labels, and their matrices in a trace. The
// stages of Walk (stages/) and the formulas of the Inspector (audit/) are tables over the same kinds.
import { type ModelConfig, type ModelInfo, Tensor, type Token, type Trace, tensor } from "./api";
import type { Scale } from "./color";
import type { Grid } from "./matrix/grid";

export interface Attention {
  name: string; // decoder.1.cross
  stack: Stack;
  layer: number;
  kind: "self" | "masked" | "cross";
}

export type Kind = ModelConfig["kind"];
export type Stack = "encoder" | "decoder";
export type Step = "scores" | "scaled" | "masked" | "energies" | "weights";

/** How one kind of model differs from another. */
interface Architecture {
  attentions: (config: ModelConfig) => Attention[];
  steps: readonly (readonly [Step, string])[]; // from query and key to the weight, with labels
  lookup: readonly (readonly [Step, string])[]; // the steps in Microscope's table of one row
  layerOutput: (config: ModelConfig) => string; // the tensor of a layer that the next layer reads
  units: { name: string; count: (config: ModelConfig) => number; description: string }; // of a layer; can be set to 0
  noAttention: string; // the explanation, for a kind without attention
}

/** Said once in each place where layers are chosen. */
export const NUMBERING = "Layers, heads and tokens are counted from 0, as in Python: layer 1 is the second one, decoder.1.";

export const ATTENTION_NAMES = { self: "self-attention", masked: "masked self-attention", cross: "cross-attention" } as const;

export const stacks = ({ shape }: ModelConfig): Stack[] =>
  (["encoder", "decoder"] as const).filter((stack) => shape === "encoder-decoder" || shape === stack);

/** encoder.0, encoder.1 … */
export const layersOf = (config: ModelConfig, stack: Stack): string[] =>
  Array.from(
    { length: stack === "encoder" ? config.encoder_layers : config.decoder_layers },
    (_, layer) => `${stack}.${layer}`,
  );

const attentionAt = (layerName: string, kind: Attention["kind"]): Attention => {
  const [stack, layer] = layerName.split(".");
  return { name: `${layerName}.${kind}`, stack: stack as Stack, layer: Number(layer), kind };
};

const TRANSFORMER: Architecture = {
  attentions: (config) =>
    stacks(config).flatMap((stack) => {
      const kinds =
        stack === "encoder"
          ? (["self"] as const)
          : config.shape === "decoder"
            ? (["masked"] as const)
            : (["masked", "cross"] as const);
      return layersOf(config, stack).flatMap((layer) => kinds.map((kind) => attentionAt(layer, kind)));
    }),
  steps: [
    ["scores", "scores"],
    ["scaled", "÷ √d"],
    ["masked", "mask"],
    ["weights", "softmax"],
  ],
  lookup: [
    ["scores", "q · k"],
    ["masked", "÷ √d, mask"],
  ],
  layerOutput: (config) => (config.norm_first ? "feed_forward.sum" : "feed_forward.norm.output"),
  units: {
    name: "feed_forward",
    count: (config) => config.feed_forward,
    description: "Sets one unit of the feed-forward layer to 0 at every token.",
  },
  noAttention: "",
};

const RECURRENT: Architecture = {
  attentions: () => [attentionAt("decoder.0", "cross")],
  steps: [
    ["energies", "energies"],
    ["weights", "softmax"],
  ],
  lookup: [["energies", "vᵀ tanh(q + k)"]],
  layerOutput: () => "states",
  units: {
    name: "states",
    count: (config) => config.width,
    description:
      "Sets one unit of a layer’s states to 0 at every token, for everything that reads them; the layer’s own recurrence is unaffected.",
  },
  noAttention: "",
};

const ARCHITECTURES: Record<Kind, Architecture> = {
  transformer: TRANSFORMER,
  "rnn-attention": RECURRENT,
  rnn: {
    ...RECURRENT,
    attentions: () => [],
    noAttention:
      "This RNN encoder-decoder has no attention: its decoder receives only the encoder’s final state, regardless of the length of the sentence.",
  },
};

export const architectureOf = (model: ModelInfo): Architecture => ARCHITECTURES[model.config.model.kind];

export const headWidth = (config: ModelConfig): number => config.head_width || config.width / config.heads;
/** Whether a decoder layer attends only to the latest tokens. */
export const isLocal = (config: ModelConfig, layer: number): boolean =>
  config.attention_window > 0 && (config.local_layers.length === 0 || config.local_layers.includes(layer));

export const isGated = (config: ModelConfig): boolean => config.activation === "swiglu" || config.activation === "geglu";

/** What positions do within an attention, or in the stack of this name; nothing in cross-attention. */
export const positionEffect = (config: ModelConfig, component: string): ModelConfig["position_effects"][Stack] =>
  component.endsWith(".cross") ? "none" : config.position_effects[component.split(".")[0] as Stack];

/** The name of a stack's position scheme. */
export const positionScheme = (config: ModelConfig, stack: string): string =>
  stack === "decoder" || config.encoder_positions === "same" ? config.positions : config.encoder_positions;

/** The prefix of the queries and keys that an attention's scores are computed from. */
export function scoredPrefix(config: ModelConfig, component: string): string {
  if (positionEffect(config, component) === "rotation") return "rotated_";
  return config.query_key_norm && !component.endsWith(".cross") ? "normed_" : "";
}

/** The angle per position of a pair of dimensions of a head. */
export function rotaryFrequency(config: ModelConfig, layer: number, pair: number): number {
  const ownBase = isLocal(config, layer) && config.local_rotary_base > 0;
  const base = ownBase ? config.local_rotary_base : config.rotary_base;
  const divisor = ownBase || config.rotary_factors.length === 0 ? 1 : config.rotary_factors[pair];
  return 1 / base ** ((2 * pair) / headWidth(config)) / divisor;
}

export const keyValueHeads = (config: ModelConfig): number => config.key_value_heads || config.heads;

export const attentions = (model: ModelInfo): Attention[] => architectureOf(model).attentions(model.config.model);

/** The selected head, −1 for the mean; 0 if the model has a single head. */
export function selectedHead(model: ModelInfo, head: number): number {
  const { heads } = model.config.model;
  return heads === 1 ? 0 : Math.min(head, heads - 1);
}

/** The attention of this name, or the model's last; null if it has none. */
export function findAttention(model: ModelInfo, name: string): Attention | null {
  const all = attentions(model);
  return all.find((attention) => attention.name === name) ?? all[all.length - 1] ?? null;
}

export const attentionTitle = ({ stack, layer, kind }: Attention): string =>
  `${stack} layer ${layer}, ${ATTENTION_NAMES[kind]}`;

/** Names the head only if the model has several. */
export function headTitle(model: ModelInfo, attention: Attention, head: number): string {
  if (model.config.model.heads === 1) return attentionTitle(attention);
  return `${attentionTitle(attention)}, ${head < 0 ? "mean over heads" : `head ${head}`}`;
}

/** Such as "heads 1, 3 and 5". */
export const headList = (heads: readonly number[]): string =>
  heads.length === 1 ? `head ${heads[0]}` : `heads ${heads.slice(0, -1).join(", ")} and ${heads[heads.length - 1]}`;

/** Such as "decoder.1.cross.weights head 3"; also the name of exported files. */
export const matrixName = (model: ModelInfo, attention: Attention, step: Step, head: number): string =>
  `${attention.name}.${step}${model.config.model.heads === 1 ? "" : head < 0 ? " mean" : ` head ${head}`}`;

export const tokenTexts = (tokens: readonly { text: string }[]): string[] => tokens.map((token) => token.text);

/** The rows of the decoder by what they read and what they write. */
const decoderRowLabels = (trace: Trace): string[] =>
  trace.decoder_input_tokens.map(({ text }, i) => `${text} ▸ ${trace.target_tokens[i].text}`);

export const queryTokens = (trace: Trace, { stack }: Attention): Token[] =>
  stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens;
export const queryLabels = (trace: Trace, { stack }: Attention): string[] =>
  stack === "encoder" ? tokenTexts(trace.source_tokens) : decoderRowLabels(trace);
export const keyLabels = (trace: Trace, { stack, kind }: Attention): string[] =>
  tokenTexts(stack === "encoder" || kind === "cross" ? trace.source_tokens : trace.decoder_input_tokens);

/** The selected decoder row; by default the first whose token the model generated. */
export function selectedRow(trace: Trace, row: number): number {
  const defaultRow = trace.output_start < trace.target_tokens.length ? trace.output_start : 0;
  return row >= 0 && row < trace.target_tokens.length ? row : defaultRow;
}

/** The mean over the given heads, by default all, [heads, queries, keys] → [queries, keys]; −∞ in all heads stays −∞. */
export function meanOverHeads(tensor: Tensor, heads?: readonly number[]): Tensor {
  const [count, ...shape] = tensor.shape;
  const size = tensor.data.length / count;
  const taken = heads ?? Array.from({ length: count }, (_, head) => head);
  const out = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    let sum = 0;
    for (const head of taken) sum += tensor.data[head * size + i];
    out[i] = sum / taken.length;
  }
  return new Tensor(shape, out);
}

const MAX_AT_ONCE = 1 << 22; // values of all heads together; of more, as for a sound of 1,500 rows, one head at a time is loaded

/** One step of an attention, for one head or (head −1) the mean over all heads. */
export async function loadAttention(trace: Trace, attention: Attention, head: number, step: Step): Promise<Tensor> {
  return head < 0 ? loadMean(trace, attention, undefined, step) : tensor(trace.id, `${attention.name}.${step}`, `${head}`);
}

/** The mean over the given heads, by default all. */
export async function loadMean(
  trace: Trace,
  attention: Attention,
  heads: readonly number[] | undefined,
  step: Step,
): Promise<Tensor> {
  const name = `${attention.name}.${step}`;
  const [count, queries, keys] = trace.tensors.find((one) => one.name === name)!.shape;
  if (count * queries * keys <= MAX_AT_ONCE) return meanOverHeads(await tensor(trace.id, name), heads);
  const taken = heads ?? Array.from({ length: count }, (_, head) => head);
  const sum = new Float32Array(queries * keys);
  for (const head of taken) {
    const { data } = await tensor(trace.id, name, `${head}`);
    for (let i = 0; i < sum.length; i++) sum[i] += data[i] / taken.length;
  }
  return new Tensor([queries, keys], sum);
}

const MAX_SAMPLED = 400; // rows and columns of a thumbnail; a larger matrix is sampled

/** The weights of all heads for thumbnails: of a large matrix, every n-th row and column. */
export function loadThumbnails(trace: Trace, attention: Attention): Promise<Tensor> {
  const name = `${attention.name}.weights`;
  const [, ...sides] = trace.tensors.find((one) => one.name === name)!.shape;
  const steps = sides.map((side) => Math.max(1, Math.floor(side / MAX_SAMPLED)));
  return tensor(trace.id, name, steps.some((step) => step > 1) ? `:,::${steps[0]},::${steps[1]}` : "");
}

const MAX_COMPARABLE_KEYS = 40;

/** Weights of a short text have the scale 0 to 1 everywhere; among many keys all would be pale, so each matrix has its own. */
export const weightScale = (keys: number): { max?: number } => (keys <= MAX_COMPARABLE_KEYS ? { max: 1 } : {});

export function attentionGrid(trace: Trace, attention: Attention, step: Step, values: Tensor, name: string): Grid {
  const scale: Scale = step === "weights" ? "sequential" : "diverging";
  return {
    name,
    rows: values.shape[0],
    cols: values.shape[1],
    data: values.data,
    rowLabels: queryLabels(trace, attention),
    colLabels: keyLabels(trace, attention),
    rowAxis: "query",
    colAxis: "key",
    scale,
    ...(step === "weights" ? { ...weightScale(values.shape[1]), causal: attention.kind === "masked" } : {}),
  };
}

/** Whether the rows of a tensor are those of the decoder. */
export const isOverOutput = (trace: Trace, name: string): boolean =>
  !name.startsWith("encoder") && !/\.cross\.(keys|values)$/.test(name) && trace.decoder_input_tokens.length > 0;

export const rowLabels = (trace: Trace, name: string): string[] =>
  isOverOutput(trace, name) ? decoderRowLabels(trace) : tokenTexts(trace.source_tokens);

/** The tokens of the rows of a tensor. */
export const rowTokens = (trace: Trace, name: string): Token[] =>
  isOverOutput(trace, name) ? trace.decoder_input_tokens : trace.source_tokens;
