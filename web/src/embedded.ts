// The other source of data: what `seq2see explain … --out why.html` wrote into the page. It holds the answers to everything that
// can be asked about one text; what would need the model to run again is refused.
import { Problem, Tensor, type Contributions, type Learned, type Manifest, type ModelCard, type Source, type Vocabularies } from "./api";

/** A tensor in the file: base64 of little-endian float32, or of the upper halves of float32 where the lower ones are all 0. */
export interface Stored {
  shape: number[];
  kind: "float32" | "bfloat16";
  at: number; // in `data`: equal tensors are kept once
}

export interface Embedded {
  card: ModelCard;
  manifest: Manifest;
  note: string;
  tokens: Vocabularies;
  entropies: Record<string, number[]>;
  contributions: Contributions[] | string; // of every row, or why there are none
  tensors: Record<string, Stored>;
  learned: Learned[];
  weights: Record<string, Stored>; // none where the model is large
  data: string[];
}

export function numbers(base64: string, kind: Stored["kind"]): Float32Array {
  const text = atob(base64);
  const wide = kind === "float32";
  const bytes = new Uint8Array(wide ? text.length : text.length * 2);
  // Of a bfloat16 the two bytes are the upper ones of a float32.
  for (let i = 0; i < text.length; i++) bytes[wide ? i : (i >> 1) * 4 + 2 + (i & 1)] = text.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

/** Python's slices, as the server takes them: "0,:,2:5". */
export function sliced(whole: Tensor, index: string): Tensor {
  const parts = index ? index.split(",") : [];
  const ranges = whole.shape.map((size, axis) => {
    const part = parts[axis] ?? ":";
    const from = (text: string): number => Math.min(size, Math.max(0, Number(text) < 0 ? size + Number(text) : Number(text)));
    if (!part.includes(":")) {
      const at = Number(part) < 0 ? size + Number(part) : Number(part);
      if (!(at >= 0 && at < size)) throw new Problem(`${part} of axis ${axis}, which has ${size}`, "it is counted from 0");
      return { start: at, stop: at + 1, keep: false };
    }
    const [start, stop] = part.split(":");
    return { start: start ? from(start) : 0, stop: stop ? from(stop) : size, keep: true };
  });
  let places = [0];
  whole.shape.forEach((size, axis) => {
    const { start, stop } = ranges[axis];
    places = places.flatMap((place) => Array.from({ length: Math.max(0, stop - start) }, (_, i) => place * size + start + i));
  });
  const shape = ranges.filter(({ keep }) => keep).map(({ start, stop }) => Math.max(0, stop - start));
  return new Tensor(shape, Float32Array.from(places, (place) => whole.data[place]));
}

const REMEDY = "this file holds what one run computed: seq2see explore opens the page with the model behind it";

export function sourceOf(embedded: Embedded): Source {
  const known = new Map<number, Float32Array>();
  const read = (stored: Stored | undefined, name: string, index: string): Tensor => {
    if (!stored) throw new Problem(`${name} is not in this file`, REMEDY);
    let data = known.get(stored.at);
    if (!data) known.set(stored.at, (data = numbers(embedded.data[stored.at], stored.kind)));
    return sliced(new Tensor(stored.shape, data), index);
  };
  const refused = (): Problem => new Problem("this needs the model itself", REMEDY);
  return {
    live: false,
    text: embedded.manifest.text,
    ...(embedded.note ? { note: embedded.note } : {}),
    models: async () => [embedded.card],
    explain: async () => embedded.manifest,
    async *stream() {
      throw refused();
    },
    tensor: async (_, name, index) => read(embedded.tensors[name], name, index),
    weight: async (_, name, index) => read(embedded.weights[name], name, index),
    learned: async () => embedded.learned,
    tokens: async () => embedded.tokens,
    contributions: async (_, row) => {
      if (typeof embedded.contributions === "string") throw new Problem(embedded.contributions, "");
      return embedded.contributions[row];
    },
    entropies: async () => embedded.entropies,
    history: async () => {
      throw refused();
    },
    lessons: async () => {
      throw refused();
    },
    lesson: async () => {
      throw refused();
    },
  };
}

/** The source in the page, if it is such a file. */
export function embedded(): Source | null {
  const text = typeof document === "undefined" ? null : document.getElementById("seq2see-data")?.textContent;
  return text ? sourceOf(JSON.parse(text) as Embedded) : null;
}
