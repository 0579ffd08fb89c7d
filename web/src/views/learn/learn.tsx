// Learn: the lessons of the notes, told with numbers that are computed as one looks. The tables beside a lesson can be edited, and
// everything follows; a lesson that trains a model waits to be asked. What was edited stands in the address.
import "./learn.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { source, type ApiError, type LessonInfo, type LessonResult } from "../../api";
import { latestValue, useAsync } from "../../hooks";
import { blamed, label, read, same, start, write, type Value, type Values } from "./lessons";
import { useSession } from "../../session";
import { getUrlState, hrefFor, navigate, useUrlState } from "../../url-state";
import { ErrorMessage, Loading } from "../../ui";
import { LessonFigure } from "./figures";
import { NeedsModel } from "../intervene";
import { Editor } from "./setting-editor";
import { Prose, LessonTextView } from "./lesson-text";

const SETTLE = 200; // ms without a keystroke
const SLOW = 2; // seconds: what trains for longer waits to be asked
const MOST_KNOWN = 40; // answers

/** Edits of lessons that were left, and answers, for those who come back. */
const drafts = new Map<string, string>();
const known = new Map<string, LessonResult>();

function remember(key: string, told: LessonResult): void {
  known.set(key, told);
  for (const old of known.keys()) if (known.size > MOST_KNOWN) known.delete(old);
}

export function Learn() {
  const loaded = useAsync(source.live ? () => source.lessons() : null, []);
  const state = useUrlState();
  if (!source.live) return <NeedsModel view="Learn" why="A lesson’s numbers are computed as it is told" />;
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  const lessons = latestValue(loaded);
  if (!lessons) return <Loading what="the lessons" />;
  const lesson = lessons.find(({ name }) => name === state.lesson) ?? lessons[0];
  const choose = (name: string): void => {
    drafts.set(lesson.name, getUrlState().given);
    navigate({ lesson: name, given: drafts.get(name) ?? "" }, true);
  };
  return (
    <div class="learn">
      <Contents lessons={lessons} here={lesson.name} onChoose={choose} />
      <Lesson key={lesson.name} lesson={lesson} names={lessons.map(({ name }) => name)} />
    </div>
  );
}

function Contents({ lessons, here, onChoose }: { lessons: LessonInfo[]; here: string; onChoose: (name: string) => void }) {
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
              href={hrefFor({ lesson: name, given: "" })}
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

function Lesson({ lesson, names }: { lesson: LessonInfo; names: readonly string[] }) {
  const { model } = useSession();
  const { given } = useUrlState();
  const values = read(given, lesson);
  const key = JSON.stringify([lesson.name, lesson.uses_model && model.name, values]);
  const waits = lesson.training_seconds > SLOW;
  const [asked, setAsked] = useState("");
  const [touched, setTouched] = useState("");
  const wanted = !waits || asked === key || known.has(key);
  const loaded = useAsync(
    wanted
      ? async (signal) => {
          const before = known.get(key);
          if (before) return { key, told: before };
          if (!waits) await new Promise((done) => setTimeout(done, SETTLE));
          if (signal.aborted) throw new DOMException("", "AbortError");
          const told = await source.lesson(lesson.name, model.name, values, signal);
          remember(key, told);
          return { key, told };
        }
      : null,
    [key, wanted],
  );
  const last = latestValue(loaded);
  const busy = wanted && loaded.state === "loading";
  const error = wanted && loaded.state === "failed" ? (loaded.error as ApiError) : null;
  const claim = last?.told.text.introduction ?? lesson.introduction;
  const isStale = last !== undefined && last.key !== key;
  const blame = error ? blamed(error.location, touched, lesson) : "";
  const change = (name: string, value: Value): void => {
    setTouched(name);
    navigate({ given: write({ ...read(getUrlState().given, lesson), [name]: value }, lesson) });
  };
  return (
    <article class="lesson" aria-labelledby="lesson-title" data-lesson={lesson.name} data-told={last && !busy && !error && !isStale ? lesson.name : ""}>
      <header class="lesson-head">
        <h2 id="lesson-title">{lesson.title}</h2>
        {claim ? <Prose text={claim[0].toUpperCase() + claim.slice(1)} names={names} /> : null}
        {lesson.uses_model ? <p class="small muted">It looks into the model “{model.name}”.</p> : null}
      </header>
      <Settings lesson={lesson} values={values} blame={blame} error={error} onChange={change} />
      <div class="lesson-body stack">
        {error && !blame ? <ErrorMessage error={error} /> : null}
        {waits && !busy && (!last || isStale) ? (
          <section class="lesson training">
            <p>
              {isStale ? "What stands below is of the settings before. " : ""}
              This lesson trains {lesson.name === "directions" ? "word vectors" : "two small translators"} on the spot: about {lesson.training_seconds} seconds on a free core.
            </p>
            <button class="primary-button" onClick={() => setAsked(key)}>
              Train now
            </button>
          </section>
        ) : null}
        {waits && busy && !known.has(key) ? <Training seconds={lesson.training_seconds} onStop={() => setAsked("")} /> : null}
        {last ? (
          <div class={`stack${busy || isStale ? " busy" : ""}`} aria-busy={busy}>
            <section class="lesson">
              <LessonFigure lesson={lesson.name} result={last.told.result} />
              <LessonTextView story={last.told.text} names={names} />
            </section>
          </div>
        ) : busy && !waits ? (
          <Loading what="the lesson" />
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
    <section class="lesson training" data-training>
      <p role="status">Training now …</p>
      <progress aria-label="about how far it is" max={seconds} value={Math.min(passed, seconds * 0.97)} />
      <p class="small muted">
        {passed} s of about {seconds}; longer where the machine has other things to do.
      </p>
      <button class="chip" onClick={onStop}>
        stop
      </button>
    </section>
  );
}

interface SettingsProps {
  lesson: LessonInfo;
  values: Values;
  blame: string;
  error: ApiError | null;
  onChange: (name: string, value: Value) => void;
}

function Settings({ lesson, values, blame, error, onChange }: SettingsProps) {
  const [isOpen, setOpen] = useState(() => matchMedia("(min-width: 861px)").matches);
  useEffect(() => {
    if (blame) setOpen(true);
  }, [blame]);
  const valueOf = (name: string): Value => values[name] ?? start(lesson.settings.find((setting) => setting.name === name)!);
  const headsOf = (name: string): string[] | undefined => {
    if (lesson.name === "context" && name === "table") return (valueOf("names") as string[]).map(String);
    return lesson.name === "context" && name === "bank" ? ["finance", "water", "verb"] : lesson.name === "lookup" ? ["room"] : undefined;
  };
  return (
    <details class="lesson settings" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h3>Yours to change</h3>
        {Object.keys(values).length ? (
          <button
            class="chip"
            onClick={(event) => {
              event.preventDefault(); // or it would open and close the whole
              navigate({ given: "" });
            }}
          >
            back to the notes’
          </button>
        ) : null}
      </summary>
      {lesson.settings.map((setting) => {
        const [name, title] = [setting.name, label(lesson.name, setting.name)];
        const value = valueOf(name);
        return (
          <div class="setting" role="group" aria-label={title} key={name} data-setting={name}>
            <div class="setting-head">
              <span class="small muted">{title}</span>
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
                {error.hint ? <span class="muted">: {error.hint}</span> : null}
              </p>
            ) : null}
          </div>
        );
      })}
    </details>
  );
}
