// Charts of a lesson's numbers: lines, bars, and arrows in a plane. The paper's method is violet; the alternative is orange and
// dashed, so that the two are distinguishable without colour.
import { useLayoutEffect, useState } from "preact/hooks";
import { formatNumber } from "../../format";
import { prefersReducedMotion, useWidth } from "../../hooks";
import { linearTicks, logTicks } from "../../math";

export type Tone = "primary" | "secondary" | "tertiary" | "muted";

export interface Line {
  name: string;
  tone: Tone;
  thin?: boolean;
  points: readonly (readonly [number, number])[];
}

interface ChartProps {
  title: string;
  x: string;
  y: string;
  lines: readonly Line[];
  log?: { x?: boolean; y?: boolean };
  reference?: { value: number; name: string } | undefined; // a horizontal line
  categories?: readonly string[]; // names on the x axis, if it is not numeric
  isTight?: boolean; // the y axis starts at the minimum instead of 0
}

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 14, 26, 34];

const powersOfTwo = (min: number, max: number): number[] => {
  const all = Array.from({ length: 41 }, (_, n) => 2 ** (n - 20)).filter((x) => x >= min && x <= max);
  return all.length > 6 ? all.filter((_, i) => i % 2 === 0) : all;
};

export function Chart({ title, x, y, lines, log = {}, reference, categories, isTight = false }: ChartProps) {
  const [figure, width] = useWidth<HTMLElement>();
  const chartWidth = Math.max(width, 220);
  const finite = lines.flatMap(({ points }) => points).filter(([, b]) => Number.isFinite(b) && (!log.y || b > 0));
  if (!finite.length) return null;
  const [xs, ys] = [finite.map(([a]) => a), [...finite.map(([, b]) => b), ...(reference ? [reference.value] : [])]];
  const range = (values: number[], isLog: boolean | undefined, from = 0): [number, number] => {
    const [min, max] = [Math.min(...values), Math.max(...values)];
    return isLog ? [min, max === min ? max * 2 : max] : [Math.min(from, min), max === min ? max + 1 : max];
  };
  const [[x0, x1], [y0, y1]] = [
    categories ? [0, Math.max(1, categories.length - 1)] : range(xs, log.x),
    range(ys, log.y, isTight ? Infinity : 0),
  ];
  const labelStep = categories && (chartWidth - LEFT - RIGHT) / categories.length < 62 ? 2 : 1; // so that names do not overlap
  const fraction = (value: number, from: number, to: number, isLog?: boolean): number =>
    isLog ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  const atX = (value: number): number => LEFT + fraction(value, x0, x1, log.x) * (chartWidth - LEFT - RIGHT);
  const atY = (value: number): number => HEIGHT - BOTTOM - fraction(value, y0, y1, log.y) * (HEIGHT - TOP - BOTTOM);
  const yTicks = log.y ? (y1 / y0 > 300 ? logTicks(y0, y1) : powersOfTwo(y0, y1)) : linearTicks(y0, y1);
  const description = lines
    .map(
      ({ name, points }) =>
        `${name}: ${points.map(([a, b]) => `${categories?.[a] ?? formatNumber(a)} ${formatNumber(b, 3)}`).join(", ")}`,
    )
    .join("; ");
  return (
    <figure class="chart" ref={figure}>
      <figcaption>
        <b>{title}</b>
        <span class="chart-legend">
          {lines.map(({ name, tone, thin }) => (
            <span key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
              {name}
            </span>
          ))}
          {reference ? <span class="tone-reference">{reference.name}</span> : null}
        </span>
      </figcaption>
      <svg width={chartWidth} height={HEIGHT} role="img" aria-label={`${title}. ${description}`}>
        {yTicks.map((value) => (
          <g key={value}>
            <path class="grid-line" d={`M${LEFT} ${atY(value)}H${chartWidth - RIGHT}`} />
            <text x={LEFT - 6} y={atY(value) + 4} text-anchor="end">
              {value >= 0.001 || value === 0
                ? value.toLocaleString("en", { maximumSignificantDigits: 3 })
                : formatNumber(value)}
            </text>
          </g>
        ))}
        {(categories
          ? categories.map((_, i) => i).filter((i) => i % labelStep === 0)
          : log.x
            ? powersOfTwo(x0, x1)
            : linearTicks(x0, x1)
        ).map((value) => (
          <text
            key={value}
            x={atX(value)}
            y={HEIGHT - BOTTOM + 15}
            text-anchor={value === x0 && categories ? "start" : value === x1 && categories ? "end" : "middle"}
          >
            {categories?.[value] ?? value.toLocaleString("en")}
          </text>
        ))}
        <text class="axis-label" x={chartWidth - RIGHT} y={HEIGHT - 3} text-anchor="end">
          {x}
        </text>
        <text class="axis-label" x={4} y={12} text-anchor="start">
          {y}
        </text>
        {reference ? <path class="reference-line" d={`M${LEFT} ${atY(reference.value)}H${chartWidth - RIGHT}`} /> : null}
        {lines.map(({ name, tone, thin, points }) => (
          <g key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
            <path
              class="chart-line"
              d={points
                .filter(([, b]) => !log.y || b > 0)
                .map(([a, b], i) => `${i ? "L" : "M"}${atX(a).toFixed(1)} ${atY(b).toFixed(1)}`)
                .join("")}
            />
            {points.length <= 20
              ? points
                  .filter(([, b]) => !log.y || b > 0)
                  .map(([a, b]) => (
                    <circle key={a} cx={atX(a)} cy={atY(b)} r={thin ? 2 : 3}>
                      <title>{`${name}, ${categories?.[a] ?? formatNumber(a)}: ${formatNumber(b, 4)}`}</title>
                    </circle>
                  ))
              : null}
          </g>
        ))}
      </svg>
    </figure>
  );
}

interface BarsProps {
  title: string;
  groups: readonly { name: string; bars: readonly { name: string; value: number; tone?: Tone }[] }[];
  max?: number;
}

/** Groups of bars with their values. */
export function Bars({ title, groups, max }: BarsProps) {
  const end = max ?? Math.max(1e-9, ...groups.flatMap(({ bars }) => bars.map(({ value }) => Math.abs(value))));
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
      </figcaption>
      <div class="bar-groups">
        {groups.map(({ name, bars }) => (
          <div class="bar-group" key={name} role="group" aria-label={name}>
            {name ? <span class="small muted">{name}</span> : null}
            {bars.map((bar, i) => (
              <div class="bar-row" key={i}>
                <span class="name">{bar.name}</span>
                <span class="meter" aria-hidden="true">
                  <i
                    class={bar.tone === "secondary" || bar.value < 0 ? "negative" : ""}
                    style={{ width: `${Math.min(100, (100 * Math.abs(bar.value)) / end)}%` }}
                  />
                </span>
                <span class="value">{formatNumber(bar.value, 3)}</span>
              </div>
            ))}
          </div>
        ))}
      </div>
    </figure>
  );
}

export interface Arrow {
  word: string;
  from: readonly number[];
  softmax: readonly number[]; // the end point with softmax weights
  normalized: readonly number[]; // … with weights divided by their sum
}

const DURATION = 1200; // ms

/** Words as points in the plane of two features, moving from their original to their contextual vectors. */
export function Arrows({ title, axes, arrows }: { title: string; axes: readonly string[]; arrows: readonly Arrow[] }) {
  const [figure, width] = useWidth<HTMLElement>();
  const reducedMotion = prefersReducedMotion();
  const [progress, setProgress] = useState(1);
  const [plays, setPlays] = useState(0);
  const key = JSON.stringify(arrows);
  useLayoutEffect(() => {
    if (reducedMotion) return;
    setProgress(0); // before the first paint
    let frame = 0;
    const start = performance.now();
    const step = (now: number): void => {
      const done = Math.min(1, Math.max(0, (now - start) / DURATION));
      setProgress(1 - (1 - done) ** 3);
      if (done < 1) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [key, plays]);
  const size = Math.max(220, Math.min(width, 420));
  const points = arrows.flatMap(({ from, softmax, normalized }) => [from, softmax, normalized]);
  const range = (axis: number): [number, number] => {
    const values = points.map((point) => point[axis] ?? 0);
    const [min, max] = [Math.min(0, ...values), Math.max(1, ...values)];
    const margin = (max - min) * 0.12;
    return [min - margin, max + (axis ? margin : 2.5 * margin)]; // space for the words on the right
  };
  const [xs, ys] = [range(0), range(1)];
  const x = (point: readonly number[]): number => 34 + (((point[0] ?? 0) - xs[0]) / (xs[1] - xs[0])) * (size - 48);
  const y = (point: readonly number[]): number =>
    size * 0.8 - 30 - (((point[1] ?? 0) - ys[0]) / (ys[1] - ys[0])) * (size * 0.8 - 44);
  const interpolate = (from: readonly number[], to: readonly number[]): number[] =>
    from.map((a, i) => a + (to[i] - a) * progress);
  return (
    <figure class="chart arrows" ref={figure} data-arrows={title} data-done={progress === 1}>
      <figcaption>
        <b>“{title}”</b>
        <span class="chart-legend">
          <span class="tone-primary">softmax</span>
          <span class="tone-secondary">sum</span>
        </span>
        {reducedMotion ? null : (
          <button class="chip" onClick={() => setPlays(plays + 1)}>
            play again
          </button>
        )}
      </figcaption>
      <svg
        width={size}
        height={size * 0.8}
        role="img"
        aria-label={arrows
          .map(
            ({ word, from, softmax }) =>
              `${word} from ${from
                .slice(0, 2)
                .map((n) => formatNumber(n))
                .join(", ")} to ${softmax
                .slice(0, 2)
                .map((n) => formatNumber(n))
                .join(", ")}`,
          )
          .join("; ")}
      >
        <path class="grid-line" d={`M${x([xs[0], 0])} ${y([0, 0])}H${size - 8}M${x([0, 0])} ${y([0, ys[0]])}V8`} />
        {linearTicks(Math.max(0, xs[0]), xs[1]).map((n) => (
          <text key={n} x={x([n, 0])} y={y([0, 0]) + 14} text-anchor="middle">
            {n}
          </text>
        ))}
        {linearTicks(Math.max(0, ys[0]), ys[1])
          .filter(Boolean)
          .map((n) => (
            <text key={n} x={x([0, 0]) - 6} y={y([0, n]) + 4} text-anchor="end">
              {n}
            </text>
          ))}
        <text class="axis-label" x={size - 8} y={y([0, 0]) + 26} text-anchor="end">
          {axes[0]}
        </text>
        <text class="axis-label" x={2} y={12}>
          {axes[1]}
        </text>
        {arrows.map(({ word, from, softmax, normalized }, i) => {
          const hasSum = normalized.every(Number.isFinite); // not if the scores add to 0
          const [first, second] = [interpolate(from, softmax), interpolate(from, hasSum ? normalized : softmax)];
          const overlaps = arrows
            .slice(0, i)
            .filter((other) => Math.hypot(x(other.from) - x(from), y(other.from) - y(from)) < 20).length;
          return (
            <g key={i} data-word={word} data-to={softmax.join(",")}>
              {hasSum ? (
                <path class="tone-secondary chart-line" d={`M${x(from)} ${y(from)}L${x(second)} ${y(second)}`} />
              ) : null}
              <path class="tone-primary chart-line" d={`M${x(from)} ${y(from)}L${x(first)} ${y(first)}`} />
              <circle class="start-point" cx={x(from)} cy={y(from)} r="4" />
              {hasSum ? <circle class="tone-secondary end-point" cx={x(second)} cy={y(second)} r="3" /> : null}
              <circle class="tone-primary end-point" cx={x(first)} cy={y(first)} r="5" />
              <text class="word" x={x(from) + 8} y={y(from) - 8 + 15 * overlaps}>
                {word}
              </text>
            </g>
          );
        })}
      </svg>
    </figure>
  );
}
