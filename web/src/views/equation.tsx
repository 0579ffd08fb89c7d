// The equation of a stage of Walk: its operands, learned matrices and result side by side, small enough for one screen.
import { type ModelInfo, type Tensor, type Trace, weight, weightInfosOf } from "../api";
import { keyValueHeads, selectedHead } from "../architecture";
import { latestValue, useAsync } from "../hooks";
import type { Grid } from "../matrix/grid";
import { scaleText, Thumbnail } from "../matrix/matrix";
import { useSession, useTrace } from "../session";
import type { Equation, Term } from "../stages/equations";
import { loadPanel } from "../tensor-panel";
import { useUrlState } from "../url-state";

interface Picture {
  grid: Grid;
  shape: string; // of the whole matrix
}

export function Equations({ equations, max }: { equations: readonly Equation[]; max: number | undefined }) {
  if (!equations.length) return null;
  return (
    <div class="equations">
      {equations.map((equation, i) => (
        <div
          class="equation"
          key={i}
          role="img"
          aria-label={equation.map((term) => (typeof term === "string" ? term : term.label)).join(" ")}
        >
          {equation.map((term, k) =>
            typeof term === "string" ? (
              <span class={/^[·+=→,]$/.test(term) ? "operator" : "operator word"} key={k}>
                {term}
              </span>
            ) : (
              <Operand key={k} term={term} max={max} small={equations.length > 1} />
            ),
          )}
        </div>
      ))}
      <p class="small muted">
        Below each matrix: its size and its colour scale.{" "}
        {max === undefined ? "Every matrix has a scale of its own." : "The matrices of this step share one scale."} Framed:
        learned.
      </p>
    </div>
  );
}

function Operand({ term, max, small }: { term: Exclude<Term, string>; max: number | undefined; small: boolean }) {
  const { model } = useSession();
  const trace = useTrace();
  const { head } = useUrlState();
  const key = JSON.stringify(term);
  const loaded = useAsync(
    async () => ({ key, picture: await loadPicture(model, trace, term, head) }),
    [trace.id, model.name, key, head],
  );
  const latest = latestValue(loaded);
  const picture = latest?.key === key ? latest.picture : null;
  const isLearned = "symbol" in term;
  if (loaded.state === "failed") return <span class="operand">{term.label}</span>; // such as a weight that an exported file does not contain
  const grid =
    picture && max !== undefined && !isLearned && picture.grid.scale === "diverging" ? { ...picture.grid, max } : picture?.grid;
  return (
    <span class={`operand${isLearned ? " learned" : ""}`}>
      <b>{term.label}</b>
      {grid ? (
        <span
          style={{
            width: `${Math.min(side(grid.cols, small), 18.5)}rem`,
            height: `${Math.min(side(grid.rows, small), 12)}rem`,
          }}
        >
          <Thumbnail grid={grid} />
        </span>
      ) : null}
      <small data-shape>{picture?.shape ?? " "}</small>
      <small data-scale>{grid ? scaleText(grid) : " "}</small>
    </span>
  );
}

/** In rem; grows more slowly than the size, so that 6 rows and 512 columns are both legible. */
const side = (count: number, small: boolean): number => count ** 0.4 * (small ? 1.15 : 2.1);

async function loadPicture(model: ModelInfo, trace: Trace, term: Exclude<Term, string>, head: number): Promise<Picture> {
  if ("symbol" in term) return loadWeight(model, term, head);
  const { grid } = await loadPanel(model, trace, term.tensor, head);
  const shown = term.transposed
    ? { ...grid, rows: grid.cols, cols: grid.rows, data: transpose(grid.data, grid.rows, grid.cols) }
    : grid;
  return { grid: shown, shape: `${shown.rows.toLocaleString("en")} × ${shown.cols.toLocaleString("en")}` };
}

const MAX_SIDE = 192; // rows and columns of a learned matrix that are fetched and drawn

/** A learned matrix as the formulas use it, with one column per output: the transpose of torch's. Of one head, if the term is. */
async function loadWeight(
  model: ModelInfo,
  { symbol, component, byHead, asTable }: Extract<Term, { symbol: string }>,
  head: number,
): Promise<Picture> {
  const info = (await weightInfosOf(model.name)).find(
    (one) =>
      one.component === component && one.shape.length === 2 && (!symbol || one.symbols.some((part) => part.symbol === symbol)),
  );
  const part = info?.symbols.find((one) => !symbol || one.symbol === symbol);
  if (!info || !part) throw new Error(`this model has no ${symbol}`);
  const { heads } = model.config.model;
  const count = byHead ? (symbol === "W_Q" ? heads : keyValueHeads(model.config.model)) : 1;
  const size = (part.stop - part.start) / count;
  const start = part.start + (byHead ? Math.floor((Math.max(0, selectedHead(model, head)) * count) / heads) : 0) * size;
  const [rows, cols] = [Math.min(size, MAX_SIDE), Math.min(info.shape[1], MAX_SIDE)];
  const values = await weight(model.name, info.name, `${start}:${start + rows},0:${cols}`);
  const sizes = [size, info.shape[1]].map((count) => count.toLocaleString("en"));
  if (asTable) return { grid: matrix(values.data, rows, cols), shape: sizes.join(" × ") };
  return { grid: matrix(transpose(values.data, rows, cols), cols, rows), shape: sizes.reverse().join(" × ") };
}

const matrix = (data: ArrayLike<number>, rows: number, cols: number): Grid => ({
  name: "",
  rows,
  cols,
  data,
  rowLabels: [],
  colLabels: [],
  rowAxis: "",
  colAxis: "",
  scale: "diverging",
});

function transpose(data: ArrayLike<number>, rows: number, cols: number): Tensor["data"] {
  return Float32Array.from({ length: rows * cols }, (_, i) => data[(i % rows) * cols + Math.floor(i / rows)]);
}
