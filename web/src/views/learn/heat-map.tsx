// A matrix of a lesson's numbers.
import type { Grid } from "../../matrix/grid";
import { Matrix } from "../../matrix/matrix";

interface HeatMapProps {
  name: string;
  rows: readonly string[];
  cols: readonly string[];
  numbers: readonly (readonly number[])[];
  scale?: Grid["scale"];
  max?: number;
  causal?: boolean;
  axes?: [string, string];
  maxCellWidth?: number;
}

export function HeatMap({
  name,
  rows,
  cols,
  numbers,
  scale = "sequential",
  max,
  causal,
  axes = ["query", "key"],
  maxCellWidth = 56,
}: HeatMapProps) {
  const data = numbers.flatMap((row) => row.map((value) => value ?? -Infinity)); // masked cells are null
  const grid: Grid = {
    name,
    rows: numbers.length,
    cols: numbers[0]?.length ?? 0,
    data,
    rowLabels: rows,
    colLabels: cols,
    rowAxis: axes[0],
    colAxis: axes[1],
    scale,
    ...(max ? { max } : {}),
    ...(causal ? { causal } : {}),
  }; // prettier-ignore
  return <Matrix grid={grid} maxHeight={440} maxCellWidth={maxCellWidth} />;
}
