// Paints the part of a matrix that is in sight, and no more: cells, figures while they fit, labels that stay in place while the
// rest scrolls. The same function paints thumbnails, the widget and the picture that is saved.
import { colourOf, css, inkOn, type Palette } from "../colour";
import { brief } from "../numbers";
import { at, isMasked, largest, type Cell, type Geometry, type Grid, type Lit } from "./grid";

export const FONT = '"Noto Sans Devanagari Variable", "Noto Sans Devanagari", system-ui, sans-serif';

export interface Sight {
  x: number; // how far it is scrolled
  y: number;
  width: number;
  height: number;
}

export interface Marks {
  hover: Cell | null;
  selected: Cell | null;
  lit: readonly Lit[];
}

interface Window {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

/** One pixel a cell: what large matrices and thumbnails are stretched from. */
export function pixels(grid: Grid, palette: Palette, { row, col, rows, cols }: Window): HTMLCanvasElement {
  const most = largest(grid);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, cols);
  canvas.height = Math.max(1, rows);
  const image = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < cols; j++) {
      const value = at(grid, { row: row + i, col: col + j });
      const [red, green, blue] = isMasked(grid, { row: row + i, col: col + j }) ? palette.faint : colourOf(value, most, palette);
      const to = (i * cols + j) * 4;
      image.data[to] = red;
      image.data[to + 1] = green;
      image.data[to + 2] = blue;
      image.data[to + 3] = 255;
    }
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

export function paint(
  ctx: CanvasRenderingContext2D,
  grid: Grid,
  shape: Geometry,
  palette: Palette,
  sight: Sight,
  marks: Marks,
): void {
  const { cellWidth, cellHeight, left, top } = shape;
  ctx.clearRect(0, 0, sight.width, sight.height);
  const firstRow = Math.max(0, Math.floor(sight.y / cellHeight));
  const lastRow = Math.min(grid.rows, Math.ceil((sight.y + sight.height - top) / cellHeight));
  const firstCol = Math.max(0, Math.floor(sight.x / cellWidth));
  const lastCol = Math.min(grid.cols, Math.ceil((sight.x + sight.width - left) / cellWidth));
  const x = (col: number): number => left + col * cellWidth - sight.x;
  const y = (row: number): number => top + row * cellHeight - sight.y;

  ctx.save();
  ctx.beginPath();
  ctx.rect(left - 2, top - 2, sight.width, sight.height);
  ctx.clip();
  if (shape.gap) paintCells(ctx, grid, shape, palette, [firstRow, lastRow, firstCol, lastCol], x, y);
  else {
    ctx.imageSmoothingEnabled = false;
    const rows = lastRow - firstRow;
    const cols = lastCol - firstCol;
    if (rows > 0 && cols > 0) {
      const seen = pixels(grid, palette, { row: firstRow, col: firstCol, rows, cols });
      ctx.drawImage(seen, x(firstCol), y(firstRow), cols * cellWidth, rows * cellHeight);
    }
  }
  paintMarks(ctx, grid, shape, palette, marks, x, y);
  ctx.restore();
  paintLabels(ctx, grid, shape, palette, sight, marks, [firstRow, lastRow, firstCol, lastCol], x, y);
}

type Range = readonly [number, number, number, number];
type Along = (index: number) => number;

function paintCells(
  ctx: CanvasRenderingContext2D, grid: Grid, shape: Geometry, palette: Palette, range: Range, x: Along, y: Along,
): void { // prettier-ignore
  const [firstRow, lastRow, firstCol, lastCol] = range;
  const most = largest(grid);
  const width = shape.cellWidth - shape.gap;
  const height = shape.cellHeight - shape.gap;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = `${shape.cellWidth >= 72 ? 14 : shape.cellWidth >= 46 ? 12 : 11}px ${FONT}`;
  for (let row = firstRow; row < lastRow; row++)
    for (let col = firstCol; col < lastCol; col++) {
      const value = at(grid, { row, col });
      if (isMasked(grid, { row, col })) {
        hatch(ctx, x(col), y(row), width, height, palette);
        continue;
      }
      const colour = colourOf(value, most, palette);
      ctx.fillStyle = css(colour);
      ctx.fillRect(x(col), y(row), width, height);
      if (shape.numbers) {
        ctx.fillStyle = inkOn(colour);
        ctx.fillText(brief(value), x(col) + width / 2, y(row) + height / 2 + 0.5);
      }
    }
}

/** A masked cell is not a small number but none at all: it is crossed out. */
function hatch(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, palette: Palette): void {
  ctx.strokeStyle = css(palette.faint);
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

function paintMarks(
  ctx: CanvasRenderingContext2D, grid: Grid, shape: Geometry, palette: Palette, marks: Marks, x: Along, y: Along,
): void { // prettier-ignore
  const { cellWidth, cellHeight, gap } = shape;
  const outline = (row: number, col: number, rows: number, cols: number, line: number): void => {
    ctx.lineWidth = line;
    ctx.strokeRect(x(col) - gap / 2, y(row) - gap / 2, cols * cellWidth, rows * cellHeight);
  };
  ctx.strokeStyle = css(palette.accent);
  if (marks.hover) {
    ctx.globalAlpha = 0.55;
    outline(marks.hover.row, 0, 1, grid.cols, 1);
    outline(0, marks.hover.col, grid.rows, 1, 1);
    ctx.globalAlpha = 1;
  }
  for (const { row, col } of marks.lit) {
    if ((row ?? 0) >= grid.rows || (col ?? 0) >= grid.cols) continue;
    outline(row ?? 0, col ?? 0, row === undefined ? grid.rows : 1, col === undefined ? grid.cols : 1, 2);
  }
  if (marks.selected && marks.selected.row < grid.rows && marks.selected.col < grid.cols) {
    ctx.strokeStyle = css(palette.surface);
    outline(marks.selected.row, marks.selected.col, 1, 1, 5);
    ctx.strokeStyle = css(palette.accent);
    outline(marks.selected.row, marks.selected.col, 1, 1, 2.5);
  }
}

function paintLabels(
  ctx: CanvasRenderingContext2D, grid: Grid, shape: Geometry, palette: Palette, sight: Sight, marks: Marks, range: Range,
  x: Along, y: Along,
): void { // prettier-ignore
  const { cellWidth, cellHeight, left, top } = shape;
  const [firstRow, lastRow, firstCol, lastCol] = range;
  const inUse = (axis: "row" | "col", index: number): boolean =>
    marks.hover?.[axis] === index || marks.selected?.[axis] === index || marks.lit.some((lit) => lit[axis] === index);
  const style = (used: boolean): void => {
    ctx.font = `${used ? "650 " : ""}12px ${FONT}`;
    ctx.fillStyle = used ? css(palette.accent) : css(palette.ink);
    ctx.globalAlpha = used ? 1 : 0.72;
  };
  const everyRow = Math.ceil(13 / cellHeight);
  const everyCol = Math.ceil(13 / cellWidth);

  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, top - 6, left, sight.height); // half a letter above the first row, which may be lower than one
  ctx.clip();
  for (let row = firstRow; row < lastRow && grid.rowLabels.length; row++) {
    if (row % everyRow && !inUse("row", row)) continue;
    style(inUse("row", row));
    ctx.fillText(fitted(ctx, grid.rowLabels[row], left - 12), left - 8, y(row) + cellHeight / 2);
  }
  ctx.restore();

  if (top > 10) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 2, 0, sight.width, top);
    ctx.clip();
    for (let col = firstCol; col < lastCol && grid.colLabels.length; col++) {
      if (col % everyCol && !inUse("col", col)) continue;
      style(inUse("col", col));
      ctx.save();
      ctx.translate(x(col) + cellWidth / 2, top - 7);
      if (shape.turn) {
        ctx.rotate(shape.turn);
        ctx.textAlign = "left";
        ctx.fillText(fitted(ctx, grid.colLabels[col], (top - 8) / -Math.sin(shape.turn)), 0, 0);
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

/** A label cut to its place with an ellipsis, never inside a grapheme. */
function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  const parts = [...graphemes.segment(text)].map((part) => part.segment);
  while (parts.length > 1 && ctx.measureText(`${parts.join("")}…`).width > width) parts.pop();
  return `${parts.join("")}…`;
}
