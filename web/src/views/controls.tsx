// Components that several views share: text and select fields, the choice of a head, output with changes highlighted.
import "./views.css";
import type { ComponentChildren } from "preact";
import type { ModelInfo, Trace } from "../api";
import { architectureOf, attentions, attentionTitle } from "../architecture";
import { inLatin } from "../transliteration";
import { EmptyState, Transliterated } from "../ui";
import { navigate } from "../url-state";

interface TextFieldProps {
  label: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

/** A single line of text. An empty field is stored as a space, since an empty string means the default text. */
export function TextField({ label, value, placeholder, onChange }: TextFieldProps) {
  return (
    <label class="text-field">
      <span class="small muted">{label}</span>
      <input
        class="text-input"
        type="text"
        spellcheck={false}
        maxLength={8000}
        value={value.trim() ? value : ""}
        placeholder={placeholder}
        onInput={(event) => onChange(event.currentTarget.value || " ")}
      />
    </label>
  );
}

interface SelectFieldProps<T extends string | number> {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}

export function SelectField<T extends string | number>({ label, value, options, onChange }: SelectFieldProps<T>) {
  return (
    <label class="select-field">
      <span class="small muted">{label}</span>
      <select
        value={String(value)}
        onChange={(event) => onChange(options.find(([key]) => String(key) === event.currentTarget.value)![0])}
      >
        {options.map(([key, name]) => (
          <option key={key} value={String(key)}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

export const attentionOptions = (model: ModelInfo): [string, string][] =>
  attentions(model).map((attention) => [attention.name, attentionTitle(attention)]);

interface HeadSelectProps {
  model: ModelInfo;
  label?: string;
  allLabel: string; // of the value −1: the mean, or all heads
  value: number;
  onChange: (head: number) => void;
}

/** Hidden if there is a single head. */
export function HeadSelect({ model, label = "head", allLabel, value, onChange }: HeadSelectProps) {
  const { heads } = model.config.model;
  if (heads === 1) return null;
  const options = Array.from({ length: heads }, (_, head): [number, string] => [head, `head ${head}`]);
  return <SelectField label={label} value={value} options={[[-1, allLabel], ...options]} onChange={onChange} />;
}

/** A row of the decoder by what it reads and what it writes. */
export function RowName({ trace, row }: { trace: Trace; row: number }) {
  return (
    <>
      read <b>{trace.decoder_input_tokens[row].text}</b> ▸ writes <b>{trace.target_tokens[row].text}</b>
    </>
  );
}

/** Explains why there is no attention to show. */
export function NoAttention({ model, children }: { model: ModelInfo; children?: ComponentChildren }) {
  return (
    <EmptyState>
      <p data-no-attention>{architectureOf(model).noAttention}</p>
      {children}
    </EmptyState>
  );
}

/** Replaces a view that only shows attention. */
export function NoAttentionView({ model }: { model: ModelInfo }) {
  return (
    <section class="card">
      <h2>No attention</h2>
      <NoAttention model={model}>
        <button class="chip active" onClick={() => navigate({ view: "walk", stage: "", cell: "" })}>
          show each step of the computation →
        </button>
      </NoAttention>
    </section>
  );
}

export const tokenOptions = (tokens: readonly { text: string }[]): [number, string][] =>
  tokens.map((token, i) => [i, `${i} · ${token.text}${inLatin(token.text)}`]);

/** The output text, with the parts that the given rows produced highlighted. */
export function HighlightedOutput({ trace, highlightedRows }: { trace: Trace; highlightedRows: ReadonlySet<number> }) {
  const { spans, target_tokens: targets } = trace;
  if (!trace.output) return <span class="muted">(empty)</span>;
  return (
    <>
      {spans.map(({ text, row }, i) => {
        const rows = Array.from({ length: (spans[i + 1]?.row ?? targets.length) - row }, (_, n) => row + n);
        const visible = rows.filter((n) => targets[n].text !== "<end>");
        return (
          <span key={i} class={visible.some((n) => highlightedRows.has(n)) ? "changed" : ""}>
            <Transliterated text={text} />
          </span>
        );
      })}
    </>
  );
}
