// What several views choose: the sentence, an attention, a head, a token.
import "./views.css";
import type { ComponentChildren } from "preact";
import type { Manifest, ModelCard } from "../api";
import { go } from "../state";
import { attentions, structureOf, title } from "../structure";
import { Empty } from "../ui";
import { Sentence } from "./sentence";

interface LineProps {
  label: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

/** One line of text. Empty is a space, for in the address nothing stands for the text to begin with. */
export function Line({ label, value, placeholder, onChange }: LineProps) {
  return (
    <label class="line">
      <span class="small soft">{label}</span>
      <input
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

interface PickProps<T extends string | number> {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}

export function Pick<T extends string | number>({ label, value, options, onChange }: PickProps<T>) {
  return (
    <label class="pick">
      <span class="small soft">{label}</span>
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

export const attentionOptions = (card: ModelCard): [string, string][] => attentions(card).map((one) => [one.name, title(one)]);

interface HeadProps {
  card: ModelCard;
  label?: string;
  all: string; // what −1, all of them together, is: their mean, or each
  value: number;
  onChange: (head: number) => void;
}

/** Which head, where there are several. */
export function HeadPick({ card, label = "head", all, value, onChange }: HeadProps) {
  const { heads } = card.config.model;
  if (heads === 1) return null;
  const options = Array.from({ length: heads }, (_, head): [number, string] => [head, `head ${head}`]);
  return <Pick label={label} value={value} options={[[-1, all], ...options]} onChange={onChange} />;
}

/** What stands in an attention's place, in a model that has none. */
export function NoAttention({ card, children }: { card: ModelCard; children?: ComponentChildren }) {
  return (
    <Empty>
      <p data-without>{structureOf(card).without}</p>
      {children}
    </Empty>
  );
}

/** And in the place of a view that is all about attention. */
export function NothingLooks({ card }: { card: ModelCard }) {
  return (
    <div class="stack">
      <Sentence />
      <section class="card">
        <h2>Nothing looks back</h2>
        <NoAttention card={card}>
          <button class="chip on" onClick={() => go({ view: "walk", stage: "", cell: "" })}>
            see what it has instead, step by step →
          </button>
        </NoAttention>
      </section>
    </div>
  );
}

export const tokenOptions = (tokens: readonly { text: string }[]): [number, string][] =>
  tokens.map((token, i) => [i, `${i} · ${token.text}`]);

/** An output as it reads, with the parts that some rows wrote set apart. */
export function Marked({ manifest, marked }: { manifest: Manifest; marked: ReadonlySet<number> }) {
  const { spans, writes } = manifest;
  if (!manifest.output) return <span class="soft">nothing</span>;
  return (
    <>
      {spans.map(({ text, row }, i) => {
        const rows = Array.from({ length: (spans[i + 1]?.row ?? writes.length) - row }, (_, n) => row + n);
        const own = rows.filter((n) => writes[n].text !== "<end>");
        return (
          <span key={i} class={own.some((n) => marked.has(n)) ? "changed" : ""}>
            {text}
          </span>
        );
      })}
    </>
  );
}
