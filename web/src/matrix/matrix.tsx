// The widget for all heat maps: colours, numbers if they fit, hatched masked cells. Cells are selected with the mouse or the
// arrow keys, and a visually hidden grid carries the same numbers for screen readers. Only the visible part is painted, so a
// thousand tokens scroll as smoothly as a dozen.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorFor, type Scale, toCss } from "../color";
import { formatFloat32, formatNumber } from "../format";
import { prefersReducedMotion, useFontLoaded, useFontSize, usePalette, useWidth } from "../hooks";
import { inLatin } from "../transliteration";
import { exportMatrix, type Format } from "./export";
import { type Cell, cellAt, computeGeometry, type Grid, type Highlight, isMasked, maxMagnitude, pool, valueAt } from "./grid";
import { FONT, paint, pixels } from "./paint";

interface MatrixProps {
  grid: Grid;
  title?: string;
  selected?: Cell | null;
  onSelect?: (cell: Cell) => void;
  highlights?: readonly Highlight[];
  maxHeight?: number; // pixels; beyond it the matrix scrolls
  maxCellWidth?: number; // pixels
}

const FORMATS: readonly Format[] = ["svg", "png", "csv"];
const MAX_NARROW_COLUMNS = 9; // narrow matrices are placed side by side
const NO_HIGHLIGHTS: readonly Highlight[] = [];
let nextId = 0;

export function Matrix({
  grid,
  title,
  selected = null,
  onSelect,
  highlights = NO_HIGHLIGHTS,
  maxHeight = 560,
  maxCellWidth = 56,
}: MatrixProps) {
  const [figureRef, width] = useWidth<HTMLElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const viewportRef = useRef<HTMLDivElement>(null);
  const id = useMemo(() => `matrix-${nextId++}`, []);
  const palette = usePalette();
  const fontLoaded = useFontLoaded();
  const fontSize = useFontSize();
  const [zoom, setZoom] = useState(1);
  const [hovered, setHovered] = useState<Cell | null>(null);
  const measure = useMemo(() => {
    const ctx = document.createElement("canvas").getContext("2d")!;
    ctx.font = `${fontSize}px ${FONT}`;
    return (text: string) => ctx.measureText(text).width;
  }, [fontLoaded, fontSize]);
  const geometry = useMemo(
    () => computeGeometry(grid, width || 600, zoom, measure, maxCellWidth, fontSize),
    [grid, width, zoom, measure, maxCellWidth, fontSize],
  );
  const visible = { width: Math.min(width || 600, geometry.width), height: Math.min(geometry.height, maxHeight) };

  const draw = (): void => {
    const element = canvas.current;
    const ctx = element?.getContext("2d");
    if (!element || !ctx || !viewportRef.current) return;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.ceil(visible.width * ratio), Math.ceil(visible.height * ratio)];
    if (element.width !== w || element.height !== h) [element.width, element.height] = [w, h];
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const viewport = { x: viewportRef.current.scrollLeft, y: viewportRef.current.scrollTop, ...visible };
    paint(ctx, grid, geometry, palette, viewport, { hover: hovered, selected, highlights });
  };
  useEffect(draw);

  const frame = useRef(0);
  const scheduleDraw = (): void => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(draw);
  };

  const cellUnder = (event: MouseEvent): Cell | null => {
    const box = viewportRef.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x < geometry.left || y < geometry.top) return null;
    return cellAt(grid, geometry, x + viewportRef.current!.scrollLeft, y + viewportRef.current!.scrollTop);
  };
  const hover = (cell: Cell | null): void => {
    if (cell?.row !== hovered?.row || cell?.col !== hovered?.col) setHovered(cell);
  };
  const select = (cell: Cell): void => {
    scrollTo(cell);
    if (!onSelect) return hover(cell);
    onSelect(cell);
    // On a small screen the Inspector covers the lower half: keep the clicked cell visible.
    if (matchMedia("(max-width: 860px)").matches)
      setTimeout(() =>
        viewportRef.current
          ?.closest("figure")
          ?.scrollIntoView({ block: "start", behavior: prefersReducedMotion() ? "auto" : "smooth" }),
      );
  };
  const scrollTo = ({ row, col }: Cell): void => {
    const box = viewportRef.current!;
    const [x, y] = [col * geometry.cellWidth, row * geometry.cellHeight];
    const [w, h] = [
      box.clientWidth - geometry.left - geometry.cellWidth,
      box.clientHeight - geometry.top - geometry.cellHeight,
    ];
    box.scrollLeft = Math.max(x - w, Math.min(box.scrollLeft, x));
    box.scrollTop = Math.max(y - h, Math.min(box.scrollTop, y));
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const current = selected ?? hovered ?? { row: 0, col: -1 };
    const moves: Record<string, Cell> = {
      ArrowUp: { row: current.row - 1, col: current.col },
      ArrowDown: { row: current.row + 1, col: current.col },
      ArrowLeft: { row: current.row, col: current.col - 1 },
      ArrowRight: { row: current.row, col: current.col + 1 },
      Home: { row: current.row, col: 0 },
      End: { row: current.row, col: grid.cols - 1 },
      PageUp: { row: current.row - 10, col: current.col },
      PageDown: { row: current.row + 10, col: current.col },
    };
    const move = moves[event.key];
    if (move) {
      const clamp = (n: number, size: number): number => Math.max(0, Math.min(size - 1, n));
      select({ row: clamp(move.row, grid.rows), col: clamp(move.col, grid.cols) });
    } else if (event.key === "+" || event.key === "=") setZoom(Math.min(16, zoom * 1.5));
    else if (event.key === "-") setZoom(Math.max(1, zoom / 1.5));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const active = hovered ?? selected;
  return (
    <figure class={grid.cols > MAX_NARROW_COLUMNS ? "matrix wide" : "matrix"} ref={figureRef} data-matrix={grid.name}>
      <figcaption>
        <span class="matrix-title">{title ?? grid.name}</span>
        <span class="shape">
          {grid.rows} × {grid.cols}
        </span>
        <ColorScale
          scale={grid.scale}
          ends={[formatNumber(grid.scale === "diverging" ? -maxMagnitude(grid) : 0), formatNumber(maxMagnitude(grid))]}
        />
        <span class="toolbar">
          {geometry.width > width + 1 || geometry.cellWidth < 42 ? (
            <>
              <button
                aria-label="zoom out"
                title="zoom out (−)"
                disabled={zoom <= 1}
                onClick={() => setZoom(Math.max(1, zoom / 1.5))}
              >
                −
              </button>
              <button aria-label="zoom in" title="zoom in (+)" onClick={() => setZoom(Math.min(16, zoom * 1.5))}>
                +
              </button>
            </>
          ) : null}
          {FORMATS.map((format) => (
            <button key={format} title={`save as ${format.toUpperCase()}`} onClick={() => void exportMatrix(grid, format)}>
              {format}
            </button>
          ))}
        </span>
      </figcaption>
      <div
        class="matrix-viewport"
        ref={viewportRef}
        style={{ maxHeight: `${maxHeight}px` }}
        tabIndex={0}
        role="grid"
        aria-label={`${title ?? grid.name}, ${grid.rows} by ${grid.cols}`}
        aria-rowcount={grid.rows}
        aria-colcount={grid.cols}
        aria-activedescendant={active ? `${id}-${active.row}-${active.col}` : undefined}
        onScroll={scheduleDraw}
        onMouseMove={(event) => hover(cellUnder(event))}
        onMouseLeave={() => hover(null)}
        onClick={(event) => {
          const cell = cellUnder(event);
          if (cell) select(cell);
        }}
        onKeyDown={onKey}
      >
        <div style={{ width: `${geometry.width}px`, height: `${geometry.height}px` }}>
          <canvas ref={canvas} aria-hidden="true" style={{ width: `${visible.width}px`, height: `${visible.height}px` }} />
          <AccessibleGrid grid={grid} id={id} active={active} selected={selected} />
        </div>
      </div>
      <p class="readout">{active ? describeCell(grid, active) : " "}</p>
    </figure>
  );
}

function describeCell(grid: Grid, cell: Cell): string {
  const value = valueAt(grid, cell);
  const row = grid.rowLabels[cell.row] ?? `${grid.rowAxis} ${cell.row}`;
  const col = grid.colLabels[cell.col] ?? `${grid.colAxis} ${cell.col}`;
  return `${row}${inLatin(row)} · ${col}${inLatin(col)}:  ${formatFloat32(value)}${isMasked(grid, cell) ? ", masked" : ""}`;
}

/** A colour scale with the values at its ends. */
export function ColorScale({ scale, ends }: { scale: Scale; ends: readonly [string, string] }) {
  const palette = usePalette();
  const from = scale === "diverging" ? -1 : 0;
  const stops = Array.from({ length: 9 }, (_, i) => toCss(colorFor(from + ((1 - from) * i) / 8, 1, palette)));
  return (
    <span class="legend">
      {ends[0]}
      <i style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />
      {ends[1]}
    </span>
  );
}

/** The magnitude at the end of a grid's scale, such as "±2.13" or "0 … 1". */
export const scaleText = (grid: Grid): string =>
  grid.scale === "diverging" ? `±${formatNumber(maxMagnitude(grid))}` : `0 … ${formatNumber(maxMagnitude(grid))}`;

const MAX_ACCESSIBLE_CELLS = 600;

/** The cells as elements: all of a small matrix; of a large one, those around the active cell. */
function AccessibleGrid({
  grid,
  id,
  active,
  selected,
}: {
  grid: Grid;
  id: string;
  active: Cell | null;
  selected: Cell | null;
}) {
  const all = grid.rows * grid.cols <= MAX_ACCESSIBLE_CELLS;
  const center = active ?? { row: 0, col: 0 };
  const range = (middle: number, size: number, radius: number): number[] => {
    const from = all ? 0 : Math.max(0, middle - radius);
    return Array.from({ length: all ? size : Math.min(size, middle + radius + 1) - from }, (_, i) => from + i);
  };
  const rows = range(center.row, grid.rows, 1);
  const cols = range(center.col, grid.cols, 20);
  return (
    <div class="visually-hidden" role="rowgroup">
      {rows.map((row) => (
        <div role="row" aria-rowindex={row + 1} key={row}>
          <span role="rowheader">{grid.rowLabels[row] ?? row}</span>
          {cols.map((col) => (
            <span
              role="gridcell"
              key={col}
              id={`${id}-${row}-${col}`}
              aria-colindex={col + 1}
              aria-selected={selected?.row === row && selected.col === col}
              data-cell={`${row},${col}`}
            >
              {`${grid.colLabels[col] ?? col}: ${isMasked(grid, { row, col }) ? "masked" : formatNumber(valueAt(grid, { row, col }), 4)}`}
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}

const THUMBNAIL_SIZE = 96; // pixels

/** A small matrix with colours only. */
export function Thumbnail({ grid, title }: { grid: Grid; title?: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  useEffect(() => {
    const element = canvas.current!;
    const ctx = element.getContext("2d")!;
    element.width = element.height = THUMBNAIL_SIZE;
    ctx.imageSmoothingEnabled = false;
    const small = pool(grid, THUMBNAIL_SIZE);
    ctx.drawImage(
      pixels(small, palette, { row: 0, col: 0, rows: small.rows, cols: small.cols }),
      0,
      0,
      element.width,
      element.height,
    );
  }, [grid, palette]);
  return <canvas ref={canvas} class="thumbnail" aria-hidden="true" title={title} />;
}
