// A stage of a walk: the quantities it shows (operands first), one sentence, and the line of code that does it; and those stages
// that every kind of model has, where the tokens come in and where the next one is chosen.
import type { ModelConfig } from "./api";

export interface Stage {
  key: string; // the quantity that the stage makes; its address
  group: string; // decoder.1.cross
  name: string; // short, for the steps
  sentence: string;
  shows: readonly string[]; // operands, then what is made of them
  code: readonly Code[];
  kind: "tokens" | "matrix" | "next";
  row?: number; // that is set apart in all that it shows; else the chosen token's
  before?: string; // of the operands, the one whose row before is read
}

export interface Code {
  file: string;
  line: string;
}

export const at =
  (file: string) =>
  (...lines: string[]): Code[] =>
    lines.map((line) => ({ file, line }));
const network = at("model/network.py");

/** Tokens and their vectors; `scaled` says why these are multiplied. */
export function tokenStages(stack: string, config: ModelConfig, scaled: string): Stage[] {
  const common = { group: stack, kind: "matrix" as const };
  const of = (name: string): string => `${stack}.${name}`;
  const shifted = stack === "decoder" ? " The output is shifted right: it begins with <start>, and each row is to write the next token." : "";
  return [
    {
      ...common, key: of("tokens"), name: "tokens", kind: "tokens",
      sentence: `The text is cut into tokens, and each token has a number, its id.${shifted}`,
      shows: [of("tokens")], code: network('ids = taps("tokens", tokens.tokens)'),
    },
    {
      ...common, key: of("embedded"), name: "embedding",
      sentence: `Each id picks its row of a learned table: one static vector a word, an average over all that it meant in training${config.scale_embeddings ? `; times √width, ${scaled}` : ""}.`,
      shows: [of("embedded")], code: network("return table(ids) * (math.sqrt(self.config.width) if self.config.scale_embeddings else 1.0)"),
    },
  ]; // prettier-ignore
}

/** From the decoder’s vectors to the next token. */
export function exitStages(config: ModelConfig): Stage[] {
  const common = { group: "logits", kind: "matrix" as const };
  return [
    {
      ...common, key: "logits", name: "linear",
      sentence: "The last vector against every token’s vector: how well each token of the vocabulary would fit next.",
      shows: ["decoder.vectors", "logits"],
      code: network(config.tie === "none" ? "logits = self.unembedding(vectors)" : "logits = F.linear(vectors, self.embedding.weight, self.unembedding_bias)"),
    },
    {
      ...common, key: "probabilities", name: "softmax", sentence: "Once more e to the power of each, divided by the sum: a probability for every token.",
      shows: ["logits", "probabilities"], code: at("look/trace.py")('return self._kept["logits"].softmax(-1)'),
    },
    {
      ...common, key: "next", name: "next token", kind: "next", sentence: "One token is chosen, and goes back in at the bottom, one row further: until it is <end>.",
      shows: ["probabilities"], code: at("decode/search.py")("tokens = largest(logprobs, 1)[1]"),
    },
  ]; // prettier-ignore
}
