// The element-wise difference of two matrices, and its largest element.
import { Tensor } from "./api";

/** a − b, or null if the shapes differ. A cell masked in both stays masked; if masked in only one, the difference is ±∞. */
export function difference(a: Tensor, b: Tensor): Tensor | null {
  if (a.shape.length !== b.shape.length || a.shape.some((size, axis) => size !== b.shape[axis])) return null;
  return new Tensor(
    a.shape,
    a.data.map((value, i) => (value === -Infinity && b.data[i] === -Infinity ? -Infinity : value - b.data[i])),
  );
}

export interface LargestDifference {
  row: number;
  col: number;
  value: number;
  mean: number; // mean absolute difference of all unmasked cells
}

/** The cell of a difference [rows, cols] with the largest magnitude, or null if all cells are masked. */
export function largestDifference(matrix: Tensor): LargestDifference | null {
  const cols = matrix.shape[1];
  let [best, sum, count] = [-1, 0, 0];
  matrix.data.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    sum += Math.abs(value);
    count++;
    if (best < 0 || Math.abs(value) > Math.abs(matrix.data[best])) best = i;
  });
  return best < 0 ? null : { row: Math.floor(best / cols), col: best % cols, value: matrix.data[best], mean: sum / count };
}

/** The labels of both sides: one if they are equal, otherwise both. */
export const mergeLabels = (a: readonly string[], b: readonly string[]): string[] =>
  a.map((label, i) => (label === b[i] || b[i] === undefined ? label : `${label} / ${b[i]}`));
