// Compare: two sentences, two heads or two models side by side, and one less the other in signed color. What cannot be
// subtracted says so.
import { useMemo } from "preact/hooks";
import { source, type Trace, type ModelInfo, type Tensor } from "../api";
import { formatCellRef } from "../audit/cells";
import { mergeLabels, difference, largestDifference } from "../difference";
import { latestValue, useAsync } from "../hooks";
import { InspectorLayout } from "../inspector";
import type { Cell, Grid } from "../matrix/grid";
import { Matrix } from "../matrix/matrix";
import { formatNumber } from "../format";
import { examplesOf, explainOptions, useSession } from "../session";
import { navigate, useUrlState } from "../url-state";
import { attentionGrid, findAttention, attentions, loadAttention, selectedHead, matrixName, architectureOf, headTitle, type Attention, type Step } from "../architecture";
import { SegmentedControl, ErrorMessage, Loading } from "../ui";
import { attentionOptions, HeadSelect, Line, NoAttention, SelectField } from "./controls";
import { NeedsModel } from "./intervene";
import { SentenceBar } from "./sentence-bar";

const AGAINST = [
  ["heads", "Two heads"],
  ["sentences", "Two sentences"],
  ["models", "Two models"],
] as const;

const OTHER = "I like eating mangoes"; // as many tokens as the bundled model's first example

/** What stands on one side. */
interface Side {
  model: ModelInfo;
  trace: Trace;
  looked: Looked | null; // a model without attention has only its output
}

interface Looked {
  attention: Attention;
  head: number;
  values: Tensor;
}

async function lookedAt(trace: Trace, attention: Attention | null, head: number, step: Step): Promise<Looked | null> {
  return attention && { attention, head, values: await loadAttention(trace, attention, head, step) };
}

/** All models, and each at its snapshots: "bundled@512". */
function modelOptions(models: readonly ModelInfo[]): [string, string][] {
  return models
    .filter(({ kind }) => kind !== "encoder")
    .flatMap(({ name, snapshots }) => [
      [name, name] as [string, string],
      ...snapshots.map((step): [string, string] => [`${name}@${step}`, `${name}, step ${step.toLocaleString("en")}`]),
    ]);
}

function named(models: readonly ModelInfo[], key: string): { model: ModelInfo; step?: number } | null {
  const whole = models.find(({ name }) => name === key);
  if (whole) return { model: whole };
  const cut = key.lastIndexOf("@");
  const model = models.find(({ name }) => name === key.slice(0, cut));
  const step = Number(key.slice(cut + 1));
  return model && model.snapshots.includes(step) ? { model, step } : null;
}

export function Compare() {
  const { models, model, text, trace, error } = useSession();
  const state = useUrlState();
  const several = attentions(model).length * model.config.model.heads > 1;
  const ways = AGAINST.filter(([key]) => (key === "heads" ? several : source.live));
  const against = (ways.find(([key]) => key === state.against) ?? ways[0] ?? AGAINST[0])[0];
  const attention = findAttention(model, state.attention);
  const head = selectedHead(model, state.head);
  const choices = modelOptions(models);
  const other = (against === "models" && named(models, state.model2)) || null;
  const last = model.snapshots.length ? `${model.name}@${model.snapshots[model.snapshots.length - 1]}` : model.name;
  const fallback = models.find((one) => one.kind === model.kind && one.name !== model.name)?.name ?? last;
  const held = against === "models" && state.held === 1;
  const second = against === "models" ? (other ?? named(models, fallback)!) : { model };
  const text2 = against === "sentences" ? state.text2 || (examplesOf(model).length ? OTHER : text) : text;
  // Models that are built alike are looked at in the same place.
  const apart = against === "heads" || attentionOptions(model).join() !== attentionOptions(second.model).join();
  const attention2 = findAttention(second.model, (apart && state.attention2) || (attention?.name ?? ""));
  const head2 = selectedHead(second.model, against === "heads" ? state.head2 : state.head);
  const theirSteps = architectureOf(second.model).steps.map(([key]) => key);
  const steps = architectureOf(model).steps.filter(([key]) => theirSteps.includes(key)); // in both
  const step = steps.find(([key]) => key === state.step)?.[0] ?? "weights";

  const loaded = useAsync(
    trace
      ? async (signal): Promise<[Side, Side]> => {
          const question = {
            ...explainOptions(state, second.model, text2),
            ...(second.step === undefined ? {} : { step: second.step }),
            ...(held ? { target: trace.output, search: "greedy" } : {}),
          };
          const theirs = against === "heads" ? trace : await source.explain(question, signal);
          const [a, b] = await Promise.all([
            lookedAt(trace, attention, head, step),
            lookedAt(theirs, attention2, head2, step),
          ]);
          return [
            { model, trace, looked: a },
            { model: second.model, trace: theirs, looked: b },
          ];
        }
      : null,
    [trace?.id, against, attention?.name, head, attention2?.name, head2, step, second.model.name, second.step, text2, held],
  );
  if (error && !trace) return <ErrorMessage error={error} />;
  if (!trace) return <Loading what="the trace" />;
  if (!ways.length) return <NeedsModel view="Compare" why="Here are no two heads to compare; other sentences go through the model once more" />;
  const sides = latestValue(loaded);
  return (
    <div class="stack">
      <SentenceBar />
      <section class="card stack">
        <div class="controls">
          {source.live ? (
            <SegmentedControl label="what is compared" options={ways} value={against} onChange={(next) => navigate({ against: next, cell: "" })} />
          ) : (
            <p class="small muted">Two heads of this sentence. Other sentences and models need the model itself: run seq2see explore.</p>
          )}
          {attention && attention2 && steps.length > 1 ? <SegmentedControl label="step" options={steps} value={step} onChange={(next) => navigate({ step: next, cell: "" })} /> : null}
        </div>
        {against === "sentences" ? (
          <Line label="The other sentence" value={text2} onChange={(value) => navigate({ text2: value })} />
        ) : null}
        {against === "models" && choices.length < 2 ? (
          <p class="small muted">There is one model, and it has no snapshots: start seq2see explore with --model twice.</p>
        ) : null}
        <div class="two-columns">
          <div class="controls">
            {attention ? (
              <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={(name) => navigate({ attention: name, cell: "" })} />
            ) : null}
            {attention ? <HeadSelect model={model} all="mean" value={head} onChange={(next) => navigate({ head: next, cell: "" })} /> : null}
          </div>
          <div class="controls">
            {against === "models" ? (
              <SelectField
                label="other model"
                value={second.step === undefined ? second.model.name : `${second.model.name}@${second.step}`}
                options={choices}
                onChange={(key) => navigate({ model2: key, cell: "" })}
              />
            ) : null}
            {apart && attention2 ? (
              <SelectField label="other attention" value={attention2.name} options={attentionOptions(second.model)} onChange={(name) => navigate({ attention2: name, cell: "" })} />
            ) : null}
            {against === "heads" && attention2 ? (
              <HeadSelect model={model} label="other head" all="mean" value={head2} onChange={(next) => navigate({ head2: next, cell: "" })} />
            ) : null}
            {against === "models" ? (
              <SelectField
                label="it reads"
                value={held ? 1 : 0}
                options={[
                  [0, "its own output"],
                  [1, "the first one’s output"],
                ]}
                onChange={(next) => navigate({ held: next, cell: "" })}
              />
            ) : null}
          </div>
        </div>
      </section>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {sides ? <Sides sides={sides} step={step} against={against} name2={second.step === undefined ? second.model.name : `${second.model.name} at step ${second.step}`} /> : loaded.state === "failed" ? null : <Loading what="both sides" />}
    </div>
  );
}

interface SidesProps {
  sides: [Side, Side];
  step: Step;
  against: string;
  name2: string;
}

function Sides({ sides, step, against, name2 }: SidesProps) {
  const { trace } = useSession();
  const { cell } = useUrlState();
  const grids = useMemo(() => sidesGrids(sides, step), [sides]);
  const [a, b] = sides;
  const names =
    against === "heads"
      ? sides.map(({ model, looked }) => (looked ? headTitle(model, looked.attention, looked.head) : model.name))
      : against === "sentences"
        ? [a.trace.text, b.trace.text]
        : [a.model.name, name2];
  // Only the text of the page can be audited: the other side's weights and trace are another's.
  const audited = (side: Side, looked: Looked, grid: Grid) => {
    if (looked.head < 0 || side.trace.id !== trace?.id) return { grid };
    const name = `${looked.attention.name}.${step}`;
    const [place, index] = cell.split(":");
    const [head, row, col] = (index ?? "").split(",").map(Number);
    return {
      grid,
      selected: place === name && head === looked.head ? { row, col } : null,
      onSelect: ({ row, col }: Cell) => navigate({ cell: formatCellRef({ name, index: [looked.head, row, col] }) }),
    };
  };
  return (
    <InspectorLayout>
      <div class="two-columns">
        {sides.map((side, i) => (
          <section class="card" key={i} data-side={i}>
            <div class="section-header tight">
              <div>
                <h2>{names[i]}</h2>
                {against === "heads" ? null : <p class="accent">{side.trace.output}</p>}
              </div>
            </div>
            {side.looked ? (
              <Matrix {...audited(side, side.looked, grids.own[i]!)} title={`${side.looked.attention.name}.${step}`} maxHeight={440} />
            ) : a.looked || b.looked ? (
              <NoAttention model={side.model} />
            ) : null}
          </section>
        ))}
      </div>
      {a.looked && b.looked ? (
        <section class="card">
          <div class="section-header tight">
            <div>
              <h2>The first less the second</h2>
              <p class="muted small">Violet: more on the first side. Orange: more on the second.</p>
            </div>
          </div>
          {grids.less ? <Less grid={grids.less.grid} whole={grids.less.whole} exactly={grids.less.alike} /> : <Unlike a={a.looked.values} b={b.looked.values} />}
        </section>
      ) : a.looked || b.looked ? null : (
        <section class="card">
          <NoAttention model={a.model} />
        </section>
      )}
    </InspectorLayout>
  );
}

/** What each side shows, on one scale, and where both can be subtracted, the difference. */
function sidesGrids(sides: [Side, Side], step: Step) {
  const plain = sides.map(({ model, trace, looked }) =>
    looked ? attentionGrid(trace, looked.attention, step, looked.values, matrixName(model, looked.attention, step, looked.head)) : null,
  );
  const sizes = plain.flatMap((grid) => (grid ? Array.from(grid.data, (x) => (Number.isFinite(x) ? Math.abs(x) : 0)) : []));
  const max = step === "weights" ? 1 : sizes.reduce((a, b) => Math.max(a, b), 0);
  const own = plain.map((grid) => grid && { ...grid, max });
  const [a, b] = plain;
  const whole = a && b ? difference(sides[0].looked!.values, sides[1].looked!.values) : null;
  if (!a || !b || !whole) return { own, less: null };
  const [rowLabels, colLabels] = [mergeLabels(a.rowLabels, b.rowLabels), mergeLabels(a.colLabels, b.colLabels)];
  const alike = rowLabels.every((label, i) => label === a.rowLabels[i]) && colLabels.every((label, i) => label === a.colLabels[i]);
  const grid: Grid = { ...a, name: `${a.name} less ${b.name}`, data: whole.data, rowLabels, colLabels, scale: "diverging" };
  delete grid.max;
  return { own, less: { grid, whole, alike } };
}

function Less({ grid, whole, exactly }: { grid: Grid; whole: Tensor; exactly: boolean }) {
  const max = largestDifference(whole);
  return (
    <>
      <Matrix grid={grid} title={grid.name} maxHeight={520} />
      {max ? (
        <p class="small" data-parting={`${max.row},${max.col}`}>
          {max.value === 0
            ? "They are the same in every cell."
            : `They part max at ${grid.rowLabels[max.row]} · ${grid.colLabels[max.col]}: ${formatNumber(max.value, 3)}. The mean size of a difference is ${formatNumber(max.mean, 3)}.`}
        </p>
      ) : null}
      {exactly ? null : <p class="small muted">The tokens differ: cells at the same places are subtracted, whatever words stand there.</p>}
    </>
  );
}

function Unlike({ a, b }: { a: Tensor; b: Tensor }) {
  return (
    <div class="state error" role="status" data-unlike>
      <p>
        These cannot be subtracted: {a.shape.join(" × ")} cells against {b.shape.join(" × ")}.
      </p>
      <p class="muted">Take two heads of the same kind of attention, two texts with as many tokens, or let the second model read the first one’s output.</p>
    </div>
  );
}
