// The text of a lesson, always in the same order: what to look at, the picture, the few numbers, the takeaway; then, folded away,
// the rest; what to try, the exercises, how the library does it, and an aside on the lecture notes. Numbers are rounded by the
// server; weights are shaded by value.
import type { ComponentChildren } from "preact";
import type { Bars as BarsPart, HeatMap as HeatMapPart, LessonExercise, LessonInfo, LessonText, Table } from "../../api";
import { colorFor, textColorOn, toCss } from "../../color";
import { usePalette } from "../../hooks";
import { Transliterated } from "../../ui";
import { DEFAULTS, getUrlState, hrefFor, type StateUpdate } from "../../url-state";
import { Bars } from "./charts";
import { Exercises } from "./exercises";
import { HeatMap } from "./heat-map";
import { formatSettings, parseSettings, splitLinks, trySettings } from "./lessons";

type Part = LessonText["body"][number];
/** The title of every lesson by its name. */
export type Titles = ReadonlyMap<string, string>;

export function Prose({ text, titles, lead }: { text: string; titles: Titles; lead?: string }) {
  return (
    <p class="prose">
      {lead ? <b>{lead} </b> : null}
      {splitLinks(text, [...titles.keys()]).map((part, i) =>
        i % 2 ? (
          <a key={i} class="lesson-link" href={hrefFor({ lesson: part, settings: "" })}>
            {titles.get(part)}
          </a>
        ) : (
          part
        ),
      )}
    </p>
  );
}

interface ViewProps {
  lesson: LessonInfo;
  text: LessonText;
  exercises: readonly LessonExercise[];
  titles: Titles;
  figure: ComponentChildren; // of the page itself; null: the picture of the text is drawn
}

export function LessonTextView({ lesson, text, exercises, titles, figure }: ViewProps) {
  return (
    <div class="lesson-text">
      <Prose lead="Look at:" text={text.look} titles={titles} />
      <div class="lesson-picture">{figure ?? <Parts parts={text.picture} titles={titles} />}</div>
      <Parts parts={text.body} titles={titles} />
      <div class="takeaway">
        <Prose lead="Takeaway:" text={text.takeaway} titles={titles} />
      </div>
      {text.more.length ? (
        <div class="more">
          {text.more.map((section, i) => (
            <details class="fold" key={section.title + i}>
              <summary>{section.title}</summary>
              <div class="lesson-text">
                <Parts parts={section.parts} titles={titles} />
              </div>
            </details>
          ))}
        </div>
      ) : null}
      <Tries lesson={lesson} text={text} />
      <Exercises lesson={lesson.name} exercises={exercises} />
      <LibraryView library={text.library} />
      {text.notes.length ? (
        <details class="fold notes">
          <summary>In the notes</summary>
          <ul>
            {text.notes.map((note) => (
              <li key={note.text}>
                <Prose lead={`${note.document}:`} text={note.text} titles={titles} />
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </div>
  );
}

function Parts({ parts, titles }: { parts: readonly Part[]; titles: Titles }) {
  return (
    <>
      {parts.map((part, i) => (
        <PartView key={i} part={part} titles={titles} />
      ))}
    </>
  );
}

function PartView({ part, titles }: { part: Part; titles: Titles }) {
  if (typeof part === "string") return <Prose text={part} titles={titles} />;
  if (part.kind === "table") return <LessonTable table={part} />;
  return part.kind === "bars" ? <BarsView part={part} /> : <HeatMapView part={part} />;
}

function BarsView({ part }: { part: BarsPart }) {
  const groups = part.groups.map(([name, bars]) => ({
    name,
    bars: bars.map(([label, value]) => ({ name: label, value: value ?? 0 })),
  }));
  return <Bars title={part.title} groups={groups} {...(part.maximum ? { max: part.maximum } : {})} />;
}

function HeatMapView({ part }: { part: HeatMapPart }) {
  return (
    <HeatMap
      name={part.title}
      rows={part.rows}
      cols={part.columns}
      numbers={part.values.map((row) => row.map((value) => value ?? NaN))}
      scale={part.signed ? "diverging" : "sequential"}
      axes={["", ""]}
      maxCellWidth={28}
    />
  );
}

function Tries({ lesson, text }: { lesson: LessonInfo; text: LessonText }) {
  if (!text.tries.length) return null;
  const edited = parseSettings(getUrlState().settings, lesson);
  return (
    <section class="tries" aria-labelledby="tries-title">
      <h3 id="tries-title">Try this</h3>
      <ul>
        {text.tries.map((each) => (
          <li key={each.text}>
            {Object.keys(each.settings).length ? (
              <a
                class="lesson-link"
                href={hrefFor({ settings: formatSettings({ ...edited, ...trySettings(each.settings, lesson) }, lesson) })}
              >
                {each.text}
              </a>
            ) : (
              each.text
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function LibraryView({ library }: { library: LessonText["library"] }) {
  return (
    <section class="library" aria-labelledby="library-title">
      <h3 id="library-title">In the library</h3>
      <pre tabIndex={0}>
        <code>{library.code}</code>
      </pre>
      <p class="small muted">
        <code>src/seq2see/{library.source}</code>
      </p>
      {library.links.length ? (
        <p class="view-links">
          {library.links.map((link) => (
            <a
              class="chip"
              key={link.label + link.view}
              href={hrefFor({ ...knownState(link.state), view: link.view, lesson: "", settings: "", row: -1, cell: "" })}
            >
              {link.label} →
            </a>
          ))}
        </p>
      ) : null}
    </section>
  );
}

const knownState = (state: Readonly<Record<string, string | number>>): StateUpdate =>
  Object.fromEntries(Object.entries(state).filter(([key]) => key in DEFAULTS));

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
      <table
        class={`lesson-table${table.shaded ? " shaded" : ""}`}
        aria-label={table.caption || undefined}
        data-table={table.caption}
      >
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
                    <Transliterated text={text} />
                  </th>
                ) : (
                  <td key={j} class={isText[j] ? "" : "right"} style={colors(table.rows[i][j])}>
                    <Transliterated text={text} />
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
