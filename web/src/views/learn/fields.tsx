// What the settings of a lesson are edited with: one field, a list of them, rows of numbers, and what is by name. Each hands the whole
// new value up.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { number, type Value } from "./lessons";
import { Icon } from "../../ui";

export type List = readonly Value[];
export type Change<T = Value> = (value: T) => void;

const MOST = 16; // rows, columns and texts: the server takes no more

interface CellProps {
  value: Value;
  label: string;
  isNumber?: boolean;
  onChange: Change;
}

/** One field. While its text means the value it is left alone, so that "1." can become "1.5". */
export function Cell({ value, label, isNumber = false, onChange }: CellProps) {
  const field = useRef<HTMLInputElement>(null);
  const meant = (text: string): Value => (isNumber ? number(text) : text);
  useEffect(() => {
    if (field.current && meant(field.current.value) !== value) field.current.value = String(value);
  });
  return (
    <input
      ref={field}
      type="text"
      class={isNumber ? "cell number-cell" : "cell"}
      aria-label={label}
      inputMode={isNumber ? "decimal" : "text"}
      spellcheck={false}
      autocomplete="off"
      maxLength={200}
      defaultValue={String(value)}
      onInput={(event) => onChange(meant(event.currentTarget.value))}
    />
  );
}

export const changed = (list: List, i: number, value: Value): List => list.map((each, n) => (n === i ? value : each));
const without = (list: List, i: number): List => list.filter((_, n) => n !== i);

export function Remove({ what, list, i, onChange }: { what: string; list: List; i: number; onChange: Change<List> }) {
  return (
    <button class="remove" aria-label={`remove ${what}`} title={`remove ${what}`} disabled={list.length < 2} onClick={() => onChange(without(list, i))}>
      <Icon name="cross" />
    </button>
  );
}

/** Adds a copy of the last, with a name of its own where it has one. */
export function Add({ what, list, onChange, made }: { what: string; list: List; onChange: Change<List>; made?: Value }) {
  return (
    <button class="chip" disabled={list.length >= MOST} onClick={() => onChange([...list, made ?? list[list.length - 1]])}>
      + {what}
    </button>
  );
}

export const named = (rows: List, value: Value): Value => {
  const names = rows.map((row) => (row as List)[0]);
  let name = "new";
  for (let n = 2; names.includes(name); n++) name = `new${n}`;
  return [name, value];
};

interface ListProps {
  label: string;
  list: List;
  isNumber?: boolean;
  onChange: Change<List>;
}

export function Items({ label, list, isNumber = false, onChange }: ListProps) {
  return (
    <div class={isNumber ? "items inline" : "items"}>
      {list.map((value, i) => (
        <span class="item" key={i}>
          <Cell value={value} label={`${label}, ${i + 1}`} isNumber={isNumber} onChange={(next) => onChange(changed(list, i, next))} />
          <Remove what={`${label}, ${i + 1}`} {...{ list, i, onChange }} />
        </span>
      ))}
      <Add what={isNumber ? "number" : "text"} list={list} onChange={onChange} />
    </div>
  );
}

interface GridProps {
  label: string;
  rows: readonly List[];
  heads?: readonly string[] | undefined;
  names?: { texts: List; onChange: (i: number, name: Value) => void }; // of the rows
  add: () => Value; // a new row
  onRows: (change: (list: List) => List) => void; // acts on rows with their names
  onChange: (i: number, row: List) => void;
}

/** Rows of numbers, with their names where they have some. */
export function Numbers({ label, rows, heads, names, add, onRows, onChange }: GridProps) {
  const width = Math.max(...rows.map((row) => row.length));
  const widen = (by: (row: List) => List): void => rows.forEach((row, i) => onChange(i, by(row)));
  return (
    <div>
      <div class="table-scroll">
        <table class="number-table" aria-label={label}>
          {heads ? (
            <thead>
              <tr>
                {names ? <th /> : null}
                {Array.from({ length: width }, (_, j) => (
                  <th key={j}>{heads[j] ?? j + 1}</th>
                ))}
                <th />
              </tr>
            </thead>
          ) : null}
          <tbody>
            {rows.map((row, i) => {
              const name = names ? String(names.texts[i]) : `row ${i + 1}`;
              return (
                <tr key={i}>
                  {names ? (
                    <th scope="row">
                      <Cell value={names.texts[i]} label={`${label}, name of row ${i + 1}`} onChange={(next) => names.onChange(i, next)} />
                    </th>
                  ) : null}
                  {row.map((value, j) => (
                    <td key={j}>
                      <Cell value={value} label={`${name}, ${heads?.[j] ?? `column ${j + 1}`}`} isNumber onChange={(next) => onChange(i, changed(row, j, next))} />
                    </td>
                  ))}
                  <td>
                    <button class="remove" aria-label={`remove ${name}`} title={`remove ${name}`} disabled={rows.length < 2} onClick={() => onRows((list) => without(list, i))}>
                      <Icon name="cross" />
                    </button>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <div class="table-tools">
        <button class="chip" disabled={rows.length >= MOST} onClick={() => onRows((list) => [...list, add()])}>
          + row
        </button>
        <button class="chip" disabled={width >= MOST} onClick={() => widen((row) => [...row, 0])}>
          + column
        </button>
        <button class="chip" disabled={width < 2} onClick={() => widen((row) => row.slice(0, -1))}>
          − column
        </button>
      </div>
    </div>
  );
}

interface EntriesProps {
  label: string;
  entries: readonly List[];
  onChange: Change;
  children: (value: Value, set: Change, name: string) => ComponentChildren;
}

/** What is by name and larger than a row: the name, then its fields. */
export function Entries({ label, entries, onChange, children }: EntriesProps) {
  const set = (i: number, entry: List): void => onChange(changed(entries, i, entry));
  return (
    <div class="entries">
      {entries.map(([name, value], i) => (
        <div class="entry-group" role="group" aria-label={String(name)} key={i}>
          <span class="item">
            <Cell value={name} label={`${label}, ${i + 1}`} onChange={(next) => set(i, [next, value])} />
            <Remove what={String(name)} list={entries} i={i} onChange={onChange} />
          </span>
          <div class="entry-fields">{children(value, (next) => set(i, [name, next]), String(name))}</div>
        </div>
      ))}
      <Add what="entry" list={entries} onChange={onChange} made={named(entries, (entries[entries.length - 1] as List)[1])} />
    </div>
  );
}

export function Matrix({ label, rows, heads, onChange }: { label: string; rows: readonly List[]; heads?: readonly string[] | undefined; onChange: Change }) {
  let next: List = rows; // several rows change at once when a column comes or goes
  return (
    <Numbers
      {...{ label, rows, heads }}
      add={() => rows[rows.length - 1]}
      onRows={(change) => onChange(change(rows))}
      onChange={(i, row) => onChange((next = changed(next, i, row)))}
    />
  );
}
