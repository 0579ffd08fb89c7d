// The page's own arithmetic: what the Inspector recomputes, what the sliders do to logits, and how numbers are printed.
// All of it in double precision on the model's float32 figures, so a difference shown is the model's rounding, not ours.

export type Vector = ArrayLike<number>;

export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function mean(x: Vector): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i];
  return sum / x.length;
}

/** The mean squared distance from the mean, not corrected for the sample: what layer norm divides by. */
export function variance(x: Vector): number {
  const centre = mean(x);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += (x[i] - centre) ** 2;
  return sum / x.length;
}

/** e^(x/T) over their sum; −∞ gets 0. A temperature of 0 leaves the single best. */
export function softmax(x: Vector, temperature = 1): Float64Array {
  const out = new Float64Array(x.length);
  const best = highest(x);
  if (temperature === 0) {
    out[best] = 1;
    return out;
  }
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += out[i] = Math.exp((x[i] - x[best]) / temperature);
  for (let i = 0; i < x.length; i++) out[i] /= sum;
  return out;
}

export function highest(x: Vector): number {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/** The k likeliest, best first. */
export function ranked(x: Vector, k: number): number[] {
  const order = Array.from({ length: x.length }, (_, i) => i);
  return order.sort((a, b) => x[b] - x[a] || a - b).slice(0, k);
}

/** −Σ p ln p, in nats: 0 where all weight lies on one key, ln n where it is spread evenly. */
export function entropy(p: Vector): number {
  let sum = 0;
  for (let i = 0; i < p.length; i++) if (p[i] > 0) sum -= p[i] * Math.log(p[i]);
  return sum;
}

export interface Sampling {
  temperature: number;
  topK: number; // 0: all
  topP: number; // 1: all
}

/** The distribution that sampling draws from: temperature, then the k likeliest, then the fewest that hold the share p. */
export function filtered(logits: Vector, { temperature, topK, topP }: Sampling): Float64Array {
  const p = softmax(logits, temperature);
  if (temperature === 0 || (topK === 0 && topP >= 1)) return p;
  const order = ranked(p, topK || p.length);
  let kept = 0;
  const whole = order.reduce((sum, i) => sum + p[i], 0);
  const out = new Float64Array(p.length);
  for (const i of order) {
    if (topP < 1 && kept > 0 && kept >= topP * whole) break; // the one that reaches the share still belongs
    out[i] = p[i];
    kept += p[i];
  }
  for (const i of order) out[i] /= kept;
  return out;
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos of the same; in halves, all sines come first. */
export function sinusoid(position: number, j: number, width: number, halves: boolean): number {
  const half = Math.ceil(width / 2);
  const [i, cosine] = halves ? [j % half, j >= half] : [j >> 1, j % 2 === 1];
  const angle = position / 10000 ** ((2 * i) / width);
  return cosine ? Math.cos(angle) : Math.sin(angle);
}

export function activate(name: string, x: number): number {
  switch (name) {
    case "relu":
      return Math.max(0, x);
    case "silu":
    case "swiglu":
      return x / (1 + Math.exp(-x));
    case "gelu-tanh":
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    default:
      return 0.5 * x * (1 + erf(x / Math.SQRT2));
  }
}

/** The error function by its power series near 0 and a continued fraction beyond, to the last digits of a double. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (a < 2.5) {
    let term = a;
    let sum = a;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && n < 200; n++) {
      term *= (-a * a) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}

/** A figure in few characters, with a true minus sign: for cells and formulas. */
export function short(x: number, digits = 2): string {
  if (Number.isNaN(x)) return "NaN";
  if (x === Infinity) return "∞";
  if (x === -Infinity) return "−∞";
  const size = Math.abs(x);
  if (size !== 0 && size < 10 ** -digits / 2) return signed(x.toExponential(0).replace("e-", "e−"));
  if (size >= 1000) return signed(x.toFixed(0));
  return signed(x.toFixed(size >= 100 ? Math.max(0, digits - 1) : digits));
}

/** A figure in a cell: two decimals, fewer where it is large. */
export function brief(x: number): string {
  if (!Number.isFinite(x)) return short(x);
  const text = x.toFixed(Math.abs(x) >= 1000 ? 0 : Math.abs(x) >= 100 ? 1 : 2);
  return /^-[0.]+$/.test(text) ? text.slice(1) : signed(text);
}

/** A figure as exactly as float32 has it: about seven digits. */
export function exact(x: number): string {
  if (!Number.isFinite(x)) return short(x);
  if (x === 0) return "0";
  const size = Math.abs(x);
  return signed(size < 1e-4 || size >= 1e7 ? x.toExponential(6).replace("e-", "e−") : x.toPrecision(7));
}

export function percent(p: number): string {
  if (p > 0 && p < 0.0005) return "<0.1%";
  return `${(p * 100).toFixed(p >= 0.9995 ? 0 : 1)}%`;
}

const signed = (text: string): string => text.replace(/^-/, "−");

const MASK = (1n << 64n) - 1n;

function splitmix(x: bigint): bigint {
  x = (x + 0x9e3779b97f4a7c15n) & MASK;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

/** The number from 0 to 1 that a seed draws at a step: not random at all, but the hash that `seq2see` itself uses. */
export function drawnNumber(seed: number, step: number): number {
  return Number(splitmix((splitmix(BigInt(seed)) + BigInt(step)) & MASK) >> 11n) * 2 ** -53;
}

/** The token at which the summed-up probabilities pass u. */
export function pickedAt(p: Vector, u: number): number {
  let sum = 0;
  let last = 0;
  for (let i = 0; i < p.length; i++) {
    sum += p[i];
    if (p[i] > 0) last = i;
    if (sum > u) return i;
  }
  return last;
}

/** The 1, 2 and 5 of every power of ten within the range; of a wide one, the powers alone. */
export function ticks(least: number, most: number): number[] {
  const powers = Array.from({ length: 40 }, (_, n) => n - 20);
  const within = (digits: readonly number[]): number[] =>
    powers.flatMap((n) => digits.map((digit) => Number(`${digit}e${n}`))).filter((x) => x >= least && x <= most);
  const fine = within([1, 2, 5]);
  return fine.length <= 8 ? fine : within([1]);
}

/** Round figures between the least and the most, four or five of them. */
export function levels(least: number, most: number): number[] {
  const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10((most - least || 1) / 5))).find((n) => (most - least) / n <= 5.01)!;
  const first = Math.ceil(least / step);
  return Array.from({ length: Math.floor(most / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}
