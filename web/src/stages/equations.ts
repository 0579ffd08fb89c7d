// The stages of Walk as equations between pictures of matrices: x · W_Q = Q. Learned matrices are terms too.
import type { ModelConfig } from "../api";
import { headWidth } from "../architecture";
import type { Stage } from "./shared";

/** A tensor of the trace, a learned matrix by its component and symbol (of one head, or as a table of rows), or an operator. */
export type Term =
  | { tensor: string; label: string; transposed?: boolean }
  | { symbol: string; component: string; label: string; byHead?: boolean; asTable?: boolean }
  | string;
export type Equation = readonly Term[];

const LABELS: Record<string, string> = {
  queries: "Q",
  keys: "K",
  values: "V",
  embedded: "embedding",
  input: "x",
  output: "output",
  pre_activation: "hidden",
  post_activation: "active",
  heads: "head",
  projected: "projected",
  vectors: "vectors",
}; // prettier-ignore

const tensor = (name: string, label = labelOf(name)): Term => ({ tensor: name, label });
const learned = (component: string, symbol: string, byHead = false): Term => ({ component, symbol, label: symbol, byHead });

function labelOf(name: string): string {
  const last = name.split(".").pop()!;
  if (/norm\.output$/.test(name)) return "norm";
  return LABELS[last.replace(/^(rotated|normed)_/, "")] ?? last.replaceAll("_", " ");
}

/** The equations of a stage; several are shown one below the other. */
export function equationsFor({ key, group, tensors, kind }: Stage, config: ModelConfig): Equation[] {
  if (kind !== "matrix") return [];
  const results = tensors.filter((name) => name === key);
  const operands = tensors.filter((name) => name !== key);
  if (!results.length) return [];
  const result = tensor(key);
  const last = key.split(".").pop()!;
  const join = (operator: string): Equation => [
    ...operands.flatMap((name, i) => (i ? [operator, tensor(name)] : [tensor(name)])),
    "=",
    result,
  ];
  const apply = (name: string): Equation => [name, tensor(operands[operands.length - 1]), "=", result];
  const isTransformer = config.kind === "transformer";
  if (key === "encoder.embedded" && config.source === "pictures")
    return [[tensor(operands[0]), "·", learned("source_reader.projection", "W"), "=", result]];
  if (last === "embedded" && !operands.length)
    return [
      [
        "rows of",
        { component: tableOf(key, config), symbol: "", label: "embedding table", asTable: true },
        ...(config.scale_embeddings ? [`· √${config.width}`] : []),
        "=",
        result,
      ],
    ];
  if (last === "logits") {
    const isTied = config.tie_embeddings !== "none";
    return [
      [
        tensor(operands[0]),
        "·",
        { component: isTied ? "embedding" : "unembedding", symbol: "", label: isTied ? "embeddingᵀ" : "unembedding" },
        "=",
        result,
      ],
    ];
  }
  if (last === "probabilities" || last === "weights") return [apply("softmax")];
  if (last === "heads") return [join("·")];
  if (last === "sum" || (last === "input" && operands.length > 1)) return [join("+")];
  if (last === "scaled")
    return [
      [tensor(operands[0]), config.attention_scale ? `· ${config.attention_scale}` : `÷ √${headWidth(config)}`, "=", result],
    ];
  if (last === "masked") return [[tensor(operands[0]), "+ mask", "=", result]];
  if (last === "scores")
    return [
      [tensor(operands[0]), "·", { tensor: operands[1], label: `${labelOf(operands[1])}ᵀ`, transposed: true }, "=", result],
    ];
  if (last === "concatenated") return [["all heads side by side", "=", result]];
  if (/norm\.output$/.test(key)) return [["norm", tensor(operands[0], "x"), "=", result]];
  if (!isTransformer)
    return [[...operands.flatMap((name, i) => (i ? ["," as Term, tensor(name)] : [tensor(name)])), "→", result]];
  if (last === "queries") {
    const [queriesFrom, memory = queriesFrom] = operands.filter((name) => !name.startsWith(group) || name.includes("norm"));
    return (["Q", "K", "V"] as const).map((letter, i) => [
      tensor(i ? memory : queriesFrom, i && memory !== queriesFrom ? "encoder" : "x"),
      "·",
      learned(group, `W_${letter}`, true),
      "=",
      tensor(`${group}.${["queries", "keys", "values"][i]}`),
    ]);
  }
  if (last === "projected") return [[tensor(operands[0], "heads"), "·", learned(group, "W_O"), "=", result]];
  if (last === "pre_activation" && group !== "head")
    return [[tensor(operands[0], "x"), "·", learned(group, "W₁"), "=", result]];
  if (last === "output" && key.endsWith("feed_forward.output"))
    return [[tensor(operands[0]), "·", learned(group, "W₂"), "=", result]];
  if (last === "post_activation" && operands.length === 1)
    return [apply(config.activation === "relu" ? "ReLU" : config.activation)];
  return [[...operands.flatMap((name, i) => (i ? ["," as Term, tensor(name)] : [tensor(name)])), "→", result]];
}

const tableOf = (key: string, config: ModelConfig): string =>
  key.startsWith("encoder") && config.source_vocab_size ? "source_embedding" : "embedding";

/** Whether all matrices of a stage are in the same units, so that one colour scale makes them comparable: a sum, a division. */
export const hasSharedScale = (equations: readonly Equation[]): boolean =>
  equations.length === 1 && equations[0].some((term) => typeof term === "string" && /^(\+|÷)/.test(term));
