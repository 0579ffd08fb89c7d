// A panel shows one tensor of the trace as a matrix: of one head if it has heads. It maps its cells to cells of the tensor, so
// that a clicked cell can be inspected, and the operands of an inspected cell are highlighted wherever they are shown.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { isLargeVocabulary, type ModelInfo, type Trace, tensor, topTokensOf, vocabularyOf } from "./api";
import { isOverOutput, keyValueHeads, rowLabels, rowTokens, selectedHead, tokenTexts, weightScale } from "./architecture";
import { canAudit } from "./audit/audit";
import { type Audit, type CellRef, formatCellRef, parseCellRef } from "./audit/cells";
import { latestValue, useAsync } from "./hooks";
import type { Cell, Grid, Highlight } from "./matrix/grid";
import { Matrix } from "./matrix/matrix";
import { useSession } from "./session";
import { ErrorMessage, Loading } from "./ui";
import { navigate, useUrlState } from "./url-state";

export interface Panel {
  name: string;
  grid: Grid;
  toRef: (cell: Cell) => CellRef;
  fromRef: (ref: CellRef) => Cell | null; // null if the panel does not show it
}

/** The layouts of a tensor: [tokens], [tokens, width], [tokens, heads, width] or [heads, queries, keys]. */
type Layout = "tokens" | "vectors" | "heads" | "attention";

function layoutOf(axes: readonly string[]): Layout {
  if (axes.length === 1) return "tokens";
  if (axes.length === 2) return "vectors";
  return axes[0] === "head" ? "attention" : "heads";
}

const AXIS_LABELS: Record<string, string> = {
  "head width": "dimension",
  width: "dimension",
  "inner width": "unit",
  "heads × head width": "dimension",
};

/** The head of keys and values that belongs to this query head. */
const tensorHead = (model: ModelInfo, axes: readonly string[], head: number): number =>
  axes[0] === "key token" ? Math.floor(head / (model.config.model.heads / keyValueHeads(model.config.model))) : head;

/** The logits or probabilities of the most likely tokens of a large vocabulary. */
async function loadTopTokens(trace: Trace, name: "logits" | "probabilities"): Promise<Panel> {
  const top = await topTokensOf(trace.id);
  const isProbability = name === "probabilities";
  const grid: Grid = {
    name: `${name} of the ${top.ids.length} most likely tokens`,
    rows: top[name].length,
    cols: top.ids.length,
    data: Float32Array.from(top[name].flat()),
    rowLabels: rowLabels(trace, name),
    colLabels: top.tokens,
    rowAxis: "token",
    colAxis: "vocabulary",
    scale: isProbability ? "sequential" : "diverging",
    ...(isProbability ? { max: 1 } : {}),
  };
  return {
    name,
    grid,
    toRef: ({ row, col }) => ({ name, index: [row, top.ids[col]] }),
    fromRef: (ref) => {
      const col = ref.name === name ? top.ids.indexOf(ref.index[1]) : -1;
      return col < 0 ? null : { row: ref.index[0], col };
    },
  };
}

export async function loadPanel(model: ModelInfo, trace: Trace, name: string, urlHead: number): Promise<Panel> {
  const info = trace.tensors.find((candidate) => candidate.name === name);
  if (!info) throw new Error(`this model has no tensor ${name}`);
  if ((name === "logits" || name === "probabilities") && isLargeVocabulary(model)) return loadTopTokens(trace, name);
  const layout = layoutOf(info.axes);
  const head = tensorHead(model, info.axes, Math.max(0, selectedHead(model, urlHead)));
  const hasHeads = info.shape[info.axes.indexOf("head")] > 1;
  const index = layout === "attention" ? `${head}` : layout === "heads" ? `:,${head}` : "";
  const values = await tensor(trace.id, name, index);
  const tokens = rowTokens(trace, name);
  const keys = name.includes(".cross.") ? trace.source_tokens : tokens;
  const lastAxis = info.axes[info.axes.length - 1];
  const [rows, cols] = layout === "tokens" ? [values.shape[0], 1] : values.shape;
  const colLabels =
    layout === "attention"
      ? tokenTexts(keys)
      : lastAxis === "vocabulary"
        ? (await vocabularyOf(model.name)).target
        : cols === 1
          ? []
          : Array.from({ length: cols }, (_, i) => String(i));
  const isProbability = name.endsWith(".weights") || name === "probabilities";
  const grid: Grid = {
    name: `${name}${hasHeads ? ` head ${head}` : ""}`,
    rows,
    cols,
    data: values.data,
    rowLabels: rowLabels(trace, name),
    colLabels,
    rowAxis: layout === "attention" ? "query" : "token",
    colAxis: AXIS_LABELS[lastAxis] ?? lastAxis,
    scale: isProbability ? "sequential" : "diverging",
    ...(isProbability
      ? { ...(layout === "attention" ? weightScale(cols) : { max: 1 }), causal: name.endsWith(".masked.weights") }
      : {}),
  };
  return {
    name,
    grid,
    toRef: ({ row, col }) => {
      if (layout === "attention") return { name, index: [head, row, col] };
      if (layout === "heads") return { name, index: [row, head, col] };
      return { name, index: layout === "tokens" ? [row] : [row, col] };
    },
    fromRef: (ref) => {
      if (ref.name !== name) return null;
      const [a, b, c] = ref.index;
      if (layout === "attention") return a === head ? { row: b, col: c } : null;
      if (layout === "heads") return b === head ? { row: a, col: c } : null;
      return { row: a, col: b ?? 0 };
    },
  };
}

export const AuditContext = createContext<Audit | null>(null);

/** The parts of a panel that are operands of an audit. */
export function highlightsFor(audit: Audit, panel: Panel): Highlight[] {
  const cells = audit.scalars.flatMap(({ cell }) => (cell ? [panel.fromRef(cell)] : [])).filter((cell) => cell !== null);
  const vectors = audit.vectors.flatMap(({ cellAt, values }): Highlight[] => {
    const found = cellAt ? Array.from(values, (_, i) => cellAt(i)).flatMap((ref) => (ref && panel.fromRef(ref)) ?? []) : [];
    const [first, last] = [found[0], found[found.length - 1]];
    if (!first) return [];
    if (first.row === last.row && first.col === last.col) return [first];
    return [first.row === last.row ? { row: first.row } : { col: first.col }];
  });
  return [...cells, ...vectors];
}

interface TensorPanelProps {
  name: string;
  title?: string;
  row?: number; // to highlight
  max?: number | undefined; // of the colour scale, if it is shared with other panels
  maxHeight?: number;
  maxCellWidth?: number;
}

export function TensorPanel({ name, title, row = -1, max, maxHeight = 420, maxCellWidth = 56 }: TensorPanelProps) {
  const { model, trace } = useSession();
  const { head, cell } = useUrlState();
  const audit = useContext(AuditContext);
  const loaded = useAsync(trace ? () => loadPanel(model, trace, name, head) : null, [model.name, trace?.id, name, head]);
  const panel = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  if (!panel || panel.name !== name) return <Loading what={name} />;
  const inspected = parseCellRef(cell);
  const selected = inspected && panel.fromRef(inspected);
  const highlights = audit ? highlightsFor(audit, panel) : row >= 0 && row < panel.grid.rows ? [{ row }] : [];
  return (
    <Matrix
      grid={max === undefined || panel.grid.max !== undefined ? panel.grid : { ...panel.grid, max }}
      title={title ?? panel.grid.name}
      selected={selected}
      highlights={highlights}
      maxHeight={maxHeight}
      maxCellWidth={maxCellWidth}
      onSelect={(next) =>
        canAudit(model, name) &&
        navigate({ cell: formatCellRef(panel.toRef(next)), ...(isOverOutput(trace!, name) ? { row: next.row } : {}) })
      }
    />
  );
}
