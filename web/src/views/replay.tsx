// Replay: the same text through the training snapshots, one after the other: the output, the attention of a head and the loss.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type ModelInfo, source, type Trace } from "../api";
import {
  type Attention,
  attentionGrid,
  findAttention,
  headTitle,
  loadAttention,
  matrixName,
  selectedHead,
} from "../architecture";
import { formatPercent } from "../format";
import { latestValue, prefersReducedMotion, useAsync } from "../hooks";
import { useSpaceKey } from "../keyboard";
import { mean } from "../math";
import { Matrix, Thumbnail } from "../matrix/matrix";
import { explainOptions, otherModel, useSession, useTrace, withSnapshots } from "../session";
import { EmptyState, ErrorMessage, Loading, Transliterated } from "../ui";
import { hrefFor, navigate, useUrlState } from "../url-state";
import { attentionOptions, HeadSelect, HighlightedOutput, NoAttention, SelectField } from "./controls";
import { NeedsModel } from "./intervene";
import { LossCurve } from "./loss-curve";

const FINAL = -1;
const PLAY_INTERVAL = 1100; // ms per snapshot

const stepName = (step: number): string => (step === FINAL ? "final" : `step ${step.toLocaleString("en")}`);

export function Replay() {
  const { model, models } = useSession();
  const trace = useTrace();
  if (!source.live) return <NeedsModel view="Replay" reason="Replay runs the model as it was at earlier training steps" />;
  const other = withSnapshots(model, models);
  if (!model.snapshots.length)
    return (
      <section class="card">
        <EmptyState>
          <p>“{model.name}” has no training snapshots.</p>
          {other ? (
            <p>
              <a href={hrefFor(otherModel(other.name))}>Replay the training of {other.name}</a>
            </p>
          ) : null}
          <p class="small">
            <code>seq2see train</code> saves them unless <code>train.snapshots</code> is false.
          </p>
        </EmptyState>
      </section>
    );
  return <Player model={model} finalTrace={trace} />;
}

/** The traces of all snapshots and of the final model, loaded one by one. */
function useFrames(model: ModelInfo, finalTrace: Trace) {
  const state = useUrlState();
  const { text } = useSession();
  const [frames, setFrames] = useState<ReadonlyMap<number, Trace>>(new Map());
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setFrames(new Map([[FINAL, finalTrace]]));
    setError(null);
    void (async () => {
      const first = model.snapshots.includes(state.snapshot) ? [state.snapshot] : [];
      for (const step of new Set([...first, ...model.snapshots])) {
        const frame = await source.explain({ ...explainOptions(state, model, text), step }, abort.signal);
        if (abort.signal.aborted) return;
        setFrames((previous) => new Map(previous).set(step, frame));
      }
    })().catch((reason: Error) => abort.signal.aborted || setError(reason));
    return () => abort.abort();
  }, [finalTrace.id]);
  return { frames, error };
}

function Player({ model, finalTrace }: { model: ModelInfo; finalTrace: Trace }) {
  const state = useUrlState();
  const { frames, error } = useFrames(model, finalTrace);
  const steps = [...model.snapshots, FINAL];
  const index = steps.includes(state.snapshot) ? steps.indexOf(state.snapshot) : steps.length - 1;
  const [playing, setPlaying] = useState(false);
  const show = (i: number): void => navigate({ snapshot: steps[i] });
  const attention = findAttention(model, state.attention);
  const head = selectedHead(model, state.head);
  const frame = frames.get(steps[index]);
  const reducedMotion = prefersReducedMotion();

  useEffect(() => {
    if (!playing) return;
    if (index === steps.length - 1) return setPlaying(false);
    if (!frames.has(steps[index + 1])) return; // continues once the next frame is loaded
    const timer = setTimeout(() => show(index + 1), PLAY_INTERVAL);
    return () => clearTimeout(timer);
  }, [playing, index, frames]);
  const togglePlay = (): void => {
    if (reducedMotion) return show((index + 1) % steps.length); // one step per click instead of playing
    if (!playing && index === steps.length - 1) show(0);
    setPlaying(!playing);
  };
  useSpaceKey(togglePlay);

  return (
    <div class="stack">
      <section class="card stack">
        <div class="player">
          <button class="primary-button" title="play or pause (space)" onClick={togglePlay}>
            {reducedMotion ? "Next" : playing ? "Pause" : "Play"}
          </button>
          <input
            type="range"
            aria-label="training snapshot"
            min={0}
            max={steps.length - 1}
            step={1}
            value={index}
            aria-valuetext={stepName(steps[index])}
            onInput={(event) => {
              setPlaying(false);
              show(Number(event.currentTarget.value));
            }}
          />
          <output>{stepName(steps[index])}</output>
        </div>
        <div class="overlay">
          <p class="output" aria-live="polite" data-snapshot={steps[index]} data-output={frame?.output ?? ""}>
            {frame ? <SnapshotOutput trace={frame} finalTrace={finalTrace} /> : <span class="muted">…</span>}
          </p>
          {[...frames].map(([step, { output }]) => (
            <p key={step} class="output placeholder" aria-hidden="true">
              <Transliterated text={output} />
            </p>
          ))}
        </div>
        {error ? <ErrorMessage error={error} /> : null}
      </section>
      <div class="two-columns">
        <section class="card">
          <LossCurve
            model={model}
            snapshots={model.snapshots}
            selected={steps[index]}
            onSelect={(step) => navigate({ snapshot: step })}
          />
        </section>
        <section class="card stack snapshot-head">
          <div class="section-header tight">
            <div>
              <h2>{model.config.model.heads > 1 ? "One head during training" : "Attention during training"}</h2>
              {attention ? (
                <p class="muted small">
                  {headTitle(model, attention, head)}, {stepName(steps[index])}
                </p>
              ) : null}
            </div>
            {attention ? (
              <div class="controls">
                <SelectField
                  label="attention"
                  value={attention.name}
                  options={attentionOptions(model)}
                  onChange={(name) => navigate({ attention: name })}
                />
                <HeadSelect model={model} allLabel="mean" value={head} onChange={(next) => navigate({ head: next })} />
              </div>
            ) : null}
          </div>
          {!attention ? (
            <NoAttention model={model} />
          ) : frame ? (
            <SnapshotHead trace={frame} attention={attention} head={head} />
          ) : (
            <Loading what="snapshot" />
          )}
        </section>
      </div>
      <section class="card">
        <div class="section-header">
          <div>
            <h2>All snapshots</h2>
            <p class="muted small">
              Tokens that differ from the final model’s are highlighted. Right: how sure the model is of its own words
              (geometric mean of their probabilities); it can be sure and wrong.
            </p>
          </div>
        </div>
        <ol class="snapshot-list">
          {steps.map((step, i) => (
            <SnapshotRow
              key={step}
              step={step}
              trace={frames.get(step)}
              finalTrace={finalTrace}
              attention={attention}
              head={head}
              isSelected={i === index}
              onSelect={() => show(i)}
            />
          ))}
        </ol>
      </section>
    </div>
  );
}

/** The output of a snapshot; tokens that differ from the final model's are highlighted. */
function SnapshotOutput({ trace, finalTrace }: { trace: Trace; finalTrace: Trace }) {
  const differing = trace.target_tokens.flatMap((token, row) => (token.id === finalTrace.target_tokens[row]?.id ? [] : [row]));
  return <HighlightedOutput trace={trace} highlightedRows={new Set(differing)} />;
}

function useAttentionGrid(trace: Trace | undefined, attention: Attention | null, head: number) {
  const { model } = useSession();
  const loaded = useAsync(
    trace && attention
      ? async () => ({ trace: trace.id, name: attention.name, values: await loadAttention(trace, attention, head, "weights") })
      : null,
    [trace?.id, attention?.name, head],
  );
  const latest = latestValue(loaded);
  const isCurrent = trace && latest && latest.trace === trace.id && latest.name === attention?.name;
  const grid = useMemo(
    () =>
      isCurrent && attention
        ? attentionGrid(trace, attention, "weights", latest.values, matrixName(model, attention, "weights", head))
        : null,
    [isCurrent, latest],
  );
  return { grid, error: loaded.state === "failed" ? loaded.error : null };
}

function SnapshotHead({ trace, attention, head }: { trace: Trace; attention: Attention; head: number }) {
  const { grid, error } = useAttentionGrid(trace, attention, head);
  if (error) return <ErrorMessage error={error} />;
  return grid ? <Matrix grid={grid} maxHeight={440} /> : <Loading what="attention weights" />;
}

interface SnapshotRowProps {
  step: number;
  trace: Trace | undefined;
  finalTrace: Trace;
  attention: Attention | null;
  head: number;
  isSelected: boolean;
  onSelect: () => void;
}

function SnapshotRow({ step, trace, finalTrace, attention, head, isSelected, onSelect }: SnapshotRowProps) {
  const { grid } = useAttentionGrid(trace, attention, head);
  const logprobs = trace ? trace.target_tokens.slice(trace.output_start).map(({ logprob }) => logprob ?? 0) : [];
  return (
    <li>
      <button aria-pressed={isSelected} onClick={onSelect} data-step={step}>
        <span class="small muted">{stepName(step)}</span>
        <span class={attention ? "small-thumbnail" : "small-thumbnail empty"}>{grid ? <Thumbnail grid={grid} /> : null}</span>
        <span class="snapshot-output">
          {trace ? <SnapshotOutput trace={trace} finalTrace={finalTrace} /> : <span class="muted">…</span>}
        </span>
        <span class="small muted right">{logprobs.length ? formatPercent(Math.exp(mean(logprobs))) : ""}</span>
      </button>
    </li>
  );
}
