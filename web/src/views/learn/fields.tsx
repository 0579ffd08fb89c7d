// The fields that edit a lesson's settings: single values, lists, tables of numbers and named entries. Each passes its complete
// new value to `onChange`.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "../../ui";
import { parseNumber, type Value } from "./lessons";

export type List = readonly Value[];
export type Change<T = Value> = (value: T) => void;

const MAX_ITEMS = 16; // rows, columns and texts: the server's limit

interface ValueFieldProps {
  value: Value;
  label: string;
  isNumber?: boolean;
  onChange: Change;
}

/** One input. Its text is left alone while it parses to the value, so that "1." can become "1.5". */
export function ValueField({ value, label, isNumber = false, onChange }: ValueFieldProps) {
  const field = useRef<HTMLInputElement>(null);
  const parse = (text: string): Value => (isNumber ? parseNumber(text) : text);
  useEffect(() => {
    if (field.current && parse(field.current.value) !== value) field.current.value = String(value);
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
      onInput={(event) => onChange(parse(event.currentTarget.value))}
    />
  );
}

export const replaceAt = (list: List, i: number, value: Value): List => list.map((item, n) => (n === i ? value : item));
const removeAt = (list: List, i: number): List => list.filter((_, n) => n !== i);

export function RemoveButton({ what, list, i, onChange }: { what: string; list: List; i: number; onChange: Change<List> }) {
  return (
    <button
      class="remove"
      aria-label={`remove ${what}`}
      title={`remove ${what}`}
      disabled={list.length < 2}
      onClick={() => onChange(removeAt(list, i))}
    >
      <Icon name="cross" />
    </button>
  );
}

/** Appends `item`, by default a copy of the last. */
export function AddButton({ what, list, onChange, item }: { what: string; list: List; onChange: Change<List>; item?: Value }) {
  return (
    <button class="chip" disabled={list.length >= MAX_ITEMS} onClick={() => onChange([...list, item ?? list[list.length - 1]])}>
      + {what}
    </button>
  );
}

/** An entry with a new name. */
export const newEntry = (rows: List, value: Value): Value => {
  const names = rows.map((row) => (row as List)[0]);
  let name = "new";
  for (let n = 2; names.includes(name); n++) name = `new${n}`;
  return [name, value];
};

interface ListFieldProps {
  label: string;
  list: List;
  isNumber?: boolean;
  onChange: Change<List>;
}

export function ListField({ label, list, isNumber = false, onChange }: ListFieldProps) {
  return (
    <div class={isNumber ? "items inline" : "items"}>
      {list.map((value, i) => (
        <span class="item" key={i}>
          <ValueField
            value={value}
            label={`${label}, ${i + 1}`}
            isNumber={isNumber}
            onChange={(next) => onChange(replaceAt(list, i, next))}
          />
          <RemoveButton what={`${label}, ${i + 1}`} {...{ list, i, onChange }} />
        </span>
      ))}
      <AddButton what={isNumber ? "number" : "text"} list={list} onChange={onChange} />
    </div>
  );
}

interface NumberTableProps {
  label: string;
  rows: readonly List[];
  columns?: readonly string[] | undefined;
  names?: { texts: List; onChange: (i: number, name: Value) => void }; // of the rows
  newRow: () => Value;
  onRows: (change: (list: List) => List) => void; // the rows with their names
  onChange: (i: number, row: List) => void;
}

/** A table of numbers, with or without row names. */
export function NumberTable({ label, rows, columns, names, newRow, onRows, onChange }: NumberTableProps) {
  const width = Math.max(...rows.map((row) => row.length));
  const mapRows = (change: (row: List) => List): void => rows.forEach((row, i) => onChange(i, change(row)));
  return (
    <div>
      <div class="table-scroll">
        <table class="number-table" aria-label={label}>
          {columns ? (
            <thead>
              <tr>
                {names ? <th /> : null}
                {Array.from({ length: width }, (_, j) => (
                  <th key={j}>{columns[j] ?? j + 1}</th>
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
                      <ValueField
                        value={names.texts[i]}
                        label={`${label}, name of row ${i + 1}`}
                        onChange={(next) => names.onChange(i, next)}
                      />
                    </th>
                  ) : null}
                  {row.map((value, j) => (
                    <td key={j}>
                      <ValueField
                        value={value}
                        label={`${name}, ${columns?.[j] ?? `column ${j + 1}`}`}
                        isNumber
                        onChange={(next) => onChange(i, replaceAt(row, j, next))}
                      />
                    </td>
                  ))}
                  <td>
                    <button
                      class="remove"
                      aria-label={`remove ${name}`}
                      title={`remove ${name}`}
                      disabled={rows.length < 2}
                      onClick={() => onRows((list) => removeAt(list, i))}
                    >
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
        <button class="chip" disabled={rows.length >= MAX_ITEMS} onClick={() => onRows((list) => [...list, newRow()])}>
          + row
        </button>
        <button class="chip" disabled={width >= MAX_ITEMS} onClick={() => mapRows((row) => [...row, 0])}>
          + column
        </button>
        <button class="chip" disabled={width < 2} onClick={() => mapRows((row) => row.slice(0, -1))}>
          − column
        </button>
      </div>
    </div>
  );
}

interface EntriesFieldProps {
  label: string;
  entries: readonly List[];
  onChange: Change;
  children: (value: Value, set: Change, name: string) => ComponentChildren;
}

/** Named entries that are larger than a row: the name, then its fields. */
export function EntriesField({ label, entries, onChange, children }: EntriesFieldProps) {
  const set = (i: number, entry: List): void => onChange(replaceAt(entries, i, entry));
  return (
    <div class="entries">
      {entries.map(([name, value], i) => (
        <div class="entry-group" role="group" aria-label={String(name)} key={i}>
          <span class="item">
            <ValueField value={name} label={`${label}, ${i + 1}`} onChange={(next) => set(i, [next, value])} />
            <RemoveButton what={String(name)} list={entries} i={i} onChange={onChange} />
          </span>
          <div class="entry-fields">{children(value, (next) => set(i, [name, next]), String(name))}</div>
        </div>
      ))}
      <AddButton
        what="entry"
        list={entries}
        onChange={onChange}
        item={newEntry(entries, (entries[entries.length - 1] as List)[1])}
      />
    </div>
  );
}

export function MatrixField({
  label,
  rows,
  columns,
  onChange,
}: {
  label: string;
  rows: readonly List[];
  columns?: readonly string[] | undefined;
  onChange: Change;
}) {
  let next: List = rows; // adding or removing a column changes all rows before the next render
  return (
    <NumberTable
      {...{ label, rows, columns }}
      newRow={() => rows[rows.length - 1]}
      onRows={(change) => onChange(change(rows))}
      onChange={(i, row) => {
        next = replaceAt(next, i, row);
        onChange(next);
      }}
    />
  );
}
