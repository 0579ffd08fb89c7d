// A stage of Walk: the tensors it shows (operands first), a description, and the line of code that computes it; and the stages
// that all kinds of model share: tokens and embeddings at the start, logits and the next token at the end.
import type { ModelConfig } from "../api";
import { Dataflow } from "../dataflow";
import excerpts from "../generated/code.json";

export interface Stage {
  key: string; // the tensor that the stage computes; identifies the stage in the URL
  group: string; // decoder.1.cross
  label: string; // short, for the navigation
  description: string;
  tensors: readonly string[]; // operands, then results
  code: readonly Code[];
  kind: "tokens" | "media" | "matrix" | "next"; // media: the picture or spectrogram above the matrices
  highlightedRow?: number; // in all matrices; default: the selected token's
  previousRowTensor?: string; // the operand of which the previous row is read
}

export interface Code {
  file: string;
  line: string;
}

export type Excerpt = keyof typeof excerpts;

/** Lines of the model's code, by their names in web/sources.py. */
export const code = (...names: Excerpt[]): Code[] => names.map((name) => excerpts[name]);

/** Creates the stages of a component; `operands` are shown before the result. */
export const stageFactory =
  (component: string) =>
  (result: string, label: string, description: string, operands: readonly string[], code: Code[]): Stage => ({
    key: `${component}.${result}`,
    group: component,
    label,
    description,
    tensors: [...operands, `${component}.${result}`],
    code,
    kind: "matrix",
  }); // prettier-ignore

/** Tokens and embeddings; `scalingReason` says why the embeddings are scaled. */
export function embeddingStages(stack: string, config: ModelConfig, scalingReason: string): Stage[] {
  const shifted =
    stack === "decoder"
      ? " The decoder input is the output shifted right: it starts with <start>, and each row predicts the next token."
      : "";
  const scaling = config.scale_embeddings ? ` The vectors are multiplied by √width, ${scalingReason}.` : "";
  return [
    {
      group: stack,
      kind: "tokens",
      key: `${stack}.tokens`,
      label: "tokens",
      description: `The text is split into tokens, and each token is mapped to its id in the vocabulary.${shifted}`,
      tensors: [`${stack}.tokens`],
      code: code("tokens"),
    },
    {
      group: stack,
      kind: "matrix",
      key: `${stack}.embedded`,
      label: "embedding",
      description: `Each id selects its row of a learned embedding table: one static vector per token, independent of the context.${scaling}`,
      tensors: [`${stack}.embedded`],
      code: code("embedding"),
    },
  ]; // prettier-ignore
}

/** From the output vectors to the next token of a decoder, or to the masked tokens of an encoder. */
export function outputStages(config: ModelConfig): Stage[] {
  const common = { group: "logits", kind: "matrix" as const };
  const stages: Stage[] = [
    {
      ...common,
      key: "logits",
      label: "logits",
      description:
        "The dot product of the output vector with every token’s embedding gives one logit per token of the vocabulary.",
      tensors: [new Dataflow(config).outputVectors, "logits"],
      code: code(config.tie_embeddings === "none" ? "unembedding" : "tied_unembedding"),
    },
    {
      ...common,
      key: "probabilities",
      label: "softmax",
      description: "The softmax turns the logits into a probability for every token of the vocabulary.",
      tensors: ["logits", "probabilities"],
      code: code("probabilities"),
    },
    {
      ...common,
      key: "next",
      label: "next token",
      kind: "next",
      description: "One token is chosen and appended to the decoder input. This repeats until the chosen token is <end>.",
      tensors: ["probabilities"],
      code: code("greedy"),
    },
  ]; // prettier-ignore
  return config.shape === "encoder" ? stages.slice(0, -1) : stages;
}
