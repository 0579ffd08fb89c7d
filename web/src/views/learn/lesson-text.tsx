// A lesson told: what is claimed, sentences and tables, where the notes slip, what to look at. Figures are rounded as the server
// shows them; weights are shaded by their size.
import { colorFor, toCss, textColorOn } from "../../color";
import { usePalette } from "../../hooks";
import type { LessonText, Table } from "../../api";
import { linked } from "./lessons";
import { hrefFor } from "../../url-state";

export function Prose({ text, names, lead }: { text: string; names: readonly string[]; lead?: string }) {
  return (
    <p class="prose">
      {lead ? <b>{lead} </b> : null}
      {linked(text, names).map((part, i) =>
        i % 2 ? (
          <a key={i} class="lesson-link" href={hrefFor({ lesson: part, given: "" })}>
            {part}
          </a>
        ) : (
          part
        ),
      )}
    </p>
  );
}

export function LessonTextView({ story, names }: { story: LessonText; names: readonly string[] }) {
  return (
    <div class="lesson-text">
      {story.body.map((part, i) => (typeof part === "string" ? <Prose key={i} text={part} names={names} /> : <Shown key={i} table={part} />))}
      {story.errata.length ? (
        <aside class="errata" aria-label="where the notes slip">
          <h3>The notes slip</h3>
          <ul>
            {story.errata.map((slip) => (
              <li key={slip}>
                <Prose text={slip} names={names} />
              </li>
            ))}
          </ul>
        </aside>
      ) : null}
      <div class="takeaway">
        <Prose lead="What to look at:" text={story.takeaway} names={names} />
      </div>
    </div>
  );
}

/** As in a terminal: words to the left, figures to the right. */
const isWordy = (table: Table, column: number): boolean =>
  table.rows.some((row) => typeof row[column] === "string" && /^\s*["“]?\p{L}/u.test(row[column] as string));

function Shown({ table }: { table: Table }) {
  const palette = usePalette();
  const wordy = table.columns.map((_, column) => isWordy(table, column));
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
                <th key={j} class={wordy[j] ? "" : "right"} scope="col">
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
                j === 0 && wordy[0] ? (
                  <th key={j} scope="row">
                    {text}
                  </th>
                ) : (
                  <td key={j} class={wordy[j] ? "" : "right"} style={colors(table.rows[i][j])}>
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
