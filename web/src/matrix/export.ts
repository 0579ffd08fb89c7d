// Any matrix as a file: figures as CSV, a picture as SVG (each cell a rectangle, text as text) or as PNG.
import { colourOf, css, inkOn, LIGHT } from "../colour";
import { brief } from "../numbers";
import { at, geometry, isMasked, largest, type Grid } from "./grid";
import { FONT, paint } from "./paint";

const quoted = (text: string): string => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const escaped = (text: string): string => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

export function toCsv(grid: Grid): string {
  const lines = [[`${grid.rowAxis} \\ ${grid.colAxis}`, ...labels(grid.colLabels, grid.cols)].map(quoted).join(",")];
  const names = labels(grid.rowLabels, grid.rows);
  for (let row = 0; row < grid.rows; row++) {
    const values = Array.from({ length: grid.cols }, (_, col) => {
      const value = at(grid, { row, col });
      return value === -Infinity ? "-inf" : String(value);
    });
    lines.push([quoted(names[row]), ...values].join(","));
  }
  return `${lines.join("\n")}\n`;
}

const labels = (own: readonly string[], count: number): readonly string[] =>
  own.length ? own : Array.from({ length: count }, (_, i) => String(i));

function measurer(): (text: string) => number {
  const ctx = document.createElement("canvas").getContext("2d")!;
  ctx.font = `12px ${FONT}`;
  return (text) => ctx.measureText(text).width;
}

/** Pictures are made for paper and slides: always in the light colours, at a size where figures fit while that is sensible. */
const pictured = (grid: Grid, measure: (text: string) => number) =>
  geometry(grid, grid.cols <= 48 ? 160 + grid.cols * 48 : Math.max(1200, grid.cols * 4), 1, measure);

export function toSvg(grid: Grid, measure: (text: string) => number = measurer()): string {
  const shape = pictured(grid, measure);
  const most = largest(grid);
  const parts: string[] = [];
  const width = shape.cellWidth - shape.gap;
  const height = shape.cellHeight - shape.gap;
  const round = (n: number): string => String(Math.round(n * 100) / 100);
  for (let row = 0; row < grid.rows; row++)
    for (let col = 0; col < grid.cols; col++) {
      const value = at(grid, { row, col });
      const x = shape.left + col * shape.cellWidth;
      const y = shape.top + row * shape.cellHeight;
      const colour = colourOf(value, most, LIGHT);
      const masked = isMasked(grid, { row, col });
      const fill = masked ? "url(#masked)" : css(colour);
      parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${fill}"/>`);
      if (shape.numbers && !masked)
        parts.push(
          `<text x="${round(x + width / 2)}" y="${round(y + height / 2 + 4)}" text-anchor="middle" font-size="11" fill="${inkOn(colour)}">${brief(value)}</text>`,
        );
    }
  const ink = css(LIGHT.ink);
  if (shape.cellHeight >= 12)
    grid.rowLabels.forEach((label, row) => {
      const y = shape.top + (row + 0.5) * shape.cellHeight + 4;
      parts.push(`<text x="${shape.left - 8}" y="${round(y)}" text-anchor="end" fill="${ink}">${escaped(label)}</text>`);
    });
  if (shape.top > 10)
    grid.colLabels.forEach((label, col) => {
      const x = shape.left + (col + 0.5) * shape.cellWidth;
      const place = shape.turn
        ? `transform="translate(${round(x + 4)} ${round(shape.top - 7)}) rotate(${round((shape.turn * 180) / Math.PI)})"`
        : `x="${round(x)}" y="${round(shape.top - 9)}" text-anchor="middle"`;
      parts.push(`<text ${place} fill="${ink}">${escaped(label)}</text>`);
    });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${round(shape.width)}" height="${round(shape.height)}" ` +
    `viewBox="0 0 ${round(shape.width)} ${round(shape.height)}" font-family="${escaped(FONT)}" font-size="12">` +
    `<title>${escaped(grid.name)}</title><defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" ` +
    `patternTransform="rotate(45)"><path d="M0 0V5" stroke="${css(LIGHT.faint)}"/></pattern></defs>` +
    `<rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`
  );
}

const LARGEST = 8192; // pixels of a side that every browser's canvas takes

export function toPng(grid: Grid): Promise<Blob> {
  const shape = pictured(grid, measurer());
  const factor = Math.min(2, LARGEST / Math.max(shape.width, shape.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(shape.width * factor);
  canvas.height = Math.ceil(shape.height * factor);
  const ctx = canvas.getContext("2d")!;
  ctx.scale(factor, factor);
  const all = { x: 0, y: 0, width: shape.width, height: shape.height };
  paint(ctx, grid, shape, LIGHT, all, { hover: null, selected: null, lit: [] });
  ctx.globalCompositeOperation = "destination-over";
  ctx.fillStyle = "#fff";
  ctx.fillRect(0, 0, shape.width, shape.height);
  return blobOf(canvas);
}

const blobOf = (canvas: HTMLCanvasElement): Promise<Blob> =>
  new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("the picture is too large for this browser"))), "image/png"),
  );

export function save(blob: Blob, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

export type Format = "svg" | "png" | "csv";

export async function saveAs(grid: Grid, format: Format): Promise<void> {
  const blob =
    format === "png"
      ? await toPng(grid)
      : format === "svg"
        ? new Blob([toSvg(grid)], { type: "image/svg+xml" })
        : new Blob([toCsv(grid)], { type: "text/csv" });
  save(blob, `${grid.name.replace(/[^\p{L}\p{N}.-]+/gu, "-")}.${format}`);
}

const DRAWN = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

/** A drawing of the page with its styles written into it, as it would look without the page. */
export async function saveDrawing(drawing: SVGSVGElement, name: string, format: "svg" | "png"): Promise<void> {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const parts = copy.querySelectorAll<SVGElement>("path, text");
  drawing.querySelectorAll("path, text").forEach((part, i) => {
    const style = getComputedStyle(part);
    for (const property of DRAWN) parts[i].setAttribute(property, style.getPropertyValue(property));
    parts[i].removeAttribute("class");
  });
  const svg = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  const ground = getComputedStyle(drawing.closest(".card") ?? document.body).backgroundColor;
  save(format === "svg" ? svg : await rasterised(svg, drawing.clientWidth, drawing.clientHeight, ground), `${name}.${format}`);
}

async function rasterised(svg: Blob, width: number, height: number, ground: string): Promise<Blob> {
  const image = new Image();
  image.src = URL.createObjectURL(svg);
  await image.decode();
  URL.revokeObjectURL(image.src);
  const factor = Math.min(2, LARGEST / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * factor), Math.ceil(height * factor)];
  const ctx = canvas.getContext("2d")!;
  ctx.fillStyle = ground;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(image, 0, 0, canvas.width, canvas.height);
  return blobOf(canvas);
}
