// Interventions: their format in the URL, their description and their request body.
//
//     ablate:decoder.1.cross:3          ablates head 3
//     uniform:decoder.1.cross:3:2       uniform weights for head 3 and query 2; * stands for every head or query
//     set:decoder.1.cross:3:2:0,0.5     … or these weights
//     patch:encoder.vectors:1:4         token 1 gets the vector of token 4; with a text appended, of token 4 of that text
//     zero:decoder.1.feed_forward:17    sets unit 17 to 0; in a recurrent model, zero:decoder.1.states:17
import type { InterventionRequest, Trace } from "./api";
import { headList } from "./architecture";
import { decodeText } from "./url-state";

export type Intervention =
  | { type: "ablate"; attention: string; head: number }
  | { type: "uniform"; attention: string; head: number | null; query: number | null }
  | { type: "set"; attention: string; head: number | null; query: number | null; weights: number[] }
  | { type: "patch"; name: string; position: number; sourcePosition: number; text: string }
  | { type: "zero"; component: string; unit: number };

const orStar = (n: number | null): string => (n === null ? "*" : String(n));

function formatIntervention(intervention: Intervention): string {
  const { type } = intervention;
  switch (type) {
    case "ablate":
      return [type, intervention.attention, intervention.head].join(":");
    case "uniform":
      return [type, intervention.attention, orStar(intervention.head), orStar(intervention.query)].join(":");
    case "set":
      return [
        type,
        intervention.attention,
        orStar(intervention.head),
        orStar(intervention.query),
        intervention.weights.join(","),
      ].join(":");
    case "patch": {
      const text = intervention.text ? [encodeURIComponent(intervention.text)] : [];
      return [type, intervention.name, intervention.position, intervention.sourcePosition, ...text].join(":");
    }
    case "zero":
      return [type, intervention.component, intervention.unit].join(":");
  }
}

export const formatInterventions = (interventions: readonly Intervention[]): string =>
  interventions.map(formatIntervention).join(";");

const parseIndex = (text: string | undefined): number => (/^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN);
const parseIndexOrStar = (text: string | undefined): number | null => (text === "*" ? null : parseIndex(text));

function parseIntervention(text: string): Intervention | null {
  const [type, name = "", a, b, c] = text.split(":");
  if (!/^[\w.]+$/.test(name)) return null;
  const valid = (...indices: (number | null)[]): boolean => !indices.some(Number.isNaN);
  const [first, second] = [parseIndex(a), parseIndex(b)];
  if (type === "ablate") return valid(first) ? { type, attention: name, head: first } : null;
  if (type === "zero") return valid(first) ? { type, component: name, unit: first } : null;
  if (type === "patch")
    return valid(first, second) ? { type, name, position: first, sourcePosition: second, text: decodeText(c ?? "") } : null;
  const [head, query] = [parseIndexOrStar(a), parseIndexOrStar(b)];
  if (!valid(head, query)) return null;
  if (type === "uniform") return { type, attention: name, head, query };
  const weights = (c ?? "").split(",").map((part) => (part.trim() ? Number(part) : NaN));
  return type === "set" && weights.every((weight) => weight >= 0 && weight <= 1)
    ? { type, attention: name, head, query, weights }
    : null;
}

/** The interventions in a URL; malformed ones are ignored. */
export const parseInterventions = (text: string): Intervention[] =>
  text
    .split(";")
    .filter(Boolean)
    .map(parseIntervention)
    .filter((intervention) => intervention !== null); // prettier-ignore

/** The tensor whose units can be set to 0: of a feed-forward layer, the one after the activation. */
export const unitTensor = (component: string): string => component.replace(/feed_forward$/, "feed_forward.post_activation");

/** The request body; `traces` maps the other texts that vectors are taken from to the ids of their traces. */
export function toRequest(intervention: Intervention, traces: ReadonlyMap<string, string> = new Map()): InterventionRequest {
  const selection = (head: number | null, query: number | null) => ({
    ...(head === null ? {} : { head }),
    ...(query === null ? {} : { positions: [query] }),
  });
  switch (intervention.type) {
    case "ablate":
      return { type: "ablate_head", attention: intervention.attention, head: intervention.head };
    case "uniform": {
      const { attention, head, query } = intervention;
      return { type: "uniform_attention", attention, ...selection(head, query) };
    }
    case "set": {
      const { attention, head, query, weights } = intervention;
      return { type: "force_attention", attention, weights, ...selection(head, query) };
    }
    case "patch": {
      const { name, position, sourcePosition, text } = intervention;
      const source = { position: sourcePosition, ...(text ? { trace: traces.get(text)! } : {}) };
      return { type: "patch", name, positions: [position], source };
    }
    case "zero":
      return { type: "scale", name: unitTensor(intervention.component), factor: 0, unit: intervention.unit };
  }
}

/** What is changed, in one phrase per kind and place: heads of one attention that are switched off are named together. */
export function summarize(interventions: readonly Intervention[], trace: Trace, heads: number): string[] {
  const off = new Map<string, number[]>();
  for (const one of interventions)
    if (one.type === "ablate") off.set(one.attention, [...(off.get(one.attention) ?? []), one.head]);
  const switchedOff = [...off].map(([attention, which]) => {
    const name = componentTitle(attention);
    if (heads === 1) return `${name} switched off`;
    return `${which.length === heads ? `all ${heads} heads` : headList([...which].sort((a, b) => a - b))} of ${name} switched off`;
  });
  return [...switchedOff, ...interventions.filter(({ type }) => type !== "ablate").map((one) => describe(one, trace, heads))];
}

/** The title of a component: decoder.1.cross is "decoder layer 1, cross-attention". */
export function componentTitle(name: string): string {
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

/** Describes an intervention with the tokens of the text; names the head only if there are several. */
export function describe(intervention: Intervention, trace: Trace, heads: number): string {
  const tokens = (name: string): readonly { text: string }[] =>
    name.startsWith("encoder") ? trace.source_tokens : trace.decoder_input_tokens;
  const token = (name: string, i: number): string => `“${tokens(name)[i]?.text ?? `token ${i}`}”`;
  const headName = (head: number | null): string => (heads === 1 ? "" : head === null ? ", all heads" : `, head ${head}`);
  const queryName = (attention: string, query: number | null): string =>
    query === null ? "" : `, query ${token(attention, query)}`;
  switch (intervention.type) {
    case "ablate":
      return `${componentTitle(intervention.attention)}${headName(intervention.head)}: ablated`;
    case "uniform": {
      const { attention, head, query } = intervention;
      return `${componentTitle(attention)}${headName(head)}${queryName(attention, query)}: uniform weights`;
    }
    case "set": {
      const { attention, head, query, weights } = intervention;
      const keys = attention.endsWith(".cross") ? trace.source_tokens : tokens(attention);
      const nonzero = weights
        .map((weight, i) => (weight > 0 ? `${keys[i]?.text ?? i} ${Math.round(weight * 100)}%` : ""))
        .filter(Boolean);
      return `${componentTitle(attention)}${headName(head)}${queryName(attention, query)}: weights set to ${nonzero.join(", ") || "0"}`;
    }
    case "patch": {
      const { name, position, sourcePosition, text } = intervention;
      const source = text ? `token ${sourcePosition} of “${text}”` : token(name, sourcePosition);
      return `${componentTitle(name)}: vector of ${token(name, position)} replaced by that of ${source}`;
    }
    case "zero":
      return `${componentTitle(intervention.component)}: unit ${intervention.unit} set to 0`;
  }
}
