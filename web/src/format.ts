// How numbers are displayed.

/** Few characters, with a true minus sign: for labels and formulas. */
export function formatNumber(x: number, digits = 2): string {
  if (Number.isNaN(x)) return "NaN";
  if (x === Infinity) return "∞";
  if (x === -Infinity) return "−∞";
  const size = Math.abs(x);
  if (size !== 0 && size < 10 ** -digits / 2) return trueMinus(x.toExponential(0).replace("e-", "e−"));
  if (size >= 1000) return trueMinus(x.toFixed(0));
  return trueMinus(x.toFixed(size >= 100 ? Math.max(0, digits - 1) : digits));
}

/** The text inside a cell: two decimals, fewer for large numbers. */
export function formatCellValue(x: number): string {
  if (!Number.isFinite(x)) return formatNumber(x);
  const text = x.toFixed(Math.abs(x) >= 1000 ? 0 : Math.abs(x) >= 100 ? 1 : 2);
  return /^-[0.]+$/.test(text) ? text.slice(1) : trueMinus(text);
}

/** All significant digits of a float32: seven. */
export function formatFloat32(x: number): string {
  if (!Number.isFinite(x)) return formatNumber(x);
  if (x === 0) return "0";
  const size = Math.abs(x);
  return trueMinus(size < 1e-4 || size >= 1e7 ? x.toExponential(6).replace("e-", "e−") : x.toPrecision(7));
}

export function formatPercent(p: number): string {
  if (p > 0 && p < 0.0005) return "<0.1%";
  return `${(p * 100).toFixed(p >= 0.9995 ? 0 : 1)}%`;
}

const trueMinus = (text: string): string => text.replace(/^-/, "−");
