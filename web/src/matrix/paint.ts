// Paints the visible part of a matrix on a canvas: cells, numbers if they fit, and labels that stay in place while the rest
// scrolls. The same function paints the widget and exported pictures.
import { colorFor, colorScale, type Palette, textColorOn, toCss } from "../color";
import { formatCellValue } from "../format";
import { type Cell, type Geometry, type Grid, type Highlight, isMasked, maxMagnitude, secondLine, valueAt } from "./grid";

export const FONT = '"Noto Sans Devanagari Variable", "Noto Sans Devanagari", system-ui, sans-serif';

export interface Viewport {
  x: number; // scroll offset
  y: number;
  width: number;
  height: number;
}

export interface Decorations {
  hover: Cell | null;
  selected: Cell | null;
  highlights: readonly Highlight[];
}

interface Region {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

/** One pixel per cell, to be scaled up: for large matrices and thumbnails. */
export function pixels(grid: Grid, palette: Palette, { row, col, rows, cols }: Region): HTMLCanvasElement {
  const color = colorScale(maxMagnitude(grid), palette);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, cols);
  canvas.height = Math.max(1, rows);
  const image = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < cols; j++) {
      const value = grid.data[(row + i) * grid.cols + col + j];
      const masked = value === -Infinity || (grid.causal && col + j > row + i); // `isMasked`, without an object per cell
      const [red, green, blue] = masked ? palette.muted : color(value);
      const offset = (i * cols + j) * 4;
      image.data[offset] = red;
      image.data[offset + 1] = green;
      image.data[offset + 2] = blue;
      image.data[offset + 3] = 255;
    }
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

export function paint(
  ctx: CanvasRenderingContext2D,
  grid: Grid,
  geometry: Geometry,
  palette: Palette,
  viewport: Viewport,
  decorations: Decorations,
): void {
  const { cellWidth, cellHeight, left, top } = geometry;
  ctx.clearRect(0, 0, viewport.width, viewport.height);
  const firstRow = Math.max(0, Math.floor(viewport.y / cellHeight));
  const lastRow = Math.min(grid.rows, Math.ceil((viewport.y + viewport.height - top) / cellHeight));
  const firstCol = Math.max(0, Math.floor(viewport.x / cellWidth));
  const lastCol = Math.min(grid.cols, Math.ceil((viewport.x + viewport.width - left) / cellWidth));
  const x = (col: number): number => left + col * cellWidth - viewport.x;
  const y = (row: number): number => top + row * cellHeight - viewport.y;

  ctx.save();
  ctx.beginPath();
  ctx.rect(left - 2, top - 2, viewport.width, viewport.height);
  ctx.clip();
  if (geometry.gap) paintCells(ctx, grid, geometry, palette, [firstRow, lastRow, firstCol, lastCol], x, y);
  else {
    ctx.imageSmoothingEnabled = false;
    const rows = lastRow - firstRow;
    const cols = lastCol - firstCol;
    if (rows > 0 && cols > 0) {
      const image = pixels(grid, palette, { row: firstRow, col: firstCol, rows, cols });
      ctx.drawImage(image, x(firstCol), y(firstRow), cols * cellWidth, rows * cellHeight);
    }
  }
  paintDecorations(ctx, grid, geometry, palette, decorations, x, y);
  ctx.restore();
  paintLabels(ctx, grid, geometry, palette, viewport, decorations, [firstRow, lastRow, firstCol, lastCol], x, y);
}

type Range = readonly [number, number, number, number];
type ToPixel = (index: number) => number;

function paintCells(
  ctx: CanvasRenderingContext2D,
  grid: Grid,
  geometry: Geometry,
  palette: Palette,
  range: Range,
  x: ToPixel,
  y: ToPixel,
): void {
  // prettier-ignore
  const [firstRow, lastRow, firstCol, lastCol] = range;
  const max = maxMagnitude(grid);
  const width = geometry.cellWidth - geometry.gap;
  const height = geometry.cellHeight - geometry.gap;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const unit = geometry.fontSize / 12;
  ctx.font = `${unit * (geometry.cellWidth >= 72 * unit ? 14 : 12)}px ${FONT}`;
  for (let row = firstRow; row < lastRow; row++)
    for (let col = firstCol; col < lastCol; col++) {
      const value = valueAt(grid, { row, col });
      if (isMasked(grid, { row, col })) {
        hatch(ctx, x(col), y(row), width, height, palette);
        continue;
      }
      const color = colorFor(value, max, palette);
      ctx.fillStyle = toCss(color);
      ctx.fillRect(x(col), y(row), width, height);
      if (geometry.showNumbers) {
        ctx.fillStyle = textColorOn(color);
        ctx.fillText(formatCellValue(value), x(col) + width / 2, y(row) + height / 2 + 0.5);
      }
    }
}

/** Hatches a masked cell: it has no value, rather than a small one. */
function hatch(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, palette: Palette): void {
  ctx.strokeStyle = toCss(palette.muted);
  ctx.lineWidth = 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.beginPath();
  const step = 5;
  for (let d = -height; d < width; d += step) {
    ctx.moveTo(x + d, y + height);
    ctx.lineTo(x + d + height, y);
  }
  ctx.stroke();
  ctx.restore();
}

function paintDecorations(
  ctx: CanvasRenderingContext2D,
  grid: Grid,
  geometry: Geometry,
  palette: Palette,
  decorations: Decorations,
  x: ToPixel,
  y: ToPixel,
): void {
  // prettier-ignore
  const { cellWidth, cellHeight, gap } = geometry;
  const outline = (row: number, col: number, rows: number, cols: number, line: number): void => {
    ctx.lineWidth = line;
    ctx.strokeRect(x(col) - gap / 2, y(row) - gap / 2, cols * cellWidth, rows * cellHeight);
  };
  ctx.strokeStyle = toCss(palette.accent);
  if (decorations.hover) {
    ctx.globalAlpha = 0.55;
    outline(decorations.hover.row, 0, 1, grid.cols, 1);
    outline(0, decorations.hover.col, grid.rows, 1, 1);
    ctx.globalAlpha = 1;
  }
  for (const { row, col } of decorations.highlights) {
    if ((row ?? 0) >= grid.rows || (col ?? 0) >= grid.cols) continue;
    outline(row ?? 0, col ?? 0, row === undefined ? grid.rows : 1, col === undefined ? grid.cols : 1, 2);
  }
  if (decorations.selected && decorations.selected.row < grid.rows && decorations.selected.col < grid.cols) {
    ctx.strokeStyle = toCss(palette.surface);
    outline(decorations.selected.row, decorations.selected.col, 1, 1, 5);
    ctx.strokeStyle = toCss(palette.accent);
    outline(decorations.selected.row, decorations.selected.col, 1, 1, 2.5);
  }
}

function paintLabels(
  ctx: CanvasRenderingContext2D,
  grid: Grid,
  geometry: Geometry,
  palette: Palette,
  viewport: Viewport,
  decorations: Decorations,
  range: Range,
  x: ToPixel,
  y: ToPixel,
): void {
  // prettier-ignore
  const { cellWidth, cellHeight, left, top, fontSize } = geometry;
  const [firstRow, lastRow, firstCol, lastCol] = range;
  const isMarked = (axis: "row" | "col", index: number): boolean =>
    decorations.hover?.[axis] === index ||
    decorations.selected?.[axis] === index ||
    decorations.highlights.some((highlight) => highlight[axis] === index);
  const setStyle = (marked: boolean): void => {
    ctx.font = `${marked ? "650 " : ""}${fontSize}px ${FONT}`;
    ctx.fillStyle = marked ? toCss(palette.accent) : toCss(palette.text);
    ctx.globalAlpha = marked ? 1 : 0.85;
  };
  const rowStep = Math.ceil((fontSize + 1) / cellHeight);
  const colStep = Math.ceil((fontSize + 1) / cellWidth);

  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, top - 6, left, viewport.height); // half a line above the first row, which may be lower than its label
  ctx.clip();
  for (let row = firstRow; row < lastRow && grid.rowLabels.length; row++) {
    if (row % rowStep && !isMarked("row", row)) continue;
    setStyle(isMarked("row", row));
    const second = secondLine(grid.rowLabels[row], geometry);
    const half = second ? fontSize * 0.6 : 0;
    ctx.fillText(truncate(ctx, grid.rowLabels[row], left - 12), left - 8, y(row) + cellHeight / 2 - half);
    if (!second) continue;
    ctx.globalAlpha *= 0.85;
    ctx.fillText(truncate(ctx, second, left - 12), left - 8, y(row) + cellHeight / 2 + half + 1);
  }
  ctx.restore();

  if (top > 10) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 2, 0, viewport.width, top);
    ctx.clip();
    for (let col = firstCol; col < lastCol && grid.colLabels.length; col++) {
      if (col % colStep && !isMarked("col", col)) continue;
      setStyle(isMarked("col", col));
      ctx.save();
      ctx.translate(x(col) + cellWidth / 2, top - 7);
      if (geometry.labelAngle) {
        ctx.rotate(geometry.labelAngle);
        ctx.textAlign = "left";
        ctx.fillText(truncate(ctx, grid.colLabels[col], (top - 8) / -Math.sin(geometry.labelAngle)), 0, 0);
      } else {
        ctx.textAlign = "center";
        ctx.fillText(grid.colLabels[col], 0, -4);
      }
      ctx.restore();
    }
    ctx.restore();
  }
  ctx.globalAlpha = 1;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Truncates a label with an ellipsis, never inside a grapheme. */
function truncate(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  const parts = [...graphemes.segment(text)].map((part) => part.segment);
  while (parts.length > 1 && ctx.measureText(`${parts.join("")}…`).width > width) parts.pop();
  return `${parts.join("")}…`;
}
