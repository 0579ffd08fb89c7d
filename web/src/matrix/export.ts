// Exports a matrix as CSV, SVG (cells as rectangles, text as text) or PNG, and a drawing of the page as SVG or PNG.
import { colorFor, LIGHT, textColorOn, toCss } from "../color";
import { formatCellValue } from "../format";
import { computeGeometry, type Grid, isMasked, maxMagnitude, valueAt } from "./grid";
import { FONT, paint } from "./paint";

const quoteCsv = (text: string): string => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const escapeXml = (text: string): string => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

export function toCsv(grid: Grid): string {
  const lines = [[`${grid.rowAxis} \\ ${grid.colAxis}`, ...labelsOrIndices(grid.colLabels, grid.cols)].map(quoteCsv).join(",")];
  const names = labelsOrIndices(grid.rowLabels, grid.rows);
  for (let row = 0; row < grid.rows; row++) {
    const values = Array.from({ length: grid.cols }, (_, col) => {
      const value = valueAt(grid, { row, col });
      return value === -Infinity ? "-inf" : String(value);
    });
    lines.push([quoteCsv(names[row]), ...values].join(","));
  }
  return `${lines.join("\n")}\n`;
}

const labelsOrIndices = (labels: readonly string[], count: number): readonly string[] =>
  labels.length ? labels : Array.from({ length: count }, (_, i) => String(i));

function textMeasurer(): (text: string) => number {
  const ctx = document.createElement("canvas").getContext("2d")!;
  ctx.font = `12px ${FONT}`;
  return (text) => ctx.measureText(text).width;
}

/** Pictures are for papers and slides: in the light theme, and large enough for numbers unless the matrix is very wide. */
const exportGeometry = (grid: Grid, measure: (text: string) => number) =>
  computeGeometry(grid, grid.cols <= 48 ? 160 + grid.cols * 48 : Math.max(1200, grid.cols * 4), 1, measure);

export function toSvg(grid: Grid, measure: (text: string) => number = textMeasurer()): string {
  const geometry = exportGeometry(grid, measure);
  const max = maxMagnitude(grid);
  const parts: string[] = [];
  const width = geometry.cellWidth - geometry.gap;
  const height = geometry.cellHeight - geometry.gap;
  const round = (n: number): string => String(Math.round(n * 100) / 100);
  for (let row = 0; row < grid.rows; row++)
    for (let col = 0; col < grid.cols; col++) {
      const value = valueAt(grid, { row, col });
      const x = geometry.left + col * geometry.cellWidth;
      const y = geometry.top + row * geometry.cellHeight;
      const color = colorFor(value, max, LIGHT);
      const masked = isMasked(grid, { row, col });
      const fill = masked ? "url(#masked)" : toCss(color);
      parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${fill}"/>`);
      if (geometry.showNumbers && !masked)
        parts.push(
          `<text x="${round(x + width / 2)}" y="${round(y + height / 2 + 4)}" text-anchor="middle" font-size="12" fill="${textColorOn(color)}">${formatCellValue(value)}</text>`,
        );
    }
  const ink = toCss(LIGHT.text);
  if (geometry.cellHeight >= 12)
    grid.rowLabels.forEach((label, row) => {
      const y = geometry.top + (row + 0.5) * geometry.cellHeight + 4;
      parts.push(`<text x="${geometry.left - 8}" y="${round(y)}" text-anchor="end" fill="${ink}">${escapeXml(label)}</text>`);
    });
  if (geometry.top > 10)
    grid.colLabels.forEach((label, col) => {
      const x = geometry.left + (col + 0.5) * geometry.cellWidth;
      const position = geometry.labelAngle
        ? `transform="translate(${round(x + 4)} ${round(geometry.top - 7)}) rotate(${round((geometry.labelAngle * 180) / Math.PI)})"`
        : `x="${round(x)}" y="${round(geometry.top - 9)}" text-anchor="middle"`;
      parts.push(`<text ${position} fill="${ink}">${escapeXml(label)}</text>`);
    });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${round(geometry.width)}" height="${round(geometry.height)}" ` +
    `viewBox="0 0 ${round(geometry.width)} ${round(geometry.height)}" font-family="${escapeXml(FONT)}" font-size="12">` +
    `<title>${escapeXml(grid.name)}</title><defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" ` +
    `patternTransform="rotate(45)"><path d="M0 0V5" stroke="${toCss(LIGHT.muted)}"/></pattern></defs>` +
    `<rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`
  );
}

const MAX_SIDE = 8192; // pixels; supported by the canvas of every browser

export function toPng(grid: Grid): Promise<Blob> {
  const geometry = exportGeometry(grid, textMeasurer());
  const scale = Math.min(2, MAX_SIDE / Math.max(geometry.width, geometry.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(geometry.width * scale);
  canvas.height = Math.ceil(geometry.height * scale);
  const ctx = canvas.getContext("2d")!;
  ctx.scale(scale, scale);
  const viewport = { x: 0, y: 0, width: geometry.width, height: geometry.height };
  paint(ctx, grid, geometry, LIGHT, viewport, { hover: null, selected: null, highlights: [] });
  ctx.globalCompositeOperation = "destination-over";
  ctx.fillStyle = "#fff";
  ctx.fillRect(0, 0, geometry.width, geometry.height);
  return toBlob(canvas);
}

const toBlob = (canvas: HTMLCanvasElement): Promise<Blob> =>
  new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for this browser"))),
      "image/png",
    ),
  );

export function download(blob: Blob, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

export type Format = "svg" | "png" | "csv";

export async function exportMatrix(grid: Grid, format: Format): Promise<void> {
  const blob =
    format === "png"
      ? await toPng(grid)
      : format === "svg"
        ? new Blob([toSvg(grid)], { type: "image/svg+xml" })
        : new Blob([toCsv(grid)], { type: "text/csv" });
  download(blob, `${grid.name.replace(/[^\p{L}\p{N}.-]+/gu, "-")}.${format}`);
}

const EXPORTED_STYLES = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

/** Saves an SVG of the page with its computed styles inlined. */
export async function exportDrawing(drawing: SVGSVGElement, name: string, format: "svg" | "png"): Promise<void> {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const parts = copy.querySelectorAll<SVGElement>("path, text");
  drawing.querySelectorAll("path, text").forEach((part, i) => {
    const style = getComputedStyle(part);
    for (const property of EXPORTED_STYLES) parts[i].setAttribute(property, style.getPropertyValue(property));
    parts[i].removeAttribute("class");
  });
  if (format === "png") copy.prepend(await fontStyle()); // an image cannot use the page's fonts
  const svg = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  const background = getComputedStyle(drawing.closest(".card") ?? document.body).backgroundColor;
  download(
    format === "svg" ? svg : await rasterize(svg, drawing.clientWidth, drawing.clientHeight, background),
    `${name}.${format}`,
  );
}

/** The page's fonts as a style element that contains them. */
async function fontStyle(): Promise<SVGStyleElement> {
  const rules = [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSFontFaceRule);
  const embedded = rules.map(async ({ cssText, parentStyleSheet }) => {
    const url = /url\("?([^")]+)"?\)/.exec(cssText)?.[1] ?? "";
    if (url.startsWith("data:")) return cssText; // of an exported file
    const file = await fetch(new URL(url, parentStyleSheet?.href ?? location.href));
    return cssText.replace(url, await dataUrl(await file.blob()));
  });
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = (await Promise.all(embedded)).join("\n");
  return style;
}

const dataUrl = (blob: Blob): Promise<string> =>
  new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.readAsDataURL(blob);
  });

async function rasterize(svg: Blob, width: number, height: number, background: string): Promise<Blob> {
  const image = new Image();
  image.src = URL.createObjectURL(svg);
  await image.decode();
  URL.revokeObjectURL(image.src);
  const scale = Math.min(2, MAX_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  const ctx = canvas.getContext("2d")!;
  ctx.fillStyle = background;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(image, 0, 0, canvas.width, canvas.height);
  return toBlob(canvas);
}
