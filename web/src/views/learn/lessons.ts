// The lessons as the server tells them, and what was edited in one: in the address only what differs from the notes'. What is by
// name (a word and its numbers) is kept as pairs, so that two rows may have the same name while somebody is typing.

import type { LessonInfo, LessonSetting } from "../../api";

export type Value = string | number | readonly Value[];
export type Values = Record<string, Value>;

const NAMED: readonly LessonSetting["kind"][] = ["values", "table", "matrices", "groups", "questions"];

/** A setting's default as it is edited. */
export function start({ kind, default: value }: LessonSetting): Value {
  return (NAMED.includes(kind) ? Object.entries(value as object) : value) as Value;
}

export const same = (one: Value, other: Value): boolean => JSON.stringify(one) === JSON.stringify(other);

/** What an address says was edited; what it misspells is left out. */
export function read(given: string, lesson: LessonInfo): Values {
  let found: unknown;
  try {
    found = JSON.parse(given || "{}");
  } catch {
    return {};
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) return {};
  const known = lesson.settings.flatMap((setting) => {
    const value = (found as Values)[setting.name];
    return value !== undefined && fits(value, start(setting)) ? [[setting.name, value] as const] : [];
  });
  return Object.fromEntries(known);
}

/** Built alike, as far as the fields that show it care; whether it can be meant the server says. */
function fits(value: Value, like: Value): boolean {
  if (!Array.isArray(like)) return typeof value === "string" || typeof value === "number";
  if (!Array.isArray(value)) return false;
  const isPair = like.length === 2 && Array.isArray(like[0]) !== Array.isArray(like[1]);
  if (isPair) return value.length === 2 && value.every((each, i) => fits(each, like[i]));
  return value.every((each) => fits(each, like[0]));
}

export function write(values: Values, lesson: LessonInfo): string {
  const edited = lesson.settings.filter((setting) => setting.name in values && !same(values[setting.name], start(setting)));
  return edited.length ? JSON.stringify(Object.fromEntries(edited.map(({ name }) => [name, values[name]]))) : "";
}

/** What is in a number's field: a number, or the text while it is none, for the server to refuse. */
export function number(text: string): Value {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

/** The setting that a problem is about: the server says where, or it is what was touched last. */
export function blamed(where: string, touched: string, lesson: LessonInfo): string {
  const name = /^settings\.(\w+)/.exec(where)?.[1] ?? touched;
  return lesson.settings.some((setting) => setting.name === name) ? name : "";
}

/** A line of a story, cut where it names other lessons: those at odd places are their names. In brackets with `--set` stands what
 *  is for the terminal alone. */
export function linked(text: string, names: readonly string[]): string[] {
  const cut = text.replace(/ ?\([^()]*--set [^()]*\)/g, "").split(/(?<=\(lessons?: [a-z, ]*)\b([a-z]+)\b(?=[a-z, ]*\))|`([a-z]+)`/);
  const parts: string[] = [""];
  for (let i = 0; i < cut.length; i += 3) {
    const name = cut[i + 1] ?? cut[i + 2];
    parts[parts.length - 1] += cut[i];
    if (name === undefined) continue;
    if (names.includes(name)) parts.push(name, "");
    else parts[parts.length - 1] += name;
  }
  return parts;
}

const LABELS: Record<string, string> = {
  "words.words": "Words, one-hot",
  "words.documents": "Documents, for TF-IDF",
  "words.shares": "Shares of sentences in which apple is a fruit",
  "words.sentences": "Sentences that Word2Vec learns from",
  "similarity.words": "Words and their features",
  "similarity.document": "A document: words and their features",
  "similarity.sentence": "A sentence for the model",
  "context.table": "Words and their features",
  "context.names": "Names of the features",
  "context.bank": "The banks’ words: finance, water, verb",
  "context.bank_weights": "The notes’ weights of the banks",
  "lookup.guests": "Guest list: name and room",
  "lookup.query": "Who asks",
  "qkv.query_weights": "W_Q",
  "qkv.key_weights": "W_K",
  "qkv.value_weights": "W_V",
  "qkv.idioms": "Idioms for the model",
  "scaling.sentences": "Sentences for the model",
  "scaling.samples": "Random queries",
  "heads.questions": "Who asks, and who may be meant",
  "positions.width": "Width of the small table",
  "positions.length": "Positions of the map",
  "positions.map_width": "Width of the map",
  "positions.shift": "Shift k",
  "positions.sentences": "Two orders of the same words",
  "norms.samples": "Samples, a row each",
  "norms.padding": "Rows of zeros under them",
  "norms.sentences": "A batch for the model",
  "encoder.changed": "The same with a word changed",
  "mask.target": "What the decoder reads (empty: its own translation)",
  "decoder.sentence": "A sentence to translate",
  "decoder.forced_sentence": "A sentence whose translation is given",
  "decoder.forced_target": "That translation",
  "cross.steps": "Steps of the French model’s training",
  "next.logits": "The notes’ logits",
  "next.printed": "The probabilities printed beside them",
  "next.messages": "A conversation: who, and what",
  "directions.analogies": "a − b + c, and what is expected",
  "directions.pairs": "Pairs whose mean difference is the direction",
  "directions.words": "Words to be measured on it",
  "directions.sentences": "Sentences that Word2Vec learns from",
  "senses.words": "A word, and sentences with it",
  seed: "Seed",
  steps: "Steps of the training",
};

export function label(lesson: string, setting: string): string {
  const plain = setting.replaceAll("_", " ");
  return LABELS[`${lesson}.${setting}`] ?? LABELS[setting] ?? plain[0].toUpperCase() + plain.slice(1);
}
