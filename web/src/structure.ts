// The shape of a model as the page needs it: what each kind of model is made of, its attentions in order, their names and labels,
// and the matrices made of a trace. The chain of Walk and the rules of the Inspector have a table by the same kinds.
import { Tensor, tensor, type Manifest, type ModelCard, type ModelConfig } from "./api";
import type { Scale } from "./colour";
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

/** What sets one kind of model apart from another. */
interface Structure {
  attentions: (config: ModelConfig) => Attention[];
  steps: readonly (readonly [Step, string])[]; // from query and key to the weight
  lookup: readonly (readonly [Step, string])[]; // of these, what is told of each key that a row looks up
  end: (config: ModelConfig) => string; // of a layer, what the next one reads
  units: { name: string; most: (config: ModelConfig) => number; told: string }; // of a layer, numbers that can be held at 0
  without: string; // why there is no attention
}

export const KINDS = { self: "self-attention", masked: "masked self-attention", cross: "cross-attention" } as const;

export const stacks = ({ shape }: ModelConfig): Stack[] =>
  (["encoder", "decoder"] as const).filter((stack) => shape === "encoder-decoder" || shape === stack);

/** encoder.0, encoder.1 … */
export const layersOf = (config: ModelConfig, stack: Stack): string[] =>
  Array.from({ length: stack === "encoder" ? config.encoder_layers : config.decoder_layers }, (_, layer) => `${stack}.${layer}`);

const attentionAt = (place: string, kind: Attention["kind"]): Attention => {
  const [stack, layer] = place.split(".");
  return { name: `${place}.${kind}`, stack: stack as Stack, layer: Number(layer), kind };
};

const TRANSFORMER: Structure = {
  attentions: (config) =>
    stacks(config).flatMap((stack) => {
      const kinds = stack === "encoder" ? (["self"] as const) : config.shape === "decoder" ? (["masked"] as const) : (["masked", "cross"] as const);
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
  end: (config) => (config.norm_first ? "feed_forward.sum" : "feed_forward.norm.output"),
  units: {
    name: "feed_forward",
    most: (config) => config.feed_forward,
    told: "One number inside the feed-forward layer is held at 0, at every token.",
  },
  without: "",
};

const ATTENTIVE: Structure = {
  attentions: () => [attentionAt("decoder.0", "cross")],
  steps: [
    ["energies", "energies"],
    ["weights", "softmax"],
  ],
  lookup: [["energies", "vᵀ tanh(q + k)"]],
  end: () => "states",
  units: {
    name: "states",
    most: (config) => config.width,
    told: "One number of a layer’s states is held at 0 for whoever reads them, at every token; the layer itself still remembers it.",
  },
  without: "",
};

const STRUCTURES: Record<Kind, Structure> = {
  transformer: TRANSFORMER,
  "rnn-attention": ATTENTIVE,
  rnn: {
    ...ATTENTIVE,
    attentions: () => [],
    without:
      "The model of 2014 has no attention: all that its decoder gets is the last state the encoder came to, however long the sentence. No word of the output looks back at any word of the input.",
  },
};

export const structureOf = ({ config: { model } }: ModelCard): Structure => STRUCTURES[model.kind];

export const headWidth = (config: ModelConfig): number => config.head_width || config.width / config.heads;
export const groups = (config: ModelConfig): number => config.key_value_heads || config.heads;

export const attentions = (card: ModelCard): Attention[] => structureOf(card).attentions(card.config.model);

/** The head that is looked at, −1 for the mean of all; an only one is always itself. */
export const chosenHead = ({ config: { model } }: ModelCard, head: number): number => (model.heads === 1 ? 0 : Math.min(head, model.heads - 1));

/** The one of this name, or the model's last; null where it has none. */
export function attentionNamed(card: ModelCard, name: string): Attention | null {
  const all = attentions(card);
  return all.find((attention) => attention.name === name) ?? all[all.length - 1] ?? null;
}

export const title = ({ stack, layer, kind }: Attention): string => `${stack} layer ${layer}, ${KINDS[kind]}`;

/** With the head, where there are several. */
export function titleOf(card: ModelCard, attention: Attention, head: number): string {
  if (card.config.model.heads === 1) return title(attention);
  return `${title(attention)}, ${head < 0 ? "mean over the heads" : `head ${head}`}`;
}

/** For a file: decoder.1.cross.weights head 3. */
export const gridName = (card: ModelCard, attention: Attention, step: Step, head: number): string =>
  `${attention.name}.${step}${card.config.model.heads === 1 ? "" : head < 0 ? " mean" : ` head ${head}`}`;

const texts = (tokens: readonly { text: string }[]): string[] => tokens.map((token) => token.text);

export const queryLabels = (manifest: Manifest, { stack }: Attention): string[] =>
  texts(stack === "encoder" ? manifest.sources : manifest.reads);
export const keyLabels = (manifest: Manifest, { stack, kind }: Attention): string[] =>
  texts(stack === "encoder" || kind === "cross" ? manifest.sources : manifest.reads);

/** The decoder's row that is looked at; without one, the first whose token was the model's own choice. */
export function chosenRow(manifest: Manifest, row: number): number {
  const first = manifest.first < manifest.writes.length ? manifest.first : 0;
  return row >= 0 && row < manifest.writes.length ? row : first;
}

/** The mean over the first axis, [heads, queries, keys] → [queries, keys]; −∞ stays where all have it. */
export function meanOf(whole: Tensor): Tensor {
  const [count, ...shape] = whole.shape;
  const size = whole.data.length / count;
  const out = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    let sum = 0;
    for (let n = 0; n < count; n++) sum += whole.data[n * size + i];
    out[i] = sum / count;
  }
  return new Tensor(shape, out);
}

/** One step of an attention, of one head or (head −1) the mean over all. */
export async function attentionStep(manifest: Manifest, attention: Attention, head: number, step: Step): Promise<Tensor> {
  const name = `${attention.name}.${step}`;
  return head < 0 ? meanOf(await tensor(manifest.id, name)) : tensor(manifest.id, name, `${head}`);
}

export function attentionGrid(manifest: Manifest, attention: Attention, step: Step, values: Tensor, name: string): Grid {
  const scale: Scale = step === "weights" ? "sequential" : "diverging";
  return {
    name,
    rows: values.shape[0],
    cols: values.shape[1],
    data: values.data,
    rowLabels: queryLabels(manifest, attention),
    colLabels: keyLabels(manifest, attention),
    rowAxis: "query",
    colAxis: "key",
    scale,
    ...(step === "weights" ? { most: 1, causal: attention.kind === "masked" } : {}),
  };
}
