// The two colour scales of all heat maps. Sequential: from the surface colour to the accent, with monotonic lightness.
// Diverging: orange for negative, violet for positive values; the two remain distinguishable with every common form of colour
// blindness. Both are interpolated in OKLab, so that equal steps look equal.

export type Scale = "sequential" | "diverging";
export type Rgb = readonly [number, number, number];

export interface Palette {
  dark: boolean;
  surface: Rgb;
  text: Rgb;
  muted: Rgb; // grid lines and masked cells
  accent: Rgb;
  positive: readonly Rgb[]; // from 0 outwards
  negative: readonly Rgb[];
}

const hex = (code: string): Rgb => [1, 3, 5].map((i) => parseInt(code.slice(i, i + 2), 16)) as unknown as Rgb;

export const LIGHT: Palette = {
  dark: false,
  surface: hex("#ffffff"),
  text: hex("#17171f"),
  muted: hex("#d9d8e0"),
  accent: hex("#4a49c8"),
  positive: ["#f7f7fb", "#c9c8ee", "#8f8ddd", "#4a49c8", "#22217a"].map(hex),
  negative: ["#f7f7fb", "#f6d2ab", "#e79b53", "#b86415", "#6e3506"].map(hex),
};

export const DARK: Palette = {
  dark: true,
  surface: hex("#1b1b22"),
  text: hex("#ecebf2"),
  muted: hex("#3b3b47"),
  accent: hex("#a8a7ff"),
  positive: ["#22222b", "#34346b", "#5554b4", "#8f8ef4", "#d3d2ff"].map(hex),
  negative: ["#22222b", "#5a3714", "#955a1c", "#d98f43", "#ffd5a3"].map(hex),
};

const toLinear = (c: number): number => (c <= 10.31475 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const fromLinear = (c: number): number => 255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * Math.max(c, 0) ** (1 / 2.4) - 0.055);

function toLab(rgb: Rgb): Rgb {
  const [r, g, b] = rgb.map(toLinear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toRgb([L, a, b]: Rgb): Rgb {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    fromLinear(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    fromLinear(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    fromLinear(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ].map((c) => Math.round(Math.min(255, Math.max(0, c)))) as unknown as Rgb;
}

const STEPS = 128; // in each half of a scale

function interpolate(stops: readonly Rgb[]): Rgb[] {
  const labs = stops.map(toLab);
  return Array.from({ length: STEPS + 1 }, (_, n) => {
    const position = (n / STEPS) * (labs.length - 1);
    const i = Math.min(Math.floor(position), labs.length - 2);
    return toRgb(labs[i].map((c, k) => c + (labs[i + 1][k] - c) * (position - i)) as unknown as Rgb);
  });
}

const tables = new Map<Palette, { positive: Rgb[]; negative: Rgb[] }>();

/** The colours of values on the scale from −max to max. */
export function colorScale(max: number, palette: Palette): (value: number) => Rgb {
  let scales = tables.get(palette);
  if (!scales) {
    scales = { positive: interpolate(palette.positive), negative: interpolate(palette.negative) };
    tables.set(palette, scales);
  }
  const { positive, negative } = scales;
  return (value) => (value < 0 ? negative : positive)[max > 0 ? Math.round(Math.min(1, Math.abs(value) / max) * STEPS) : 0];
}

export const colorFor = (value: number, max: number, palette: Palette): Rgb => colorScale(max, palette)(value);

/** The luminance at which black and white have the same contrast: √(1.05 · 0.05) − 0.05, so that it is at least 4.58:1. */
const MIDDLE_LUMINANCE = 0.179;

/** Black or white, whichever has more contrast on this background. */
export function textColorOn(background: Rgb): string {
  const [r, g, b] = background.map(toLinear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > MIDDLE_LUMINANCE ? "#000000" : "#ffffff";
}

export const toCss = ([r, g, b]: Rgb): string => `rgb(${r},${g},${b})`;
