// A lesson told: what is claimed, sentences and tables, where the notes slip, what to look at. Figures are rounded as the server
// shows them; weights are shaded by their size.
import { colourOf, css, inkOn } from "../colour";
import { usePalette } from "../hooks";
import { linked, type Table, type Told } from "../lessons";
import { link } from "../state";

export function Prose({ text, names, lead }: { text: string; names: readonly string[]; lead?: string }) {
  return (
    <p class="prose">
      {lead ? <b>{lead} </b> : null}
      {linked(text, names).map((part, i) =>
        i % 2 ? (
          <a key={i} class="lesson-link" href={link({ lesson: part, given: "" })}>
            {part}
          </a>
        ) : (
          part
        ),
      )}
    </p>
  );
}

export function Story({ story, names }: { story: Told["story"]; names: readonly string[] }) {
  return (
    <div class="story">
      {story.parts.map((part, i) => (typeof part === "string" ? <Prose key={i} text={part} names={names} /> : <Shown key={i} table={part} />))}
      {story.slips.length ? (
        <aside class="slips" aria-label="where the notes slip">
          <h3>The notes slip</h3>
          <ul>
            {story.slips.map((slip) => (
              <li key={slip}>
                <Prose text={slip} names={names} />
              </li>
            ))}
          </ul>
        </aside>
      ) : null}
      <div class="look">
        <Prose lead="What to look at:" text={story.look} names={names} />
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
  const colours = (value: string | number | null): { background: string; color: string } | undefined => {
    if (!table.shaded || typeof value !== "number") return undefined;
    const colour = colourOf(value, 1, palette);
    return { background: css(colour), color: inkOn(colour) };
  };
  return (
    <figure class="shown-scroll">
      {table.caption ? <figcaption>{table.caption}</figcaption> : null}
      <table class={`shown${table.shaded ? " shaded" : ""}`} aria-label={table.caption || undefined} data-table={table.caption}>
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
          {table.shown.map((row, i) => (
            <tr key={i} class={table.strong.includes(i) ? "strong" : ""}>
              {row.map((text, j) =>
                j === 0 && wordy[0] ? (
                  <th key={j} scope="row">
                    {text}
                  </th>
                ) : (
                  <td key={j} class={wordy[j] ? "" : "right"} style={colours(table.rows[i][j])}>
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
