// A matrix that is to be seen: its figures with labels on both sides, how large its cells are, and which cell lies where.
import type { Scale } from "../colour";

export interface Grid {
  name: string; // also of the files that it is saved in
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row by row
  rowLabels: readonly string[];
  colLabels: readonly string[];
  rowAxis: string; // what the rows are: "query", "token"
  colAxis: string;
  scale: Scale;
  most?: number; // the magnitude at the scale's end; else the largest there is
  causal?: boolean; // none may look past itself: cells right of the diagonal are masked, whatever stands in them
}

export interface Cell {
  row: number;
  col: number;
}

/** Rows, columns or single cells that go together with what is looked at: the operands of a formula. */
export interface Lit {
  row?: number;
  col?: number;
}

export const at = (grid: Grid, { row, col }: Cell): number => grid.data[row * grid.cols + col];
export const isMasked = (grid: Grid, cell: Cell): boolean =>
  at(grid, cell) === -Infinity || (grid.causal === true && cell.col > cell.row);

const known = new WeakMap<object, number>();

export function largest(grid: Grid): number {
  if (grid.most !== undefined) return grid.most;
  let most = known.get(grid.data) ?? 0;
  if (most) return most;
  for (let i = 0; i < grid.data.length; i++) {
    const size = Math.abs(grid.data[i]);
    if (size > most && size < Infinity) most = size;
  }
  known.set(grid.data, most);
  return most;
}

export interface Geometry {
  cellWidth: number;
  cellHeight: number;
  left: number; // gutters for the labels
  top: number;
  turn: number; // the angle of the columns' labels, in radians
  numbers: boolean; // they fit
  gap: number;
  width: number; // of everything
  height: number;
}

const NUMBER_WIDTH = 38;

/** As large as the place allows, up to a comfortable size; `zoom` makes it larger than the place. */
export function geometry(grid: Grid, place: number, zoom: number, measure: (text: string) => number, comfortable = 56): Geometry {
  const widest = (labels: readonly string[]): number => Math.max(0, ...labels.slice(0, 400).map(measure));
  const left = grid.rowLabels.length ? Math.min(Math.ceil(widest(grid.rowLabels) * 1.08) + 18, place < 500 ? 96 : 144) : 8;
  const fitting = (place - left - 24) / Math.max(grid.cols, 1);
  const whole = (size: number): number => (size >= 8 ? Math.floor(size) : size); // text is sharp on whole pixels
  const cellWidth = whole(Math.max(3, Math.min(comfortable, fitting)) * zoom);
  const tall = grid.rows <= 48 ? 24 : 3;
  const cellHeight = whole(Math.max(tall, Math.min(comfortable * 0.6, cellWidth / zoom)) * (grid.rows <= 48 ? Math.min(zoom, 1.4) : zoom));
  const longest = widest(grid.colLabels) + 8;
  const turn = longest <= cellWidth ? 0 : cellWidth >= 18 ? -Math.PI / 4 : -Math.PI / 2;
  const top = !grid.colLabels.length || cellWidth < 9 ? 8 : turn === 0 ? 26 : Math.min(-Math.sin(turn) * longest + 12, 96);
  const right = turn === -Math.PI / 4 ? Math.max(8, Math.min(64, longest * 0.7 - cellWidth / 2)) : 8; // where the last label leans out
  return {
    cellWidth,
    cellHeight,
    left,
    top,
    turn,
    numbers: cellWidth >= NUMBER_WIDTH && cellHeight >= 16,
    gap: Math.min(cellWidth, cellHeight) >= 8 ? 1 : 0,
    width: left + grid.cols * cellWidth + right,
    height: top + grid.rows * cellHeight + 8,
  };
}

export function cellAt(grid: Grid, shape: Geometry, x: number, y: number): Cell | null {
  const col = Math.floor((x - shape.left) / shape.cellWidth);
  const row = Math.floor((y - shape.top) / shape.cellHeight);
  return row >= 0 && col >= 0 && row < grid.rows && col < grid.cols ? { row, col } : null;
}
