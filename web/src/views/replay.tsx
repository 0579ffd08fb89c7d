// Replay: the same sentence through the snapshots of the training, one after the other: what the model said then, where a head
// looked, how high the loss was.
import { useEffect, useMemo, useState } from "preact/hooks";
import { source, type Trace, type ModelInfo } from "../api";
import { latestValue, prefersReducedMotion, useAsync } from "../hooks";
import { useSpaceKey } from "../keyboard";
import { Matrix, Thumbnail } from "../matrix/matrix";
import { formatPercent } from "../format";
import { mean } from "../math";
import { explainOptions, useSession } from "../session";
import { navigate, useUrlState } from "../url-state";
import { attentionGrid, findAttention, loadAttention, selectedHead, matrixName, headTitle, type Attention } from "../architecture";
import { EmptyState, ErrorMessage, Loading } from "../ui";
import { attentionOptions, HeadSelect, HighlightedOutput, NoAttention, SelectField } from "./controls";
import { LossCurve } from "./loss-curve";
import { NeedsModel } from "./intervene";
import { SentenceBar } from "./sentence-bar";

const FINISHED = -1;
const PACE = 1100; // ms a snapshot

const stepName = (step: number): string => (step === FINISHED ? "finished" : `step ${step.toLocaleString("en")}`);

export function Replay() {
  const { model, trace, error } = useSession();
  if (!source.live) return <NeedsModel view="Replay" why="The text goes through the model as it was at earlier steps of its training" />;
  if (!model.snapshots.length)
    return (
      <section class="card">
        <EmptyState>
          <p>“{model.name}” has no snapshots of its training.</p>
          <p class="small">
            <code>seq2see train</code> keeps them unless <code>train.snapshots</code> is false.
          </p>
        </EmptyState>
      </section>
    );
  if (error && !trace) return <ErrorMessage error={error} />;
  if (!trace) return <Loading what="the trace" />;
  return <Film model={model} finished={trace} />;
}

/** The sentence through every snapshot, from the first to the finished model; they come one by one. */
function useFrames(model: ModelInfo, finished: Trace) {
  const state = useUrlState();
  const { text } = useSession();
  const [frames, setFrames] = useState<ReadonlyMap<number, Trace>>(new Map());
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setFrames(new Map([[FINISHED, finished]]));
    setError(null);
    void (async () => {
      const first = model.snapshots.includes(state.snapshot) ? [state.snapshot] : [];
      for (const step of new Set([...first, ...model.snapshots])) {
        const frame = await source.explain({ ...explainOptions(state, model, text), step }, abort.signal);
        if (abort.signal.aborted) return;
        setFrames((before) => new Map(before).set(step, frame));
      }
    })().catch((problem: Error) => abort.signal.aborted || setError(problem));
    return () => abort.abort();
  }, [finished.id]);
  return { frames, error };
}

function Film({ model, finished }: { model: ModelInfo; finished: Trace }) {
  const state = useUrlState();
  const { frames, error } = useFrames(model, finished);
  const steps = [...model.snapshots, FINISHED];
  const at = steps.includes(state.snapshot) ? steps.indexOf(state.snapshot) : steps.length - 1;
  const [playing, setPlaying] = useState(false);
  const show = (index: number): void => navigate({ snapshot: steps[index] });
  const attention = findAttention(model, state.attention);
  const head = selectedHead(model, state.head);
  const frame = frames.get(steps[at]);
  const still = prefersReducedMotion();

  useEffect(() => {
    if (!playing) return;
    if (at === steps.length - 1) return setPlaying(false);
    if (!frames.has(steps[at + 1])) return; // it goes on when the next has come
    const timer = setTimeout(() => show(at + 1), PACE);
    return () => clearTimeout(timer);
  }, [playing, at, frames]);
  const press = (): void => {
    if (still) return show((at + 1) % steps.length); // motion only step by step, where none is wanted
    if (!playing && at === steps.length - 1) show(0);
    setPlaying(!playing);
  };
  useSpaceKey(press);

  return (
    <div class="stack">
      <SentenceBar />
      <section class="card stack">
        <div class="player">
          <button class="primary-button" title="space" onClick={press}>
            {still ? "Next" : playing ? "Pause" : "Play"}
          </button>
          <input
            type="range"
            aria-label="snapshot of the training"
            min={0}
            max={steps.length - 1}
            step={1}
            value={at}
            aria-valuetext={stepName(steps[at])}
            onInput={(event) => {
              setPlaying(false);
              show(Number(event.currentTarget.value));
            }}
          />
          <output>{stepName(steps[at])}</output>
        </div>
        <p class="output" aria-live="polite" data-snapshot={steps[at]} data-output={frame?.output ?? ""}>
          {frame ? <Said frame={frame} finished={finished} /> : <span class="muted">…</span>}
        </p>
        {error ? <ErrorMessage error={error} /> : null}
      </section>
      <div class="two-columns">
        <section class="card">
          <LossCurve model={model} snapshots={model.snapshots} chosen={steps[at]} onChoose={(step) => navigate({ snapshot: step })} />
        </section>
        <section class="card stack">
          <div class="section-header tight">
            <div>
              <h2>{model.config.model.heads > 1 ? "A head, learning" : "Attention, learning"}</h2>
              {attention ? (
                <p class="muted small">
                  {headTitle(model, attention, head)}, {stepName(steps[at])}
                </p>
              ) : null}
            </div>
            {attention ? (
              <div class="controls">
                <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={(name) => navigate({ attention: name })} />
                <HeadSelect model={model} all="mean" value={head} onChange={(next) => navigate({ head: next })} />
              </div>
            ) : null}
          </div>
          {!attention ? <NoAttention model={model} /> : frame ? <HeadThen frame={frame} attention={attention} head={head} /> : <Loading what="the snapshot" />}
        </section>
      </div>
      <section class="card">
        <div class="section-header">
          <div>
            <h2>All of them</h2>
            <p class="muted small">Tokens that the finished model writes at the same place are plain. P: of each token, the geometric mean.</p>
          </div>
        </div>
        <ol class="snapshot-list">
          {steps.map((step, i) => (
            <Row key={step} step={step} frame={frames.get(step)} finished={finished} attention={attention} head={head} on={i === at} onChoose={() => show(i)} />
          ))}
        </ol>
      </section>
    </div>
  );
}

/** What the model said then; set apart is what the finished one does not write at the same place. */
function Said({ frame, finished }: { frame: Trace; finished: Trace }) {
  const other = frame.target_tokens.flatMap((token, row) => (token.id === finished.target_tokens[row]?.id ? [] : [row]));
  return <HighlightedOutput trace={frame} marked={new Set(other)} />;
}

function useWeights(frame: Trace | undefined, attention: Attention | null, head: number) {
  const { model } = useSession();
  const loaded = useAsync(
    frame && attention ? async () => ({ of: frame.id, name: attention.name, values: await loadAttention(frame, attention, head, "weights") }) : null,
    [frame?.id, attention?.name, head],
  );
  const found = latestValue(loaded);
  const fits = frame && found && found.of === frame.id && found.name === attention?.name;
  const grid = useMemo(
    () => (fits && attention ? attentionGrid(frame, attention, "weights", found.values, matrixName(model, attention, "weights", head)) : null),
    [fits, found],
  );
  return { grid, error: loaded.state === "failed" ? loaded.error : null };
}

function HeadThen({ frame, attention, head }: { frame: Trace; attention: Attention; head: number }) {
  const { grid, error } = useWeights(frame, attention, head);
  if (error) return <ErrorMessage error={error} />;
  return grid ? <Matrix grid={grid} maxHeight={440} /> : <Loading what="the weights" />;
}

interface RowProps {
  step: number;
  frame: Trace | undefined;
  finished: Trace;
  attention: Attention | null;
  head: number;
  on: boolean;
  onChoose: () => void;
}

function Row({ step, frame, finished, attention, head, on, onChoose }: RowProps) {
  const { grid } = useWeights(frame, attention, head);
  const sure = frame && frame.target_tokens.length > frame.output_start ? Math.exp(mean(frame.target_tokens.slice(frame.output_start).map(({ logprob }) => logprob ?? 0))) : null;
  return (
    <li>
      <button aria-pressed={on} onClick={onChoose} data-step={step}>
        <span class="small muted">{stepName(step)}</span>
        <span class={attention ? "small-thumbnail" : "small-thumbnail empty"}>{grid ? <Thumbnail grid={grid} /> : null}</span>
        <span class="snapshot-output">{frame ? <Said frame={frame} finished={finished} /> : <span class="muted">…</span>}</span>
        <span class="small muted right">{sure === null ? "" : formatPercent(sure)}</span>
      </button>
    </li>
  );
}
