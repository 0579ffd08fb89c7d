// Where each word of the output looked: two lines of words, and between them bands as wide as the attention's weights.
import { useMemo, useRef, useState } from "preact/hooks";
import type { Tensor } from "../api";
import { useFont, useWidth } from "../hooks";
import { saveDrawing } from "../matrix/export";
import { FONT } from "../matrix/paint";
import { percent } from "../numbers";

interface Props {
  above: readonly string[];
  below: readonly string[];
  weights: Tensor; // [below, above]
  row: number;
  onRow: (row: number) => void;
}

const MOST_BANDS = 800; // the strongest; more would be a grey cloud, and slow
const SPECIAL = /^<.*>$/;
const FAINT = 0.04; // a band that is thinner says nothing; with a word chosen all of its bands are shown

export function Ribbon({ above, below, weights, row, onRow }: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const drawing = useRef<SVGSVGElement>(null);
  const font = useFont();
  const [over, setOver] = useState<{ side: "above" | "below"; index: number } | null>(null);
  const narrow = width > 0 && width < 480;
  const size = narrow ? 14 : 17;
  const lines = useMemo(() => {
    const ctx = document.createElement("canvas").getContext("2d")!;
    ctx.font = `${size}px ${FONT}`;
    const measured = [above, below].map((tokens) => {
      const texts = tokens.map((token) => ctx.measureText(token).width);
      const free = (width - texts.reduce((a, b) => a + b, 0)) / texts.length;
      const space = Math.max(narrow ? 8 : 12, Math.min(26, free));
      return texts.map((text) => text + space);
    });
    const lengths = measured.map((widths) => widths.reduce((a, b) => a + b, 0));
    const whole = Math.max(...lengths, width || 0);
    // Spread over the place, but no wider than words stand apart comfortably.
    return {
      whole,
      at: measured.map((widths, i) => {
        const extra = Math.min(48, (Math.min(whole, 1100) - lengths[i]) / Math.max(1, widths.length));
        let x = (whole - lengths[i] - extra * widths.length) / 2;
        return widths.map((w) => (x += w + extra) - (w + extra) / 2);
      }),
    };
  }, [above, below, width, font]);

  const chosen = over ?? (row >= 0 ? { side: "below" as const, index: row } : null);
  const touches = (t: number, s: number): boolean => !chosen || (chosen.side === "below" ? chosen.index === t : chosen.index === s);
  const weight = (t: number, s: number): number => weights.data[t * above.length + s] ?? 0;
  const [top, bottom] = [46, 216];
  const bands: { t: number; s: number; w: number }[] = [];
  const least = chosen ? 0.005 : FAINT;
  for (let t = 0; t < below.length; t++)
    for (let s = 0; s < above.length; s++) if (weight(t, s) >= least && touches(t, s)) bands.push({ t, s, w: weight(t, s) });
  if (bands.length > MOST_BANDS) bands.sort((a, b) => b.w - a.w).length = MOST_BANDS;
  const share = (side: "above" | "below", index: number): number | null => {
    if (!chosen || chosen.side === side) return null;
    return side === "above" ? weight(chosen.index, index) : weight(index, chosen.index);
  };

  const word = (side: "above" | "below", text: string, index: number) => {
    const part = share(side, index);
    const on = chosen?.side === side ? chosen.index === index : (part ?? 0) >= 0.15;
    const y = side === "above" ? top - 12 : bottom + 26;
    return (
      <g
        key={`${side}${index}`}
        onMouseEnter={() => setOver({ side, index })}
        onMouseLeave={() => setOver(null)}
        onClick={() => side === "below" && onRow(index === row ? -1 : index)}
      >
        <rect x={lines.at[side === "above" ? 0 : 1][index] - 24} y={y - 22} width="48" height="32" fill="transparent" />
        <text
          class={`token${on ? " on" : chosen ? " faded" : ""}${SPECIAL.test(text) ? " end" : ""}`}
          x={lines.at[side === "above" ? 0 : 1][index]}
          y={y}
          font-size={SPECIAL.test(text) ? size - 4 : size}
        >
          {text}
        </text>
        {part !== null && part >= 0.01 ? (
          <text class="token end" x={lines.at[side === "above" ? 0 : 1][index]} y={side === "above" ? y - 22 : y + 22} font-size="13">
            {percent(part)}
          </text>
        ) : null}
      </g>
    );
  };

  return (
    <div class="ribbon" ref={place}>
      <svg ref={drawing} width={lines.whole} height={270} role="img" aria-label="where each word of the output looked in the input">
        {bands.map(({ t, s, w }) => (
          <path
            key={`${t},${s}`}
            class="band"
            d={`M${lines.at[0][s]} ${top}C${lines.at[0][s]} ${top + 80} ${lines.at[1][t]} ${bottom - 80} ${lines.at[1][t]} ${bottom}`}
            stroke-width={Math.max(0.75, w * 16)}
            opacity={0.12 + 0.6 * w}
          >
            <title>{`${below[t]} looked at ${above[s]} with ${percent(w)}`}</title>
          </path>
        ))}
        {above.map((text, index) => word("above", text, index))}
        {below.map((text, index) => word("below", text, index))}
      </svg>
      <span class="tools">
        {(["svg", "png"] as const).map((format) => (
          <button key={format} title={`save as ${format.toUpperCase()}`} onClick={() => void saveDrawing(drawing.current!, "ribbon", format)}>
            {format}
          </button>
        ))}
      </span>
    </div>
  );
}
