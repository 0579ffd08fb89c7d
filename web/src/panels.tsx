// A panel is one quantity of the trace as a matrix: of a head where it has heads. It knows which cell of the tensor each of its
// own cells is, so that a click can be audited and the operands of an audit light up wherever they are shown.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { tensor, tokensOf, type Manifest, type ModelCard } from "./api";
import { canAudit } from "./audit";
import { placeKey, type Audit, type Place } from "./operands";
import { present, useLoaded } from "./hooks";
import type { Cell, Grid, Lit } from "./matrix/grid";
import { Matrix } from "./matrix/Matrix";
import { useSession } from "./session";
import { go, useAddress } from "./state";
import { chosenHead, groups } from "./structure";
import { Failed, Waiting } from "./ui";

export interface Panel {
  name: string;
  grid: Grid;
  place: (cell: Cell) => Place;
  cell: (place: Place) => Cell | null;
}

type Axes = "tokens" | "vectors" | "heads" | "table";

function axesOf(axes: readonly string[]): Axes {
  if (axes.length === 1) return "tokens";
  if (axes.length === 2) return "vectors";
  return axes[0] === "head" ? "table" : "heads";
}

const SHORT: Record<string, string> = { "head width": "number", width: "number", "inner width": "unit", "heads × head width": "number" };

/** The head that keys and values have for this head of the queries. */
const headOf = (card: ModelCard, axes: readonly string[], head: number): number =>
  axes[0] === "key token" ? Math.floor(head / (card.config.model.heads / groups(card.config.model))) : head;

export async function panelOf(card: ModelCard, manifest: Manifest, name: string, wanted: number): Promise<Panel> {
  const named = manifest.tensors.find((one) => one.name === name);
  if (!named) throw new Error(`this model computes no ${name}`);
  const kind = axesOf(named.axes);
  const head = headOf(card, named.axes, Math.max(0, chosenHead(card, wanted)));
  const many = named.shape[named.axes.indexOf("head")] > 1;
  const slice = kind === "table" ? `${head}` : kind === "heads" ? `:,${head}` : "";
  const values = await tensor(manifest.id, name, slice);
  const own = name.startsWith("encoder") ? manifest.sources : manifest.reads;
  const keys = name.includes(".cross.") ? manifest.sources : own;
  const text = (tokens: readonly { text: string }[]): string[] => tokens.map((token) => token.text);
  const last = named.axes[named.axes.length - 1];
  const [rows, cols] = kind === "tokens" ? [values.shape[0], 1] : values.shape;
  const colLabels =
    kind === "table"
      ? text(keys)
      : last === "vocabulary"
        ? (await tokensOf(card.name)).target
        : cols === 1
          ? []
          : Array.from({ length: cols }, (_, i) => String(i));
  const positive = name.endsWith(".weights") || name === "probabilities";
  const grid: Grid = {
    name: `${name}${many ? ` head ${head}` : ""}`,
    rows,
    cols,
    data: values.data,
    rowLabels: text(named.axes[0] === "key token" ? keys : own),
    colLabels,
    rowAxis: kind === "table" ? "query" : "token",
    colAxis: SHORT[last] ?? last,
    scale: positive ? "sequential" : "diverging",
    ...(positive ? { most: 1, causal: name.endsWith(".masked.weights") } : {}),
  };
  return {
    name,
    grid,
    place: ({ row, col }) => ({
      name,
      index: kind === "table" ? [head, row, col] : kind === "heads" ? [row, head, col] : kind === "tokens" ? [row] : [row, col],
    }),
    cell: (place) => {
      if (place.name !== name) return null;
      const [a, b, c] = place.index;
      if (kind === "table") return a === head ? { row: b, col: c } : null;
      if (kind === "heads") return b === head ? { row: a, col: c } : null;
      return { row: a, col: b ?? 0 };
    },
  };
}

export const Audited = createContext<Audit | null>(null);

/** The parts of a panel that an audit took its operands from. */
export function litBy(audit: Audit, panel: Panel): Lit[] {
  const cells = audit.figures.flatMap(({ place }) => (place ? [panel.cell(place)] : [])).filter((cell) => cell !== null);
  const strips = audit.strips.flatMap(({ part, values }): Lit[] => {
    const found = part ? Array.from(values, (_, i) => part(i)).flatMap((place) => (place && panel.cell(place)) ?? []) : [];
    const [first, last] = [found[0], found[found.length - 1]];
    if (!first) return [];
    if (first.row === last.row && first.col === last.col) return [first];
    return [first.row === last.row ? { row: first.row } : { col: first.col }];
  });
  return [...cells, ...strips];
}

const NARROW = 9; // columns; such panels stand side by side

interface Props {
  name: string;
  title?: string;
  row?: number; // that is looked at
  tallest?: number;
  comfortable?: number;
}

export function PanelOf({ name, title, row = -1, tallest = 420, comfortable = 56 }: Props) {
  const { card, manifest } = useSession();
  const { head, cell } = useAddress();
  const audit = useContext(Audited);
  const loaded = useLoaded(manifest ? () => panelOf(card, manifest, name, head) : null, [card.name, manifest?.id, name, head]);
  const panel = present(loaded);
  if (loaded.state === "failed") return <Failed error={loaded.error} />;
  if (!panel || panel.name !== name) return <Waiting what={name} />;
  const [place, index] = cell.split(":");
  const selected = place === name ? panel.cell({ name, index: index.split(",").map(Number) }) : null;
  const lit = audit ? litBy(audit, panel) : row >= 0 && row < panel.grid.rows ? [{ row }] : [];
  return (
    <div class={panel.grid.cols > NARROW ? "wide" : ""}>
      <Matrix
        grid={panel.grid}
        title={title ?? panel.grid.name}
        selected={selected}
        lit={lit}
        tallest={tallest}
        comfortable={comfortable}
        onSelect={(chosen) => canAudit(card, name) && go({ cell: placeKey(panel.place(chosen)) })}
      />
    </div>
  );
}

