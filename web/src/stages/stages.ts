// The stages of Walk for a model of any kind, in the order of the computation.
import type { ModelConfig } from "../api";
import { ATTENTION_NAMES, type Kind } from "../architecture";
import { recurrentStages } from "./recurrent";
import type { Stage } from "./shared";
import { transformerStages } from "./transformer";

const STAGES: Record<Kind, (config: ModelConfig) => Stage[]> = {
  transformer: transformerStages,
  rnn: recurrentStages,
  "rnn-attention": recurrentStages,
};

export const stagesFor = (config: ModelConfig): Stage[] => STAGES[config.kind](config);

const SUBLAYER_NAMES: Record<string, string> = { ...ATTENTION_NAMES, feed_forward: "feed-forward" };

export function groupTitle(group: string): string {
  if (group === "logits") return "output";
  if (group === "head") return "masked-token head";
  if (group === "between") return "encoder to decoder";
  const [stack, layer, sublayer] = group.split(".");
  return layer === undefined ? `${stack} input` : `${stack} ${layer} · ${sublayer ? SUBLAYER_NAMES[sublayer] : "LSTM"}`;
}
