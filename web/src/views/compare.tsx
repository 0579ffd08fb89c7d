// Compare: two heads, two sentences or two models side by side, and the difference of their attention if the shapes are equal.
import { useMemo } from "preact/hooks";
import { type ModelInfo, source, type Tensor, type Trace } from "../api";
import {
  type Attention,
  architectureOf,
  attentionGrid,
  attentions,
  findAttention,
  headTitle,
  loadAttention,
  matrixName,
  type Step,
  selectedHead,
} from "../architecture";
import { formatCellRef, parseCellRef } from "../audit/cells";
import { difference, largestDifference, mergeLabels } from "../difference";
import { formatNumber } from "../format";
import { latestValue, useAsync } from "../hooks";
import { InspectorLayout } from "../inspector";
import type { Cell, Grid } from "../matrix/grid";
import { Matrix } from "../matrix/matrix";
import { examplesFor, explainOptions, useSession, useTrace } from "../session";
import { ErrorMessage, Loading, SegmentedControl, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { attentionOptions, HeadSelect, NoAttention, SelectField, TextField } from "./controls";
import { NeedsModel } from "./intervene";

const COMPARISONS = [
  ["models", "Two models or snapshots"],
  ["sentences", "Two sentences"],
  ["heads", "Two heads"],
] as const;

interface Side {
  model: ModelInfo;
  trace: Trace;
  attention: LoadedAttention | null; // null for a model without attention
}

interface LoadedAttention {
  attention: Attention;
  head: number;
  values: Tensor;
}

async function loadSide(trace: Trace, attention: Attention | null, head: number, step: Step): Promise<LoadedAttention | null> {
  return attention && { attention, head, values: await loadAttention(trace, attention, head, step) };
}

/** All models and their snapshots, which are named "en-hi@512". */
function modelOptions(models: readonly ModelInfo[]): [string, string][] {
  return models
    .filter(({ kind }) => kind !== "encoder")
    .flatMap(({ name, snapshots }) => [
      [name, name] as [string, string],
      ...snapshots.map((step): [string, string] => [`${name}@${step}`, `${name}, step ${step.toLocaleString("en")}`]),
    ]);
}

function findModel(models: readonly ModelInfo[], key: string): { model: ModelInfo; step?: number } | null {
  const exact = models.find(({ name }) => name === key);
  if (exact) return { model: exact };
  const at = key.lastIndexOf("@");
  const model = models.find(({ name }) => name === key.slice(0, at));
  const step = Number(key.slice(at + 1));
  return model?.snapshots.includes(step) ? { model, step } : null;
}

export function Compare() {
  const { models, model, text } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const hasSeveralHeads = attentions(model).length * model.config.model.heads > 1;
  const choices = modelOptions(models);
  const options = COMPARISONS.filter(([key]) =>
    key === "heads" ? hasSeveralHeads : source.live && (key === "sentences" || choices.length > 1),
  );
  const comparison = (options.find(([key]) => key === state.compare) ?? options[0] ?? COMPARISONS[0])[0];
  const attention = findAttention(model, state.attention);
  const head = selectedHead(model, state.head);
  const selected = (comparison === "models" && findModel(models, state.model2)) || null;
  // Half-way through the training (the snapshots are spaced logarithmically) the model differs visibly from the final one.
  const middle = model.snapshots[Math.floor(model.snapshots.length / 2)];
  const fallback =
    middle === undefined
      ? (models.find(({ kind, name }) => kind === model.kind && name !== model.name)?.name ?? model.name)
      : `${model.name}@${middle}`;
  const forced = comparison === "models" && state.forced === 1;
  const second = comparison === "models" ? (selected ?? findModel(models, fallback)!) : { model };
  const text2 = comparison === "sentences" ? state.text2 || (examplesFor(model)[1] ?? text) : text;
  // Models of the same architecture share one choice of attention.
  const separate = comparison === "heads" || attentionOptions(model).join() !== attentionOptions(second.model).join();
  const attention2 = findAttention(second.model, (separate && state.attention2) || (attention?.name ?? ""));
  const head2 = selectedHead(second.model, comparison === "heads" ? state.head2 : state.head);
  const secondSteps = architectureOf(second.model).steps.map(([key]) => key);
  const steps = architectureOf(model).steps.filter(([key]) => secondSteps.includes(key)); // common to both
  const step = steps.find(([key]) => key === state.step)?.[0] ?? "weights";

  const loaded = useAsync(
    trace
      ? async (signal): Promise<[Side, Side]> => {
          const request = {
            ...explainOptions(state, second.model, text2),
            ...(second.step === undefined ? {} : { step: second.step }),
            ...(forced ? { target: trace.output, search: "greedy" } : {}),
          };
          const secondTrace = comparison === "heads" ? trace : await source.explain(request, signal);
          const [a, b] = await Promise.all([
            loadSide(trace, attention, head, step),
            loadSide(secondTrace, attention2, head2, step),
          ]);
          return [
            { model, trace, attention: a },
            { model: second.model, trace: secondTrace, attention: b },
          ];
        }
      : null,
    [
      trace?.id,
      comparison,
      attention?.name,
      head,
      attention2?.name,
      head2,
      step,
      second.model.name,
      second.step,
      text2,
      forced,
    ],
  );
  if (!options.length) return <NeedsModel view="Compare" reason="Comparing sentences or models requires running the model" />;
  const sides = latestValue(loaded);
  return (
    <div class="stack">
      <section class="card stack">
        <div class="controls">
          {source.live ? (
            <SegmentedControl
              label="comparison"
              options={options}
              value={comparison}
              onChange={(next) => navigate({ compare: next, cell: "" })}
            />
          ) : (
            <p class="small muted">Two heads for this sentence. To compare sentences or models, run seq2see explore.</p>
          )}
          {attention && attention2 && steps.length > 1 ? (
            <SegmentedControl
              label="step"
              options={steps}
              value={step}
              onChange={(next) => navigate({ step: next, cell: "" })}
            />
          ) : null}
        </div>
        {comparison === "sentences" ? (
          <TextField label="Second sentence" value={text2} onChange={(value) => navigate({ text2: value })} />
        ) : null}
        <div class="two-columns">
          <div class="controls">
            {attention ? (
              <SelectField
                label="attention"
                value={attention.name}
                options={attentionOptions(model)}
                onChange={(name) => navigate({ attention: name, cell: "" })}
              />
            ) : null}
            {attention ? (
              <HeadSelect model={model} allLabel="mean" value={head} onChange={(next) => navigate({ head: next, cell: "" })} />
            ) : null}
          </div>
          <div class="controls">
            {comparison === "models" ? (
              <SelectField
                label="second model"
                value={second.step === undefined ? second.model.name : `${second.model.name}@${second.step}`}
                options={choices}
                onChange={(key) => navigate({ model2: key, cell: "" })}
              />
            ) : null}
            {separate && attention2 ? (
              <SelectField
                label="second attention"
                value={attention2.name}
                options={attentionOptions(second.model)}
                onChange={(name) => navigate({ attention2: name, cell: "" })}
              />
            ) : null}
            {comparison === "heads" && attention2 ? (
              <HeadSelect
                model={model}
                label="second head"
                allLabel="mean"
                value={head2}
                onChange={(next) => navigate({ head2: next, cell: "" })}
              />
            ) : null}
            {comparison === "models" ? (
              <SelectField
                label="decoder input"
                value={forced ? 1 : 0}
                options={[
                  [0, "its own output"],
                  [1, "the first model’s output"],
                ]}
                onChange={(next) => navigate({ forced: next, cell: "" })}
              />
            ) : null}
          </div>
        </div>
      </section>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {sides ? (
        <Sides
          sides={sides}
          step={step}
          comparison={comparison}
          name2={second.step === undefined ? second.model.name : `${second.model.name} at step ${second.step}`}
        />
      ) : loaded.state === "failed" ? null : (
        <Loading what="comparison" />
      )}
    </div>
  );
}

interface SidesProps {
  sides: [Side, Side];
  step: Step;
  comparison: string;
  name2: string;
}

function Sides({ sides, step, comparison, name2 }: SidesProps) {
  const { trace } = useSession();
  const { cell } = useUrlState();
  const grids = useMemo(() => buildGrids(sides, step), [sides]);
  const [a, b] = sides;
  const names =
    comparison === "heads"
      ? sides.map(({ model, attention }) => (attention ? headTitle(model, attention.attention, attention.head) : model.name))
      : comparison === "sentences"
        ? [a.trace.text, b.trace.text]
        : [a.model.name, name2];
  // Only cells of the current trace can be inspected.
  const matrixProps = (side: Side, { attention, head }: LoadedAttention, grid: Grid) => {
    if (head < 0 || side.trace.id !== trace?.id) return { grid };
    const name = `${attention.name}.${step}`;
    const inspected = parseCellRef(cell);
    const [inspectedHead, row, col] = inspected?.index ?? [];
    return {
      grid,
      selected: inspected?.name === name && inspectedHead === head ? { row, col } : null,
      onSelect: ({ row, col }: Cell) => navigate({ cell: formatCellRef({ name, index: [head, row, col] }) }),
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
                {comparison === "heads" ? null : (
                  <p class="accent side-output">
                    <Transliterated text={side.trace.output} />
                  </p>
                )}
              </div>
            </div>
            {side.attention ? (
              <Matrix
                {...matrixProps(side, side.attention, grids.sides[i]!)}
                title={`${side.attention.attention.name}.${step}`}
                maxHeight={440}
              />
            ) : a.attention || b.attention ? (
              <NoAttention model={side.model} />
            ) : null}
          </section>
        ))}
      </div>
      {a.attention && b.attention ? (
        <section class="card">
          <div class="section-header tight">
            <div>
              <h2>Difference (first − second)</h2>
              <p class="muted small">Violet: the first is larger. Orange: the second is larger.</p>
            </div>
          </div>
          {grids.difference ? (
            <Difference {...grids.difference} />
          ) : (
            <ShapeMismatch a={a.attention.values} b={b.attention.values} comparison={comparison} />
          )}
        </section>
      ) : a.attention || b.attention ? null : (
        <section class="card">
          <NoAttention model={a.model} />
        </section>
      )}
    </InspectorLayout>
  );
}

/** The matrices of both sides on a common scale, and their difference if the shapes are equal. */
function buildGrids(sides: [Side, Side], step: Step) {
  const grids = sides.map(({ model, trace, attention: loaded }) =>
    loaded
      ? attentionGrid(trace, loaded.attention, step, loaded.values, matrixName(model, loaded.attention, step, loaded.head))
      : null,
  );
  const magnitudes = grids.flatMap((grid) =>
    grid ? Array.from(grid.data, (x) => (Number.isFinite(x) ? Math.abs(x) : 0)) : [],
  );
  const max = step === "weights" ? 1 : magnitudes.reduce((a, b) => Math.max(a, b), 0);
  const scaled = grids.map((grid) => grid && { ...grid, max });
  const [a, b] = grids;
  const values = a && b ? difference(sides[0].attention!.values, sides[1].attention!.values) : null;
  if (!a || !b || !values) return { sides: scaled, difference: null };
  const [rowLabels, colLabels] = [mergeLabels(a.rowLabels, b.rowLabels), mergeLabels(a.colLabels, b.colLabels)];
  const sameTokens =
    rowLabels.every((label, i) => label === a.rowLabels[i]) && colLabels.every((label, i) => label === a.colLabels[i]);
  const grid: Grid = { ...a, name: `${a.name} minus ${b.name}`, data: values.data, rowLabels, colLabels, scale: "diverging" };
  delete grid.max;
  return { sides: scaled, difference: { grid, values, sameTokens } };
}

function Difference({ grid, values, sameTokens }: { grid: Grid; values: Tensor; sameTokens: boolean }) {
  const largest = largestDifference(values);
  return (
    <>
      <Matrix grid={grid} title={grid.name} maxHeight={520} />
      {largest ? (
        <p class="small" data-largest-difference={`${largest.row},${largest.col}`}>
          {largest.value === 0
            ? "All cells are equal."
            : `Largest difference: ${formatNumber(largest.value, 3)} at ${grid.rowLabels[largest.row]} · ${grid.colLabels[largest.col]}. Mean absolute difference: ${formatNumber(largest.mean, 3)}.`}
        </p>
      ) : null}
      {sameTokens ? null : <p class="small muted">The tokens differ: cells are subtracted by position.</p>}
    </>
  );
}

function ShapeMismatch({ a, b, comparison }: { a: Tensor; b: Tensor; comparison: string }) {
  return (
    <div class="state" data-shape-mismatch>
      <p>
        The difference is undefined: the shapes are {a.shape.join(" × ")} and {b.shape.join(" × ")}.
      </p>
      {comparison === "models" ? (
        <button class="chip active" onClick={() => navigate({ forced: 1 })}>
          give the second model the first model’s output
        </button>
      ) : (
        <p class="muted">Choose two heads of the same kind of attention, or two texts with the same number of tokens.</p>
      )}
    </div>
  );
}
