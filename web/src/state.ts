// The whole state of the page lives in the address, after the #: a link is the view, and going back is undo. What equals its
// default is left out, so that addresses stay short. Components read it with `useAddress` and change it with `go`.
import { useEffect, useState } from "preact/hooks";

export const DEFAULTS = {
  view: "translate",
  model: "", // the first
  text: "", // the model's own example
  search: "greedy", // or beam, or sample
  beam: 4,
  temperature: 1,
  topK: 0,
  topP: 1,
  seed: 1,
  row: -1, // the decoder's row that is looked at, −1: none
  attention: "", // such as decoder.1.cross; empty: the last cross- or masked attention
  head: -1, // −1: the mean over the heads
  step: "weights", // of the microscope: scores, scaled, masked, weights
  sort: "order", // of the heads: order, entropy, contribution
  stage: "", // of the walk, such as decoder.1.cross.scores
  reach: "", // the interventions, as reach.ts writes them
  snapshot: -1, // of the training, −1: the finished model
  against: "heads", // what Compare compares: sentences, heads, models
  model2: "", // of its second side; with @step, a snapshot. Empty: as on the first
  held: 0, // 1: the second model is given the first one's output
  text2: "",
  attention2: "",
  head2: 1,
  lesson: "", // of Learn; empty: the first
  given: "", // what was edited in it, as JSON
  cell: "", // what the Inspector shows: name:i,j,k
};

export type State = typeof DEFAULTS;
export type Changes = Partial<State>;

export function parse(hash: string): State {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const state: Record<string, string | number> = { ...DEFAULTS };
  if (path) state.view = decodeURIComponent(path);
  for (const [key, value] of new URLSearchParams(query)) {
    if (!(key in DEFAULTS) || key === "view") continue;
    const standard = DEFAULTS[key as keyof State];
    if (typeof standard === "string") state[key] = value;
    else if (value.trim() !== "" && Number.isFinite(Number(value))) state[key] = Number(value);
  }
  return state as State;
}

export function format(state: State): string {
  const query = new URLSearchParams();
  for (const [key, standard] of Object.entries(DEFAULTS)) {
    const value = state[key as keyof State];
    if (key !== "view" && value !== standard) query.set(key, String(value));
  }
  const text = query.toString();
  return `#/${encodeURIComponent(state.view)}${text && `?${text}`}`;
}

const listeners = new Set<() => void>();
const announce = (): void => listeners.forEach((listener) => listener());
let state = DEFAULTS;
let writing = 0;

export function address(): State {
  if (state === DEFAULTS && typeof location !== "undefined") state = parse(location.hash);
  return state;
}

const write = (): void => history.replaceState(null, "", format(state));

/** Another view is a step that one can go back from; everything else changes the present one. */
export function go(changes: Changes, isStep = false): void {
  const before = address();
  const after = { ...before, ...changes };
  if (format(after) === format(before)) return;
  clearTimeout(writing);
  if (isStep || after.view !== before.view) {
    write();
    history.pushState(null, "", format(after));
  } else writing = window.setTimeout(write, 120); // browsers refuse an address that changes with every pixel of a slider
  state = after;
  announce();
}

function read(): void {
  clearTimeout(writing);
  state = parse(location.hash);
  announce();
}
if (typeof window !== "undefined") {
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
}

export function link(changes: Changes): string {
  return format({ ...address(), ...changes });
}

export function useAddress(): State {
  const [state, setState] = useState(address);
  useEffect(() => {
    const update = (): void => setState(address());
    listeners.add(update);
    update();
    return () => void listeners.delete(update);
  }, []);
  return state;
}
