// The stages of the recurrent models: LSTM layers, the transfer from encoder to decoder, and additive attention if the model
// has it.
import type { ModelConfig } from "../api";
import { layersOf } from "../architecture";
import { code, embeddingStages, outputStages, type Stage, stageFactory } from "./shared";

const SCALING_REASON = "so that their components have about unit size";
const LSTM =
  "An LSTM reads one token after the other and keeps two vectors: the cell state c and the hidden state h. Four gates, each σ or tanh of W · x + U · previous h, decide what is forgotten, what is added and what is output.";

function encoderStage(layer: string, input: string, config: ModelConfig): Stage {
  const bidirectional = config.kind === "rnn-attention";
  const direction = bidirectional
    ? "Two LSTMs read the sentence, one forwards and one backwards. Each provides half of the vector, so that every h depends on the words before and after it."
    : "It reads the sentence backwards, so that the first words, which the first output words need, are read last. Read this matrix from bottom to top.";
  return {
    key: `${layer}.states`,
    group: layer,
    label: "states",
    kind: "matrix",
    tensors: [input, `${layer}.states`],
    description: `${LSTM} ${direction}`,
    code: code(bidirectional ? "rnn.bidirectional_encoder" : "rnn.encoder"),
  }; // prettier-ignore
}

/** What the encoder passes to the decoder. */
function transferStages(config: ModelConfig): Stage[] {
  const common = { group: "between", kind: "matrix" as const, highlightedRow: 0 };
  if (config.kind === "rnn")
    return [
      {
        ...common,
        key: "final_state",
        label: "final state",
        tensors: layersOf(config, "encoder").map((layer) => `${layer}.states`),
        description: `The decoder receives only each layer’s final state (the first row, which is read last): ${config.width} dimensions of h and as many of c, regardless of the length of the sentence. There is no attention to recover what these vectors do not contain.`,
        code: code("rnn.last_state"),
      },
    ]; // prettier-ignore
  const lastLayer = layersOf(config, "encoder").pop()!;
  return [
    {
      ...common,
      highlightedRow: -1,
      key: "encoder.vectors",
      label: "h₁ … hₙ",
      tensors: [`${lastLayer}.states`, "encoder.vectors"],
      description:
        "All states are kept, one vector h per word: the decoder can attend to any of them at every step. Without attention, only the final state is passed on.",
      code: code("rnn.encoder_vectors"),
    },
    {
      ...common,
      key: "initial_state",
      label: "initial state",
      tensors: ["encoder.vectors"],
      description:
        "The decoder’s initial state is tanh(W_s ←h₁ + b). ←h₁, the second half of the first row, comes from the backward LSTM, which has read the whole sentence when it reaches the first word.",
      code: code("rnn.initial_state"),
    },
  ]; // prettier-ignore
}

function attentionStages(): Stage[] {
  const component = "decoder.0.cross";
  const name = (tensor: string): string => `${component}.${tensor}`;
  const stage = stageFactory(component);
  return [
    {
      ...stage(
        "keys",
        "keys, values",
        "Computed once per sentence: U projects each word’s h to a key; the value is h itself.",
        ["encoder.vectors"],
        code("rnn.keys_values"),
      ),
      tensors: ["encoder.vectors", name("keys"), name("values")],
    },
    {
      ...stage(
        "queries",
        "queries",
        "From here on, the computation proceeds row by row. Before a token is read, the state s of the previous row gives the query W s + b; the first row uses the initial state.",
        ["decoder.0.states"],
        code("rnn.queries"),
      ),
      previousRowTensor: "decoder.0.states",
    },
    stage(
      "energies",
      "energies",
      "Additive attention: the energy of a query and a key is vᵀ tanh(query + key) with a learned v. A Transformer uses the scaled dot product instead.",
      [name("queries"), name("keys")],
      code("rnn.energies"),
    ),
    stage(
      "weights",
      "softmax",
      "The softmax of each row gives the attention weights: between 0 and 1, with a sum of 1. There is no mask, since the whole input is known from the start.",
      [name("energies")],
      code("rnn.weights"),
    ),
    stage(
      "heads",
      "context",
      "The context vector: the sum of the words’ h weighted by the attention weights. There is a single head and no output projection.",
      [name("weights"), name("values")],
      code("rnn.heads"),
    ),
  ]; // prettier-ignore
}

function decoderStage(layer: string, inputs: readonly string[], config: ModelConfig, readsContext: boolean): Stage {
  const detail = readsContext
    ? "Its input is the token’s vector concatenated with the context vector; its state gives the query of the next row."
    : config.kind === "rnn"
      ? "It starts from the final state of the corresponding encoder layer."
      : "It starts from its own initial state.";
  return {
    key: `${layer}.states`,
    group: layer,
    label: "states",
    kind: "matrix",
    tensors: [...inputs, `${layer}.states`],
    description: `${LSTM} ${detail}`,
    code: code(readsContext ? "rnn.attending_decoder" : "rnn.decoder"),
  }; // prettier-ignore
}

/** The vector that is compared with every token's embedding. */
function vectorsStage(layer: string, hasAttention: boolean): Stage {
  return {
    key: "decoder.vectors",
    group: layer,
    label: "vectors",
    kind: "matrix",
    tensors: [`${layer}.states`, ...(hasAttention ? ["decoder.0.cross.heads", "decoder.embedded"] : []), "decoder.vectors"],
    description: hasAttention
      ? "State, context and token are combined: tanh(W_t [state; context; token] + b). The next token is predicted from this vector."
      : "The next token is predicted from the last layer’s states.",
    code: code(hasAttention ? "rnn.combined_vectors" : "rnn.decoder_vectors"),
  }; // prettier-ignore
}

export function recurrentStages(config: ModelConfig): Stage[] {
  const hasAttention = config.kind === "rnn-attention";
  const [encoder, decoder] = [layersOf(config, "encoder"), layersOf(config, "decoder")];
  const below = (layers: readonly string[], n: number): string =>
    n ? `${layers[n - 1]}.states` : `${layers[0].split(".")[0]}.embedded`;
  const context = (n: number): string[] => (hasAttention && n === 0 ? ["decoder.0.cross.heads"] : []);
  return [
    ...embeddingStages("encoder", config, SCALING_REASON),
    ...encoder.map((layer, n) => encoderStage(layer, below(encoder, n), config)),
    ...transferStages(config),
    ...embeddingStages("decoder", config, SCALING_REASON),
    ...(hasAttention ? attentionStages() : []),
    ...decoder.map((layer, n) => decoderStage(layer, [below(decoder, n), ...context(n)], config, context(n).length > 0)),
    vectorsStage(decoder[decoder.length - 1], hasAttention),
    ...outputStages(config),
  ];
}
