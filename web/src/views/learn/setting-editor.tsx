// The editor for each kind of setting. Invalid values are passed on too; the server's error message is shown beside the field.
import type { LessonSetting } from "../../api";
import {
  AddButton,
  type Change,
  EntriesField,
  type List,
  ListField,
  MatrixField,
  NumberTable,
  newEntry,
  RemoveButton,
  replaceAt,
  ValueField,
} from "./fields";
import type { Value } from "./lessons";

const HAS_SLIDER = /^(steps|samples|sentences|width|length|map_width|shift)$/;

interface SettingEditorProps {
  setting: LessonSetting;
  label: string;
  value: Value;
  columns?: readonly string[] | undefined; // names of a table's columns
  onChange: Change;
}

export function SettingEditor({ setting, label, value, columns, onChange }: SettingEditorProps) {
  const list = value as readonly List[];
  switch (setting.kind) {
    case "text":
      return <ValueField value={value} label={label} onChange={onChange} />;
    case "number": {
      const { name, minimum, maximum } = setting;
      return (
        <span class="number-with-slider">
          <ValueField value={value} label={label} isNumber onChange={onChange} />
          {HAS_SLIDER.test(name) ? (
            <input
              type="range"
              aria-label={`${label}, slider`}
              min={minimum}
              max={maximum}
              step={/^(width|map_width)$/.test(name) ? 2 : 1}
              value={Number(value)}
              onInput={(event) => onChange(Number(event.currentTarget.value))}
            />
          ) : null}
        </span>
      );
    }
    case "texts":
    case "numbers":
      return <ListField label={label} list={value as List} isNumber={setting.kind === "numbers"} onChange={onChange} />;
    case "matrix":
      return <MatrixField label={label} rows={list} columns={columns} onChange={onChange} />;
    case "rows":
      return (
        <div class="items">
          {list.map((row, i) => (
            <span class="item" key={i}>
              {row.map((text, j) => (
                <ValueField
                  key={j}
                  value={text}
                  label={`${label}, row ${i + 1}, ${j + 1}`}
                  onChange={(next) => onChange(replaceAt(list, i, replaceAt(row, j, next)))}
                />
              ))}
              <RemoveButton what={`row ${i + 1}`} {...{ list, i, onChange }} />
            </span>
          ))}
          <AddButton what="row" list={list} onChange={onChange} />
        </div>
      );
    case "values":
    case "table": {
      const isTable = setting.kind === "table";
      let next: List = list;
      const set = (i: number, entry: List): void => {
        next = replaceAt(next, i, entry);
        onChange(next);
      };
      const rows = list.map(([, numbers]) => (isTable ? (numbers as List) : [numbers]));
      const table = (
        <NumberTable
          {...{ label, rows, columns }}
          names={{ texts: list.map(([name]) => name), onChange: (i, name) => set(i, [name, list[i][1]]) }}
          newRow={() => newEntry(list, list[list.length - 1][1])}
          onRows={(change) => onChange(change(list))}
          onChange={(i, row) => set(i, [list[i][0], isTable ? row : row[0]])}
        />
      );
      return isTable ? table : <div class="fixed-columns">{table}</div>;
    }
    case "matrices":
      return (
        <EntriesField label={label} entries={list} onChange={onChange}>
          {(rows, set, name) => (
            <MatrixField label={name} rows={rows as readonly List[]} columns={name.split(" ")} onChange={set} />
          )}
        </EntriesField>
      );
    case "groups":
      return (
        <EntriesField label={label} entries={list} onChange={onChange}>
          {(texts, set, name) => <ListField label={name} list={texts as List} onChange={set} />}
        </EntriesField>
      );
    case "questions":
      return (
        <EntriesField label={label} entries={list} onChange={onChange}>
          {(question, set, name) => {
            const [query, candidates] = question as List;
            return (
              <>
                <span class="item">
                  <span class="small muted">query</span>
                  <ValueField value={query} label={`query in ${name}`} onChange={(next) => set([next, candidates])} />
                </span>
                <ListField label="candidates" list={candidates as List} onChange={(next) => set([query, next])} />
              </>
            );
          }}
        </EntriesField>
      );
  }
}
