// One matrix less another, and where they part most.
import { Tensor } from "./api";

/** a − b, cell by cell; null where the shapes differ. What is masked in both stays masked; in one only, the difference is ±∞. */
export function difference(a: Tensor, b: Tensor): Tensor | null {
  if (a.shape.length !== b.shape.length || a.shape.some((size, axis) => size !== b.shape[axis])) return null;
  return new Tensor(
    a.shape,
    a.data.map((value, i) => (value === -Infinity && b.data[i] === -Infinity ? -Infinity : value - b.data[i])),
  );
}

export interface Parting {
  row: number;
  col: number;
  value: number;
  mean: number; // of the sizes of all that are no mask
}

/** The cell of a difference [rows, cols] that is largest in size; null where there is nothing but masks. */
export function parting(whole: Tensor): Parting | null {
  const cols = whole.shape[1];
  let [best, sum, count] = [-1, 0, 0];
  whole.data.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    sum += Math.abs(value);
    count++;
    if (best < 0 || Math.abs(value) > Math.abs(whole.data[best])) best = i;
  });
  return best < 0 ? null : { row: Math.floor(best / cols), col: best % cols, value: whole.data[best], mean: sum / count };
}

/** Labels of both sides: one where they agree, both where not. */
export const bothLabels = (a: readonly string[], b: readonly string[]): string[] =>
  a.map((label, i) => (label === b[i] || b[i] === undefined ? label : `${label} / ${b[i]}`));
