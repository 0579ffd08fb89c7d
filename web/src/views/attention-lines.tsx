// Attention weights as lines between tokens, as wide as the weight: ribbons from the output to the input for cross-attention,
// arcs over one line of tokens for self-attention. One head or the mean in the accent colour, or several heads, each in its own.
// A token that is hovered, focused or selected shows only its own lines, with their weights. Long texts scroll.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Tensor, Trace } from "../api";
import { type Attention, keyLabels, loadAttention, queryTokens, tokenTexts } from "../architecture";
import { formatPercent } from "../format";
import { latestValue, useAsync, useFontLoaded, useFontSize, useWidth } from "../hooks";
import { exportDrawing } from "../matrix/export";
import { FONT } from "../matrix/paint";
import { useSession } from "../session";
import { hasDevanagari, transliterate } from "../transliteration";
import { ErrorMessage, Loading, Slider } from "../ui";
import { navigate, useUrlState } from "../url-state";

type Side = "query" | "key";
interface TokenRef {
  side: Side;
  index: number;
}
interface Line {
  head: number; // −1: the mean
  query: number;
  key: number;
  weight: number;
}

const MAX_LINES = 800; // the strongest; more would be slow and unreadable
const MIN_SELECTED = 0.005; // the smallest weight that is drawn for a selected token
const SPECIAL_TOKEN = /^<.*>$/;

/** The heads that are drawn: several from `lines`, or the selected one; −1 is the mean. */
export const drawnHeads = (lines: string, head: number): number[] =>
  /^\d+(,\d+)+$/.test(lines) ? lines.split(",").map(Number) : [head];

/** Distinct colours of equal lightness; several heads are told apart by hue. */
const headColor = (head: number, heads: number): string =>
  `oklch(var(--line-lightness) 0.17 ${Math.round((head * 360) / heads + 20)})`;

/** Chips that switch heads on and off, and the smallest weight that is drawn. */
export function LineControls({ head }: { head: number }) {
  const { model } = useSession();
  const { lines, threshold } = useUrlState();
  const { heads } = model.config.model;
  const drawn = drawnHeads(lines, head).filter((one) => one >= 0);
  const draw = (next: readonly number[]): void =>
    navigate(next.length > 1 ? { lines: next.join(",") } : { lines: "", head: next[0] ?? -1, cell: "" });
  const toggle = (one: number): void =>
    draw(drawn.includes(one) ? drawn.filter((other) => other !== one) : [...drawn, one].sort((a, b) => a - b));
  const all = Array.from({ length: heads }, (_, i) => i);
  return (
    <div class="line-controls">
      {heads > 1 ? (
        <div class="head-chips" role="group" aria-label="heads to draw">
          <button class="chip" aria-pressed={drawn.length === 0} onClick={() => draw([])}>
            mean
          </button>
          {all.map((one) => (
            <button
              key={one}
              class="chip"
              aria-pressed={drawn.includes(one)}
              aria-label={`head ${one}`}
              onClick={() => toggle(one)}
            >
              <i class="dot" style={{ background: headColor(one, heads) }} />
              {one}
            </button>
          ))}
          <button class="chip" aria-pressed={drawn.length === heads} onClick={() => draw(all)}>
            all
          </button>
        </div>
      ) : null}
      <Slider
        label="from weight"
        value={threshold}
        min={0.01}
        max={0.5}
        step={0.01}
        valueText={formatPercent(threshold)}
        onChange={(next) => navigate({ threshold: next })}
      />
    </div>
  );
}

interface AttentionLinesProps {
  trace: Trace;
  attention: Attention;
  heads: readonly number[];
  row: number; // the selected query; −1: none
  onRow: ((row: number) => void) | undefined;
}

export function AttentionLines({ trace, attention, heads, row, onRow }: AttentionLinesProps) {
  const loaded = useAsync(
    async () => ({
      trace,
      attention,
      heads,
      weights: await Promise.all(heads.map((head) => loadAttention(trace, attention, head, "weights"))),
    }),
    [trace.id, attention.name, heads.join()],
  );
  const latest = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  return latest ? (
    <Drawing {...latest} row={latest.trace.id === trace.id ? row : -1} onRow={onRow} />
  ) : (
    <Loading what="attention weights" />
  );
}

function Drawing({ trace, attention, heads, weights, row, onRow }: AttentionLinesProps & { weights: readonly Tensor[] }) {
  const { model } = useSession();
  const { threshold } = useUrlState();
  const [container, width] = useWidth<HTMLDivElement>();
  const drawing = useRef<SVGSVGElement>(null);
  const fontLoaded = useFontLoaded();
  const unit = useFontSize() / 12;
  const [hovered, setHovered] = useState<TokenRef | null>(null);
  const isCross = attention.kind === "cross";
  const [keys, reads] = useMemo(
    () => [keyLabels(trace, attention), tokenTexts(queryTokens(trace, attention))],
    [trace.id, attention.name],
  );
  const writes = attention.stack === "decoder" ? trace.target_tokens.map(({ text }) => text) : [];
  const size = unit * (width > 0 && width < 480 ? 14 : 17);
  const layout = useMemo(
    () =>
      isCross
        ? layoutTokens(keys, writes, reads, width, size, 12 * unit)
        : layoutTokens(reads, reads, writes, width, size, 12 * unit),
    [trace.id, attention.name, width, fontLoaded, unit],
  );
  const x = (side: Side, index: number): number => layout.centers[isCross && side === "query" ? 1 : 0][index];

  const selected = hovered ?? (row >= 0 && row < reads.length ? ({ side: "query", index: row } as const) : null);
  const all = useMemo(
    () => collectLines(heads, weights, keys.length, selected ? Math.min(threshold, MIN_SELECTED) : threshold, selected),
    [weights, threshold, selected?.side, selected?.index],
  ); // prettier-ignore
  const weightOf = (query: number, key: number): number =>
    Math.max(...weights.map(({ data }) => data[query * keys.length + key] ?? 0));
  const bothWays = attention.kind === "self";
  const latinHeight = (texts: readonly string[]): number => (texts.some(hasDevanagari) ? 16 * unit : 0);
  const [keyLatin, queryLatin] = [isCross ? latinHeight(keys) : 0, latinHeight(isCross ? writes : reads)];
  const top = isCross ? 48 * unit + keyLatin : ARC_HEIGHT + 24;
  const bottom = isCross ? top + 170 : top + 28 * unit + queryLatin;
  const height = bottom + (bothWays ? ARC_HEIGHT : 0) + (isCross ? 66 * unit + queryLatin : 36 * unit);
  useEffect(() => {
    if (row >= 0 && layout.width > width)
      drawing.current?.parentElement?.scrollTo({ left: x("query", row) - width / 2, behavior: "smooth" });
  }, [row, layout]);

  const pathOf = ({ head, query, key }: Line): string => {
    const aside = (heads.indexOf(head) - (heads.length - 1) / 2) * Math.min(4, 20 / heads.length); // of several heads, side by side
    return (isCross ? ribbonPath : arcPath)(x("query", query) + aside, x("key", key) + aside, top, bottom);
  };

  /** The token that an arrow key leads to: a neighbour, or the other line. */
  const neighbour = (pressed: string, { side, index }: TokenRef): string | null => {
    if (pressed === "ArrowLeft" || pressed === "ArrowRight") return `${side} ${index + (pressed === "ArrowLeft" ? -1 : 1)}`;
    if (!isCross) return null;
    if (pressed === "ArrowUp") return `key ${Math.min(index, keys.length - 1)}`;
    return pressed === "ArrowDown" ? `query ${Math.min(index, reads.length - 1)}` : null;
  };
  const onKey = (event: KeyboardEvent, token: TokenRef): void => {
    const target = neighbour(event.key, token);
    if (target) drawing.current!.querySelector<SVGGElement>(`[data-token="${target}"]`)?.focus();
    else if (event.key === "Enter" || event.key === " ") choose(token);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const choose = ({ side, index }: TokenRef): void => {
    if (side === "query") onRow?.(index === row ? -1 : index);
  };

  const renderToken = (side: Side, index: number) => {
    const isQuery = side === "query";
    const text = isCross && isQuery ? writes[index] : isQuery ? reads[index] : keys[index];
    const below = !isQuery ? "" : isCross ? `read ${reads[index]}` : writes[index] ? `▸ ${writes[index]}` : "";
    // In arcs a token is query and key at once: its weight is that of the selected query.
    const weight =
      !selected || (isCross && selected.side === side)
        ? null
        : isQuery && isCross
          ? weightOf(index, selected.index)
          : weightOf(selected.index, index);
    const percent = weight !== null && weight >= 0.01 ? formatPercent(weight) : "";
    const isSelected = selected?.side === side && selected.index === index;
    const latinText = hasDevanagari(text) ? transliterate(text) : "";
    const visible = [text, latinText, below, percent].filter(Boolean).join(" ");
    const latin = isQuery ? queryLatin : keyLatin;
    const y = isCross && isQuery ? bottom + 24 * unit : isCross ? top - 12 - latin : top + 19;
    const percentY = y + unit * (isCross ? (isQuery ? 36 : -22) : below ? 35 : 18) + (isQuery ? latin : 0);
    const faded = selected && !isSelected && (weight ?? 0) < 0.15;
    const isSpecial = SPECIAL_TOKEN.test(text);
    const center = x(side, index);
    return (
      <g
        key={`${side}${index}`}
        data-token={`${side} ${index}`}
        class="line-token"
        role="button"
        tabIndex={index === (selected?.side === side ? selected.index : 0) ? 0 : -1}
        aria-label={isSelected ? describeToken(side, index, visible) : visible}
        aria-pressed={isQuery && index === row}
        onMouseEnter={() => setHovered({ side, index })}
        onMouseLeave={() => setHovered(null)}
        onFocus={(event) => (event.currentTarget as Element).matches(":focus-visible") && setHovered({ side, index })}
        onBlur={() => setHovered(null)}
        onClick={() => choose({ side, index })}
        onKeyDown={(event) => onKey(event, { side, index })}
      >
        <rect x={center - 24} y={y - 20} width="48" height={(below ? 42 : 28) + latin} fill="transparent" />
        <text
          class={`token${isSelected ? " active" : faded ? " faded" : ""}${isSpecial ? " secondary" : ""}`}
          x={center}
          y={y}
          font-size={isSpecial ? size - 4 : size}
        >
          {text}
        </text>{" "}
        {latinText ? (
          <text class="token secondary" x={center} y={y + 17 * unit} font-size={12 * unit} lang="hi-Latn">
            {latinText}
          </text>
        ) : null}{" "}
        {below ? (
          <text class="token secondary" x={center} y={y + 18 * unit + latin} font-size={12 * unit}>
            {below}
          </text>
        ) : null}{" "}
        {percent ? (
          <text class="token secondary" x={center} y={percentY} font-size={13 * unit}>
            {percent}
          </text>
        ) : null}
      </g>
    );
  };
  /** What is written at a token, and what it attends to. */
  const describeToken = (side: Side, index: number, visible: string): string => {
    const others =
      side === "query"
        ? keys.map((text, key) => [weightOf(index, key), text] as const)
        : reads.map((_, query) => [weightOf(query, index), writes[query] ?? reads[query]] as const);
    const most = others
      .sort((a, b) => b[0] - a[0])
      .slice(0, 2)
      .map(([weight, text]) => `${text} ${formatPercent(weight)}`); // prettier-ignore
    return `${visible}: ${side === "query" ? "attends to" : "attended by"} ${most.join(", ")}`;
  };
  return (
    <div class="lines">
      <div class="lines-scroll" ref={container}>
        <svg ref={drawing} width={layout.width} height={height} role="group" aria-label="attention weights between tokens">
          {all.map((line) => (
            <path
              key={`${line.head},${line.query},${line.key}`}
              class="band"
              d={pathOf(line)}
              stroke={heads.length > 1 ? headColor(line.head, model.config.model.heads) : "var(--accent)"}
              stroke-width={Math.max(0.75, line.weight * (heads.length > 1 ? 8 : 16))}
              opacity={0.15 + 0.6 * line.weight}
            />
          ))}
          {isCross ? keys.map((_, index) => renderToken("key", index)) : null}
          {reads.map((_, index) => renderToken("query", index))}
        </svg>
      </div>
      <span class="toolbar">
        {(["svg", "png"] as const).map((format) => (
          <button
            key={format}
            title={`save as ${format.toUpperCase()}`}
            onClick={() => void exportDrawing(drawing.current!, "attention-lines", format)}
          >
            {format}
          </button>
        ))}
      </span>
    </div>
  );
}

const ARC_HEIGHT = 120;

/** From the output below to the input above. */
const ribbonPath = (from: number, to: number, top: number, bottom: number): string =>
  `M${to} ${top}C${to} ${top + 80} ${from} ${bottom - 80} ${from} ${bottom}`;

/** Back to earlier tokens above the line, on to later ones below it; a loop for the token itself. */
function arcPath(from: number, to: number, top: number, bottom: number): string {
  if (from === to) return `M${from - 6} ${top}C${from - 30} ${top - 52} ${from + 30} ${top - 52} ${from + 6} ${top}`;
  const edge = to < from ? top : bottom;
  const tip = edge + Math.sign(to - from) * Math.min(ARC_HEIGHT * 1.25, 18 + Math.abs(from - to) * 0.55);
  return `M${from} ${edge}C${from} ${tip} ${to} ${tip} ${to} ${edge}`;
}

/** The lines of all heads from a weight on, at most so many; of a selected token only its own. */
function collectLines(
  heads: readonly number[],
  weights: readonly Tensor[],
  keys: number,
  from: number,
  selected: TokenRef | null,
): Line[] {
  const lines = heads.flatMap((head, n) => {
    const { data } = weights[n];
    const found: Line[] = [];
    for (let i = 0; i < data.length; i++) {
      if (data[i] < from) continue;
      const [query, key] = [Math.floor(i / keys), i % keys];
      if (!selected || selected.index === (selected.side === "query" ? query : key))
        found.push({ head, query, key, weight: data[i] });
    }
    return found;
  });
  if (lines.length > MAX_LINES) lines.sort((a, b) => b.weight - a.weight).length = MAX_LINES;
  return lines;
}

/** The centres of two lines of tokens, spread over the width with a limit on the spacing; wider if they need it. */
function layoutTokens(
  above: readonly string[],
  below: readonly string[],
  small: readonly string[],
  width: number,
  size: number,
  smallSize: number,
) {
  const ctx = document.createElement("canvas").getContext("2d")!;
  const measure = (text: string, pixels: number): number => {
    ctx.font = `${pixels}px ${FONT}`;
    return ctx.measureText(text).width;
  };
  const word = (text: string): number =>
    Math.max(measure(text, size), hasDevanagari(text) ? measure(transliterate(text), smallSize) : 0);
  const widths = [
    above.map(word),
    below.map((text, i) => Math.max(word(text), small[i] ? measure(`read ${small[i]}`, smallSize) : 0)),
  ];
  if (above === below) widths[0] = widths[1];
  const sum = (all: readonly number[]): number => all.reduce((a, b) => a + b, 0);
  const gap = width < 480 ? 8 : 14;
  const total = Math.max(width, ...widths.map((all) => sum(all) + all.length * gap));
  const centers = widths.map((all) => {
    const spacing = Math.max(gap, Math.min(74, (Math.min(total, Math.max(width, 1)) - sum(all)) / Math.max(1, all.length)));
    let x = Math.max(0, (total - sum(all) - spacing * all.length) / 2);
    return all.map((each) => {
      x += each + spacing;
      return x - (each + spacing) / 2;
    });
  });
  return { width: total, centers };
}
