// Small drawings of a lesson's own numbers: curves, bars and arrows in a plane. What the paper does is violet, what happens without
// it orange and dashed, so that they are told apart in grey too.
import { useLayoutEffect, useState } from "preact/hooks";
import { prefersReducedMotion, useWidth } from "../../hooks";
import { formatNumber } from "../../format";
import { linearTicks, logTicks } from "../../math";

export type Tone = "with" | "without" | "third" | "soft";

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
  level?: { at: number; name: string } | undefined;
  decorations?: readonly string[]; // names of the places on x, where they are not numbers
  isTight?: boolean; // y begins with its min number, not with 0
}

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 14, 26, 34];

const powers = (min: number, max: number): number[] => {
  const all = Array.from({ length: 41 }, (_, n) => 2 ** (n - 20)).filter((x) => x >= min && x <= max);
  return all.length > 6 ? all.filter((_, i) => i % 2 === 0) : all;
};

export function Chart({ title, x, y, lines, log = {}, level, decorations, isTight = false }: ChartProps) {
  const [place, width] = useWidth<HTMLElement>();
  const wide = Math.max(width, 220);
  const all = lines.flatMap(({ points }) => points).filter(([, b]) => Number.isFinite(b) && (!log.y || b > 0));
  if (!all.length) return null;
  const [xs, ys] = [all.map(([a]) => a), [...all.map(([, b]) => b), ...(level ? [level.at] : [])]];
  const range = (values: number[], isLog: boolean | undefined, from = 0): [number, number] => {
    const [min, max] = [Math.min(...values), Math.max(...values)];
    return isLog ? [min, max === min ? max * 2 : max] : [Math.min(from, min), max === min ? max + 1 : max];
  };
  const [[x0, x1], [y0, y1]] = [decorations ? [0, Math.max(1, decorations.length - 1)] : range(xs, log.x), range(ys, log.y, isTight ? Infinity : 0)];
  const every = decorations && (wide - LEFT - RIGHT) / decorations.length < 62 ? 2 : 1; // names that fit side by side
  const share = (value: number, from: number, to: number, isLog?: boolean): number =>
    isLog ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  const atX = (value: number): number => LEFT + share(value, x0, x1, log.x) * (wide - LEFT - RIGHT);
  const atY = (value: number): number => HEIGHT - BOTTOM - share(value, y0, y1, log.y) * (HEIGHT - TOP - BOTTOM);
  const ups = log.y ? (y1 / y0 > 300 ? logTicks(y0, y1) : powers(y0, y1)) : linearTicks(y0, y1);
  const told = lines.map(({ name, points }) => `${name}: ${points.map(([a, b]) => `${decorations?.[a] ?? formatNumber(a)} ${formatNumber(b, 3)}`).join(", ")}`).join("; ");
  return (
    <figure class="chart" ref={place}>
      <figcaption>
        <b>{title}</b>
        <span class="chart-legend">
          {lines.map(({ name, tone, thin }) => (
            <span key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
              {name}
            </span>
          ))}
          {level ? <span class="tone-reference">{level.name}</span> : null}
        </span>
      </figcaption>
      <svg width={wide} height={HEIGHT} role="img" aria-label={`${title}. ${told}`}>
        {ups.map((value) => (
          <g key={value}>
            <path class="grid-line" d={`M${LEFT} ${atY(value)}H${wide - RIGHT}`} />
            <text x={LEFT - 6} y={atY(value) + 4} text-anchor="end">
              {value >= 0.001 || value === 0 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : formatNumber(value)}
            </text>
          </g>
        ))}
        {(decorations ? decorations.map((_, i) => i).filter((i) => i % every === 0) : log.x ? powers(x0, x1) : linearTicks(x0, x1)).map((value) => (
          <text key={value} x={atX(value)} y={HEIGHT - BOTTOM + 15} text-anchor={value === x0 && decorations ? "start" : value === x1 && decorations ? "end" : "middle"}>
            {decorations?.[value] ?? value.toLocaleString("en")}
          </text>
        ))}
        <text class="axis-label" x={wide - RIGHT} y={HEIGHT - 3} text-anchor="end">
          {x}
        </text>
        <text class="axis-label" x={4} y={12} text-anchor="start">
          {y}
        </text>
        {level ? <path class="reference-line" d={`M${LEFT} ${atY(level.at)}H${wide - RIGHT}`} /> : null}
        {lines.map(({ name, tone, thin, points }) => (
          <g key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
            <path
              class="chart-line"
              d={points.filter(([, b]) => !log.y || b > 0).map(([a, b], i) => `${i ? "L" : "M"}${atX(a).toFixed(1)} ${atY(b).toFixed(1)}`).join("")}
            />
            {points.length <= 20
              ? points.filter(([, b]) => !log.y || b > 0).map(([a, b]) => (
                  <circle key={a} cx={atX(a)} cy={atY(b)} r={thin ? 2 : 3}>
                    <title>{`${name}, ${decorations?.[a] ?? formatNumber(a)}: ${formatNumber(b, 4)}`}</title>
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

/** Groups of bars, each with its figure. */
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
                  <i class={bar.tone === "without" || bar.value < 0 ? "negative" : ""} style={{ width: `${Math.min(100, (100 * Math.abs(bar.value)) / end)}%` }} />
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
  to: readonly number[]; // by softmax
  plain: readonly number[]; // by plain normalising
}

const LASTS = 1200; // ms

/** Words as points in the plane of two features, moving from where they were to where their sentence puts them. */
export function Arrows({ title, axes, arrows }: { title: string; axes: readonly string[]; arrows: readonly Arrow[] }) {
  const [place, width] = useWidth<HTMLElement>();
  const still = prefersReducedMotion();
  const [share, setShare] = useState(1);
  const [times, setTimes] = useState(0);
  const key = JSON.stringify(arrows);
  useLayoutEffect(() => {
    if (still) return;
    setShare(0); // before it is painted where it will be
    let frame = 0;
    const begun = performance.now();
    const step = (now: number): void => {
      const done = Math.min(1, Math.max(0, (now - begun) / LASTS));
      setShare(1 - (1 - done) ** 3);
      if (done < 1) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [key, times]);
  const size = Math.max(220, Math.min(width, 420));
  const all = arrows.flatMap(({ from, to, plain }) => [from, to, plain]);
  const reach = (axis: number): [number, number] => {
    const values = all.map((point) => point[axis] ?? 0);
    const [min, max] = [Math.min(0, ...values), Math.max(1, ...values)];
    const room = (max - min) * 0.12;
    return [min - room, max + (axis ? room : 2.5 * room)]; // names stand to the right
  };
  const [xs, ys] = [reach(0), reach(1)];
  const x = (point: readonly number[]): number => 34 + (((point[0] ?? 0) - xs[0]) / (xs[1] - xs[0])) * (size - 48);
  const y = (point: readonly number[]): number => size * 0.8 - 30 - (((point[1] ?? 0) - ys[0]) / (ys[1] - ys[0])) * (size * 0.8 - 44);
  const between = (from: readonly number[], to: readonly number[]): number[] => from.map((a, i) => a + (to[i] - a) * share);
  return (
    <figure class="chart arrows" ref={place} data-arrows={title} data-still={share === 1}>
      <figcaption>
        <b>“{title}”</b>
        <span class="chart-legend">
          <span class="tone-primary">softmax</span>
          <span class="tone-secondary">plain</span>
        </span>
        {still ? null : (
          <button class="chip" onClick={() => setTimes(times + 1)}>
            move again
          </button>
        )}
      </figcaption>
      <svg width={size} height={size * 0.8} role="img" aria-label={arrows.map(({ word, from, to }) => `${word} from ${from.slice(0, 2).map((n) => formatNumber(n)).join(", ")} to ${to.slice(0, 2).map((n) => formatNumber(n)).join(", ")}`).join("; ")}>
        <path class="grid-line" d={`M${x([xs[0], 0])} ${y([0, 0])}H${size - 8}M${x([0, 0])} ${y([0, ys[0]])}V8`} />
        {linearTicks(Math.max(0, xs[0]), xs[1]).map((n) => (
          <text key={n} x={x([n, 0])} y={y([0, 0]) + 14} text-anchor="middle">
            {n}
          </text>
        ))}
        {linearTicks(Math.max(0, ys[0]), ys[1]).filter(Boolean).map((n) => (
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
        {arrows.map(({ word, from, to, plain }, i) => {
          const [soft, even] = [between(from, to), between(from, plain)];
          const before = arrows.slice(0, i).filter((one) => Math.hypot(x(one.from) - x(from), y(one.from) - y(from)) < 20).length;
          return (
            <g key={i} data-word={word} data-to={to.join(",")}>
              <path class="tone-secondary chart-line" d={`M${x(from)} ${y(from)}L${x(even)} ${y(even)}`} />
              <path class="tone-primary chart-line" d={`M${x(from)} ${y(from)}L${x(soft)} ${y(soft)}`} />
              <circle class="start-point" cx={x(from)} cy={y(from)} r="4" />
              <circle class="tone-secondary end-point" cx={x(even)} cy={y(even)} r="3" />
              <circle class="tone-primary end-point" cx={x(soft)} cy={y(soft)} r="5" />
              <text class="word" x={x(from) + 8} y={y(from) - 8 + 15 * before}>
                {word}
              </text>
            </g>
          );
        })}
      </svg>
    </figure>
  );
}
