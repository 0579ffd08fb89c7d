// The data of a displayed matrix, its layout in pixels, and the cell at a point.
import type { Scale } from "../color";

export interface Grid {
  name: string; // also of exported files
  rows: number;
  cols: number;
  data: ArrayLike<number>; // row-major
  rowLabels: readonly string[];
  colLabels: readonly string[];
  rowAxis: string; // "query", "token"
  colAxis: string;
  scale: Scale;
  max?: number; // the magnitude at the end of the scale; default: the largest in the data
  causal?: boolean; // cells right of the diagonal are masked, whatever their value
}

export interface Cell {
  row: number;
  col: number;
}

/** A highlighted row, column or cell, such as an operand of the inspected cell. */
export interface Highlight {
  row?: number;
  col?: number;
}

export const valueAt = (grid: Grid, { row, col }: Cell): number => grid.data[row * grid.cols + col];
export const isMasked = (grid: Grid, cell: Cell): boolean =>
  valueAt(grid, cell) === -Infinity || (grid.causal === true && cell.col > cell.row);

const magnitudes = new WeakMap<object, number>();

export function maxMagnitude(grid: Grid): number {
  if (grid.max !== undefined) return grid.max;
  let max = magnitudes.get(grid.data) ?? 0;
  if (max) return max;
  for (let i = 0; i < grid.data.length; i++) {
    const size = Math.abs(grid.data[i]);
    if (size > max && size < Infinity) max = size;
  }
  magnitudes.set(grid.data, max);
  return max;
}

export interface Geometry {
  cellWidth: number;
  cellHeight: number;
  left: number; // margins for the labels
  top: number;
  labelAngle: number; // of the column labels, in radians
  showNumbers: boolean; // whether they fit
  gap: number;
  width: number; // total
  height: number;
}

const MIN_NUMBER_WIDTH = 38;

/** Fits the matrix into the available width; `zoom` enlarges it beyond. */
export function computeGeometry(grid: Grid, availableWidth: number, zoom: number, measure: (text: string) => number, maxCellWidth = 56): Geometry {
  const widest = (labels: readonly string[]): number => Math.max(0, ...labels.slice(0, 400).map(measure));
  const left = grid.rowLabels.length ? Math.min(Math.ceil(widest(grid.rowLabels) * 1.08) + 18, availableWidth < 500 ? 96 : 144) : 8;
  const fittingWidth = (availableWidth - left - 24) / Math.max(grid.cols, 1);
  const snap = (size: number): number => (size >= 8 ? Math.floor(size) : size); // to whole pixels, where text is sharp
  const cellWidth = snap(Math.max(3, Math.min(maxCellWidth, fittingWidth)) * zoom);
  const minHeight = grid.rows <= 48 ? 24 : 3;
  const cellHeight = snap(Math.max(minHeight, Math.min(maxCellWidth * 0.6, cellWidth / zoom)) * (grid.rows <= 48 ? Math.min(zoom, 1.4) : zoom));
  const labelWidth = widest(grid.colLabels) + 8;
  const labelAngle = labelWidth <= cellWidth ? 0 : cellWidth >= 18 ? -Math.PI / 4 : -Math.PI / 2;
  const top = !grid.colLabels.length || cellWidth < 9 ? 8 : labelAngle === 0 ? 26 : Math.min(-Math.sin(labelAngle) * labelWidth + 12, 96);
  const right = labelAngle === -Math.PI / 4 ? Math.max(8, Math.min(64, labelWidth * 0.7 - cellWidth / 2)) : 8; // space for the last, slanted label
  return {
    cellWidth,
    cellHeight,
    left,
    top,
    labelAngle,
    showNumbers: cellWidth >= MIN_NUMBER_WIDTH && cellHeight >= 16,
    gap: Math.min(cellWidth, cellHeight) >= 8 ? 1 : 0,
    width: left + grid.cols * cellWidth + right,
    height: top + grid.rows * cellHeight + 8,
  };
}

export function cellAt(grid: Grid, geometry: Geometry, x: number, y: number): Cell | null {
  const col = Math.floor((x - geometry.left) / geometry.cellWidth);
  const row = Math.floor((y - geometry.top) / geometry.cellHeight);
  return row >= 0 && col >= 0 && row < grid.rows && col < grid.cols ? { row, col } : null;
}
