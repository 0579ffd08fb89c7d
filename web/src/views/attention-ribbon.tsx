// Attention weights as bands between two lines of tokens; the width of a band is the weight.
import { useMemo, useRef, useState } from "preact/hooks";
import type { Tensor } from "../api";
import { formatPercent } from "../format";
import { useFontLoaded, useWidth } from "../hooks";
import { exportDrawing } from "../matrix/export";
import { FONT } from "../matrix/paint";

interface AttentionRibbonProps {
  above: readonly string[];
  below: readonly string[];
  weights: Tensor; // [below, above]
  row: number;
  onRow: (row: number) => void;
}

const MAX_BANDS = 800; // the strongest; more would be slow and unreadable
const SPECIAL_TOKEN = /^<.*>$/;
const MIN_WEIGHT = 0.04; // of the visible bands; lower if a token is selected
const MIN_WEIGHT_SELECTED = 0.005;

export function AttentionRibbon({ above, below, weights, row, onRow }: AttentionRibbonProps) {
  const [container, width] = useWidth<HTMLDivElement>();
  const drawing = useRef<SVGSVGElement>(null);
  const fontLoaded = useFontLoaded();
  const [hovered, setHovered] = useState<{ side: "above" | "below"; index: number } | null>(null);
  const narrow = width > 0 && width < 480;
  const size = narrow ? 14 : 17;
  const layout = useMemo(() => {
    const ctx = document.createElement("canvas").getContext("2d")!;
    ctx.font = `${size}px ${FONT}`;
    const tokenWidths = [above, below].map((tokens) => {
      const texts = tokens.map((token) => ctx.measureText(token).width);
      const available = (width - texts.reduce((a, b) => a + b, 0)) / texts.length;
      const spacing = Math.max(narrow ? 8 : 12, Math.min(26, available));
      return texts.map((text) => text + spacing);
    });
    const lengths = tokenWidths.map((widths) => widths.reduce((a, b) => a + b, 0));
    const total = Math.max(...lengths, width || 0);
    // Spread over the available width, with a limit on the spacing.
    return {
      width: total,
      centers: tokenWidths.map((widths, i) => {
        const extra = Math.min(48, (Math.min(total, 1100) - lengths[i]) / Math.max(1, widths.length));
        let x = (total - lengths[i] - extra * widths.length) / 2;
        return widths.map((w) => (x += w + extra) - (w + extra) / 2);
      }),
    };
  }, [above, below, width, fontLoaded]);

  const selected = hovered ?? (row >= 0 ? { side: "below" as const, index: row } : null);
  const isVisible = (t: number, s: number): boolean => !selected || (selected.side === "below" ? selected.index === t : selected.index === s);
  const weight = (t: number, s: number): number => weights.data[t * above.length + s] ?? 0;
  const [top, bottom] = [46, 216];
  const bands: { t: number; s: number; w: number }[] = [];
  const minWeight = selected ? MIN_WEIGHT_SELECTED : MIN_WEIGHT;
  for (let t = 0; t < below.length; t++)
    for (let s = 0; s < above.length; s++) if (weight(t, s) >= minWeight && isVisible(t, s)) bands.push({ t, s, w: weight(t, s) });
  if (bands.length > MAX_BANDS) bands.sort((a, b) => b.w - a.w).length = MAX_BANDS;
  const weightOf = (side: "above" | "below", index: number): number | null => {
    if (!selected || selected.side === side) return null;
    return side === "above" ? weight(selected.index, index) : weight(index, selected.index);
  };

  const renderToken = (side: "above" | "below", text: string, index: number) => {
    const selectedWeight = weightOf(side, index);
    const isActive = selected?.side === side ? selected.index === index : (selectedWeight ?? 0) >= 0.15;
    const y = side === "above" ? top - 12 : bottom + 26;
    return (
      <g
        key={`${side}${index}`}
        onMouseEnter={() => setHovered({ side, index })}
        onMouseLeave={() => setHovered(null)}
        onClick={() => side === "below" && onRow(index === row ? -1 : index)}
      >
        <rect x={layout.centers[side === "above" ? 0 : 1][index] - 24} y={y - 22} width="48" height="32" fill="transparent" />
        <text
          class={`token${isActive ? " active" : selected ? " faded" : ""}${SPECIAL_TOKEN.test(text) ? " secondary" : ""}`}
          x={layout.centers[side === "above" ? 0 : 1][index]}
          y={y}
          font-size={SPECIAL_TOKEN.test(text) ? size - 4 : size}
        >
          {text}
        </text>
        {selectedWeight !== null && selectedWeight >= 0.01 ? (
          <text class="token secondary" x={layout.centers[side === "above" ? 0 : 1][index]} y={side === "above" ? y - 22 : y + 22} font-size="13">
            {formatPercent(selectedWeight)}
          </text>
        ) : null}
      </g>
    );
  };

  return (
    <div class="ribbon" ref={container}>
      <svg ref={drawing} width={layout.width} height={270} role="img" aria-label="attention weights between output and input tokens">
        {bands.map(({ t, s, w }) => (
          <path
            key={`${t},${s}`}
            class="band"
            d={`M${layout.centers[0][s]} ${top}C${layout.centers[0][s]} ${top + 80} ${layout.centers[1][t]} ${bottom - 80} ${layout.centers[1][t]} ${bottom}`}
            stroke-width={Math.max(0.75, w * 16)}
            opacity={0.12 + 0.6 * w}
          >
            <title>{`${below[t]} → ${above[s]}: ${formatPercent(w)}`}</title>
          </path>
        ))}
        {above.map((text, index) => renderToken("above", text, index))}
        {below.map((text, index) => renderToken("below", text, index))}
      </svg>
      <span class="toolbar">
        {(["svg", "png"] as const).map((format) => (
          <button key={format} title={`save as ${format.toUpperCase()}`} onClick={() => void exportDrawing(drawing.current!, "attention-ribbon", format)}>
            {format}
          </button>
        ))}
      </span>
    </div>
  );
}
