// The edited settings of a lesson: parsing and formatting them for the URL, which contains only what differs from the defaults,
// and their labels. Mappings (a word and its numbers) are kept as pairs, so that two rows may have the same name while one is
// being typed.

import type { LessonExercise, LessonInfo, LessonSetting } from "../../api";

export type Value = string | number | readonly Value[];
export type Values = Record<string, Value>;

const MAPPING_KINDS: readonly LessonSetting["kind"][] = ["values", "table", "matrices", "groups", "questions"];

/** The default of a setting in the form in which it is edited. */
export function defaultValue({ kind, default: value }: LessonSetting): Value {
  return (MAPPING_KINDS.includes(kind) ? Object.entries(value as object) : value) as Value;
}

export const isEqual = (a: Value, b: Value): boolean => JSON.stringify(a) === JSON.stringify(b);

/** The edited settings in a URL; unknown or malformed ones are ignored. */
export function parseSettings(text: string, lesson: LessonInfo): Values {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text || "{}");
  } catch {
    return {};
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
  const valid = lesson.settings.flatMap((setting) => {
    const value = (parsed as Values)[setting.name];
    return value !== undefined && hasSameStructure(value, defaultValue(setting)) ? [[setting.name, value] as const] : [];
  });
  return Object.fromEntries(valid);
}

/** Whether the fields can display the value; the server validates it. */
function hasSameStructure(value: Value, template: Value): boolean {
  if (!Array.isArray(template)) return typeof value === "string" || typeof value === "number";
  if (!Array.isArray(value)) return false;
  const isPair = template.length === 2 && Array.isArray(template[0]) !== Array.isArray(template[1]);
  if (isPair) return value.length === 2 && value.every((each, i) => hasSameStructure(each, template[i]));
  return value.every((each) => hasSameStructure(each, template[0]));
}

export function formatSettings(values: Values, lesson: LessonInfo): string {
  const edited = lesson.settings.filter(
    (setting) => setting.name in values && !isEqual(values[setting.name], defaultValue(setting)),
  );
  return edited.length ? JSON.stringify(Object.fromEntries(edited.map(({ name }) => [name, values[name]]))) : "";
}

/** The settings of a suggestion in the form in which they are edited. */
export function trySettings(settings: Readonly<Record<string, unknown>>, lesson: LessonInfo): Values {
  const known = lesson.settings.filter(({ name }) => name in settings);
  return Object.fromEntries(
    known.map((setting) => {
      const value = settings[setting.name];
      const isListed = Array.isArray(defaultValue(setting)) && typeof value === "string"; // one text where a list is expected
      return [setting.name, isListed ? [value] : defaultValue({ ...setting, default: value })] as const;
    }),
  );
}

/** Whether an answer is right: a number within the tolerance, such as 0.5, 50% or 1/2, or the right choice. */
export function isRight(exercise: Pick<LessonExercise, "answer" | "choices" | "tolerance">, given: string): boolean {
  if (exercise.choices.length) return given.trim().toLowerCase() === String(exercise.answer).toLowerCase();
  const value = parseAnswer(given);
  return value !== null && Math.abs(value - Number(exercise.answer)) <= exercise.tolerance;
}

export function parseAnswer(text: string): number | null {
  const plain = text
    .trim()
    .replaceAll("−", "-")
    .replace(/(?<=\d),(?=\d{3}\b)/g, "")
    .replace(",", ".");
  const match = /^([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(?:(%)|\/\s*([-+]?[\d.]+))?$/i.exec(plain);
  if (!match) return null;
  const value = match[2] ? Number(match[1]) / 100 : match[3] ? Number(match[1]) / Number(match[3]) : Number(match[1]);
  return Number.isFinite(value) ? value : null;
}

/** The value of a number field: a number, or the text if it is not one, which the server rejects. */
export function parseNumber(text: string): Value {
  const normalized = text.trim().replace("−", "-").replace(",", ".");
  return normalized !== "" && Number.isFinite(Number(normalized)) ? Number(normalized) : text;
}

/** The setting that an error belongs to: the one that the server names, or else the one edited last. */
export function settingWithError(location: string, lastEdited: string, lesson: LessonInfo): string {
  const name = /^settings\.(\w+)/.exec(location)?.[1] ?? lastEdited;
  return lesson.settings.some((setting) => setting.name === name) ? name : "";
}

/** Splits a paragraph at the names of other lessons: odd elements are lesson names. Hints for the command line, in parentheses
 *  with `--set`, are removed. */
export function splitLinks(text: string, names: readonly string[]): string[] {
  const pieces = text
    .replace(/ ?\([^()]*--set [^()]*\)/g, "")
    .split(/(?<=\(lessons?: [a-z, ]*)\b([a-z]+)\b(?=[a-z, ]*\))|`([a-z]+)`/);
  const parts: string[] = [""];
  for (let i = 0; i < pieces.length; i += 3) {
    const name = pieces[i + 1] ?? pieces[i + 2];
    parts[parts.length - 1] += pieces[i];
    if (name === undefined) continue;
    if (names.includes(name)) parts.push(name, "");
    else parts[parts.length - 1] += name;
  }
  return parts;
}

const LABELS: Record<string, string> = {
  "words.words": "Words (one-hot)",
  "words.documents": "Documents (TF-IDF)",
  "words.shares": "Fractions of sentences in which apple is a fruit",
  "words.sentences": "Training sentences for Word2Vec",
  "similarity.words": "Words and their features",
  "similarity.document": "Document: words and their features",
  "similarity.sentence": "Sentence for the model",
  "context.table": "Words and their features",
  "context.names": "Names of the features",
  "context.bank": "Words of the bank example: finance, water, verb",
  "context.bank_weights": "Bank example: weights given by hand",
  "context.bank_sentences": "Bank example: sentences",
  "lookup.guests": "Guest list: name and room",
  "lookup.query": "Query",
  "qkv.query_weights": "W_Q",
  "qkv.key_weights": "W_K",
  "qkv.value_weights": "W_V",
  "qkv.idioms": "Idioms for the model",
  "scaling.sentences": "Sentences for the model",
  "scaling.samples": "Random queries",
  "heads.table": "Words and their features",
  "heads.perspectives": "Heads: what each looks at",
  "heads.view_sentence": "Sentence",
  "heads.view_word": "Word",
  "heads.questions": "For the model: query word and candidates",
  "positions.width": "Width of the table",
  "positions.length": "Number of positions",
  "positions.map_width": "Width of the map",
  "positions.shift": "Shift k",
  "positions.sentences": "Two orders of the same words",
  "norms.samples": "Samples (one per row)",
  "norms.padding": "Rows of zero padding",
  "norms.sentences": "Batch for the model",
  "encoder.changed": "Sentence with one word changed",
  "mask.target": "Decoder input (empty: the model’s own translation)",
  "mask.weights": "Weights of the table by hand",
  "decoder.sentence": "Sentence to translate",
  "decoder.forced_sentence": "Sentence with a given translation",
  "decoder.forced_target": "Given translation",
  "cross.steps": "Training steps of the French model",
  "recurrent.lengths": "Lengths of the sentences",
  "next.embedding": "W_E: the vector of each token",
  "next.logits": "Logits by hand",
  "next.sentence": "Sentence for the model",
  "next.prompts": "Texts for a language model",
  "next.context": "Sentences before the last text",
  "temperature.logits": "Logits",
  "temperature.printed": "Probabilities to compare with",
  "temperature.story": "Start of a story, for a language model",
  "temperature.sentence": "Sentence, for a translator",
  "temperature.story_temperatures": "Temperatures of the story",
  "window.text": "Text",
  "window.answer": "The word that follows",
  "window.messages": "Conversation: role and message",
  "window.speaker": "A text with other speakers",
  "directions.analogies": "a − b + c and the expected word",
  "directions.pairs": "Pairs whose mean difference defines the direction",
  "directions.words": "Words to project onto it",
  "directions.sentences": "Training sentences for Word2Vec",
  "senses.senses": "Word (sense) and sentences that contain it",
  seed: "Seed",
  steps: "Training steps",
};

export function settingLabel(lesson: string, setting: string): string {
  const words = setting.replaceAll("_", " ");
  return LABELS[`${lesson}.${setting}`] ?? LABELS[setting] ?? words[0].toUpperCase() + words.slice(1);
}
