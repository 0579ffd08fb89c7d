// A cloud of words on a canvas, in two or three dimensions: drag to move or turn it, arrow keys and + − do the same.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Rgb, toCss } from "../../color";
import { useFontLoaded, usePalette, useWidth } from "../../hooks";
import { FONT } from "../../matrix/paint";
import { hasDevanagari, transliterate } from "../../transliteration";
import { type Camera, FLAT, frameOf, type Point, placeLabels, projector, type ScreenPoint, SOLID } from "./scene";

export type Tone = "word" | "near" | "first" | "second"; // of the vocabulary, its highlighted words, and the two texts

export interface Mark {
  key: string;
  label: string;
  point: Point;
  tone: Tone;
  strong?: boolean;
  quiet?: boolean; // labelled only under the pointer
}

export interface Line {
  points: readonly Point[];
  tone: Tone;
  kind: "path" | "faint" | "arrow" | "dashed";
}

interface ScatterProps {
  marks: readonly Mark[]; // the more important ones first
  lines: readonly Line[];
  framed: readonly Point[]; // what must be in view
  dimensions: number;
  name: string;
  description: string; // for screen readers
  onSelect: (key: string) => void;
}

const MIN_HEIGHT = 320;
const HIT = 14; // pixels
const SAME = 16; // pixels
const LINE = 17; // pixels from a word to its transliteration
const TURN = 0.12; // radians per key
const SHIFT = 40; // pixels per key

export function Scatter({ marks, lines, framed, dimensions, name, description, onSelect }: ScatterProps) {
  const [figure, width] = useWidth<HTMLElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  const fontLoaded = useFontLoaded();
  const start = dimensions === 3 ? SOLID : FLAT;
  const [camera, setCamera] = useState(start);
  const [hovered, setHovered] = useState("");
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  useEffect(() => setCamera(start), [dimensions, name]);
  const height = Math.max(MIN_HEIGHT, Math.min(innerHeight * 0.6, width * 0.8));
  const frame = useMemo(() => frameOf(framed, dimensions), [framed, dimensions]);
  const project = projector(camera, frame, width, height);
  const flat = (point: Point): ScreenPoint => project(dimensions === 3 ? point : [point[0], point[1], 0]);

  useEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const ratio = devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    const ctx = element.getContext("2d")!;
    ctx.scale(ratio, ratio);
    const colors: Record<Tone, Rgb> = {
      word: palette.text,
      near: palette.text,
      first: palette.accent,
      second: palette.negative[3],
    };
    const placed = marks.map((mark) => ({ mark, at: flat(mark.point) }));
    for (const { mark, at } of [...placed].reverse()) {
      const isWord = mark.tone === "word";
      ctx.globalAlpha = isWord ? 0.2 + 0.3 * at.depth : 1;
      ctx.fillStyle = toCss(colors[mark.tone]);
      ctx.beginPath();
      ctx.arc(at.x, at.y, (mark.strong ? 6 : isWord ? 2 : 4) * (0.75 + 0.5 * at.depth), 0, 2 * Math.PI);
      ctx.fill();
    }
    for (const { points, tone, kind } of lines) drawLine(ctx, points.map(flat), toCss(colors[tone]), kind);
    ctx.textBaseline = "middle";
    const visible = placed.filter(
      ({ mark, at }) => (!mark.quiet || mark.key === hovered) && at.x > -40 && at.x < width && at.y > 0 && at.y < height,
    );
    const places = new Set<string>(); // a repeated word at the same place is named once
    const named = visible.filter(({ mark, at }) => {
      const place = `${mark.label} ${Math.round(at.x / SAME)} ${Math.round(at.y / SAME)}`;
      return !places.has(place) && places.add(place);
    });
    named.sort((a, b) => Number(b.mark.key === hovered) - Number(a.mark.key === hovered));
    const linesOf = ({ label, tone, strong, key }: Mark): { text: string; font: string }[] => {
      const isSmall = tone === "word" && key !== hovered;
      const line = {
        text: label,
        font: `${strong || key === hovered ? 650 : tone === "word" ? 400 : 550} ${isSmall ? 12 : 15}px ${FONT}`,
      };
      return hasDevanagari(label) && !isSmall ? [line, { text: transliterate(label), font: `400 12px ${FONT}` }] : [line];
    };
    const labels = named.map(({ mark, at }) => {
      const lines = linesOf(mark);
      const widths = lines.map(({ text, font }) => {
        ctx.font = font;
        return ctx.measureText(text).width;
      });
      return {
        x: at.x,
        y: at.y,
        width: Math.max(...widths),
        height: (lines.length - 1) * LINE + (mark.tone === "word" ? 15 : 20),
      };
    });
    placeLabels(labels, width).forEach((left, i) => {
      if (left === null) return;
      const { mark, at } = named[i];
      ctx.globalAlpha = mark.tone === "word" && mark.key !== hovered ? 0.7 + 0.3 * at.depth : 1;
      ctx.lineWidth = 4;
      ctx.lineJoin = "round";
      ctx.strokeStyle = toCss(palette.surface);
      ctx.fillStyle = toCss(colors[mark.tone]);
      linesOf(mark).forEach(({ text, font }, n, lines) => {
        const y = at.y + (n - (lines.length - 1) / 2) * LINE;
        ctx.font = font;
        ctx.strokeText(text, left, y);
        ctx.fillText(text, left, y);
      });
    });
    ctx.globalAlpha = 1;
  });

  const hit = (event: PointerEvent | MouseEvent): string => {
    const box = canvas.current!.getBoundingClientRect();
    let best = { key: "", distance: HIT };
    for (const { key, point } of marks) {
      const at = flat(point);
      const distance = Math.hypot(at.x - (event.clientX - box.x), at.y - (event.clientY - box.y));
      if (distance < best.distance) best = { key, distance };
    }
    return best.key;
  };
  const move = (x: number, y: number): void =>
    setCamera((old) =>
      dimensions === 3
        ? { ...old, turn: old.turn + x, tilt: Math.min(1.5, Math.max(-1.5, old.tilt + y)) }
        : { ...old, x: old.x + x, y: old.y + y },
    );
  const zoom = (factor: number): void => setCamera((old) => zoomed(old, factor));
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = dimensions === 3 ? TURN : SHIFT;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => move(dimensions === 3 ? -step : step, 0),
      ArrowRight: () => move(dimensions === 3 ? step : -step, 0),
      ArrowUp: () => move(0, dimensions === 3 ? -step : step),
      ArrowDown: () => move(0, dimensions === 3 ? step : -step),
      "+": () => zoom(1.25),
      "=": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": () => setCamera(start),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    moves[event.key]();
    event.preventDefault();
  };
  return (
    <figure class="matrix scatter" ref={figure}>
      <figcaption>
        <span class="muted">
          {dimensions === 3 ? "drag or use the arrow keys to turn" : "drag or use the arrow keys to move"}; click a word
        </span>
        <span class="toolbar">
          <button aria-label="zoom out" onClick={() => zoom(0.8)}>
            −
          </button>
          <button aria-label="zoom in" onClick={() => zoom(1.25)}>
            +
          </button>
          <button onClick={() => setCamera(start)}>reset</button>
        </span>
      </figcaption>
      <canvas
        ref={canvas}
        style={{ width: "100%", height: `${height}px` }}
        tabIndex={0}
        role="img"
        aria-label={description}
        data-scatter={name}
        data-turn={camera.turn.toFixed(3)}
        data-zoom={camera.zoom.toFixed(3)}
        data-font={fontLoaded}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) return setHovered(hit(event));
          const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
          if (!from.moved && Math.hypot(dx, dy) < 4) return;
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          if (dimensions === 3) move(dx / 150, dy / 150);
          else move(dx, dy);
        }}
        onPointerUp={(event) => {
          const key = drag.current?.moved ? "" : hit(event);
          drag.current = null;
          if (key) onSelect(key);
        }}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => setHovered("")}
        onWheel={(event) => {
          if (!event.ctrlKey) return; // a pinch; the plain wheel scrolls the page
          event.preventDefault();
          zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
        }}
      />
    </figure>
  );
}

const zoomed = (camera: Camera, factor: number): Camera => {
  const zoom = Math.min(20, Math.max(0.5, camera.zoom * factor));
  return { ...camera, zoom, x: (camera.x * zoom) / camera.zoom, y: (camera.y * zoom) / camera.zoom };
};

function drawLine(ctx: CanvasRenderingContext2D, points: readonly ScreenPoint[], color: string, kind: Line["kind"]): void {
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = { path: 3.5, faint: 1.75, arrow: 2.5, dashed: 1.5 }[kind];
  ctx.globalAlpha = { path: 1, faint: 0.55, arrow: 1, dashed: 0.75 }[kind];
  ctx.setLineDash(kind === "dashed" ? [5, 5] : []);
  ctx.beginPath();
  points.forEach(({ x, y }, i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.stroke();
  ctx.setLineDash([]);
  if (kind === "path" || kind === "faint")
    for (const { x, y } of points) {
      ctx.beginPath();
      ctx.arc(x, y, kind === "path" ? 4 : 2.5, 0, 2 * Math.PI);
      ctx.fill();
    }
  if (kind !== "arrow" || points.length < 2) return;
  const [from, to] = points.slice(-2);
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  ctx.beginPath();
  ctx.moveTo(to.x, to.y);
  for (const side of [-0.4, 0.4]) ctx.lineTo(to.x - 12 * Math.cos(angle + side), to.y - 12 * Math.sin(angle + side));
  ctx.fill();
}
