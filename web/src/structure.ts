// The shape of a model as the page needs it: its attentions in order, their names and labels, and the matrices made of a trace.
import { Tensor, tensor, type Manifest, type ModelCard, type ModelConfig } from "./api";
import type { Scale } from "./colour";
import type { Grid } from "./matrix/grid";

export interface Attention {
  name: string; // decoder.1.cross
  stack: "encoder" | "decoder";
  layer: number;
  kind: "self" | "masked" | "cross";
}

export const KINDS = { self: "self-attention", masked: "masked self-attention", cross: "cross-attention" } as const;

export const headWidth = (config: ModelConfig): number => config.head_width || config.width / config.heads;
export const groups = (config: ModelConfig): number => config.key_value_heads || config.heads;

export function attentions({ config: { model } }: ModelCard): Attention[] {
  const of = (stack: Attention["stack"], layers: number, kinds: Attention["kind"][]): Attention[] =>
    Array.from({ length: layers }, (_, layer) =>
      kinds.map((kind) => ({ name: `${stack}.${layer}.${kind}`, stack, layer, kind })),
    ).flat();
  const both = model.shape === "encoder-decoder";
  return [
    ...(model.shape === "decoder" ? [] : of("encoder", model.encoder_layers, ["self"])),
    ...(model.shape === "encoder" ? [] : of("decoder", model.decoder_layers, both ? ["masked", "cross"] : ["masked"])),
  ];
}

/** The one of this name, or the model's last. */
export function attentionNamed(card: ModelCard, name: string): Attention {
  const all = attentions(card);
  return all.find((attention) => attention.name === name) ?? all[all.length - 1];
}

export const title = ({ stack, layer, kind }: Attention): string => `${stack} layer ${layer}, ${KINDS[kind]}`;

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

export type Step = "scores" | "scaled" | "masked" | "weights";

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
