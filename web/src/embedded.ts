// The data source of a file that `seq2see explain … --out why.html` wrote: everything about one text is embedded in it; what would
// run the model again is refused.
import { ApiError, type EmbeddedData, type EmbeddedTensor, type Source, Tensor, withEffects } from "./api";

/** Decodes base64 of little-endian float32 or bfloat16. */
export function decodeFloats(base64: string, dtype: EmbeddedTensor["dtype"]): Float32Array {
  const text = atob(base64);
  const wide = dtype === "float32";
  const bytes = new Uint8Array(wide ? text.length : text.length * 2);
  // The two bytes of a bfloat16 are the upper ones of a float32.
  for (let i = 0; i < text.length; i++) bytes[wide ? i : (i >> 1) * 4 + 2 + (i & 1)] = text.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

/** Slices like the server, with Python's rules: "0,:,2:5" or "::8". */
export function slice(whole: Tensor, index: string): Tensor {
  const parts = index ? index.split(",") : [];
  const ranges = whole.shape.map((size, axis) => {
    const part = parts[axis] ?? ":";
    const from = (text: string): number => Math.min(size, Math.max(0, Number(text) < 0 ? size + Number(text) : Number(text)));
    if (!part.includes(":")) {
      const at = Number(part) < 0 ? size + Number(part) : Number(part);
      if (!(at >= 0 && at < size)) throw new ApiError(`index ${part} is out of range for axis ${axis} of size ${size}`, "");
      return { start: at, count: 1, step: 1, keep: false };
    }
    const [start, stop, step = "1"] = part.split(":");
    const [first, last] = [start ? from(start) : 0, stop ? from(stop) : size];
    return { start: first, count: Math.max(0, Math.ceil((last - first) / Number(step))), step: Number(step), keep: true };
  });
  let offsets = [0];
  whole.shape.forEach((size, axis) => {
    const { start, count, step } = ranges[axis];
    offsets = offsets.flatMap((offset) => Array.from({ length: count }, (_, i) => offset * size + start + i * step));
  });
  const shape = ranges.filter(({ keep }) => keep).map(({ count }) => count);
  return new Tensor(
    shape,
    Float32Array.from(offsets, (offset) => whole.data[offset]),
  );
}

const HINT = "this file contains a single run; run seq2see explore to use the page with the model";

export function embeddedSource(embedded: EmbeddedData): Source {
  const decoded = new Map<number, Float32Array>();
  const read = (stored: EmbeddedTensor | undefined, name: string, index: string): Tensor => {
    if (!stored) throw new ApiError(`${name} is not in this file`, HINT);
    let data = decoded.get(stored.data_index);
    if (!data) {
      data = decodeFloats(embedded.data[stored.data_index], stored.dtype);
      decoded.set(stored.data_index, data);
    }
    return slice(new Tensor(stored.shape, data), index);
  };
  const needsModel = async (): Promise<never> => {
    throw new ApiError("this needs the model", HINT);
  };
  return {
    live: false,
    hasMedia: embedded.media !== "",
    text: embedded.trace.text,
    ...(embedded.note ? { note: embedded.note } : {}),
    models: async () => [withEffects(embedded.model)],
    explain: async () => ({ ...embedded.trace, hypotheses: embedded.hypotheses }),
    async *stream() {
      yield needsModel();
    },
    tensor: async (_, name, index) => read(embedded.tensors[name], name, index),
    weight: async (_, name, index) => read(embedded.weights[name], name, index),
    weightInfos: async () => embedded.weight_infos,
    vocabulary: async () => embedded.vocabulary,
    topTokens: async () => embedded.top_tokens ?? needsModel(),
    nextToken: needsModel,
    logitAttribution: async (_, row) => {
      if (typeof embedded.logit_attributions === "string") throw new ApiError(embedded.logit_attributions, "");
      return embedded.logit_attributions[row];
    },
    attentionEntropy: async () => embedded.attention_entropy,
    upload: needsModel,
    media: async () => Uint8Array.from(atob(embedded.media), (character) => character.charCodeAt(0)).buffer,
    headAblation: needsModel,
    history: needsModel,
    space: needsModel,
    nearestEmbeddings: needsModel,
    training: needsModel,
    train: needsModel,
    trainingReport: needsModel,
    lessons: needsModel,
    lesson: needsModel,
  };
}

/** The source embedded in the page, if there is one. */
export function embedded(): Source | null {
  const text = typeof document === "undefined" ? null : document.getElementById("seq2see-data")?.textContent;
  return text ? embeddedSource(JSON.parse(text) as EmbeddedData) : null;
}
