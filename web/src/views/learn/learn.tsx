// Learn: the course, computed by the server. The settings beside a lesson can be edited, and the results follow;
// a lesson that trains for long waits for a click. The edited settings are stored in the URL.
import "./learn.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, type LessonInfo, type LessonResult, source } from "../../api";
import { latestValue, useAsync } from "../../hooks";
import { useSession } from "../../session";
import { ErrorMessage, Loading } from "../../ui";
import { getUrlState, hrefFor, navigate, useUrlState } from "../../url-state";
import { NeedsModel } from "../intervene";
import { lessonFigure } from "./figures";
import { LessonTextView, type Titles } from "./lesson-text";
import {
  defaultValue,
  formatSettings,
  isEqual,
  parseSettings,
  settingLabel,
  settingWithError,
  type Value,
  type Values,
} from "./lessons";
import { clearProgress, isDone, remember as rememberProgress, useProgress } from "./progress";
import { SettingEditor } from "./setting-editor";

const DEBOUNCE = 200; // ms
const MAX_AUTOMATIC_TRAINING = 2; // seconds; longer training waits for a click
const MAX_CACHED = 40; // results
/** What a lesson trains, if not two translators. */
const TRAINED: Record<string, string> = {
  directions: "word vectors",
  patches: "one small model",
  learning: "one small translator",
};

/** The edits and results of lessons, for when the user returns to them. */
const drafts = new Map<string, string>();
const cache = new Map<string, LessonResult>();

function remember(key: string, result: LessonResult): void {
  cache.set(key, result);
  for (const old of cache.keys()) if (cache.size > MAX_CACHED) cache.delete(old);
}

export function Learn() {
  const loaded = useAsync(source.live ? () => source.lessons() : null, []);
  const state = useUrlState();
  if (!source.live) return <NeedsModel view="Learn" reason="A lesson computes its numbers when it is opened" />;
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  const lessons = latestValue(loaded);
  if (!lessons) return <Loading what="lessons" />;
  const lesson = lessons.find(({ name }) => name === state.lesson) ?? lessons[0];
  const select = (name: string): void => {
    drafts.set(lesson.name, getUrlState().settings);
    navigate({ lesson: name, settings: drafts.get(name) ?? "" }, true);
  };
  return (
    <div class="learn">
      <LessonNav lessons={lessons} current={lesson.name} onSelect={select} />
      <Lesson
        key={lesson.name}
        lesson={lesson}
        next={lessons[lessons.indexOf(lesson) + 1]}
        titles={new Map(lessons.map(({ name, title }) => [name, title]))}
      />
    </div>
  );
}

function LessonNav({
  lessons,
  current,
  onSelect,
}: {
  lessons: LessonInfo[];
  current: string;
  onSelect: (name: string) => void;
}) {
  const list = useRef<HTMLDivElement>(null);
  const progress = useProgress();
  const done = lessons.filter(({ name }) => isDone(progress[name])).length;
  useEffect(() => {
    const item = list.current!.querySelector<HTMLElement>("[aria-current]")!;
    list.current!.scrollLeft = item.offsetLeft - list.current!.offsetLeft - 40; // on a small screen the list is one scrolling line
    const nav = list.current!.parentElement!;
    nav.scrollTop = item.offsetTop - nav.offsetTop - nav.clientHeight / 2;
  }, [current]);
  const groups = [...new Set(lessons.map(({ group }) => group))];
  return (
    <nav class="lessons" aria-label="lessons">
      <div class="lesson-groups" ref={list}>
        {groups.map((group) => (
          <section key={group}>
            <h3>{group}</h3>
            <ol>
              {lessons
                .filter((lesson) => lesson.group === group)
                .map(({ name, title, question }) => (
                  <li key={name}>
                    <a
                      href={hrefFor({ lesson: name, settings: "" })}
                      title={question}
                      data-lesson-link={name}
                      data-progress={isDone(progress[name]) ? "done" : progress[name] ? "opened" : "new"}
                      aria-current={name === current ? "true" : undefined}
                      onClick={(event) => {
                        if (event.metaKey || event.ctrlKey) return;
                        event.preventDefault();
                        onSelect(name);
                      }}
                    >
                      {title}
                      {isDone(progress[name]) ? <span class="visually-hidden"> (done)</span> : null}
                    </a>
                  </li>
                ))}
            </ol>
          </section>
        ))}
      </div>
      {Object.keys(progress).length ? (
        <p class="small muted course-progress">
          {done} of {lessons.length} done{" "}
          <button class="reset" onClick={clearProgress}>
            forget
          </button>
        </p>
      ) : null}
    </nav>
  );
}

function Lesson({ lesson, next, titles }: { lesson: LessonInfo; next: LessonInfo | undefined; titles: Titles }) {
  const { model } = useSession();
  const { settings } = useUrlState();
  const values = parseSettings(settings, lesson);
  const key = JSON.stringify([lesson.name, lesson.uses_model && model.name, values]);
  const waitsForClick = lesson.training_seconds > MAX_AUTOMATIC_TRAINING;
  const [requested, setRequested] = useState("");
  const [lastEdited, setLastEdited] = useState("");
  const enabled = !waitsForClick || requested === key || cache.has(key);
  const loaded = useAsync(
    enabled
      ? async (signal) => {
          const cached = cache.get(key);
          if (cached) return { key, response: cached };
          if (!waitsForClick) await new Promise((resolve) => setTimeout(resolve, DEBOUNCE));
          if (signal.aborted) throw new DOMException("", "AbortError");
          const response = await source.lesson(lesson.name, model.name, values, signal);
          remember(key, response);
          return { key, response };
        }
      : null,
    [key, enabled],
  );
  const last = latestValue(loaded);
  const busy = enabled && loaded.state === "loading";
  const error = enabled && loaded.state === "failed" ? (loaded.error as ApiError) : null;
  const exercises = last?.response.exercises.length;
  useEffect(() => {
    if (exercises !== undefined) rememberProgress(lesson.name, exercises);
  }, [lesson.name, exercises]);
  const isStale = last !== undefined && last.key !== key;
  const invalidSetting = error ? settingWithError(error.location, lastEdited, lesson) : "";
  const change = (name: string, value: Value): void => {
    setLastEdited(name);
    navigate({ settings: formatSettings({ ...parseSettings(getUrlState().settings, lesson), [name]: value }, lesson) });
  };
  return (
    <article
      class="lesson"
      aria-labelledby="lesson-title"
      data-lesson={lesson.name}
      data-loaded={last && !busy && !error && !isStale ? lesson.name : ""}
    >
      <header class="lesson-head">
        <h2 id="lesson-title">{lesson.title}</h2>
        <p class="prose question">{lesson.question}</p>
        {lesson.uses_model ? <p class="small muted">Uses the model “{model.name}”.</p> : null}
      </header>
      <Settings lesson={lesson} values={values} invalidSetting={invalidSetting} error={error} onChange={change} />
      <div class="lesson-body stack">
        {error && !invalidSetting ? <ErrorMessage error={error} /> : null}
        {waitsForClick && !busy && (!last || isStale) ? (
          <section class="card training">
            <p>
              {isStale ? "The results below are for the previous settings. " : ""}
              This lesson trains {TRAINED[lesson.name] ?? "two small translators"} (about {lesson.training_seconds} seconds on
              an idle core).
            </p>
            <button class="primary-button" onClick={() => setRequested(key)}>
              Train now
            </button>
          </section>
        ) : null}
        {waitsForClick && busy && !cache.has(key) ? (
          <Training seconds={lesson.training_seconds} onStop={() => setRequested("")} />
        ) : null}
        {last ? (
          <div class={`stack${busy || isStale ? " busy" : ""}`} aria-busy={busy}>
            <section class="card">
              <LessonTextView
                lesson={lesson}
                text={last.response.text}
                exercises={last.response.exercises}
                titles={titles}
                figure={lessonFigure(lesson.name, last.response.result)}
              />
            </section>
            {next ? (
              <a class="next-lesson" href={hrefFor({ lesson: next.name, settings: "" })}>
                Next: {next.title} →
              </a>
            ) : null}
          </div>
        ) : busy && !waitsForClick ? (
          <Loading what="lesson" />
        ) : null}
      </div>
    </article>
  );
}

function Training({ seconds, onStop }: { seconds: number; onStop: () => void }) {
  const [elapsed, setElapsed] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setElapsed((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="card training" data-training>
      <p role="status">Training …</p>
      <progress aria-label="estimated progress" max={seconds} value={Math.min(elapsed, seconds * 0.97)} />
      <p class="small muted">
        {elapsed} s of about {seconds} s; longer if the machine is busy.
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
  invalidSetting: string;
  error: ApiError | null;
  onChange: (name: string, value: Value) => void;
}

function Settings({ lesson, values, invalidSetting, error, onChange }: SettingsProps) {
  const [isOpen, setOpen] = useState(() => matchMedia("(min-width: 1181px)").matches); // beside the lesson, not before it
  useEffect(() => {
    if (invalidSetting) setOpen(true);
  }, [invalidSetting]);
  const settingValue = (name: string): Value =>
    values[name] ?? defaultValue(lesson.settings.find((setting) => setting.name === name)!);
  const columnNames = (name: string): string[] | undefined => {
    if (lesson.name === "context" && name === "table") return (settingValue("names") as string[]).map(String);
    return lesson.name === "context" && name === "bank"
      ? ["finance", "water", "verb"]
      : lesson.name === "lookup"
        ? ["room"]
        : undefined;
  };
  return (
    <details class="card settings" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h3>Settings</h3>
        {Object.keys(values).length ? (
          <button
            class="chip"
            onClick={(event) => {
              event.preventDefault(); // would toggle the details element
              navigate({ settings: "" });
            }}
          >
            reset all
          </button>
        ) : null}
      </summary>
      {lesson.settings.map((setting) => {
        const [name, title] = [setting.name, settingLabel(lesson.name, setting.name)];
        const value = settingValue(name);
        return (
          <div class="setting" role="group" aria-label={title} key={name} data-setting={name}>
            <div class="setting-head">
              <span class="small muted">{title}</span>
              {isEqual(value, defaultValue(setting)) ? null : (
                <button class="reset" aria-label={`reset ${title}`} onClick={() => onChange(name, defaultValue(setting))}>
                  reset
                </button>
              )}
            </div>
            <SettingEditor
              setting={setting}
              label={title}
              value={value}
              columns={columnNames(name)}
              onChange={(next) => onChange(name, next)}
            />
            {error && invalidSetting === name ? (
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
