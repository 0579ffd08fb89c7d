// The one widget for all heat maps. Colours always, figures while they fit, masked cells crossed out; the mouse or the arrows
// choose a cell, rows and columns are linked to whoever else shows them, and a grid of the same figures stands in the page for
// screen readers. Only what is in sight is painted, so a thousand tokens scroll as a dozen do.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colourOf, css } from "../colour";
import { reducedMotion, useFont, usePalette, useWidth } from "../hooks";
import { exact, short } from "../numbers";
import { saveAs, type Format } from "./export";
import { at, cellAt, geometry, isMasked, largest, type Cell, type Grid, type Lit } from "./grid";
import { FONT, paint, pixels } from "./paint";

interface Props {
  grid: Grid;
  title?: string;
  selected?: Cell | null;
  onSelect?: (cell: Cell) => void;
  hover?: Cell | null;
  onHover?: (cell: Cell | null) => void;
  lit?: readonly Lit[];
  tallest?: number; // pixels that it takes before it scrolls
  comfortable?: number; // pixels that a cell is wide where there is place
}

const FORMATS: readonly Format[] = ["svg", "png", "csv"];
const NOTHING: readonly Lit[] = [];
let count = 0;

export function Matrix({ grid, title, selected = null, onSelect, hover, onHover, lit = NOTHING, tallest = 560, comfortable = 56 }: Props) {
  const [place, width] = useWidth<HTMLElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<HTMLDivElement>(null);
  const id = useMemo(() => `matrix-${count++}`, []);
  const palette = usePalette();
  const font = useFont();
  const [zoom, setZoom] = useState(1);
  const [own, setOwn] = useState<Cell | null>(null);
  const over = hover === undefined ? own : hover;
  const measure = useMemo(() => {
    const ctx = document.createElement("canvas").getContext("2d")!;
    ctx.font = `12px ${FONT}`;
    return (text: string) => ctx.measureText(text).width;
  }, [font]);
  const shape = useMemo(() => geometry(grid, width || 600, zoom, measure, comfortable), [grid, width, zoom, measure, comfortable]);
  const height = Math.min(shape.height, tallest);
  const sees = { width: Math.min(width || 600, shape.width), height };

  const draw = (): void => {
    const element = canvas.current;
    const ctx = element?.getContext("2d");
    if (!element || !ctx || !view.current) return;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.ceil(sees.width * ratio), Math.ceil(sees.height * ratio)];
    if (element.width !== w || element.height !== h) [element.width, element.height] = [w, h];
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const sight = { x: view.current.scrollLeft, y: view.current.scrollTop, ...sees };
    paint(ctx, grid, shape, palette, sight, { hover: over, selected, lit });
  };
  useEffect(draw);

  const frame = useRef(0);
  const drawSoon = (): void => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(draw);
  };

  const find = (event: MouseEvent): Cell | null => {
    const box = view.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x < shape.left || y < shape.top) return null;
    return cellAt(grid, shape, x + view.current!.scrollLeft, y + view.current!.scrollTop);
  };
  const point = (cell: Cell | null): void => {
    if (cell?.row === over?.row && cell?.col === over?.col) return;
    setOwn(cell);
    onHover?.(cell);
  };
  const choose = (cell: Cell): void => {
    reveal(cell);
    if (!onSelect) return point(cell);
    onSelect(cell);
    // On a small screen the Inspector rises from below: what was clicked should stay in sight.
    if (matchMedia("(max-width: 860px)").matches)
      setTimeout(() => view.current?.closest("figure")?.scrollIntoView({ block: "start", behavior: reducedMotion() ? "auto" : "smooth" }));
  };
  const reveal = ({ row, col }: Cell): void => {
    const box = view.current!;
    const [x, y] = [col * shape.cellWidth, row * shape.cellHeight];
    const [w, h] = [box.clientWidth - shape.left - shape.cellWidth, box.clientHeight - shape.top - shape.cellHeight];
    box.scrollLeft = Math.max(x - w, Math.min(box.scrollLeft, x));
    box.scrollTop = Math.max(y - h, Math.min(box.scrollTop, y));
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = selected ?? over ?? { row: 0, col: -1 };
    const moves: Record<string, Cell> = {
      ArrowUp: { row: here.row - 1, col: here.col },
      ArrowDown: { row: here.row + 1, col: here.col },
      ArrowLeft: { row: here.row, col: here.col - 1 },
      ArrowRight: { row: here.row, col: here.col + 1 },
      Home: { row: here.row, col: 0 },
      End: { row: here.row, col: grid.cols - 1 },
      PageUp: { row: here.row - 10, col: here.col },
      PageDown: { row: here.row + 10, col: here.col },
    };
    const move = moves[event.key];
    if (move) {
      const within = (n: number, size: number): number => Math.max(0, Math.min(size - 1, n));
      choose({ row: within(move.row, grid.rows), col: within(move.col, grid.cols) });
    } else if (event.key === "+" || event.key === "=") setZoom(Math.min(16, zoom * 1.5));
    else if (event.key === "-") setZoom(Math.max(1, zoom / 1.5));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const told = over ?? selected;
  return (
    <figure class="matrix" ref={place} data-matrix={grid.name}>
      <figcaption>
        <span class="matrix-title">{title ?? grid.name}</span>
        <span class="shape">
          {grid.rows} × {grid.cols}
        </span>
        <Legend grid={grid} />
        <span class="tools">
          {shape.width > width + 1 || shape.cellWidth < 38 ? (
            <>
              <button aria-label="smaller" title="smaller (−)" disabled={zoom <= 1} onClick={() => setZoom(Math.max(1, zoom / 1.5))}>
                −
              </button>
              <button aria-label="larger" title="larger (+)" onClick={() => setZoom(Math.min(16, zoom * 1.5))}>
                +
              </button>
            </>
          ) : null}
          {FORMATS.map((format) => (
            <button key={format} title={`save as ${format.toUpperCase()}`} onClick={() => void saveAs(grid, format)}>
              {format}
            </button>
          ))}
        </span>
      </figcaption>
      <div
        class="matrix-view"
        ref={view}
        style={{ maxHeight: `${tallest}px` }}
        tabIndex={0}
        role="grid"
        aria-label={`${title ?? grid.name}, ${grid.rows} by ${grid.cols}`}
        aria-rowcount={grid.rows}
        aria-colcount={grid.cols}
        aria-activedescendant={told ? `${id}-${told.row}-${told.col}` : undefined}
        onScroll={drawSoon}
        onMouseMove={(event) => point(find(event))}
        onMouseLeave={() => point(null)}
        onClick={(event) => {
          const cell = find(event);
          if (cell) choose(cell);
        }}
        onKeyDown={onKey}
      >
        <div style={{ width: `${shape.width}px`, height: `${shape.height}px` }}>
          <canvas ref={canvas} aria-hidden="true" style={{ width: `${sees.width}px`, height: `${sees.height}px` }} />
          <Spoken grid={grid} id={id} around={told} selected={selected} />
        </div>
      </div>
      <p class="reading">{told ? sentence(grid, told) : " "}</p>
    </figure>
  );
}

function sentence(grid: Grid, cell: Cell): string {
  const value = at(grid, cell);
  const row = grid.rowLabels[cell.row] ?? `${grid.rowAxis} ${cell.row}`;
  const col = grid.colLabels[cell.col] ?? `${grid.colAxis} ${cell.col}`;
  return `${row} · ${col}:  ${exact(value)}${isMasked(grid, cell) ? ", masked" : ""}`;
}

function Legend({ grid }: { grid: Grid }) {
  const palette = usePalette();
  const most = largest(grid);
  const from = grid.scale === "diverging" ? -most : 0;
  const stops = Array.from({ length: 9 }, (_, i) => css(colourOf(from + ((most - from) * i) / 8, most, palette)));
  return (
    <span class="legend" aria-hidden="true">
      {short(from)}
      <i style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />
      {short(most)}
    </span>
  );
}

const MOST_SPOKEN = 600;

/** The grid as elements: all of a small one, of a large one the row that is looked at and what lies around the cell. */
function Spoken({ grid, id, around, selected }: { grid: Grid; id: string; around: Cell | null; selected: Cell | null }) {
  const all = grid.rows * grid.cols <= MOST_SPOKEN;
  const centre = around ?? { row: 0, col: 0 };
  const span = (middle: number, size: number, reach: number): number[] => {
    const from = all ? 0 : Math.max(0, middle - reach);
    return Array.from({ length: all ? size : Math.min(size, middle + reach + 1) - from }, (_, i) => from + i);
  };
  const rows = span(centre.row, grid.rows, 1);
  const cols = span(centre.col, grid.cols, 20);
  return (
    <div class="spoken" role="rowgroup">
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
              {`${grid.colLabels[col] ?? col}: ${isMasked(grid, { row, col }) ? "masked" : short(at(grid, { row, col }), 4)}`}
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}

const STAMP = 96; // pixels

/** A matrix the size of a stamp: colours only. Of more than a thousand rows or columns, the first thousand. */
export function Thumbnail({ grid }: { grid: Grid }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  useEffect(() => {
    const element = canvas.current!;
    const ctx = element.getContext("2d")!;
    element.width = element.height = STAMP;
    ctx.imageSmoothingEnabled = grid.cols > STAMP;
    ctx.drawImage(pixels(grid, palette, { row: 0, col: 0, rows: Math.min(1000, grid.rows), cols: Math.min(1000, grid.cols) }), 0, 0, element.width, element.height);
  }, [grid, palette]);
  return <canvas ref={canvas} class="thumbnail" aria-hidden="true" />;
}
