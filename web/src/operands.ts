// What an audit is made of: cells and their addresses, the figures and vectors that take part, and how a rule gets hold of them.
import { learnedOf, tensor, weight, type Manifest, type ModelCard, type ModelConfig, type Tensor } from "./api";
import type { Vector } from "./numbers";
import { Wiring } from "./wiring";

/** A cell of a trace: the full name of the quantity and the place in its tensor, such as decoder.1.cross.scores at 3, 2, 1. */
export interface Place {
  name: string;
  index: number[];
}

export const placeKey = ({ name, index }: Place): string => `${name}:${index.join(",")}`;

export function parsePlace(key: string): Place | null {
  const match = /^([\w.]+):(\d+(?:,\d+)*)$/.exec(key);
  return match ? { name: match[1], index: match[2].split(",").map(Number) } : null;
}

/** One figure of the formula; where it is a cell itself, one can go on to it. */
export interface Figure {
  label: string;
  value: number;
  place?: Place;
}

/** A vector that takes part, to be shown as a strip; `part` is the cell of it at i, if it is one. */
export interface Strip {
  label: string;
  values: Vector;
  part?: (i: number) => Place | null;
  beside?: boolean; // shown beside those that are multiplied
}

export interface Audit {
  formula: string; // in symbols
  numbers: string; // the same with this cell's own numbers
  figures: Figure[];
  strips: Strip[]; // all of equal length; two are multiplied pair by pair
  computed: number;
}

export interface Context {
  manifest: Manifest;
  card: ModelCard;
}

/** Everything a rule needs: the cell's place in the model and in its tensor, and ways to get operands. */
export class At {
  readonly place: string;
  readonly what: string;
  readonly wiring: Wiring;

  constructor(
    readonly context: Context,
    readonly name: string,
    readonly index: number[],
  ) {
    const cut = name.lastIndexOf(".");
    this.place = cut < 0 ? "" : name.slice(0, cut);
    this.what = name.slice(cut + 1);
    this.wiring = new Wiring(context.card.config.model);
  }

  get config(): ModelConfig {
    return this.context.card.config.model;
  }

  values = async (name: string, index: string): Promise<Vector> => (await tensor(this.context.manifest.id, name, index)).data;

  async one(name: string, index: readonly number[]): Promise<number> {
    return (await this.values(name, index.slice(0, -1).join(",")))[index[index.length - 1]];
  }

  /** A row of a quantity as a strip: its last axis, at the indices before it. */
  async vector(name: string, before: readonly number[], label = "x"): Promise<Strip> {
    return { label, values: await this.values(name, before.join(",")), part: (i) => ({ name, index: [...before, i] }) };
  }

  /** Row i of what the notes call by this symbol here, or the i-th number of a vector; null where the model has none. */
  async learned(place: string, symbol: string, row: number): Promise<Tensor | null> {
    return this.rows(place, symbol, (start) => `${start + row}`);
  }

  /** `count` rows of it, from this one on. */
  learnedRows = (place: string, symbol: string, row: number, count: number): Promise<Tensor | null> =>
    this.rows(place, symbol, (start) => `${start + row}:${start + row + count}`);

  private async rows(place: string, symbol: string, index: (start: number) => string): Promise<Tensor | null> {
    const all = await learnedOf(this.context.card.name);
    const found = all.find((one) => one.place === place && one.symbols.some((s) => s.symbol === symbol));
    if (!found) return null;
    const { start } = found.symbols.find((s) => s.symbol === symbol)!;
    return weight(this.context.card.name, found.name, index(start));
  }

  async number(place: string, symbol: string, row: number): Promise<number | null> {
    return (await this.learned(place, symbol, row))?.data[0] ?? null;
  }
}
