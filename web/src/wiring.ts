// What is connected to what: of which quantities a sub-layer, a norm or a stack is made, as the model's settings have it.
import type { ModelConfig } from "./api";

const SUBLAYERS = { encoder: ["self", "feed_forward"], decoder: ["masked", "cross", "feed_forward"] } as const;

/** The names of what a place reads, as the model's settings have it. */
export class Wiring {
  constructor(readonly config: ModelConfig) {}

  sublayers(stack: string): readonly string[] {
    return SUBLAYERS[stack as "encoder"].filter((name) => (name as string) !== "cross" || this.config.shape === "encoder-decoder");
  }

  private after(place: string): string {
    return this.config.norm_first ? `${place}.sum` : `${place}.norm.output`;
  }

  /** What comes out of a stack's last block. */
  last(stack: string): string {
    const layers = stack === "encoder" ? this.config.encoder_layers : this.config.decoder_layers;
    return this.after(`${stack}.${layers - 1}.feed_forward`);
  }

  /** The running sum that reaches a sub-layer such as decoder.1.cross. */
  reaching(place: string): string {
    const [stack, layer, sublayer] = place.split(".");
    const all = this.sublayers(stack);
    const i = all.indexOf(sublayer);
    if (i > 0) return this.after(`${stack}.${layer}.${all[i - 1]}`);
    if (Number(layer) > 0) return this.after(`${stack}.${Number(layer) - 1}.feed_forward`);
    return this.config.embedding_norm ? `${stack}.norm.output` : `${stack}.input`;
  }

  /** What a sub-layer's linear maps read. */
  read(place: string): string {
    return this.config.norm_first ? `${place}.norm.output` : this.reaching(place);
  }

  /** What a norm reads. */
  normed(place: string): string {
    const [stack, layer] = place.split(".");
    if (layer === "norm") return `${stack}.input`;
    if (layer === "final_norm") return this.last(stack);
    const sublayer = place.replace(/\.norm$/, "");
    return this.config.norm_first ? this.reaching(sublayer) : `${sublayer}.sum`;
  }
}
