// Train: starts, watches, pauses and stops a training run, or follows that of another process: the loss, the same sentence and
// one head at each checkpoint. All of it is read from the files that the training writes.
import "./train.css";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { source, type Training, type TrainingReport, type TrainingRun } from "../../api";
import { formatNumber } from "../../format";
import { componentTitle } from "../../interventions";
import type { Grid } from "../../matrix/grid";
import { Matrix, Thumbnail } from "../../matrix/matrix";
import { useSession } from "../../session";
import { EmptyState, ErrorMessage, Loading, Slider, Transliterated } from "../../ui";
import { formatHash, getUrlState, navigate, useUrlState } from "../../url-state";
import { SelectField, TextField } from "../controls";
import { NeedsModel } from "../intervene";
import { Curve } from "../loss-curve";

const POLL = 1000; // ms
const ACTIVE: readonly TrainingRun["state"][] = ["preparing", "training", "finishing"];
const STATES: Record<TrainingRun["state"], string> = {
  preparing: "preparing the data …",
  training: "training",
  paused: "paused: saved, and can be resumed",
  finishing: "scoring and writing the model …",
  finished: "finished",
  stopped: "stopped before the first step",
  failed: "failed",
};

export function Train() {
  if (!source.live) return <NeedsModel view="Train" reason="Train starts a training on the server" />;
  return <TrainView />;
}

/** The state of the training, polled while the view is open, and what changes it. */
function useTraining() {
  const [training, setTraining] = useState<Training | null>(null);
  const [pollError, setPollError] = useState<Error | null>(null);
  const [refusal, setRefusal] = useState<Error | null>(null); // of the last command
  useEffect(() => {
    let timer = 0;
    let open = true;
    const poll = async (): Promise<void> => {
      const next = await source.training().catch((error: Error) => error);
      if (!open) return;
      setPollError(next instanceof Error ? next : null);
      if (!(next instanceof Error)) setTraining(next);
      timer = window.setTimeout(poll, POLL);
    };
    void poll();
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, []);
  const execute: Execute = async (path, body) => {
    const next = await source.train(path, body).catch((error: Error) => error);
    setRefusal(next instanceof Error ? next : null);
    if (next instanceof Error) return false;
    setTraining(next);
    return true;
  };
  return { training, error: pollError ?? refusal, execute };
}

/** Sends a command; returns whether it was accepted. */
type Execute = (path: string, body?: object) => Promise<boolean>;

function TrainView() {
  const { training, error, execute } = useTraining();
  const [another, setAnother] = useState(false);
  if (!training) return error ? <ErrorMessage error={error} /> : <Loading what="training" />;
  if (training.disabled)
    return (
      <section class="card">
        <h2>No training here</h2>
        <EmptyState>
          <p>{training.disabled}</p>
        </EmptyState>
      </section>
    );
  const shown = training.run;
  return (
    <div class="stack">
      {error ? <ErrorMessage error={error} /> : null}
      {shown && !another ? (
        <RunView run={shown} paused={training.paused} execute={execute} onAnother={() => setAnother(true)} />
      ) : (
        <StartForm
          training={training}
          execute={async (path, body) => {
            const started = await execute(path, body);
            if (started) setAnother(false);
            return started;
          }}
        />
      )}
    </div>
  );
}

const BUILT_IN = "";

function StartForm({ training, execute }: { training: Training; execute: Execute }) {
  const [name, setName] = useState("first");
  const [file, setFile] = useState(BUILT_IN);
  const [target, setTarget] = useState(BUILT_IN);
  const [minutes, setMinutes] = useState(2);
  const options = training.files.map(({ name, bytes }): [string, string] => [name, `${name} (${formatBytes(bytes)})`]);
  const start = (): Promise<boolean> => execute("", { name, minutes, files: file ? [file, ...(target ? [target] : [])] : [] });
  return (
    <section class="card stack">
      <div>
        <h2>Train a model</h2>
        <p class="muted small description">
          Watch it learn: the loss, the same sentence and one head at each checkpoint. The training runs in a process of its own
          on this machine, and saves when it is paused or when this server stops. The model then opens in all views.
        </p>
      </div>
      <form
        class="train-form"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <SelectField
          label="text to learn from"
          value={file}
          options={[[BUILT_IN, "built-in English–Hindi corpus"], ...options]}
          onChange={setFile}
        />
        {file && options.length > 1 ? (
          <SelectField
            label="its translation, line by line"
            value={target}
            options={[[BUILT_IN, "none: a language model, or pairs"], ...options]}
            onChange={setTarget}
          />
        ) : null}
        <TextField label={`name of the run, in ${training.runs}/`} value={name} onChange={(next) => setName(next.trim())} />
        <Slider
          label="minutes"
          value={minutes}
          min={0.5}
          max={60}
          step={0.5}
          valueText={formatNumber(minutes, 1)}
          onChange={setMinutes}
        />
        <button class="primary-button" type="submit">
          Start
        </button>
      </form>
      {training.files.length ? null : (
        <p class="muted small">
          To train on your own text, start the page with <code>seq2see explore --data-dir DIRECTORY</code>.
        </p>
      )}
      {training.paused.length ? (
        <div class="examples" role="group" aria-label="paused runs">
          <span class="small muted">Resume</span>
          {training.paused.map((paused) => (
            <button key={paused} class="chip" onClick={() => void execute("/resume", { name: paused })}>
              {paused}
            </button>
          ))}
        </div>
      ) : null}
    </section>
  );
}

const formatBytes = (bytes: number): string =>
  bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${formatNumber(bytes / 1e6, 1)} MB`;

interface RunViewProps {
  run: TrainingRun;
  paused: readonly string[]; // runs that can be resumed
  execute: Execute;
  onAnother: () => void;
}

function RunView({ run, paused, execute, onAnother }: RunViewProps) {
  const { state, steps, own } = run;
  const active = ACTIVE.includes(state);
  const last = steps[steps.length - 1];
  const left = run.progress > 0 && run.progress < 1 ? (run.seconds * (1 - run.progress)) / run.progress : null;
  const total = totalSteps(run);
  const reports = useReports(run);
  const chosen = reports.list.find(({ step }) => step === reports.selected) ?? reports.list[reports.list.length - 1];
  return (
    <>
      <section class="card stack" data-training={state}>
        <div class="train-state">
          <div>
            <h2>{run.name}</h2>
            <p class={state === "failed" ? "changed" : "muted"} role="status">
              {STATES[state]}
              {(state === "failed" || state === "preparing" || state === "finished") && run.message ? ` · ${run.message}` : ""}
            </p>
          </div>
          <div class="controls">
            {active && !own ? <span class="small muted">started elsewhere: stop it there</span> : null}
            {own && (state === "training" || state === "preparing") ? (
              <button class="chip" onClick={() => void execute("/pause")}>
                Pause
              </button>
            ) : null}
            {own && !active && paused.includes(run.name) ? (
              <button class="primary-button" onClick={() => void execute("/resume", { name: run.name })}>
                Resume
              </button>
            ) : null}
            {own && (state === "training" || state === "paused") ? (
              <button class="chip" onClick={() => void execute("/stop")}>
                Stop and keep the model
              </button>
            ) : null}
            {run.model ? (
              <button class="primary-button" onClick={() => openModel(run.model!)}>
                Open the model
              </button>
            ) : null}
            {active ? null : (
              <button class="chip" onClick={onAnother}>
                Train another
              </button>
            )}
          </div>
        </div>
        <progress
          class="train-progress"
          max={1}
          value={run.progress}
          aria-label="progress of the training"
          aria-valuetext={`step ${stepOf(run.step, total, run.progress < 1)}`}
        />
        <dl class="train-numbers">
          <Figure name="step">{stepOf(run.step, total, run.progress < 1)}</Figure>
          <Figure name="loss">{last ? formatNumber(last.loss, 3) : "–"}</Figure>
          <Figure name="learning rate">{last ? last.lr.toExponential(1) : "–"}</Figure>
          <Figure name="tokens/s">{last ? Math.round(last.tokens_per_second).toLocaleString("en") : "–"}</Figure>
          <Figure name="time">{formatTime(run.seconds)}</Figure>
          <Figure name="left">{left === null || !active ? "–" : formatTime(left)}</Figure>
        </dl>
        {run.command ? (
          <p class="code train-command">
            <code>{run.command}</code>
          </p>
        ) : null}
      </section>
      {steps.length ? <Reports {...{ run, reports, chosen }} /> : null}
    </>
  );
}

interface ReportsProps {
  run: TrainingRun;
  reports: ReturnType<typeof useReports>;
  chosen: TrainingReport | undefined;
}

function Reports({ run, reports, chosen }: ReportsProps) {
  const { steps } = run;
  const history = { model: run.name, steps, validations: run.validations };
  return (
    <>
      <Sentence />
      <div class="two-columns">
        <section class="card">
          <div class="section-header tight">
            <div>
              <h2>Loss</h2>
              <p class="muted small">
                Cross-entropy per token in nats, every 20 steps; small circles: validation set. Large circles: weights on disk.
              </p>
            </div>
          </div>
          {steps.length > 1 ? (
            <Curve
              {...{ history }}
              snapshots={run.steps_with_weights}
              selected={chosen?.step ?? -1}
              onSelect={reports.select}
              name={run.name}
            />
          ) : (
            <EmptyState>The curve starts at the second report.</EmptyState>
          )}
        </section>
        <section class="card stack">
          {chosen ? <Head report={chosen} /> : <EmptyState>The first weights are saved after step 1.</EmptyState>}
        </section>
      </div>
      <section class="card">
        <div class="section-header">
          <div>
            <h2>The same sentence at each checkpoint</h2>
            <p class="muted small">
              Newest first, with the training loss of that step; the loss says how well the model does, not how far the training
              is.
            </p>
          </div>
        </div>
        {reports.error ? <ErrorMessage error={reports.error} /> : null}
        <ol class="snapshot-list">
          {[...reports.list].reverse().map((report) => (
            <li key={report.step}>
              <button aria-pressed={report === chosen} onClick={() => reports.select(report.step)} data-report={report.step}>
                <span class="small muted">step {stepOf(report.step, totalSteps(run), run.progress < 1)}</span>
                <span class={`small-thumbnail${report.attention ? "" : " empty"}`}>
                  {report.attention ? <Thumbnail grid={gridOf(report)} /> : null}
                </span>
                <span class="snapshot-output">
                  {report.output ? <Transliterated text={report.output} /> : <span class="muted">(empty)</span>}
                </span>
                <span class="small muted right">{lossText(run, report.step)}</span>
              </button>
            </li>
          ))}
        </ol>
      </section>
    </>
  );
}

/** How many steps the training will have; of one that is limited by time, an estimate. */
function totalSteps({ step, progress }: TrainingRun): number | null {
  if (!step || progress <= 0) return null;
  return progress < 1 ? Number((step / progress).toPrecision(2)) : step;
}

/** Such as "300 of about 1,200". */
export function stepOf(step: number, total: number | null, isEstimate: boolean): string {
  const text = step.toLocaleString("en");
  if (total === null || total < step) return text;
  return `${text} of ${isEstimate ? "about " : ""}${total.toLocaleString("en")}`;
}

/** The loss that was logged at this step, or at the next one, which is then named. */
function lossText({ steps }: TrainingRun, step: number): string {
  const logged = steps.find((one) => one.step >= step);
  if (!logged) return "";
  return `loss ${formatNumber(logged.loss)}${logged.step === step ? "" : ` at step ${logged.step.toLocaleString("en")}`}`;
}

const Figure = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd data-figure={name}>{children}</dd>
  </div>
);

const formatTime = (seconds: number): string =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

/** Reloads the page, since the list of models has changed. */
function openModel(model: string): void {
  history.pushState(
    null,
    "",
    formatHash({ ...getUrlState(), view: "map", model, row: -1, attention: "", head: -1, cell: "", interventions: "" }),
  );
  location.reload();
}

function Sentence() {
  const { text } = useSession();
  return <TextField label="sentence to watch" value={text} onChange={(next) => navigate({ text: next, row: -1 })} />;
}

const gridOf = (report: TrainingReport): Grid => ({
  name: `${report.attention} step ${report.step}`,
  rows: report.queries.length,
  cols: report.keys.length,
  data: report.weights.flat(),
  rowLabels: report.queries.map((read, i) => (report.written.length ? `${read} ▸ ${report.written[i]}` : read)),
  colLabels: report.keys,
  rowAxis: "query",
  colAxis: "key",
  scale: "sequential",
  max: 1,
  causal: report.attention!.endsWith("masked"),
});

function Head({ report }: { report: TrainingReport }) {
  const { attention, head, heads } = report;
  const grid = useMemo(() => (attention ? gridOf(report) : null), [report]);
  if (!grid || !attention) return <EmptyState>This model has no attention.</EmptyState>;
  const headOptions = Array.from({ length: heads }, (_, i): [number, string] => [i, `head ${i}`]);
  return (
    <>
      <div class="section-header tight">
        <div>
          <h2>One head</h2>
          <p class="muted small">step {report.step.toLocaleString("en")}</p>
        </div>
        <div class="controls">
          <SelectField
            label="attention"
            value={attention}
            options={report.attentions.map((name): [string, string] => [name, componentTitle(name)])}
            onChange={(next) => navigate({ attention: next })}
          />
          {heads > 1 ? (
            <SelectField
              label="head"
              value={head ?? -1}
              options={[[-1, "mean"], ...headOptions]}
              onChange={(next) => navigate({ head: next })}
            />
          ) : null}
        </div>
      </div>
      <Matrix grid={grid} maxHeight={440} />
    </>
  );
}

/** What the model made of the sentence at each step whose weights are on disk. Older checkpoints disappear; their reports stay. */
function useReports(run: TrainingRun) {
  const { attention, head } = useUrlState();
  const { text } = useSession();
  const [selected, select] = useState(-1);
  const key = `${run.directory} ${text} ${attention} ${head}`;
  const known = useRef({ key, reports: new Map<number, TrainingReport>() });
  if (known.current.key !== key) known.current = { key, reports: new Map() };
  const [, update] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  const steps = run.steps_with_weights.join();
  useEffect(() => {
    if (!text.trim()) return;
    const abort = new AbortController();
    const { reports } = known.current;
    void (async () => {
      // The newest first: it is what one waits for, and an older checkpoint may be gone by now.
      for (const step of [...run.steps_with_weights].reverse()) {
        if (abort.signal.aborted) return;
        if (reports.has(step)) continue;
        const report = await source.trainingReport(step, text, attention, head, abort.signal).catch((reason: Error) => reason);
        if (abort.signal.aborted) return;
        if (report instanceof Error) setError(report.message.includes("has no weights of step") ? null : report);
        else {
          reports.set(step, report);
          setError(null);
          update((count) => count + 1);
        }
      }
    })();
    return () => abort.abort();
  }, [key, steps]);
  const list = [...known.current.reports.values()].sort((a, b) => a.step - b.step);
  return { list, error, selected, select };
}
