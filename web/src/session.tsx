// What all views share: the models, the text that is looked at and its trace. A keystroke starts a new question and drops the one
// before it; until the answer comes the last one stays in sight.
import { createContext, type ComponentChildren } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { onLost, source, type Manifest, type ModelCard, type Problem, type Question } from "./api";
import { present, useLoaded } from "./hooks";
import { useAddress, type State } from "./state";
import { Failed, Waiting } from "./ui";

export interface Session {
  models: ModelCard[];
  card: ModelCard;
  text: string;
  manifest: Manifest | null; // of the last text that was answered
  written: string; // of a slow answer, what has come so far
  busy: boolean;
  error: Problem | null;
}

const Context = createContext<Session | null>(null);

export function useSession(): Session {
  return useContext(Context)!;
}

/** Of the model that comes with seq2see; others know other words. */
const EXAMPLES = ["I like eating ice-cream", "How are you?", "We are friends", "Congratulations", "The boy saw a bank.", "I am good"];
const SETTLE = 40; // ms without a keystroke
const SLOW = 250; // ms after which the tokens are shown as they come

export const examplesOf = (card: ModelCard): readonly string[] => (card.name === "bundled" ? EXAMPLES : []);
const firstText = (card: ModelCard): string => examplesOf(card)[0] ?? (card.kind === "language model" ? "Once" : "How are you?");

export function questionOf(state: State, card: ModelCard, text: string): Question {
  const { search, beam, temperature, topK, topP, seed } = state;
  return { model: card.name, text, search, beam, temperature, topK, topP, seed };
}

const wait = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

interface Props {
  around: (state: ComponentChildren) => ComponentChildren; // of what is shown while there is no session
  children: ComponentChildren;
}

export function WithSession({ around, children }: Props) {
  const loaded = useLoaded(() => source.models(), []);
  const models = present(loaded);
  if (loaded.state === "failed") return <>{around(<Failed error={loaded.error} />)}</>;
  if (!models) return <>{around(<Waiting what="the models" />)}</>;
  if (!models.length) return <>{around(<Failed error={new Error("the server has no model")} />)}</>;
  return <Asking models={models}>{children}</Asking>;
}

function Asking({ models, children }: { models: ModelCard[]; children: ComponentChildren }) {
  const state = useAddress();
  const card = models.find((model) => model.name === state.model) ?? models[0];
  const text = source.text ?? (state.text || firstText(card));
  const question = questionOf(state, card, text);
  const sampled = state.search === "sample" ? [state.temperature, state.topK, state.topP, state.seed] : [];
  const key = JSON.stringify([card.name, text, state.search, state.search === "beam" && state.beam, sampled]);
  const [written, setWritten] = useState("");
  const [lost, setLost] = useState(0);
  useEffect(() => {
    const again = (): void => setLost((times) => times + 1);
    onLost.add(again);
    return () => void onLost.delete(again);
  }, []);

  const loaded = useLoaded(
    text.trim()
      ? async (signal) => {
          await wait(SETTLE);
          if (signal.aborted) throw new DOMException("", "AbortError");
          return source.explain(question, signal);
        }
      : null,
    [key, lost],
  );
  const busy = loaded.state === "loading" && text.trim() !== "";
  useEffect(() => {
    setWritten("");
    if (!busy || state.search === "beam") return;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        let all = "";
        for await (const piece of source.stream(question, abort.signal)) if (!abort.signal.aborted) setWritten((all += piece));
      } catch {
        // the whole answer is on its way, and tells what is wrong if it fails too
      }
    }, SLOW);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, busy]);

  const last = present(loaded) ?? null;
  const manifest = last && last.model === card.name ? last : null;
  const error = loaded.state === "failed" ? (loaded.error as Problem) : null;
  return <Context.Provider value={{ models, card, text, manifest, written, busy, error }}>{children}</Context.Provider>;
}
