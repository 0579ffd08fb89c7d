// The text of a lesson: paragraphs and tables, the errata of the notes, the takeaway. Numbers are rounded by the server;
// weights are shaded by value.
import type { LessonText, Table } from "../../api";
import { colorFor, textColorOn, toCss } from "../../color";
import { usePalette } from "../../hooks";
import { hrefFor } from "../../url-state";
import { splitLinks } from "./lessons";

export function Prose({ text, names, lead }: { text: string; names: readonly string[]; lead?: string }) {
  return (
    <p class="prose">
      {lead ? <b>{lead} </b> : null}
      {splitLinks(text, names).map((part, i) =>
        i % 2 ? (
          <a key={i} class="lesson-link" href={hrefFor({ lesson: part, settings: "" })}>
            {part}
          </a>
        ) : (
          part
        ),
      )}
    </p>
  );
}

export function LessonTextView({ text, names }: { text: LessonText; names: readonly string[] }) {
  return (
    <div class="lesson-text">
      {text.body.map((part, i) => (typeof part === "string" ? <Prose key={i} text={part} names={names} /> : <LessonTable key={i} table={part} />))}
      {text.errata.length ? (
        <aside class="errata" aria-label="errata in the notes">
          <h3>Errata in the notes</h3>
          <ul>
            {text.errata.map((erratum) => (
              <li key={erratum}>
                <Prose text={erratum} names={names} />
              </li>
            ))}
          </ul>
        </aside>
      ) : null}
      <div class="takeaway">
        <Prose lead="Takeaway:" text={text.takeaway} names={names} />
      </div>
    </div>
  );
}

/** Text columns are aligned to the left, numbers to the right. */
const isTextColumn = (table: Table, column: number): boolean =>
  table.rows.some((row) => typeof row[column] === "string" && /^\s*["“]?\p{L}/u.test(row[column] as string));

function LessonTable({ table }: { table: Table }) {
  const palette = usePalette();
  const isText = table.columns.map((_, column) => isTextColumn(table, column));
  const colors = (value: string | number | null): { background: string; color: string } | undefined => {
    if (!table.shaded || typeof value !== "number") return undefined;
    const color = colorFor(value, 1, palette);
    return { background: toCss(color), color: textColorOn(color) };
  };
  return (
    <figure class="lesson-table-scroll">
      {table.caption ? <figcaption>{table.caption}</figcaption> : null}
      <table class={`lesson-table${table.shaded ? " shaded" : ""}`} aria-label={table.caption || undefined} data-table={table.caption}>
        {table.columns.some(Boolean) ? (
          <thead>
            <tr>
              {table.columns.map((column, j) => (
                <th key={j} class={isText[j] ? "" : "right"} scope="col">
                  {column}
                </th>
              ))}
            </tr>
          </thead>
        ) : null}
        <tbody>
          {table.formatted.map((row, i) => (
            <tr key={i} class={table.bold_rows.includes(i) ? "bold" : ""}>
              {row.map((text, j) =>
                j === 0 && isText[0] ? (
                  <th key={j} scope="row">
                    {text}
                  </th>
                ) : (
                  <td key={j} class={isText[j] ? "" : "right"} style={colors(table.rows[i][j])}>
                    {text}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
