// The stages of a Transformer.
import type { ModelConfig } from "../api";
import { isGated, isLocal, layersOf, positionEffect, positionScheme, scoredPrefix, stacks } from "../architecture";
import { Dataflow } from "../dataflow";
import { mediaKind } from "../media/media";
import { mediaStages } from "../media/stages";
import { code, embeddingStages, outputStages, type Stage, stageFactory } from "./shared";

const ATTENTION_DESCRIPTIONS = {
  self: "Every token of the input attends to all tokens of the input",
  masked: "Every token of the output attends to itself and to the tokens before it",
  cross:
    "Every token of the output attends to the tokens of the input: queries come from the decoder, keys and values from the encoder",
};

function attentionStages(component: string, dataflow: Dataflow): Stage[] {
  const { config } = dataflow;
  const kind = component.split(".")[2] as keyof typeof ATTENTION_DESCRIPTIONS;
  const isCross = kind === "cross";
  const effect = positionEffect(config, component);
  const inputs = isCross ? [dataflow.sublayerInput(component), "encoder.vectors"] : [dataflow.sublayerInput(component)];
  const name = (tensor: string): string => `${component}.${tensor}`;
  const stage = stageFactory(component);
  const prefix = scoredPrefix(config, component);
  const isNormed = config.query_key_norm && !isCross;
  const scheme = positionScheme(config, component.split(".")[0]);
  const rotatedFrom = isNormed ? "normed_" : "";
  const limited = config.attention_cap ? "capped" : "scaled";
  const beforeMask = effect === "bias" ? "biased" : limited;
  const window = isLocal(config, Number(component.split(".")[1])) && kind === "masked" ? config.attention_window : 0;
  return [
    {
      ...stage(
        "queries",
        "Q, K, V",
        `${ATTENTION_DESCRIPTIONS[kind]}. Three learned linear maps project each vector to a query, a key and a value.`,
        inputs,
        isCross ? code("cross_queries", "cross_keys_values") : code("queries_keys_values"),
      ),
      tensors: [...inputs, name("queries"), name("keys"), name("values")],
    },
    ...(isNormed
      ? [
          {
            ...stage(
              "normed_queries",
              "Q, K norm",
              "The queries and keys of each head are divided by their root mean square, which keeps the scores in a fixed range.",
              [name("queries"), name("keys")],
              code("query_key_norm"),
            ),
            tensors: [name("queries"), name("keys"), name("normed_queries"), name("normed_keys")],
          },
        ]
      : []),
    ...(effect === "rotation"
      ? [
          {
            ...stage(
              "rotated_queries",
              "rotation",
              "Queries and keys are rotated by an angle proportional to their position, so that scores depend on the distance between tokens.",
              [name(`${rotatedFrom}queries`), name(`${rotatedFrom}keys`)],
              code("rotation"),
            ),
            tensors: [name(`${rotatedFrom}queries`), name(`${rotatedFrom}keys`), name("rotated_queries"), name("rotated_keys")],
          },
        ]
      : []),
    stage(
      "scores",
      "scores",
      "The dot product of every query with every key: the larger the score, the better the key matches the query.",
      [name(`${prefix}queries`), name(`${prefix}keys`)],
      code("scores"),
    ),
    stage(
      "scaled",
      "÷ √d",
      "The variance of a dot product grows with the dimension d. Dividing by √d keeps the scores small and the softmax out of saturation.",
      [name("scores")],
      code("scaled"),
    ),
    ...(config.attention_cap
      ? [
          stage(
            "capped",
            "limit",
            `The scores are limited to ±${config.attention_cap} by a hyperbolic tangent.`,
            [name("scaled")],
            code("capped"),
          ),
        ]
      : []),
    ...(effect === "bias"
      ? [
          stage(
            "biased",
            "+ distance",
            scheme === "relative"
              ? "Each head adds a learned number that depends only on the distance between query and key: the model’s positions."
              : `Each head adds a number that depends on the positions of query and key, by the scheme “${scheme}”.`,
            [name(limited), `${component.split(".")[0]}.relative_bias`],
            code("biased"),
          ),
        ]
      : []),
    stage(
      "masked",
      "mask",
      kind === "masked" && window
        ? `This layer is local: a token attends to itself and the ${window - 1} tokens before it; −∞ is added elsewhere.`
        : kind === "masked"
          ? "A token must not attend to later tokens: −∞ is added where j > i, 0 where j ≤ i. Without the mask, the model could copy the answer during training."
          : "There is no mask here: every token of the sentence is visible. The decoder’s self-attention adds −∞ at this step.",
      [name(beforeMask)],
      code("masked"),
    ),
    stage(
      "weights",
      "softmax",
      "The softmax of each row gives the attention weights: between 0 and 1, with a sum of 1.",
      [name("masked")],
      code("weights"),
    ),
    stage(
      "heads",
      "weighted values",
      "Each head’s output is the sum of the values weighted by the attention weights: each token now carries its context.",
      [name("weights"), name("values")],
      code("heads"),
    ),
    stage(
      "concatenated",
      "concatenate",
      `The outputs of all ${config.heads} heads are concatenated.`,
      [name("heads")],
      code("output_projection"),
    ),
    stage(
      "projected",
      "· W_O",
      "The output projection W_O mixes the heads and maps the result back to the model width.",
      [name("concatenated")],
      code("output_projection"),
    ),
  ]; // prettier-ignore
}

function feedForwardStages(component: string, dataflow: Dataflow): Stage[] {
  const { activation, width, feed_forward } = dataflow.config;
  const gate = isGated(dataflow.config) ? [`${component}.gate`] : [];
  const name = (tensor: string): string => `${component}.${tensor}`;
  const common = { group: component, kind: "matrix" as const };
  return [
    {
      ...common,
      key: name("pre_activation"),
      label: "up",
      description: `Attention mixes positions; the feed-forward layer treats each position separately, with the same weights. The first map expands ${width} dimensions to ${feed_forward}.`,
      tensors: [dataflow.sublayerInput(component), name("pre_activation"), ...gate],
      code: code("up_projection"),
    },
    {
      ...common,
      key: name("post_activation"),
      label: activation === "relu" ? "ReLU" : activation,
      description:
        activation === "relu"
          ? "ReLU sets negative values to 0. Without a nonlinearity, the two linear maps would be equivalent to one."
          : "The activation function. Without a nonlinearity, the two linear maps would be equivalent to one.",
      tensors: [name("pre_activation"), ...gate, name("post_activation")],
      code: code(gate.length ? "gated_activation" : "activation"),
    },
    {
      ...common,
      key: name("output"),
      label: "down",
      description: `The second map projects ${feed_forward} dimensions back to ${width}.`,
      tensors: [name("post_activation"), name("output")],
      code: code("down_projection"),
    },
  ]; // prettier-ignore
}

function normStage(component: string, group: string, dataflow: Dataflow): Stage {
  const isRms = dataflow.config.norm === "rms";
  const statistics = isRms ? ["mean_square"] : ["mean", "variance"];
  return {
    key: `${component}.output`,
    group,
    label: "norm",
    kind: "matrix",
    description: isRms
      ? "RMS norm: each token’s vector is divided by its root mean square and scaled by the learned γ."
      : "Layer norm: each token’s vector is normalised to mean 0 and variance 1, then scaled by γ and shifted by β, which are learned. Other tokens and padding have no influence.",
    tensors: ["input", ...statistics, "output"].map((tensor) => `${component}.${tensor}`),
    code: code(isRms ? "rms_norm" : "layer_norm"),
  }; // prettier-ignore
}

function residualStage(component: string, dataflow: Dataflow): Stage {
  return {
    key: `${component}.sum`,
    group: component,
    label: "add",
    kind: "matrix",
    description:
      "The residual connection adds the sub-layer’s output to its input, which preserves information and lets gradients flow.",
    tensors: [dataflow.residualInput(component), dataflow.addend(component), `${component}.sum`],
    code: code("residual"),
  }; // prettier-ignore
}

function sublayerStages(component: string, dataflow: Dataflow): Stage[] {
  const outputNorm = { ...normStage(`${component}.output_norm`, component, dataflow), label: "output norm" };
  const inner = [
    ...(component.endsWith("feed_forward") ? feedForwardStages(component, dataflow) : attentionStages(component, dataflow)),
    ...(dataflow.config.output_norm ? [outputNorm] : []),
  ];
  const norm = normStage(`${component}.norm`, component, dataflow);
  const residual = residualStage(component, dataflow);
  return dataflow.config.norm_first ? [norm, ...inner, residual] : [...inner, residual, norm];
}

function inputStages(stack: string, dataflow: Dataflow): Stage[] {
  const { config } = dataflow;
  const stage = stageFactory(stack);
  const isMedia = stack === "encoder" && mediaKind(config) !== null;
  const addsPositions = positionEffect(config, stack) === "vector";
  const segments = config.segments ? [`${stack}.segments`] : [];
  return [
    ...(isMedia
      ? mediaStages(config)
      : embeddingStages(stack, config, "so that they are not dominated by the position vectors")),
    ...(segments.length
      ? [
          stage(
            "segments",
            "segment",
            "A learned vector for the segment of a token. The segments of two texts differ; one text is segment 0.",
            [],
            code("segments"),
          ),
        ]
      : []),
    ...(addsPositions
      ? [
          stage(
            "input",
            "+ position",
            isMedia
              ? "Attention alone ignores where a token is. A vector that encodes the place of the patch, or the time, is therefore added."
              : "Attention alone ignores word order: “dog bites man” and “man bites dog” would be the same. A vector that encodes the position is therefore added.",
            [`${stack}.embedded`, ...segments, `${stack}.positions`],
            code("positions"),
          ),
        ]
      : []),
    ...(config.embedding_norm ? [normStage(`${stack}.norm`, stack, dataflow)] : []),
  ]; // prettier-ignore
}

/** BERT's head: predicts the token behind every [MASK], and every other token. */
function maskedHeadStages(dataflow: Dataflow): Stage[] {
  const stage = stageFactory("head");
  return [
    stage(
      "pre_activation",
      "dense",
      "The head that was trained to predict masked tokens starts with a linear map.",
      ["encoder.vectors"],
      code("masked_head"),
    ),
    stage(
      "post_activation",
      dataflow.config.activation,
      "The activation function.",
      ["head.pre_activation"],
      code("masked_head_activation"),
    ),
    normStage("head.norm", "head", dataflow),
  ];
}

export function transformerStages(config: ModelConfig): Stage[] {
  const dataflow = new Dataflow(config);
  const stages = stacks(config).flatMap((stack) => {
    const sublayers = layersOf(config, stack).flatMap((layer) => dataflow.sublayers(stack).map((name) => `${layer}.${name}`));
    const finalNorm = config.norm_first ? [normStage(`${stack}.final_norm`, `${stack}.final_norm`, dataflow)] : [];
    return [
      ...inputStages(stack, dataflow),
      ...sublayers.flatMap((sublayer) => sublayerStages(sublayer, dataflow)),
      ...finalNorm,
    ];
  });
  if (config.shape !== "encoder") return [...stages, ...outputStages(config)];
  return config.masked_head ? [...stages, ...maskedHeadStages(dataflow), ...outputStages(config)] : stages;
}
