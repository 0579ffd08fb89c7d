// Small drawings of a lesson's own numbers: curves, bars and arrows in a plane. What the paper does is violet, what happens without
// it orange and dashed, so that they are told apart in grey too.
import { useLayoutEffect, useState } from "preact/hooks";
import { reducedMotion, useWidth } from "../hooks";
import { levels, short, ticks } from "../numbers";

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
  marks?: readonly string[]; // names of the places on x, where they are not numbers
  isTight?: boolean; // y begins with its least number, not with 0
}

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 14, 26, 34];

const powers = (least: number, most: number): number[] => {
  const all = Array.from({ length: 41 }, (_, n) => 2 ** (n - 20)).filter((x) => x >= least && x <= most);
  return all.length > 6 ? all.filter((_, i) => i % 2 === 0) : all;
};

export function Chart({ title, x, y, lines, log = {}, level, marks, isTight = false }: ChartProps) {
  const [place, width] = useWidth<HTMLElement>();
  const wide = Math.max(width, 220);
  const all = lines.flatMap(({ points }) => points).filter(([, b]) => Number.isFinite(b) && (!log.y || b > 0));
  if (!all.length) return null;
  const [xs, ys] = [all.map(([a]) => a), [...all.map(([, b]) => b), ...(level ? [level.at] : [])]];
  const range = (values: number[], isLog: boolean | undefined, from = 0): [number, number] => {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return isLog ? [least, most === least ? most * 2 : most] : [Math.min(from, least), most === least ? most + 1 : most];
  };
  const [[x0, x1], [y0, y1]] = [marks ? [0, Math.max(1, marks.length - 1)] : range(xs, log.x), range(ys, log.y, isTight ? Infinity : 0)];
  const every = marks && (wide - LEFT - RIGHT) / marks.length < 62 ? 2 : 1; // names that fit side by side
  const share = (value: number, from: number, to: number, isLog?: boolean): number =>
    isLog ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  const atX = (value: number): number => LEFT + share(value, x0, x1, log.x) * (wide - LEFT - RIGHT);
  const atY = (value: number): number => HEIGHT - BOTTOM - share(value, y0, y1, log.y) * (HEIGHT - TOP - BOTTOM);
  const ups = log.y ? (y1 / y0 > 300 ? ticks(y0, y1) : powers(y0, y1)) : levels(y0, y1);
  const told = lines.map(({ name, points }) => `${name}: ${points.map(([a, b]) => `${marks?.[a] ?? short(a)} ${short(b, 3)}`).join(", ")}`).join("; ");
  return (
    <figure class="chart" ref={place}>
      <figcaption>
        <b>{title}</b>
        <span class="key">
          {lines.map(({ name, tone, thin }) => (
            <span key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
              {name}
            </span>
          ))}
          {level ? <span class="tone-level">{level.name}</span> : null}
        </span>
      </figcaption>
      <svg width={wide} height={HEIGHT} role="img" aria-label={`${title}. ${told}`}>
        {ups.map((value) => (
          <g key={value}>
            <path class="rule" d={`M${LEFT} ${atY(value)}H${wide - RIGHT}`} />
            <text x={LEFT - 6} y={atY(value) + 4} text-anchor="end">
              {value >= 0.001 || value === 0 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : short(value)}
            </text>
          </g>
        ))}
        {(marks ? marks.map((_, i) => i).filter((i) => i % every === 0) : log.x ? powers(x0, x1) : levels(x0, x1)).map((value) => (
          <text key={value} x={atX(value)} y={HEIGHT - BOTTOM + 15} text-anchor={value === x0 && marks ? "start" : value === x1 && marks ? "end" : "middle"}>
            {marks?.[value] ?? value.toLocaleString("en")}
          </text>
        ))}
        <text class="axis" x={wide - RIGHT} y={HEIGHT - 3} text-anchor="end">
          {x}
        </text>
        <text class="axis" x={4} y={12} text-anchor="start">
          {y}
        </text>
        {level ? <path class="level" d={`M${LEFT} ${atY(level.at)}H${wide - RIGHT}`} /> : null}
        {lines.map(({ name, tone, thin, points }) => (
          <g key={name} class={`tone-${tone}${thin ? " thin" : ""}`}>
            <path
              class="curve-line"
              d={points.filter(([, b]) => !log.y || b > 0).map(([a, b], i) => `${i ? "L" : "M"}${atX(a).toFixed(1)} ${atY(b).toFixed(1)}`).join("")}
            />
            {points.length <= 20
              ? points.filter(([, b]) => !log.y || b > 0).map(([a, b]) => (
                  <circle key={a} cx={atX(a)} cy={atY(b)} r={thin ? 2 : 3}>
                    <title>{`${name}, ${marks?.[a] ?? short(a)}: ${short(b, 4)}`}</title>
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
  most?: number;
}

/** Groups of bars, each with its figure. */
export function Bars({ title, groups, most }: BarsProps) {
  const end = most ?? Math.max(1e-9, ...groups.flatMap(({ bars }) => bars.map(({ value }) => Math.abs(value))));
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
      </figcaption>
      <div class="bar-groups">
        {groups.map(({ name, bars }) => (
          <div class="bar-group" key={name} role="group" aria-label={name}>
            {name ? <span class="small soft">{name}</span> : null}
            {bars.map((bar, i) => (
              <div class="bar-row" key={i}>
                <span class="name">{bar.name}</span>
                <span class="meter" aria-hidden="true">
                  <i class={bar.tone === "without" || bar.value < 0 ? "less" : ""} style={{ width: `${Math.min(100, (100 * Math.abs(bar.value)) / end)}%` }} />
                </span>
                <span class="value">{short(bar.value, 3)}</span>
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
  const still = reducedMotion();
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
    const [least, most] = [Math.min(0, ...values), Math.max(1, ...values)];
    const room = (most - least) * 0.12;
    return [least - room, most + (axis ? room : 2.5 * room)]; // names stand to the right
  };
  const [xs, ys] = [reach(0), reach(1)];
  const x = (point: readonly number[]): number => 34 + (((point[0] ?? 0) - xs[0]) / (xs[1] - xs[0])) * (size - 48);
  const y = (point: readonly number[]): number => size * 0.8 - 30 - (((point[1] ?? 0) - ys[0]) / (ys[1] - ys[0])) * (size * 0.8 - 44);
  const between = (from: readonly number[], to: readonly number[]): number[] => from.map((a, i) => a + (to[i] - a) * share);
  return (
    <figure class="chart arrows" ref={place} data-arrows={title} data-still={share === 1}>
      <figcaption>
        <b>“{title}”</b>
        <span class="key">
          <span class="tone-with">softmax</span>
          <span class="tone-without">plain</span>
        </span>
        {still ? null : (
          <button class="chip" onClick={() => setTimes(times + 1)}>
            move again
          </button>
        )}
      </figcaption>
      <svg width={size} height={size * 0.8} role="img" aria-label={arrows.map(({ word, from, to }) => `${word} from ${from.slice(0, 2).map((n) => short(n)).join(", ")} to ${to.slice(0, 2).map((n) => short(n)).join(", ")}`).join("; ")}>
        <path class="rule" d={`M${x([xs[0], 0])} ${y([0, 0])}H${size - 8}M${x([0, 0])} ${y([0, ys[0]])}V8`} />
        {levels(Math.max(0, xs[0]), xs[1]).map((n) => (
          <text key={n} x={x([n, 0])} y={y([0, 0]) + 14} text-anchor="middle">
            {n}
          </text>
        ))}
        {levels(Math.max(0, ys[0]), ys[1]).filter(Boolean).map((n) => (
          <text key={n} x={x([0, 0]) - 6} y={y([0, n]) + 4} text-anchor="end">
            {n}
          </text>
        ))}
        <text class="axis" x={size - 8} y={y([0, 0]) + 26} text-anchor="end">
          {axes[0]}
        </text>
        <text class="axis" x={2} y={12}>
          {axes[1]}
        </text>
        {arrows.map(({ word, from, to, plain }, i) => {
          const [soft, even] = [between(from, to), between(from, plain)];
          const before = arrows.slice(0, i).filter((one) => Math.hypot(x(one.from) - x(from), y(one.from) - y(from)) < 20).length;
          return (
            <g key={i} data-word={word} data-to={to.join(",")}>
              <path class="tone-without curve-line" d={`M${x(from)} ${y(from)}L${x(even)} ${y(even)}`} />
              <path class="tone-with curve-line" d={`M${x(from)} ${y(from)}L${x(soft)} ${y(soft)}`} />
              <circle class="was" cx={x(from)} cy={y(from)} r="4" />
              <circle class="tone-without now" cx={x(even)} cy={y(even)} r="3" />
              <circle class="tone-with now" cx={x(soft)} cy={y(soft)} r="5" />
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
