// The state shared by all views: the models, the text and its trace. A keystroke starts a new request and aborts the previous
// one; the last trace stays visible until the next arrives.
import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { type ApiError, type ExplainOptions, type Explanation, type ModelInfo, onTraceEvicted, source } from "./api";
import { latestValue, useAsync } from "./hooks";
import { mediaKind } from "./media/media";
import { ErrorMessage, Loading } from "./ui";
import { navigate, type State, type StateUpdate, useUrlState } from "./url-state";

export interface Session {
  models: ModelInfo[];
  model: ModelInfo;
  text: string;
  trace: Explanation | null; // of the last text that has been processed; null for an empty text
  streamedText: string; // of a slow response, the output so far
  busy: boolean;
  error: ApiError | null;
}

const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  return useContext(SessionContext)!;
}

/** Another model, with its own example text. */
export const otherModel = (name: string): StateUpdate => ({
  model: name,
  text: "",
  row: -1,
  attention: "",
  head: -1,
  lines: "",
  interventions: "",
  cell: "",
  snapshot: -1,
  words: "",
  position: 0,
});

/** This model if its training can be replayed, or another one of its kind. */
export const withSnapshots = (model: ModelInfo, models: readonly ModelInfo[]): ModelInfo | undefined =>
  [model, ...models].find(({ kind, snapshots }) => kind === model.kind && snapshots.length > 0);

/** The choice between the models, if there are several. */
export function ModelSelect() {
  const { models, model } = useSession();
  return (
    <select aria-label="model" value={model.name} onChange={(event) => navigate(otherModel(event.currentTarget.value))}>
      {models.map(({ name }) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  );
}

/** The trace, in the views that are only shown if there is one. */
export const useTrace = (): Explanation => useSession().trace!;

const DEBOUNCE = 40; // ms
const STREAM_AFTER = 250; // ms without a response after which tokens are streamed

export const examplesFor = (model: ModelInfo): readonly string[] => model.about?.examples ?? [];
/** Of a picture or sound, there is none. */
const defaultText = (model: ModelInfo): string =>
  mediaKind(model.config.model) ? "" : (examplesFor(model)[0] ?? (model.kind === "language model" ? "Once" : "How are you?"));

/** The languages to translate between; a language of the URL that the model does not have is ignored. */
export function languagesFor(
  state: State,
  { config, languages }: ModelInfo,
): { sourceLanguage: string | null; targetLanguage: string | null } {
  if (!languages) return { sourceLanguage: null, targetLanguage: null };
  const { codes, source, target } = languages;
  if (mediaKind(config.model)) {
    // A model that hears writes the language that is spoken.
    const spoken = [state.sourceLanguage, source, "en", ...codes].find((code) => code && codes.includes(code));
    return { sourceLanguage: spoken ?? null, targetLanguage: null };
  }
  const sourceLanguage = source !== null && codes.includes(state.sourceLanguage) ? state.sourceLanguage : source;
  const targetLanguage = codes.includes(state.targetLanguage) ? state.targetLanguage : target;
  return { sourceLanguage, targetLanguage: targetLanguage ?? codes.find((code) => code !== sourceLanguage) ?? null };
}

export function explainOptions(state: State, model: ModelInfo, text: string): ExplainOptions {
  const { search, beam, temperature, topK, topP, seed } = state;
  return { model: model.name, text, ...languagesFor(state, model), search, beam, temperature, topK, topP, seed };
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface SessionProviderProps {
  renderFallback: (content: ComponentChildren) => ComponentChildren; // wraps the loading and error states
  children: ComponentChildren;
}

export function SessionProvider({ renderFallback, children }: SessionProviderProps) {
  const loaded = useAsync(() => source.models(), []);
  const models = latestValue(loaded);
  if (loaded.state === "failed") return <>{renderFallback(<ErrorMessage error={loaded.error} />)}</>;
  if (!models) return <>{renderFallback(<Loading what="models" />)}</>;
  if (!models.length) return <>{renderFallback(<ErrorMessage error={new Error("the server has no models")} />)}</>;
  return <TraceProvider models={models}>{children}</TraceProvider>;
}

function TraceProvider({ models, children }: { models: ModelInfo[]; children: ComponentChildren }) {
  const state = useUrlState();
  const model = models.find(({ name }) => name === state.model) ?? models[0];
  const text = source.text ?? (state.text || defaultText(model));
  const options = explainOptions(state, model, text);
  const sampling = state.search === "sample" ? [state.temperature, state.topK, state.topP, state.seed] : [];
  const key = JSON.stringify([
    model.name,
    text,
    options.sourceLanguage,
    options.targetLanguage,
    state.search,
    state.search === "beam" && state.beam,
    sampling,
  ]);
  const [streamedText, setStreamedText] = useState("");
  const [evictions, setEvictions] = useState(0);
  useEffect(() => {
    const listener = (): void => setEvictions((count) => count + 1);
    onTraceEvicted.add(listener);
    return () => void onTraceEvicted.delete(listener);
  }, []);

  const loaded = useAsync(
    text.trim()
      ? async (signal) => {
          await sleep(DEBOUNCE);
          if (signal.aborted) throw new DOMException("", "AbortError");
          return source.explain(options, signal);
        }
      : null,
    [key, evictions],
  );
  const busy = loaded.state === "loading" && text.trim() !== "";
  useEffect(() => {
    setStreamedText("");
    if (!busy || state.search === "beam" || model.kind === "encoder") return;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        let output = "";
        for await (const chunk of source.stream(options, abort.signal)) {
          output += chunk;
          if (!abort.signal.aborted) setStreamedText(output);
        }
      } catch {
        // the pending trace request reports the error if it fails too
      }
    }, STREAM_AFTER);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, busy]);

  const last = latestValue(loaded) ?? null;
  const trace = text.trim() && last?.model === model.name ? last : null;
  const error = loaded.state === "failed" ? (loaded.error as ApiError) : null;
  return (
    <SessionContext.Provider value={{ models, model, text, trace, streamedText, busy, error }}>
      {children}
    </SessionContext.Provider>
  );
}
