// The data of a displayed matrix, its layout in pixels, and the cell at a point.
import type { Scale } from "../color";
import { hasDevanagari, transliterate } from "../transliteration";

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

/** A smaller matrix with the value of the largest magnitude of each block, so that a thin diagonal does not vanish. */
export function pool(grid: Grid, size: number): Grid {
  if (grid.rows <= size && grid.cols <= size) return grid;
  const [rows, cols] = [Math.min(grid.rows, size), Math.min(grid.cols, size)];
  const data = new Float32Array(rows * cols).fill(-Infinity); // masked, unless the block has a value
  const blocks = Uint16Array.from({ length: grid.cols }, (_, col) => (col * cols) / grid.cols);
  for (let row = 0; row < grid.rows; row++)
    for (let col = 0, from = row * grid.cols, to = Math.floor((row * rows) / grid.rows) * cols; col < grid.cols; col++) {
      const value = grid.data[from + col];
      const i = to + blocks[col];
      if (value !== -Infinity && (data[i] === -Infinity || Math.abs(value) > Math.abs(data[i]))) data[i] = value;
    }
  return { ...grid, rows, cols, data, max: maxMagnitude(grid) };
}

export interface Geometry {
  cellWidth: number;
  cellHeight: number;
  left: number; // margins for the labels
  top: number;
  labelAngle: number; // of the column labels, in radians
  showNumbers: boolean; // whether they fit
  gap: number;
  fontSize: number; // of the labels, in pixels
  width: number; // total
  height: number;
}

const MIN_NUMBER_WIDTH = 42;
const TWO_LINES = 32; // pixels of a row whose label has a transliteration below it

/** The second line of a row's label, if there is room for it. */
export const secondLine = (label: string, { cellHeight, fontSize }: Geometry): string =>
  cellHeight >= (TWO_LINES * fontSize) / 12 && hasDevanagari(label) ? transliterate(label) : "";

/** Fits the matrix into the available width; `zoom` enlarges it beyond. */
export function computeGeometry(
  grid: Grid,
  availableWidth: number,
  zoom: number,
  measure: (text: string) => number,
  cellLimit = 56,
  fontSize = 12,
): Geometry {
  const unit = fontSize / 12;
  const maxCellWidth = cellLimit * unit;
  const widest = (labels: readonly string[]): number => Math.max(0, ...labels.slice(0, 400).map(measure));
  const isTransliterated = grid.rows <= 48 && grid.rowLabels.some(hasDevanagari);
  const rowTexts = isTransliterated ? grid.rowLabels.flatMap((label) => [label, transliterate(label)]) : grid.rowLabels;
  const left = grid.rowLabels.length
    ? Math.min(Math.ceil(widest(rowTexts) * 1.08) + 18, (availableWidth < 500 ? 110 : 190) * unit)
    : 8;
  const fittingWidth = (availableWidth - left - 24) / Math.max(grid.cols, 1);
  const snap = (size: number): number => (size >= 8 ? Math.floor(size) : size); // to whole pixels, where text is sharp
  const cellWidth = snap(Math.max(3, Math.min(maxCellWidth, fittingWidth)) * zoom);
  const minHeight = grid.rows <= 48 ? (isTransliterated ? TWO_LINES : 24) * unit : 3;
  const cellHeight = snap(
    Math.max(minHeight, Math.min(maxCellWidth * 0.6, cellWidth / zoom)) * (grid.rows <= 48 ? Math.min(zoom, 1.4) : zoom),
  );
  const labelWidth = widest(grid.colLabels) + 8;
  const labelAngle = labelWidth <= cellWidth ? 0 : cellWidth >= 18 ? -Math.PI / 4 : -Math.PI / 2;
  const top =
    !grid.colLabels.length || cellWidth < 9
      ? 8
      : labelAngle === 0
        ? 26 * unit
        : Math.min(-Math.sin(labelAngle) * labelWidth + 12, 96 * unit);
  const right = labelAngle === -Math.PI / 4 ? Math.max(8, Math.min(64, labelWidth * 0.7 - cellWidth / 2)) : 8; // space for the last, slanted label
  return {
    cellWidth,
    cellHeight,
    left,
    top,
    labelAngle,
    showNumbers: cellWidth >= MIN_NUMBER_WIDTH * unit && cellHeight >= 16 * unit,
    fontSize,
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
