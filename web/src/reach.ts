// Interventions as the page keeps them: each a short word in the address, a sentence for the list, a body for the server.
//
//     off:decoder.1.cross:3            head 3 adds nothing
//     even:decoder.1.cross:3:2         head 3, for query 2, looks at all alike; * is every head, every query
//     set:decoder.1.cross:3:2:0,0.5    … or with these weights
//     swap:encoder.vectors:1:4         token 1 gets the vector of token 4; with a text after it, of token 4 of that text
//     unit:decoder.1.feed_forward:17   unit 17 is switched off; of a recurrent model, unit:decoder.1.states:17
import type { Manifest } from "./api";

export type Intervention =
  | { do: "off"; attention: string; head: number }
  | { do: "even"; attention: string; head: number | null; query: number | null }
  | { do: "set"; attention: string; head: number | null; query: number | null; weights: number[] }
  | { do: "swap"; name: string; at: number; from: number; text: string }
  | { do: "unit"; place: string; unit: number };

const starred = (n: number | null): string => (n === null ? "*" : String(n));

function word(one: Intervention): string {
  switch (one.do) {
    case "off":
      return [one.do, one.attention, one.head].join(":");
    case "even":
      return [one.do, one.attention, starred(one.head), starred(one.query)].join(":");
    case "set":
      return [one.do, one.attention, starred(one.head), starred(one.query), one.weights.join(",")].join(":");
    case "swap":
      return [one.do, one.name, one.at, one.from, ...(one.text ? [encodeURIComponent(one.text)] : [])].join(":");
    case "unit":
      return [one.do, one.place, one.unit].join(":");
  }
}

export const written = (all: readonly Intervention[]): string => all.map(word).join(";");

const count = (text: string | undefined): number => (/^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN);
const countOrAll = (text: string | undefined): number | null => (text === "*" ? null : count(text));

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function parsed(text: string): Intervention | null {
  const [kind, name = "", a, b, c] = text.split(":");
  if (!/^[\w.]+$/.test(name)) return null;
  const ok = (...numbers: (number | null)[]): boolean => !numbers.some(Number.isNaN);
  if (kind === "off") return ok(count(a)) ? { do: kind, attention: name, head: count(a) } : null;
  if (kind === "unit") return ok(count(a)) ? { do: kind, place: name, unit: count(a) } : null;
  if (kind === "swap") return ok(count(a), count(b)) ? { do: kind, name, at: count(a), from: count(b), text: decoded(c ?? "") } : null;
  const [head, query] = [countOrAll(a), countOrAll(b)];
  if (!ok(head, query)) return null;
  if (kind === "even") return { do: kind, attention: name, head, query };
  const weights = (c ?? "").split(",").map((part) => (part.trim() ? Number(part) : NaN));
  return kind === "set" && weights.every((w) => w >= 0 && w <= 1) ? { do: kind, attention: name, head, query, weights } : null;
}

/** What an address names; what it misspells is left out. */
export const read = (text: string): Intervention[] =>
  text.split(";").filter(Boolean).map(parsed).filter((one) => one !== null); // prettier-ignore

/** The quantity whose units can be switched off: of a feed-forward layer, what comes after its activation. */
export const unitsOf = (place: string): string => place.replace(/feed_forward$/, "feed_forward.after");

/** As the server wants it; `traces` are the ids of the other texts from which vectors are taken. */
export function body(one: Intervention, traces: ReadonlyMap<string, string> = new Map()): Record<string, unknown> {
  const where = (head: number | null, query: number | null): Record<string, unknown> => ({
    ...(head === null ? {} : { head }),
    ...(query === null ? {} : { positions: [query] }),
  });
  switch (one.do) {
    case "off":
      return { do: "without", attention: one.attention, head: one.head };
    case "even":
      return { do: "attend_uniformly", attention: one.attention, ...where(one.head, one.query) };
    case "set":
      return { do: "attend", attention: one.attention, weights: one.weights, ...where(one.head, one.query) };
    case "swap": {
      const trace = one.text ? { trace: traces.get(one.text) } : {};
      return { do: "patch", name: one.name, positions: [one.at], from: { position: one.from, ...trace } };
    }
    case "unit":
      return { do: "scale", name: unitsOf(one.place), factor: 0, unit: one.unit };
  }
}

/** The name of a place for a person: decoder.1.cross is "decoder layer 2, cross-attention". */
export function placeName(name: string): string {
  const [stack, layer, kind] = name.split(".");
  const kinds: Record<string, string> = {
    self: "self-attention",
    masked: "masked self-attention",
    cross: "cross-attention",
    feed_forward: "feed-forward",
  };
  if (/\.(sum|norm\.output|states)$/.test(name)) return `${stack}, after layer ${layer}`;
  if (layer === "embedded") return `${stack}, embedding`;
  if (layer === "vectors") return `${stack}, final vectors`;
  return `${stack} layer ${layer}${kinds[kind] ? `, ${kinds[kind]}` : ""}`;
}

/** What is done, in words of the sentence; an only head is not named. */
export function told(one: Intervention, manifest: Manifest, among: number): string {
  const tokens = (name: string): readonly { text: string }[] => (name.startsWith("encoder") ? manifest.sources : manifest.reads);
  const token = (name: string, i: number): string => `“${tokens(name)[i]?.text ?? `token ${i}`}”`;
  const heads = (head: number | null): string => (among === 1 ? "" : head === null ? "all heads " : `head ${head} `);
  const row = (attention: string, query: number | null): string => (query === null ? "" : `, for ${token(attention, query)}`);
  switch (one.do) {
    case "off":
      return `${placeName(one.attention)}: ${heads(one.head)}off`;
    case "even":
      return `${placeName(one.attention)}: ${heads(one.head)}averaged${row(one.attention, one.query)}`;
    case "set": {
      const keys = one.attention.endsWith(".cross") ? manifest.sources : tokens(one.attention);
      const set = one.weights.map((w, i) => (w > 0 ? `${keys[i]?.text ?? i} ${Math.round(w * 100)}%` : "")).filter(Boolean);
      const where = `${heads(one.head).trim()}${row(one.attention, one.query)}`.replace(/^, /, "");
      return `${placeName(one.attention)}: ${where} set to ${set.join(", ") || "nothing"}`;
    }
    case "swap":
      return `${placeName(one.name)}: ${token(one.name, one.at)} gets the vector of ${
        one.text ? `token ${one.from} of “${one.text}”` : token(one.name, one.from)
      }`;
    case "unit":
      return `${placeName(one.place)}: unit ${one.unit} off`;
  }
}
