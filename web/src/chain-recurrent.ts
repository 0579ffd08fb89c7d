// The stages of a walk through the models of 2014 and 2015: recurrent layers, what the encoder hands over, and in 2015 the attention
// with which the decoder looks back.
import type { ModelConfig } from "./api";
import { at, exitStages, tokenStages, type Code, type Stage } from "./stages";
import { layersOf } from "./structure";

const recurrent = at("model/recurrent.py");

const NO_NORM = "so that its numbers are of about unit size";
const CELL =
  "An LSTM reads one token after the other and keeps two vectors: c, its memory, and h, what it shows of it. Four gates, each σ or tanh of W · x + U · h before, say what is forgotten of c, what is new, how much of that comes in, and how much is shown";

function encoderStage(place: string, reads: string, config: ModelConfig): Stage {
  const both = config.kind === "rnn-attention";
  const way = both
    ? " Here two of them read the sentence, one from the first word and one from the last; each gives half of the vector, so that every h knows what stands before it and after it."
    : " It begins with the last word, so that the first ones, which the output’s first words need, are read last and are fresh in its memory: read this matrix from the bottom to the top.";
  return {
    key: `${place}.states`, group: place, name: "states", kind: "matrix", shows: [reads, `${place}.states`],
    sentence: `${CELL}.${way}`,
    code: recurrent(both ? "states, _ = read(lstm, x, layout)" : "states, state = read(lstm, x[backwards], layout)"),
  }; // prettier-ignore
}

/** What crosses from one side to the other. */
function betweenStages(config: ModelConfig): Stage[] {
  const common = { group: "between", kind: "matrix" as const, row: 0 };
  if (config.kind === "rnn")
    return [
      {
        ...common, key: "handed", name: "the last state", shows: layersOf(config, "encoder").map((layer) => `${layer}.states`),
        sentence: `The first row, read last, is all that the decoder gets, of each layer: ${config.width} numbers (and as many of c), however long the sentence was. There is no attention; what these numbers have lost is lost.`,
        code: recurrent("kept.append(torch.stack([states[last], state[:, 1]], dim=1))"),
      },
    ]; // prettier-ignore
  const last = layersOf(config, "encoder").pop()!;
  return [
    {
      ...common, row: -1, key: "encoder.vectors", name: "h₁ … hₙ", shows: [`${last}.states`, "encoder.vectors"],
      sentence: "All of the states are kept, a vector h for every word: the decoder may look at any of them, as often as it likes. In 2014 only the last one went on.",
      code: recurrent('return taps("vectors", x)'),
    },
    {
      ...common, key: "begin", name: "the first state", shows: ["encoder.vectors"],
      sentence: "The decoder has to begin somewhere: with tanh(W_s ←h₁ + b). ←h₁, the second half of the first row, comes from the way back, which has read the whole sentence when it comes to the first word.",
      code: recurrent("h = torch.tanh(self.begin(whole)).unflatten(-1, (-1, self.width))  # [S, layers, width]"),
    },
  ]; // prettier-ignore
}

function attentionStages(): Stage[] {
  const place = "decoder.0.cross";
  const of = (name: string): string => `${place}.${name}`;
  const stage = (made: string, name: string, sentence: string, operands: readonly string[], code: Code[]): Stage => ({
    key: of(made), group: place, name, sentence, shows: [...operands, of(made)], code, kind: "matrix",
  }); // prettier-ignore
  return [
    {
      ...stage(
        "keys", "keys, values", "Made once for the sentence: U makes of each word’s h a key, what it is found by; the value, what it gives when found, is h itself.",
        ["encoder.vectors"],
        recurrent('keys, values = here("keys", self.attention.keys(memory)[:, None]), here("values", memory[:, None])'),
      ),
      shows: ["encoder.vectors", of("keys"), of("values")],
    },
    {
      ...stage(
        "queries", "queries", "From here on a row at a time: before a token is read, the state s that the row above has left asks what it needs, with the query W s + b. (The first row asks with the first state.)",
        ["decoder.0.states"], recurrent('queries = taps("queries", self.queries(state)[:, None])  # [S, 1, width]'),
      ),
      before: "decoder.0.states",
    },
    stage(
      "energies", "energies", "The query is added to each key, bent by tanh and weighed by a learned v: vᵀ tanh(query + key). A Transformer takes their dot product instead, divided by √d.",
      [of("queries"), of("keys")], recurrent("energies = self.fit(torch.tanh(queries + source.keys)).mT[:, None]  # [S, 1, 1, M]"),
    ),
    stage(
      "weights", "softmax", "e to the power of each energy, divided by the sum of its row: weights between 0 and 1 that add to 1. No word is masked: all of the input is there from the beginning.",
      [of("energies")], recurrent('weights = taps("weights", energies.masked_fill(source.hidden, -torch.inf).softmax(-1))'),
    ),
    stage(
      "heads", "what was found", "The weighted sum of the words’ h: what the row found in the input. There is one head, and no W_O after it.",
      [of("weights"), of("values")], recurrent('heads = taps("heads", weights[:, 0].to(source.values.dtype) @ source.values)'),
    ),
  ]; // prettier-ignore
}

function decoderStage(place: string, reads: readonly string[], looks: boolean): Stage {
  const found = looks ? " It reads the token’s vector and, beside it, what the attention found; the state it comes to asks the next row’s question." : "";
  const begin = looks ? "" : " It goes on from what the encoder’s layer handed over.";
  return {
    key: `${place}.states`, group: place, name: "states", kind: "matrix", shows: [...reads, `${place}.states`],
    sentence: `${CELL}.${found || begin}`,
    code: recurrent(
      looks ? "h, c = self.cell(torch.cat([word, look.heads[:, 0].to(x.dtype)], dim=-1), (h, c))" : "states, end = read(lstm, x, layout, state[:, number])",
    ),
  }; // prettier-ignore
}

/** The vector that is held against every token. */
function vectorsStage(place: string, looks: boolean): Stage {
  return {
    key: "decoder.vectors", group: place, name: "vectors", kind: "matrix",
    shows: [`${place}.states`, ...(looks ? ["decoder.0.cross.heads", "decoder.embedded"] : []), "decoder.vectors"],
    sentence: looks
      ? "State, finding and token together: tanh(W_t [s; found; token] + b). From this vector the next token is told."
      : "The last layer’s states are the vectors from which the next token is told.",
    code: recurrent(looks ? "x = self.dropout(torch.tanh(self.combine(torch.cat([x, found, word], dim=-1))))" : 'return taps("vectors", x), torch.stack(ends, dim=1)'),
  }; // prettier-ignore
}

export function recurrentChain(config: ModelConfig): Stage[] {
  const looks = config.kind === "rnn-attention";
  const [encoder, decoder] = [layersOf(config, "encoder"), layersOf(config, "decoder")];
  const below = (layers: readonly string[], n: number): string => (n ? `${layers[n - 1]}.states` : `${layers[0].split(".")[0]}.embedded`);
  return [
    ...tokenStages("encoder", config, NO_NORM),
    ...encoder.map((place, n) => encoderStage(place, below(encoder, n), config)),
    ...betweenStages(config),
    ...tokenStages("decoder", config, NO_NORM),
    ...(looks ? attentionStages() : []),
    ...decoder.map((place, n) => decoderStage(place, [below(decoder, n), ...(looks && !n ? ["decoder.0.cross.heads"] : [])], looks && !n)),
    vectorsStage(decoder[decoder.length - 1], looks),
    ...exitStages(config),
  ];
}
