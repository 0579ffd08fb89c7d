// Learn: the lessons of the notes, told with numbers that are computed as one looks. The tables beside a lesson can be edited, and
// everything follows; a lesson that trains a model waits to be asked. What was edited stands in the address.
import "./learn.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { source, type Problem } from "../api";
import { present, useLoaded } from "../hooks";
import { blamed, label, read, same, start, write, type LessonCard, type Told, type Value, type Values } from "../lessons";
import { useSession } from "../session";
import { address, go, link, useAddress } from "../state";
import { Failed, Waiting } from "../ui";
import { Picture } from "./figures";
import { NeedsModel } from "./intervene";
import { Editor } from "./settings";
import { Prose, Story } from "./story";

const SETTLE = 200; // ms without a keystroke
const SLOW = 2; // seconds: what trains for longer waits to be asked
const MOST_KNOWN = 40; // answers

/** Edits of lessons that were left, and answers, for those who come back. */
const drafts = new Map<string, string>();
const known = new Map<string, Told>();

function remember(key: string, told: Told): void {
  known.set(key, told);
  for (const old of known.keys()) if (known.size > MOST_KNOWN) known.delete(old);
}

export function Learn() {
  const loaded = useLoaded(source.live ? () => source.lessons() : null, []);
  const state = useAddress();
  if (!source.live) return <NeedsModel view="Learn" why="A lesson’s numbers are computed as it is told" />;
  if (loaded.state === "failed") return <Failed error={loaded.error} />;
  const lessons = present(loaded);
  if (!lessons) return <Waiting what="the lessons" />;
  const card = lessons.find(({ name }) => name === state.lesson) ?? lessons[0];
  const choose = (name: string): void => {
    drafts.set(card.name, address().given);
    go({ lesson: name, given: drafts.get(name) ?? "" }, true);
  };
  return (
    <div class="learn">
      <Contents lessons={lessons} here={card.name} onChoose={choose} />
      <Lesson key={card.name} card={card} names={lessons.map(({ name }) => name)} />
    </div>
  );
}

function Contents({ lessons, here, onChoose }: { lessons: LessonCard[]; here: string; onChoose: (name: string) => void }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [all, one] = [list.current!, list.current!.querySelector<HTMLElement>("[aria-current]")!];
    all.scrollLeft = one.offsetLeft - all.offsetLeft - 40; // on a phone they stand in a line
  }, [here]);
  return (
    <nav class="lessons" aria-label="lessons">
      <ol ref={list}>
        {lessons.map(({ name, title }) => (
          <li key={name}>
            <a
              href={link({ lesson: name, given: "" })}
              title={title}
              aria-current={name === here ? "true" : undefined}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey) return;
                event.preventDefault();
                onChoose(name);
              }}
            >
              {name}
            </a>
          </li>
        ))}
      </ol>
    </nav>
  );
}

function Lesson({ card, names }: { card: LessonCard; names: readonly string[] }) {
  const { card: model } = useSession();
  const { given } = useAddress();
  const values = read(given, card);
  const key = JSON.stringify([card.name, card.model && model.name, values]);
  const waits = card.seconds > SLOW;
  const [asked, setAsked] = useState("");
  const [touched, setTouched] = useState("");
  const wanted = !waits || asked === key || known.has(key);
  const loaded = useLoaded(
    wanted
      ? async (signal) => {
          const before = known.get(key);
          if (before) return { key, told: before };
          if (!waits) await new Promise((done) => setTimeout(done, SETTLE));
          if (signal.aborted) throw new DOMException("", "AbortError");
          const told = await source.lesson(card.name, model.name, values, signal);
          remember(key, told);
          return { key, told };
        }
      : null,
    [key, wanted],
  );
  const last = present(loaded);
  const busy = wanted && loaded.state === "loading";
  const error = wanted && loaded.state === "failed" ? (loaded.error as Problem) : null;
  const claim = last?.told.story.claim ?? card.claim;
  const isStale = last !== undefined && last.key !== key;
  const blame = error ? blamed(error.where ?? "", touched, card) : "";
  const change = (name: string, value: Value): void => {
    setTouched(name);
    go({ given: write({ ...read(address().given, card), [name]: value }, card) });
  };
  return (
    <article class="lesson" aria-labelledby="lesson-title" data-lesson={card.name} data-told={last && !busy && !error && !isStale ? card.name : ""}>
      <header class="lesson-head">
        <h2 id="lesson-title">{card.title}</h2>
        {claim ? <Prose text={claim[0].toUpperCase() + claim.slice(1)} names={names} /> : null}
        {card.model ? <p class="small soft">It looks into the model “{model.name}”.</p> : null}
      </header>
      <Settings card={card} values={values} blame={blame} error={error} onChange={change} />
      <div class="lesson-body stack">
        {error && !blame ? <Failed error={error} /> : null}
        {waits && !busy && (!last || isStale) ? (
          <section class="card train">
            <p>
              {isStale ? "What stands below is of the settings before. " : ""}
              This lesson trains {card.name === "directions" ? "word vectors" : "two small translators"} on the spot: about {card.seconds} seconds on a free core.
            </p>
            <button class="do" onClick={() => setAsked(key)}>
              Train now
            </button>
          </section>
        ) : null}
        {waits && busy && !known.has(key) ? <Training seconds={card.seconds} onStop={() => setAsked("")} /> : null}
        {last ? (
          <div class={`stack${busy || isStale ? " busy" : ""}`} aria-busy={busy}>
            <section class="card">
              <Picture lesson={card.name} result={last.told.result} />
              <Story story={last.told.story} names={names} />
            </section>
          </div>
        ) : busy && !waits ? (
          <Waiting what="the lesson" />
        ) : null}
      </div>
    </article>
  );
}

function Training({ seconds, onStop }: { seconds: number; onStop: () => void }) {
  const [passed, setPassed] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setPassed((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="card train" data-training>
      <p role="status">Training now …</p>
      <progress aria-label="about how far it is" max={seconds} value={Math.min(passed, seconds * 0.97)} />
      <p class="small soft">
        {passed} s of about {seconds}; longer where the machine has other things to do.
      </p>
      <button class="chip" onClick={onStop}>
        stop
      </button>
    </section>
  );
}

interface SettingsProps {
  card: LessonCard;
  values: Values;
  blame: string;
  error: Problem | null;
  onChange: (name: string, value: Value) => void;
}

function Settings({ card, values, blame, error, onChange }: SettingsProps) {
  const [isOpen, setOpen] = useState(() => matchMedia("(min-width: 861px)").matches);
  useEffect(() => {
    if (blame) setOpen(true);
  }, [blame]);
  const valueOf = (name: string): Value => values[name] ?? start(card.settings.find((setting) => setting.name === name)!);
  const headsOf = (name: string): string[] | undefined => {
    if (card.name === "context" && name === "table") return (valueOf("names") as string[]).map(String);
    return card.name === "context" && name === "bank" ? ["finance", "water", "verb"] : card.name === "lookup" ? ["room"] : undefined;
  };
  return (
    <details class="card settings" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h3>Yours to change</h3>
        {Object.keys(values).length ? (
          <button
            class="chip"
            onClick={(event) => {
              event.preventDefault(); // or it would open and close the whole
              go({ given: "" });
            }}
          >
            back to the notes’
          </button>
        ) : null}
      </summary>
      {card.settings.map((setting) => {
        const [name, title] = [setting.name, label(card.name, setting.name)];
        const value = valueOf(name);
        return (
          <div class="setting" role="group" aria-label={title} key={name} data-setting={name}>
            <div class="setting-head">
              <span class="small soft">{title}</span>
              {same(value, start(setting)) ? null : (
                <button class="reset" aria-label={`${title}: back to the notes’`} onClick={() => onChange(name, start(setting))}>
                  reset
                </button>
              )}
            </div>
            <Editor setting={setting} label={title} value={value} heads={headsOf(name)} onChange={(next) => onChange(name, next)} />
            {error && blame === name ? (
              <p class="field-error" role="alert">
                {error.message}
                {error.remedy ? <span class="soft">: {error.remedy}</span> : null}
              </p>
            ) : null}
          </div>
        );
      })}
    </details>
  );
}
