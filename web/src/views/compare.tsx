// Compare: two sentences, two heads or two models side by side, and one less the other in signed colour. What cannot be
// subtracted says so.
import { useMemo } from "preact/hooks";
import { source, type Manifest, type ModelCard, type Tensor } from "../api";
import { placeKey } from "../operands";
import { bothLabels, difference, parting } from "../differ";
import { present, useLoaded } from "../hooks";
import { WithInspector } from "../inspector";
import type { Cell, Grid } from "../matrix/grid";
import { Matrix } from "../matrix/Matrix";
import { short } from "../numbers";
import { examplesOf, questionOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionGrid, attentionNamed, attentionStep, title, type Attention, type Step } from "../structure";
import { Choice, Failed, Waiting } from "../ui";
import { attentionOptions, headOptions, Line, Pick } from "./choose";
import { Sentence } from "./sentence";

const AGAINST = [
  ["heads", "Two heads"],
  ["sentences", "Two sentences"],
  ["models", "Two models"],
] as const;

const STEPS = [
  ["scores", "scores"],
  ["scaled", "÷ √d"],
  ["masked", "mask"],
  ["weights", "softmax"],
] as const;

const OTHER = "I like eating mangoes"; // as many tokens as the bundled model's first example

/** What stands on one side. */
interface Side {
  card: ModelCard;
  manifest: Manifest;
  attention: Attention;
  head: number;
  values: Tensor;
}

const headName = (head: number): string => (head < 0 ? "mean over the heads" : `head ${head}`);

/** All models, and each at its snapshots: "bundled@512". */
function modelOptions(models: readonly ModelCard[]): [string, string][] {
  return models
    .filter(({ kind }) => kind !== "encoder")
    .flatMap(({ name, snapshots }) => [
      [name, name] as [string, string],
      ...snapshots.map((step): [string, string] => [`${name}@${step}`, `${name}, step ${step.toLocaleString("en")}`]),
    ]);
}

function named(models: readonly ModelCard[], key: string): { card: ModelCard; step?: number } | null {
  const whole = models.find(({ name }) => name === key);
  if (whole) return { card: whole };
  const cut = key.lastIndexOf("@");
  const card = models.find(({ name }) => name === key.slice(0, cut));
  const step = Number(key.slice(cut + 1));
  return card && card.snapshots.includes(step) ? { card, step } : null;
}

export function Compare() {
  const { models, card, text, manifest, error } = useSession();
  const state = useAddress();
  const against = source.live ? (AGAINST.find(([key]) => key === state.against)?.[0] ?? "heads") : "heads";
  const step = (STEPS.find(([key]) => key === state.step)?.[0] ?? "weights") as Step;
  const attention = attentionNamed(card, state.attention);
  const choices = modelOptions(models);
  const other = (against === "models" && named(models, state.model2)) || null;
  const last = card.snapshots.length ? `${card.name}@${card.snapshots[card.snapshots.length - 1]}` : card.name;
  const fallback = models.find((one) => one.kind === card.kind && one.name !== card.name)?.name ?? last;
  const held = against === "models" && state.held === 1;
  const second = against === "models" ? (other ?? named(models, fallback)!) : { card };
  const text2 = against === "sentences" ? state.text2 || (examplesOf(card).length ? OTHER : text) : text;
  const attention2 = attentionNamed(second.card, against === "heads" && state.attention2 ? state.attention2 : attention.name);
  const most2 = second.card.config.model.heads - 1;
  const head2 = Math.min(most2, against === "heads" ? state.head2 : state.head);

  const loaded = useLoaded(
    manifest
      ? async (signal): Promise<[Side, Side]> => {
          const question = {
            ...questionOf(state, second.card, text2),
            ...(second.step === undefined ? {} : { step: second.step }),
            ...(held ? { target: manifest.output, search: "greedy" } : {}),
          };
          const theirs = against === "heads" ? manifest : await source.explain(question, signal);
          const [a, b] = await Promise.all([
            attentionStep(manifest, attention, state.head, step),
            attentionStep(theirs, attention2, head2, step),
          ]);
          return [
            { card, manifest, attention, head: state.head, values: a },
            { card: second.card, manifest: theirs, attention: attention2, head: head2, values: b },
          ];
        }
      : null,
    [manifest?.id, against, attention.name, state.head, attention2.name, head2, step, second.card.name, second.step, text2, held],
  );
  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  const sides = present(loaded);
  return (
    <div class="stack">
      <Sentence />
      <section class="card stack">
        <div class="controls">
          {source.live ? (
            <Choice label="what is compared" options={AGAINST} value={against} onChange={(next) => go({ against: next, cell: "" })} />
          ) : (
            <p class="small soft">Two heads of this sentence. Other sentences and models need the model itself: run seq2see explore.</p>
          )}
          <Choice label="step" options={STEPS} value={step as "scores"} onChange={(next) => go({ step: next, cell: "" })} />
        </div>
        {against === "sentences" ? (
          <Line label="The other sentence" value={text2} onChange={(value) => go({ text2: value })} />
        ) : null}
        {against === "models" && choices.length < 2 ? (
          <p class="small soft">There is one model, and it has no snapshots: start seq2see explore with --model twice.</p>
        ) : null}
        <div class="two">
          <div class="controls">
            <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={(name) => go({ attention: name, cell: "" })} />
            <Pick label="head" value={state.head} options={headOptions(card, "mean")} onChange={(head) => go({ head, cell: "" })} />
          </div>
          <div class="controls">
            {against === "heads" ? (
              <>
                <Pick label="other attention" value={attention2.name} options={attentionOptions(card)} onChange={(name) => go({ attention2: name, cell: "" })} />
                <Pick label="other head" value={head2} options={headOptions(card, "mean")} onChange={(head) => go({ head2: head, cell: "" })} />
              </>
            ) : null}
            {against === "models" ? (
              <Pick
                label="other model"
                value={second.step === undefined ? second.card.name : `${second.card.name}@${second.step}`}
                options={choices}
                onChange={(key) => go({ model2: key, cell: "" })}
              />
            ) : null}
            {against === "models" ? (
              <Pick
                label="it reads"
                value={held ? 1 : 0}
                options={[
                  [0, "its own output"],
                  [1, "the first one’s output"],
                ]}
                onChange={(next) => go({ held: next, cell: "" })}
              />
            ) : null}
          </div>
        </div>
      </section>
      {loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
      {sides ? <Sides sides={sides} step={step} against={against} name2={second.step === undefined ? second.card.name : `${second.card.name} at step ${second.step}`} /> : loaded.state === "failed" ? null : <Waiting what="both sides" />}
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
  const { manifest } = useSession();
  const { cell } = useAddress();
  const grids = useMemo(() => sidesGrids(sides, step), [sides]);
  const [a, b] = sides;
  const names =
    against === "heads"
      ? [`${title(a.attention)}, ${headName(a.head)}`, `${title(b.attention)}, ${headName(b.head)}`]
      : against === "sentences"
        ? [a.manifest.text, b.manifest.text]
        : [a.card.name, name2];
  // Only the text of the page can be audited: the other side's weights and trace are another's.
  const audited = (side: Side, grid: Grid) => {
    if (side.head < 0 || side.manifest.id !== manifest?.id) return { grid };
    const name = `${side.attention.name}.${step}`;
    const [place, index] = cell.split(":");
    const [head, row, col] = (index ?? "").split(",").map(Number);
    return {
      grid,
      selected: place === name && head === side.head ? { row, col } : null,
      onSelect: ({ row, col }: Cell) => go({ cell: placeKey({ name, index: [side.head, row, col] }) }),
    };
  };
  return (
    <WithInspector>
      <div class="two">
        {sides.map((side, i) => (
          <section class="card" key={i} data-side={i}>
            <div class="lead tight">
              <div>
                <h2>{names[i]}</h2>
                {against === "heads" ? null : <p class="accent">{side.manifest.output}</p>}
              </div>
            </div>
            <Matrix {...audited(side, grids.both[i])} title={`${side.attention.name}.${step}`} tallest={440} />
          </section>
        ))}
      </div>
      <section class="card">
        <div class="lead tight">
          <div>
            <h2>The first less the second</h2>
            <p class="soft small">Violet: more on the first side. Orange: more on the second.</p>
          </div>
        </div>
        {grids.less ? <Less grid={grids.less.grid} whole={grids.less.whole} exactly={grids.less.alike} /> : <Unlike a={a.values} b={b.values} />}
      </section>
    </WithInspector>
  );
}

function sidesGrids([a, b]: [Side, Side], step: Step) {
  const own = [a, b].map((side) =>
    attentionGrid(side.manifest, side.attention, step, side.values, `${side.attention.name}.${step} ${side.head < 0 ? "mean" : `head ${side.head}`}`),
  );
  const most = step === "weights" ? 1 : Math.max(...own.flatMap(({ data }) => Array.from(data, (x) => (Number.isFinite(x) ? Math.abs(x) : 0))));
  const both = own.map((grid): Grid => ({ ...grid, most })); // one scale for both
  const whole = difference(a.values, b.values);
  if (!whole) return { both, less: null };
  const [rowLabels, colLabels] = [bothLabels(own[0].rowLabels, own[1].rowLabels), bothLabels(own[0].colLabels, own[1].colLabels)];
  const alike = rowLabels.every((label, i) => label === own[0].rowLabels[i]) && colLabels.every((label, i) => label === own[0].colLabels[i]);
  const grid: Grid = { ...own[0], name: `${own[0].name} less ${own[1].name}`, data: whole.data, rowLabels, colLabels, scale: "diverging" };
  delete grid.most;
  return { both, less: { grid, whole, alike } };
}

function Less({ grid, whole, exactly }: { grid: Grid; whole: Tensor; exactly: boolean }) {
  const most = parting(whole);
  return (
    <>
      <Matrix grid={grid} title={grid.name} tallest={520} />
      {most ? (
        <p class="small" data-parting={`${most.row},${most.col}`}>
          {most.value === 0
            ? "They are the same in every cell."
            : `They part most at ${grid.rowLabels[most.row]} · ${grid.colLabels[most.col]}: ${short(most.value, 3)}. The mean size of a difference is ${short(most.mean, 3)}.`}
        </p>
      ) : null}
      {exactly ? null : <p class="small soft">The tokens differ: cells at the same places are subtracted, whatever words stand there.</p>}
    </>
  );
}

function Unlike({ a, b }: { a: Tensor; b: Tensor }) {
  return (
    <div class="state failed" role="status" data-unlike>
      <p>
        These cannot be subtracted: {a.shape.join(" × ")} cells against {b.shape.join(" × ")}.
      </p>
      <p class="soft">Take two heads of the same kind of attention, two texts with as many tokens, or let the second model read the first one’s output.</p>
    </div>
  );
}
