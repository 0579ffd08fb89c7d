// The data flow of a Transformer: which tensor a sub-layer, a norm or a stack reads, given the model's configuration.
import type { ModelConfig } from "./api";

const SUBLAYERS = { encoder: ["self", "feed_forward"], decoder: ["masked", "cross", "feed_forward"] } as const;

/** Names the input tensors of components such as decoder.1.cross. */
export class Dataflow {
  constructor(readonly config: ModelConfig) {}

  sublayers(stack: string): readonly string[] {
    return SUBLAYERS[stack as "encoder"].filter(
      (name) => (name as string) !== "cross" || this.config.shape === "encoder-decoder",
    );
  }

  private sublayerOutput(component: string): string {
    return this.config.norm_first ? `${component}.sum` : `${component}.norm.output`;
  }

  /** The output of a stack's last block. */
  stackOutput(stack: string): string {
    const layers = stack === "encoder" ? this.config.encoder_layers : this.config.decoder_layers;
    return this.sublayerOutput(`${stack}.${layers - 1}.feed_forward`);
  }

  /** The residual stream at the entrance of a sub-layer. */
  residualInput(component: string): string {
    const [stack, layer, sublayer] = component.split(".");
    const all = this.sublayers(stack);
    const i = all.indexOf(sublayer);
    if (i > 0) return this.sublayerOutput(`${stack}.${layer}.${all[i - 1]}`);
    if (Number(layer) > 0) return this.sublayerOutput(`${stack}.${Number(layer) - 1}.feed_forward`);
    return this.config.embedding_norm ? `${stack}.norm.output` : `${stack}.input`;
  }

  /** The vectors that the output projection reads: of an encoder, those of its head for masked tokens. */
  get outputVectors(): string {
    return this.config.shape === "encoder" ? "head.norm.output" : "decoder.vectors";
  }

  /** The input of a sub-layer's linear maps. */
  sublayerInput(component: string): string {
    if (component === "head") return "encoder.vectors";
    return this.config.norm_first ? `${component}.norm.output` : this.residualInput(component);
  }

  /** What a sub-layer adds to the residual stream. */
  addend(component: string): string {
    return this.config.output_norm ? `${component}.output_norm.output` : this.innerOutput(component);
  }

  /** The output of a sub-layer's last linear map. */
  private innerOutput(component: string): string {
    return component.endsWith("feed_forward") ? `${component}.output` : `${component}.projected`;
  }

  /** The input of a norm. */
  normInput(component: string): string {
    const [stack, layer] = component.split(".");
    if (stack === "head") return "head.post_activation";
    if (layer === "norm") return `${stack}.input`;
    if (layer === "final_norm") return this.stackOutput(stack);
    if (component.endsWith(".output_norm")) return this.innerOutput(component.replace(/\.output_norm$/, ""));
    const sublayer = component.replace(/\.norm$/, "");
    return this.config.norm_first ? this.residualInput(sublayer) : `${sublayer}.sum`;
  }
}
