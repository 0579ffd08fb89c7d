// The audit of one cell: its formula, its operands, and the value recomputed here beside the model's own.
import type { ModelInfo } from "../api";
import type { Kind } from "../architecture";
import { type Audit, CellContext, type CellRef, type TracedModel } from "./cells";
import type { Formula } from "./formulas";
import { RECURRENT } from "./recurrent";
import { TRANSFORMER } from "./transformer";

const FORMULAS: Record<Kind, Record<string, Formula>> = {
  transformer: TRANSFORMER,
  rnn: RECURRENT,
  "rnn-attention": RECURRENT,
};

export const canAudit = (model: ModelInfo, name: string): boolean =>
  name.slice(name.lastIndexOf(".") + 1) in FORMULAS[model.config.model.kind];

/** Recomputes a cell; `model` is the model's own value. */
export async function audit(run: TracedModel, { name, index }: CellRef): Promise<Audit & { model: number }> {
  const cell = new CellContext(run, name, index);
  const formula = FORMULAS[cell.config.kind][cell.tensor];
  if (!formula) throw new Error(`${name} is an input: it has no formula`);
  const [result, model] = await Promise.all([formula(cell), cell.scalar(name, index)]);
  return { ...result, model };
}
