// A cell of a trace and its audit: references to cells, the operands of a formula, and the context from which a formula loads
// them.
import { type ModelConfig, type ModelInfo, type Tensor, type Trace, tensor, weight, weightInfosOf } from "../api";
import { Dataflow } from "../dataflow";
import type { Vector } from "../math";

/** A cell of a trace: the name of the tensor and the index in it, such as decoder.1.cross.scores at 3, 2, 1. */
export interface CellRef {
  name: string;
  index: number[];
}

export const formatCellRef = ({ name, index }: CellRef): string => `${name}:${index.join(",")}`;

export function parseCellRef(text: string): CellRef | null {
  const match = /^([\w.]+):(\d+(?:,\d+)*)$/.exec(text);
  return match ? { name: match[1], index: match[2].split(",").map(Number) } : null;
}

/** A scalar operand; if it is a cell of the trace itself, it can be inspected too. */
export interface ScalarOperand {
  label: string;
  value: number;
  cell?: CellRef;
}

/** A vector operand, shown as a strip of colours; `cellAt` returns the cell of element i, if it is one. */
export interface VectorOperand {
  label: string;
  values: Vector;
  cellAt?: (i: number) => CellRef | null;
  notMultiplied?: boolean; // shown next to the two that are multiplied
}

export interface Audit {
  formula: string; // in symbols
  substituted: string; // the formula with the numbers of this cell
  scalars: ScalarOperand[];
  vectors: VectorOperand[]; // of equal length; two are multiplied element by element
  computed: number;
}

export interface TracedModel {
  trace: Trace;
  model: ModelInfo;
}

/** The cell that is being audited, its component and tensor, and access to the operands. */
export class CellContext {
  readonly component: string; // decoder.1.cross
  readonly tensor: string; // scores
  readonly dataflow: Dataflow;

  constructor(
    readonly run: TracedModel,
    readonly name: string,
    readonly index: number[],
  ) {
    const dot = name.lastIndexOf(".");
    this.component = dot < 0 ? "" : name.slice(0, dot);
    this.tensor = name.slice(dot + 1);
    this.dataflow = new Dataflow(run.model.config.model);
  }

  get config(): ModelConfig {
    return this.run.model.config.model;
  }

  values = async (name: string, index: string): Promise<Vector> => (await tensor(this.run.trace.id, name, index)).data;

  async scalar(name: string, index: readonly number[]): Promise<number> {
    return (await this.values(name, index.join(",")))[0];
  }

  /** A vector of a tensor: its last axis, at the given leading indices. */
  async vector(name: string, leading: readonly number[], label = "x"): Promise<VectorOperand> {
    return { label, values: await this.values(name, leading.join(",")), cellAt: (i) => ({ name, index: [...leading, i] }) };
  }

  /** Row i of the weight with this symbol, or element i of a vector; null if the model has no such weight. */
  async weightRow(component: string, symbol: string, row: number): Promise<Tensor | null> {
    return this.loadWeight(component, symbol, (start) => `${start + row}`);
  }

  weightRows = (component: string, symbol: string, row: number, count: number): Promise<Tensor | null> =>
    this.loadWeight(component, symbol, (start) => `${start + row}:${start + row + count}`);

  async weightScalar(component: string, symbol: string, row: number): Promise<number | null> {
    return (await this.weightRow(component, symbol, row))?.data[0] ?? null;
  }

  private async loadWeight(component: string, symbol: string, index: (start: number) => string): Promise<Tensor | null> {
    const { name: model } = this.run.model;
    const infos = await weightInfosOf(model);
    const info = infos.find(
      (candidate) => candidate.component === component && candidate.symbols.some((s) => s.symbol === symbol),
    );
    if (!info) return null;
    const { start } = info.symbols.find((s) => s.symbol === symbol)!;
    return weight(model, info.name, index(start));
  }
}
