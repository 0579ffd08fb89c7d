// The page's own arithmetic: what the Inspector recomputes, and how the sliders change the distribution. It works in double
// precision on the model's float32 values, so any difference shown is the model's rounding error.

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

/** The biased variance (divided by n), as in layer norm. */
export function variance(x: Vector): number {
  const centre = mean(x);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += (x[i] - centre) ** 2;
  return sum / x.length;
}

/** softmax(x / temperature); −∞ gets 0. A temperature of 0 is the argmax as a one-hot vector. */
export function softmax(x: Vector, temperature = 1): Float64Array {
  const out = new Float64Array(x.length);
  const best = argmax(x);
  if (temperature === 0) {
    out[best] = 1;
    return out;
  }
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += out[i] = Math.exp((x[i] - x[best]) / temperature);
  for (let i = 0; i < x.length; i++) out[i] /= sum;
  return out;
}

export function argmax(x: Vector): number {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/** The indices of the k largest values, largest first. */
export function topIndices(x: Vector, k: number): number[] {
  const order = Array.from({ length: x.length }, (_, i) => i);
  return order.sort((a, b) => x[b] - x[a] || a - b).slice(0, k);
}

/** −Σ p ln p, in nats: 0 for a one-hot distribution, ln n for a uniform one. */
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

/** The distribution that sampling draws from: temperature, then top-k, then top-p (nucleus). */
export function samplingDistribution(logits: Vector, { temperature, topK, topP }: Sampling): Float64Array {
  const p = softmax(logits, temperature);
  if (temperature === 0 || (topK === 0 && topP >= 1)) return p;
  const order = topIndices(p, topK || p.length);
  let kept = 0; // probability mass
  const total = order.reduce((sum, i) => sum + p[i], 0);
  const out = new Float64Array(p.length);
  for (const i of order) {
    if (topP < 1 && kept > 0 && kept >= topP * total) break; // the token that reaches topP is kept
    out[i] = p[i];
    kept += p[i];
  }
  for (const i of order) out[i] /= kept;
  return out;
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = the cosine; with `halves`, all sines come first, and if
 * `stretched`, 2i is divided by width − 2. Returns i, the angle, and which of the two element j is. */
export function sinusoid(position: number, j: number, width: number, halves: boolean, stretched = false) {
  const half = Math.ceil(width / 2);
  const [pair, cosine] = halves ? [j % half, j >= half] : [j >> 1, j % 2 === 1];
  return { pair, cosine, angle: position / 10000 ** ((2 * pair) / (stretched ? width - 2 : width)) };
}

/** The bucket of T5's relative positions for a key at this distance after the query. */
export function relativeBucket(distance: number, causal: boolean, buckets: number, maxDistance: number): number {
  const count = causal ? buckets : buckets / 2;
  const later = !causal && distance > 0 ? count : 0;
  const n = causal ? Math.max(0, -distance) : Math.abs(distance);
  const near = count / 2;
  if (n < near) return later + n;
  const ratio = Math.fround(Math.log(n / near)) / Math.log(maxDistance / near);
  return later + Math.min(count - 1, near + Math.trunc(ratio * (count - near)));
}

export function activate(name: string, x: number): number {
  switch (name) {
    case "relu":
      return Math.max(0, x);
    case "silu":
    case "swiglu":
      return x / (1 + Math.exp(-x));
    case "gelu-tanh":
    case "geglu":
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    default:
      return 0.5 * x * (1 + erf(x / Math.SQRT2));
  }
}

/** The error function in full double precision: power series near 0, continued fraction elsewhere. */
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

const MASK = (1n << 64n) - 1n;

function splitmix64(x: bigint): bigint {
  x = (x + 0x9e3779b97f4a7c15n) & MASK;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

/** The uniform random number in [0, 1) of a seed at a step, computed like seq2see.decode.sampling. */
export function seededUniform(seed: number, step: number): number {
  return Number(splitmix64((splitmix64(BigInt(seed)) + BigInt(step)) & MASK) >> 11n) * 2 ** -53;
}

/** Inverse transform sampling: the first index whose cumulative probability exceeds u. */
export function sampleIndex(p: Vector, u: number): number {
  let sum = 0;
  let last = 0;
  for (let i = 0; i < p.length; i++) {
    sum += p[i];
    if (p[i] > 0) last = i;
    if (sum > u) return i;
  }
  return last;
}

/** Tick values of a logarithmic axis: 1, 2 and 5 times the powers of ten; for a wide range, only the powers. */
export function logTicks(min: number, max: number): number[] {
  const powers = Array.from({ length: 40 }, (_, n) => n - 20);
  const within = (digits: readonly number[]): number[] =>
    powers.flatMap((n) => digits.map((digit) => Number(`${digit}e${n}`))).filter((x) => x >= min && x <= max);
  const fine = within([1, 2, 5]);
  return fine.length <= 8 ? fine : within([1]);
}

/** Tick values of a linear axis: four or five round numbers. */
export function linearTicks(min: number, max: number): number[] {
  const step = [1, 2, 5, 10]
    .map((n) => n * 10 ** Math.floor(Math.log10((max - min || 1) / 5)))
    .find((n) => (max - min) / n <= 5.01)!;
  const first = Math.ceil(min / step);
  return Array.from({ length: Math.floor(max / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}
