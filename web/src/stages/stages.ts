// The stages of Walk for a model of any kind, in the order of the computation.
import type { ModelConfig } from "../api";
import { ATTENTION_NAMES, type Kind, stacks } from "../architecture";
import { recurrentStages } from "./recurrent";
import type { Stage } from "./shared";
import { transformerStages } from "./transformer";

const STAGES: Record<Kind, (config: ModelConfig) => Stage[]> = {
  transformer: transformerStages,
  rnn: recurrentStages,
  "rnn-attention": recurrentStages,
};

/** The main steps only: of the first layer of the first stack in detail, of the last layer of the decoder what differs. */
export function shortRoute(stages: readonly Stage[], config: ModelConfig): Stage[] {
  const [first] = stacks(config);
  const last = config.decoder_layers - 1;
  const steps = new RegExp(
    `^((encoder|decoder)\\.(tokens|embedded)|${first}\\.0\\.((self|masked)\\.(queries|scores|weights|heads)|feed_forward\\.output)|decoder\\.${last}\\.(masked|cross)\\.weights|logits|probabilities|next)$`,
  );
  return stages.filter(
    ({ key }) => steps.test(key) && !(config.shape === "encoder-decoder" && /^(decoder\.embedded|logits)$/.test(key)),
  );
}

export const stagesFor = (config: ModelConfig): Stage[] => STAGES[config.kind](config);

const SUBLAYER_NAMES: Record<string, string> = { ...ATTENTION_NAMES, feed_forward: "feed-forward" };

export function groupTitle(group: string): string {
  if (group === "logits") return "output";
  if (group === "head") return "masked-token head";
  if (group === "between") return "encoder to decoder";
  const [stack, layer, sublayer] = group.split(".");
  if (layer === "final_norm") return `${stack} final norm`;
  return layer === undefined ? `${stack} input` : `${stack} layer ${layer}, ${sublayer ? SUBLAYER_NAMES[sublayer] : "LSTM"}`;
}
