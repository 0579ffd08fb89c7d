// The notes' chain, from text to the next token, as the stages of a walk through a model, whatever its kind; those of a
// Transformer are here. A test looks every line of code up in the source.
import type { ModelConfig } from "./api";
import { recurrentChain } from "./chain-recurrent";
import { at, exitStages, tokenStages, type Code, type Stage } from "./stages";
import { layersOf, stacks, type Kind } from "./structure";
import { Wiring } from "./wiring";

const attention = at("model/attention.py");
const layers = at("model/layers.py");
const transformer = at("model/transformer.py");

const SELF = {
  self: "Each word of the input asks all words of its own sentence",
  masked: "Each word of the output asks itself and the words before it",
  cross: "Each word of the output asks the words of the input: queries come from one sequence, keys and values from the other",
};

function attentionStages(place: string, wiring: Wiring): Stage[] {
  const { config } = wiring;
  const kind = place.split(".")[2] as keyof typeof SELF;
  const rotary = config.positions === "rotary" && kind !== "cross";
  const cross = kind === "cross";
  const x = wiring.read(place);
  const of = (name: string): string => `${place}.${name}`;
  const stage = (made: string, name: string, sentence: string, operands: readonly string[], code: Code[]): Stage => ({
    key: of(made), group: place, name, sentence, shows: [...operands, of(made)], code, kind: "matrix",
  }); // prettier-ignore
  const turned = rotary ? "rotated_" : "";
  return [
    {
      ...stage(
        "queries", "Q, K, V",
        `${SELF[kind]}. Three learned maps make of each vector a query (what it looks for), a key (what it is found by) and a value (what it gives when found).`,
        cross ? [x, "encoder.vectors"] : [x],
        cross ? layers("(q,) = self.queries(x)", "k, v = self.keys_values(memory)") : layers("q, k, v = self.queries_keys_values(x)"),
      ), // prettier-ignore
      shows: [...(cross ? [x, "encoder.vectors"] : [x]), of("queries"), of("keys"), of("values")],
    },
    ...(rotary
      ? [
          {
            ...stage(
              "rotated_queries", "turn", "Queries and keys are turned by an angle that grows with the position: their scores then depend on the distance.",
              [of("queries"), of("keys")], layers('q, k = taps("rotated_queries", rotate(q, turn)), taps("rotated_keys", rotate(k, turn))'),
            ), // prettier-ignore
            shows: [of("queries"), of("keys"), of("rotated_queries"), of("rotated_keys")],
          },
        ]
      : []),
    stage(
      "scores", "scores", "Every query against every key: the larger their dot product, the better they fit, as a guest’s name against the names of a hotel’s list.",
      [of(`${turned}queries`), of(`${turned}keys`)], attention('scores = taps("scores", q @ k.transpose(-1, -2))'),
    ), // prettier-ignore
    stage(
      "scaled", "÷ √d", "The variance of a dot product grows with the dimension; divided by √d the scores keep their size, and the softmax stays soft.",
      [of("scores")], attention('scaled = taps("scaled", scores / math.sqrt(q.shape[-1]))'),
    ), // prettier-ignore
    stage(
      "masked", "mask",
      kind === "masked"
        ? "A word may not look at those after it: −∞ is added where j > i, 0 where j ≤ i. Without this, training would give away the answer."
        : "Here nothing is masked: every word of the sentence may be looked at. In the decoder’s self-attention this is where −∞ comes in.",
      [of("scaled")], attention('masked = taps("masked", scaled.masked_fill(~visible(queries, keys, causal), -math.inf))'),
    ), // prettier-ignore
    stage(
      "weights", "softmax", "e to the power of each score, divided by the sum of its row: weights between 0 and 1 that add to 1.",
      [of("masked")], attention('weights = taps("weights", masked.softmax(dim=-1))'),
    ), // prettier-ignore
    stage(
      "heads", "weighted values", "Each word becomes the weighted sum of the values of all words it looked at: the sentence has changed its meaning.",
      [of("weights"), of("values")], attention("heads = queries.unpad((weights @ v).transpose(1, 2))  # [T, H, d]"),
    ), // prettier-ignore
    stage(
      "concatenated", "concatenate", `All ${config.heads} heads have looked from their own perspectives; their findings are laid side by side.`,
      [of("heads")], layers('return taps("projected", self.project(taps("concatenated", heads.flatten(1))))'),
    ), // prettier-ignore
    stage(
      "projected", "· W_O", "One more learned map, W_O, mixes what the heads found, back to the width of a word’s vector.",
      [of("concatenated")], layers('return taps("projected", self.project(taps("concatenated", heads.flatten(1))))'),
    ), // prettier-ignore
  ];
}

function feedForwardStages(place: string, wiring: Wiring): Stage[] {
  const { config } = wiring;
  const gated = config.activation === "swiglu";
  const of = (name: string): string => `${place}.${name}`;
  const common = { group: place, kind: "matrix" as const };
  return [
    {
      ...common, key: of("before"), name: "expand",
      sentence: `Attention let the positions talk; this treats each of them alone, with the same weights: ${config.width} numbers become ${config.feed_forward}.`,
      shows: [wiring.read(place), of("before"), ...(gated ? [of("gate")] : [])], code: layers('before = taps("before", self.expand(x))'),
    },
    {
      ...common, key: of("after"), name: config.activation === "relu" ? "ReLU" : config.activation,
      sentence: config.activation === "relu" ? "What is negative becomes 0: without such a bend, two linear maps would be one." : "The bend between the two maps: without it they would be one.",
      shows: [of("before"), ...(gated ? [of("gate")] : []), of("after")],
      code: layers(gated ? 'after = self.activation(taps("gate", self.gate(x))) * before' : "after = self.activation(before)"),
    },
    {
      ...common, key: of("output"), name: "contract", sentence: `And back from ${config.feed_forward} numbers to ${config.width}.`,
      shows: [of("after"), of("output")], code: layers('return taps("output", self.contract(self.dropout(after)))'),
    },
  ]; // prettier-ignore
}

function normStage(place: string, group: string, wiring: Wiring): Stage {
  const rms = wiring.config.norm === "rms";
  return {
    key: `${place}.output`, group, name: "norm", kind: "matrix",
    sentence: rms
      ? "Each word’s numbers are divided by the root of their mean square, then stretched by the learned γ."
      : "Along each row: the word’s numbers are brought to mean 0 and variance 1, then stretched by γ and shifted by β, which are learned. No other word, and no padding, has a say.",
    shows: [`${place}.input`, ...(rms ? [`${place}.mean_square`] : [`${place}.mean`, `${place}.variance`]), `${place}.output`],
    code: layers(
      rms ? 'return taps("output", x / (mean_square + self.eps).sqrt() * self.weight)' : "x = (x - mean) / (variance + self.eps).sqrt() * self.weight",
    ),
  }; // prettier-ignore
}

function sumStage(place: string, wiring: Wiring): Stage {
  const own = place.endsWith("feed_forward") ? `${place}.output` : `${place}.projected`;
  return {
    key: `${place}.sum`, group: place, name: "add", kind: "matrix",
    sentence: "What the sub-layer made is added to what came in, so that nothing is lost on the way up and gradients find their way down.",
    shows: [wiring.reaching(place), own, `${place}.sum`],
    code: layers(
      wiring.config.norm_first
        ? 'return taps("sum", x + self.dropout(sublayer(self.norm(x, taps.at("norm")))))'
        : 'return self.norm(taps("sum", x + self.dropout(sublayer(x))), taps.at("norm"))',
    ),
  }; // prettier-ignore
}

function sublayerStages(place: string, wiring: Wiring): Stage[] {
  const own = place.endsWith("feed_forward") ? feedForwardStages(place, wiring) : attentionStages(place, wiring);
  const norm = normStage(`${place}.norm`, place, wiring);
  const sum = sumStage(place, wiring);
  return wiring.config.norm_first ? [norm, ...own, sum] : [...own, sum, norm];
}

function entranceStages(stack: string, wiring: Wiring): Stage[] {
  const { config } = wiring;
  const of = (name: string): string => `${stack}.${name}`;
  const placed = config.positions !== "rotary" && config.positions !== "none";
  return [
    ...tokenStages(stack, config, "so that it outweighs the position"),
    ...(placed
      ? [{
          group: stack, kind: "matrix" as const, key: of("input"), name: "+ position",
          sentence: "Attention alone has no order: “Nithish killed lion” and “lion killed Nithish” would be the same to it. So a vector that tells the position, waves from fast to slow, is added.",
          shows: [of("embedded"), of("positions"), of("input")], code: transformer('x = x + taps("positions", positions)'),
        }]
      : []),
    ...(config.embedding_norm ? [normStage(of("norm"), stack, wiring)] : []),
  ]; // prettier-ignore
}

function transformerChain(config: ModelConfig): Stage[] {
  const wiring = new Wiring(config);
  const stages = stacks(config).flatMap((stack) => {
    const places = layersOf(config, stack).flatMap((layer) => wiring.sublayers(stack).map((name) => `${layer}.${name}`));
    const final = config.norm_first ? [{ ...normStage(`${stack}.final_norm`, places[places.length - 1], wiring), name: "final norm" }] : [];
    return [...entranceStages(stack, wiring), ...places.flatMap((place) => sublayerStages(place, wiring)), ...final];
  });
  return config.shape === "encoder" ? stages : [...stages, ...exitStages(config)];
}

const CHAINS: Record<Kind, (config: ModelConfig) => Stage[]> = {
  transformer: transformerChain,
  rnn: recurrentChain,
  "rnn-attention": recurrentChain,
};

/** The whole way of a model, in the order of the computation. */
export const chain = (config: ModelConfig): Stage[] => CHAINS[config.kind](config);

const NAMES: Record<string, string> = { self: "self-attention", masked: "masked attention", cross: "cross-attention", feed_forward: "feed-forward" };

export function groupName(group: string): string {
  if (group === "logits") return "the next token";
  if (group === "between") return "from encoder to decoder";
  const [stack, layer, sublayer] = group.split(".");
  return layer === undefined ? `into the ${stack}` : `${stack} ${layer} · ${sublayer ? NAMES[sublayer] : "LSTM"}`;
}
