// The whole state of the page lives in the URL after the #: a link reproduces the view, and the back button is undo. Values
// equal to their defaults are left out. Components read the state with `useUrlState` and change it with `navigate`.
import { useEffect, useState } from "preact/hooks";

export const DEFAULTS = {
  view: "map",
  model: "", // empty: the first
  text: "", // empty: an example for the model
  sourceLanguage: "", // of a translator of many languages; empty: the model's default
  targetLanguage: "",
  search: "greedy", // or beam, or sample
  beam: 4,
  temperature: 1,
  topK: 0,
  topP: 1,
  seed: 1,
  row: -1, // the selected decoder row; −1: none
  attention: "", // such as decoder.1.cross; empty: the last cross- or masked attention
  head: -1, // −1: the mean over the heads
  lines: "", // the heads that are drawn as lines at once, such as 1,3; empty: `head`
  threshold: 0.04, // the smallest weight that is drawn as a line
  step: "weights", // of Microscope: scores, scaled, masked, weights
  sort: "order", // of Heads: order, entropy, contribution
  route: "full", // of Walk: full, or short
  stage: "", // of Walk, such as decoder.1.cross.scores
  interventions: "", // in the format of interventions.ts
  snapshot: -1, // a training step; −1: the final model
  compare: "models", // what Compare compares: models, sentences, heads
  model2: "", // of Compare's second side; name@step is a snapshot. Empty: a snapshot of the first, or another model
  forced: 0, // 1: the second model is given the first model's output
  text2: "",
  attention2: "",
  head2: 1,
  space: "vocabulary", // what Space shows: vocabulary, words, layers
  stack: "", // of Space: encoder, decoder; empty: the first
  dimensions: 2, // of Space
  placement: "pca", // of Space's vocabulary: pca, tsne
  words: "", // of Space: a word or a sum such as king − man + woman
  position: 0, // of Space: the selected token
  layer: -1, // of Space: counted from the embedding; −1: the last
  lesson: "", // of Learn; empty: the first
  settings: "", // the edited settings of the lesson, as JSON
  tour: 0, // the stop of the tour, from 1; 0: no tour
  cell: "", // the inspected cell: name:i,j,k
};

export type State = typeof DEFAULTS;
export type StateUpdate = Partial<State>;

export function parseHash(hash: string): State {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const state: Record<string, string | number> = { ...DEFAULTS };
  if (path) state.view = decodeText(path);
  for (const [key, value] of new URLSearchParams(query)) {
    if (!(key in DEFAULTS) || key === "view") continue;
    const defaultValue = DEFAULTS[key as keyof State];
    if (typeof defaultValue === "string") state[key] = value;
    else if (value.trim() !== "" && Number.isFinite(Number(value))) state[key] = Number(value);
  }
  return state as State;
}

/** Decodes %20 and the like; a text with a stray % stays as it is. */
export function decodeText(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function formatHash(state: State): string {
  const query = new URLSearchParams();
  for (const [key, defaultValue] of Object.entries(DEFAULTS)) {
    const value = state[key as keyof State];
    if (key !== "view" && value !== defaultValue) query.set(key, String(value));
  }
  const text = query.toString();
  return `#/${encodeURIComponent(state.view)}${text && `?${text}`}`;
}

const listeners = new Set<() => void>();
const notify = (): void => listeners.forEach((listener) => listener());
const WRITE_DELAY = 120; // ms: browsers throttle a URL that changes with every pixel of a slider
let current = DEFAULTS;
let writeTimer = 0;

export function getUrlState(): State {
  if (current === DEFAULTS && typeof location !== "undefined") current = parseHash(location.hash);
  return current;
}

const writeHash = (): void => history.replaceState(null, "", formatHash(current));

/** Whoever chooses one head ends the drawing of several. */
const withUpdate = (state: State, update: StateUpdate): State => ({
  ...state,
  ...("head" in update ? { lines: "" } : {}),
  ...update,
});

/** Applies an update. Adds a history entry if the view changes or `push` is set; otherwise replaces the current entry. */
export function navigate(update: StateUpdate, push = false): void {
  const before = getUrlState();
  const after = withUpdate(before, update);
  if (formatHash(after) === formatHash(before)) return;
  clearTimeout(writeTimer);
  if (push || after.view !== before.view) {
    writeHash();
    history.pushState(null, "", formatHash(after));
  } else writeTimer = window.setTimeout(writeHash, WRITE_DELAY);
  current = after;
  notify();
}

function readHash(): void {
  clearTimeout(writeTimer);
  current = parseHash(location.hash);
  notify();
}
if (typeof window !== "undefined") {
  addEventListener("hashchange", readHash);
  addEventListener("popstate", readHash);
}

/** The link to the current state with an update applied. */
export function hrefFor(update: StateUpdate): string {
  return formatHash(withUpdate(getUrlState(), update));
}

export function useUrlState(): State {
  const [state, setState] = useState(getUrlState);
  useEffect(() => {
    const listener = (): void => setState(getUrlState());
    listeners.add(listener);
    listener();
    return () => void listeners.delete(listener);
  }, []);
  return state;
}
