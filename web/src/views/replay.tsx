// Replay: the same sentence through the snapshots of the training, one after the other: what the model said then, where a head
// looked, how high the loss was.
import { useEffect, useMemo, useState } from "preact/hooks";
import { source, type Manifest, type ModelCard } from "../api";
import { present, reducedMotion, useLoaded } from "../hooks";
import { useSpace } from "../keys";
import { Matrix, Thumbnail } from "../matrix/Matrix";
import { mean, percent } from "../numbers";
import { questionOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionGrid, attentionNamed, attentionStep, chosenHead, gridName, titleOf, type Attention } from "../structure";
import { Empty, Failed, Waiting } from "../ui";
import { attentionOptions, HeadPick, Marked, NoAttention, Pick } from "./choose";
import { LossCurve } from "./curve";
import { NeedsModel } from "./intervene";
import { Sentence } from "./sentence";

const FINISHED = -1;
const PACE = 1100; // ms a snapshot

const stepName = (step: number): string => (step === FINISHED ? "finished" : `step ${step.toLocaleString("en")}`);

export function Replay() {
  const { card, manifest, error } = useSession();
  if (!source.live) return <NeedsModel view="Replay" why="The text goes through the model as it was at earlier steps of its training" />;
  if (!card.snapshots.length)
    return (
      <section class="card">
        <Empty>
          <p>“{card.name}” has no snapshots of its training.</p>
          <p class="small">
            <code>seq2see train</code> keeps them unless <code>train.snapshots</code> is false.
          </p>
        </Empty>
      </section>
    );
  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  return <Film card={card} finished={manifest} />;
}

/** The sentence through every snapshot, from the first to the finished model; they come one by one. */
function useFrames(card: ModelCard, finished: Manifest) {
  const state = useAddress();
  const { text } = useSession();
  const [frames, setFrames] = useState<ReadonlyMap<number, Manifest>>(new Map());
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setFrames(new Map([[FINISHED, finished]]));
    setError(null);
    void (async () => {
      const first = card.snapshots.includes(state.snapshot) ? [state.snapshot] : [];
      for (const step of new Set([...first, ...card.snapshots])) {
        const frame = await source.explain({ ...questionOf(state, card, text), step }, abort.signal);
        if (abort.signal.aborted) return;
        setFrames((before) => new Map(before).set(step, frame));
      }
    })().catch((problem: Error) => abort.signal.aborted || setError(problem));
    return () => abort.abort();
  }, [finished.id]);
  return { frames, error };
}

function Film({ card, finished }: { card: ModelCard; finished: Manifest }) {
  const state = useAddress();
  const { frames, error } = useFrames(card, finished);
  const steps = [...card.snapshots, FINISHED];
  const at = steps.includes(state.snapshot) ? steps.indexOf(state.snapshot) : steps.length - 1;
  const [playing, setPlaying] = useState(false);
  const show = (index: number): void => go({ snapshot: steps[index] });
  const attention = attentionNamed(card, state.attention);
  const head = chosenHead(card, state.head);
  const frame = frames.get(steps[at]);
  const still = reducedMotion();

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
  useSpace(press);

  return (
    <div class="stack">
      <Sentence />
      <section class="card stack">
        <div class="player">
          <button class="do" title="space" onClick={press}>
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
          {frame ? <Said frame={frame} finished={finished} /> : <span class="soft">…</span>}
        </p>
        {error ? <Failed error={error} /> : null}
      </section>
      <div class="halves">
        <section class="card">
          <LossCurve card={card} snapshots={card.snapshots} chosen={steps[at]} onChoose={(step) => go({ snapshot: step })} />
        </section>
        <section class="card stack">
          <div class="lead tight">
            <div>
              <h2>{card.config.model.heads > 1 ? "A head, learning" : "Attention, learning"}</h2>
              {attention ? (
                <p class="soft small">
                  {titleOf(card, attention, head)}, {stepName(steps[at])}
                </p>
              ) : null}
            </div>
            {attention ? (
              <div class="controls">
                <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={(name) => go({ attention: name })} />
                <HeadPick card={card} all="mean" value={head} onChange={(next) => go({ head: next })} />
              </div>
            ) : null}
          </div>
          {!attention ? <NoAttention card={card} /> : frame ? <HeadThen frame={frame} attention={attention} head={head} /> : <Waiting what="the snapshot" />}
        </section>
      </div>
      <section class="card">
        <div class="lead">
          <div>
            <h2>All of them</h2>
            <p class="soft small">Tokens that the finished model writes at the same place are plain. P: of each token, the geometric mean.</p>
          </div>
        </div>
        <ol class="film">
          {steps.map((step, i) => (
            <Row key={step} step={step} frame={frames.get(step)} finished={finished} attention={attention} head={head} on={i === at} onChoose={() => show(i)} />
          ))}
        </ol>
      </section>
    </div>
  );
}

/** What the model said then; set apart is what the finished one does not write at the same place. */
function Said({ frame, finished }: { frame: Manifest; finished: Manifest }) {
  const other = frame.writes.flatMap((token, row) => (token.id === finished.writes[row]?.id ? [] : [row]));
  return <Marked manifest={frame} marked={new Set(other)} />;
}

function useWeights(frame: Manifest | undefined, attention: Attention | null, head: number) {
  const { card } = useSession();
  const loaded = useLoaded(
    frame && attention ? async () => ({ of: frame.id, name: attention.name, values: await attentionStep(frame, attention, head, "weights") }) : null,
    [frame?.id, attention?.name, head],
  );
  const found = present(loaded);
  const fits = frame && found && found.of === frame.id && found.name === attention?.name;
  const grid = useMemo(
    () => (fits && attention ? attentionGrid(frame, attention, "weights", found.values, gridName(card, attention, "weights", head)) : null),
    [fits, found],
  );
  return { grid, error: loaded.state === "failed" ? loaded.error : null };
}

function HeadThen({ frame, attention, head }: { frame: Manifest; attention: Attention; head: number }) {
  const { grid, error } = useWeights(frame, attention, head);
  if (error) return <Failed error={error} />;
  return grid ? <Matrix grid={grid} tallest={440} /> : <Waiting what="the weights" />;
}

interface RowProps {
  step: number;
  frame: Manifest | undefined;
  finished: Manifest;
  attention: Attention | null;
  head: number;
  on: boolean;
  onChoose: () => void;
}

function Row({ step, frame, finished, attention, head, on, onChoose }: RowProps) {
  const { grid } = useWeights(frame, attention, head);
  const sure = frame && frame.writes.length > frame.first ? Math.exp(mean(frame.writes.slice(frame.first).map(({ logprob }) => logprob ?? 0))) : null;
  return (
    <li>
      <button aria-pressed={on} onClick={onChoose} data-step={step}>
        <span class="small soft">{stepName(step)}</span>
        <span class={attention ? "stamp-small" : "stamp-small none"}>{grid ? <Thumbnail grid={grid} /> : null}</span>
        <span class="said">{frame ? <Said frame={frame} finished={finished} /> : <span class="soft">…</span>}</span>
        <span class="small soft right">{sure === null ? "" : percent(sure)}</span>
      </button>
    </li>
  );
}
