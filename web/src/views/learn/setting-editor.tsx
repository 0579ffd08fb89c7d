// The field of each kind of setting. What cannot be meant is handed up too, and the server's answer stands beside the field.
import type { LessonSetting } from "../../api";
import type { Value } from "./lessons";
import { Add, Cell, changed, Entries, Items, Matrix, named, Numbers, Remove, type Change, type List } from "./fields";

const RANGED = /^(steps|samples|sentences|width|length|map_width|shift)$/;

interface Props {
  setting: LessonSetting;
  label: string;
  value: Value;
  heads?: readonly string[] | undefined; // of a table's columns
  onChange: Change;
}

export function Editor({ setting, label, value, heads, onChange }: Props) {
  const list = value as readonly List[];
  switch (setting.kind) {
    case "text":
      return <Cell value={value} label={label} onChange={onChange} />;
    case "number": {
      const { name, minimum, maximum } = setting;
      return (
        <span class="number-with-slider">
          <Cell value={value} label={label} isNumber onChange={onChange} />
          {RANGED.test(name) ? (
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
      return <Items label={label} list={value as List} isNumber={setting.kind === "numbers"} onChange={onChange} />;
    case "matrix":
      return <Matrix label={label} rows={list} heads={heads} onChange={onChange} />;
    case "rows":
      return (
        <div class="items">
          {list.map((row, i) => (
            <span class="item" key={i}>
              {row.map((text, j) => (
                <Cell key={j} value={text} label={`${label}, row ${i + 1}, ${j + 1}`} onChange={(next) => onChange(changed(list, i, changed(row, j, next)))} />
              ))}
              <Remove what={`row ${i + 1}`} {...{ list, i, onChange }} />
            </span>
          ))}
          <Add what="row" list={list} onChange={onChange} />
        </div>
      );
    case "values":
    case "table": {
      const isTable = setting.kind === "table";
      let next: List = list;
      const set = (i: number, entry: List): void => onChange((next = changed(next, i, entry)));
      const rows = list.map(([, numbers]) => (isTable ? (numbers as List) : [numbers]));
      const table = (
        <Numbers
          {...{ label, rows, heads }}
          names={{ texts: list.map(([name]) => name), onChange: (i, name) => set(i, [name, list[i][1]]) }}
          add={() => named(list, list[list.length - 1][1])}
          onRows={(change) => onChange(change(list))}
          onChange={(i, row) => set(i, [list[i][0], isTable ? row : row[0]])}
        />
      );
      return isTable ? table : <div class="fixed-columns">{table}</div>;
    }
    case "matrices":
      return (
        <Entries label={label} entries={list} onChange={onChange}>
          {(rows, set, name) => <Matrix label={name} rows={rows as readonly List[]} heads={name.split(" ")} onChange={set} />}
        </Entries>
      );
    case "groups":
      return (
        <Entries label={label} entries={list} onChange={onChange}>
          {(texts, set, name) => <Items label={name} list={texts as List} onChange={set} />}
        </Entries>
      );
    case "questions":
      return (
        <Entries label={label} entries={list} onChange={onChange}>
          {(question, set, name) => {
            const [asks, meant] = question as List;
            return (
              <>
                <span class="item">
                  <span class="small muted">asks</span>
                  <Cell value={asks} label={`who asks in ${name}`} onChange={(next) => set([next, meant])} />
                </span>
                <Items label="who may be meant" list={meant as List} onChange={(next) => set([asks, next])} />
              </>
            );
          }}
        </Entries>
      );
  }
}
