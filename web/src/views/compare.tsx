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
import { attentionGrid, attentionNamed, attentions, attentionStep, chosenHead, gridName, structureOf, titleOf, type Attention, type Step } from "../structure";
import { Choice, Failed, Waiting } from "../ui";
import { attentionOptions, HeadPick, Line, NoAttention, Pick } from "./choose";
import { NeedsModel } from "./intervene";
import { Sentence } from "./sentence";

const AGAINST = [
  ["heads", "Two heads"],
  ["sentences", "Two sentences"],
  ["models", "Two models"],
] as const;

const OTHER = "I like eating mangoes"; // as many tokens as the bundled model's first example

/** What stands on one side. */
interface Side {
  card: ModelCard;
  manifest: Manifest;
  looked: Looked | null; // a model without attention has only its output
}

interface Looked {
  attention: Attention;
  head: number;
  values: Tensor;
}

async function lookedAt(manifest: Manifest, attention: Attention | null, head: number, step: Step): Promise<Looked | null> {
  return attention && { attention, head, values: await attentionStep(manifest, attention, head, step) };
}

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
  const several = attentions(card).length * card.config.model.heads > 1;
  const ways = AGAINST.filter(([key]) => (key === "heads" ? several : source.live));
  const against = (ways.find(([key]) => key === state.against) ?? ways[0] ?? AGAINST[0])[0];
  const attention = attentionNamed(card, state.attention);
  const head = chosenHead(card, state.head);
  const choices = modelOptions(models);
  const other = (against === "models" && named(models, state.model2)) || null;
  const last = card.snapshots.length ? `${card.name}@${card.snapshots[card.snapshots.length - 1]}` : card.name;
  const fallback = models.find((one) => one.kind === card.kind && one.name !== card.name)?.name ?? last;
  const held = against === "models" && state.held === 1;
  const second = against === "models" ? (other ?? named(models, fallback)!) : { card };
  const text2 = against === "sentences" ? state.text2 || (examplesOf(card).length ? OTHER : text) : text;
  // Models that are built alike are looked at in the same place.
  const apart = against === "heads" || attentionOptions(card).join() !== attentionOptions(second.card).join();
  const attention2 = attentionNamed(second.card, (apart && state.attention2) || (attention?.name ?? ""));
  const head2 = chosenHead(second.card, against === "heads" ? state.head2 : state.head);
  const theirSteps = structureOf(second.card).steps.map(([key]) => key);
  const steps = structureOf(card).steps.filter(([key]) => theirSteps.includes(key)); // in both
  const step = steps.find(([key]) => key === state.step)?.[0] ?? "weights";

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
            lookedAt(manifest, attention, head, step),
            lookedAt(theirs, attention2, head2, step),
          ]);
          return [
            { card, manifest, looked: a },
            { card: second.card, manifest: theirs, looked: b },
          ];
        }
      : null,
    [manifest?.id, against, attention?.name, head, attention2?.name, head2, step, second.card.name, second.step, text2, held],
  );
  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  if (!ways.length) return <NeedsModel view="Compare" why="Here are no two heads to compare; other sentences go through the model once more" />;
  const sides = present(loaded);
  return (
    <div class="stack">
      <Sentence />
      <section class="card stack">
        <div class="controls">
          {source.live ? (
            <Choice label="what is compared" options={ways} value={against} onChange={(next) => go({ against: next, cell: "" })} />
          ) : (
            <p class="small soft">Two heads of this sentence. Other sentences and models need the model itself: run seq2see explore.</p>
          )}
          {attention && attention2 && steps.length > 1 ? <Choice label="step" options={steps} value={step} onChange={(next) => go({ step: next, cell: "" })} /> : null}
        </div>
        {against === "sentences" ? (
          <Line label="The other sentence" value={text2} onChange={(value) => go({ text2: value })} />
        ) : null}
        {against === "models" && choices.length < 2 ? (
          <p class="small soft">There is one model, and it has no snapshots: start seq2see explore with --model twice.</p>
        ) : null}
        <div class="two">
          <div class="controls">
            {attention ? (
              <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={(name) => go({ attention: name, cell: "" })} />
            ) : null}
            {attention ? <HeadPick card={card} all="mean" value={head} onChange={(next) => go({ head: next, cell: "" })} /> : null}
          </div>
          <div class="controls">
            {against === "models" ? (
              <Pick
                label="other model"
                value={second.step === undefined ? second.card.name : `${second.card.name}@${second.step}`}
                options={choices}
                onChange={(key) => go({ model2: key, cell: "" })}
              />
            ) : null}
            {apart && attention2 ? (
              <Pick label="other attention" value={attention2.name} options={attentionOptions(second.card)} onChange={(name) => go({ attention2: name, cell: "" })} />
            ) : null}
            {against === "heads" && attention2 ? (
              <HeadPick card={card} label="other head" all="mean" value={head2} onChange={(next) => go({ head2: next, cell: "" })} />
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
      ? sides.map(({ card, looked }) => (looked ? titleOf(card, looked.attention, looked.head) : card.name))
      : against === "sentences"
        ? [a.manifest.text, b.manifest.text]
        : [a.card.name, name2];
  // Only the text of the page can be audited: the other side's weights and trace are another's.
  const audited = (side: Side, looked: Looked, grid: Grid) => {
    if (looked.head < 0 || side.manifest.id !== manifest?.id) return { grid };
    const name = `${looked.attention.name}.${step}`;
    const [place, index] = cell.split(":");
    const [head, row, col] = (index ?? "").split(",").map(Number);
    return {
      grid,
      selected: place === name && head === looked.head ? { row, col } : null,
      onSelect: ({ row, col }: Cell) => go({ cell: placeKey({ name, index: [looked.head, row, col] }) }),
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
            {side.looked ? (
              <Matrix {...audited(side, side.looked, grids.own[i]!)} title={`${side.looked.attention.name}.${step}`} tallest={440} />
            ) : a.looked || b.looked ? (
              <NoAttention card={side.card} />
            ) : null}
          </section>
        ))}
      </div>
      {a.looked && b.looked ? (
        <section class="card">
          <div class="lead tight">
            <div>
              <h2>The first less the second</h2>
              <p class="soft small">Violet: more on the first side. Orange: more on the second.</p>
            </div>
          </div>
          {grids.less ? <Less grid={grids.less.grid} whole={grids.less.whole} exactly={grids.less.alike} /> : <Unlike a={a.looked.values} b={b.looked.values} />}
        </section>
      ) : a.looked || b.looked ? null : (
        <section class="card">
          <NoAttention card={a.card} />
        </section>
      )}
    </WithInspector>
  );
}

/** What each side shows, on one scale, and where both can be subtracted, the difference. */
function sidesGrids(sides: [Side, Side], step: Step) {
  const plain = sides.map(({ card, manifest, looked }) =>
    looked ? attentionGrid(manifest, looked.attention, step, looked.values, gridName(card, looked.attention, step, looked.head)) : null,
  );
  const sizes = plain.flatMap((grid) => (grid ? Array.from(grid.data, (x) => (Number.isFinite(x) ? Math.abs(x) : 0)) : []));
  const most = step === "weights" ? 1 : sizes.reduce((a, b) => Math.max(a, b), 0);
  const own = plain.map((grid) => grid && { ...grid, most });
  const [a, b] = plain;
  const whole = a && b ? difference(sides[0].looked!.values, sides[1].looked!.values) : null;
  if (!a || !b || !whole) return { own, less: null };
  const [rowLabels, colLabels] = [bothLabels(a.rowLabels, b.rowLabels), bothLabels(a.colLabels, b.colLabels)];
  const alike = rowLabels.every((label, i) => label === a.rowLabels[i]) && colLabels.every((label, i) => label === a.colLabels[i]);
  const grid: Grid = { ...a, name: `${a.name} less ${b.name}`, data: whole.data, rowLabels, colLabels, scale: "diverging" };
  delete grid.most;
  return { own, less: { grid, whole, alike } };
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
