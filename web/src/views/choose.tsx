// What several views choose: the sentence, an attention, a head, a token.
import "./views.css";
import type { ModelCard } from "../api";
import { attentions, title } from "../structure";

interface LineProps {
  label: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

export function Line({ label, value, placeholder, onChange }: LineProps) {
  return (
    <label class="line">
      <span class="small soft">{label}</span>
      <input
        type="text"
        spellcheck={false}
        maxLength={4000}
        value={value}
        placeholder={placeholder}
        onInput={(event) => onChange(event.currentTarget.value)}
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

/** −1 is all of them together: their mean, or each. */
export const headOptions = (card: ModelCard, all: string): [number, string][] => [
  [-1, all],
  ...Array.from({ length: card.config.model.heads }, (_, head): [number, string] => [head, `head ${head}`]),
];

export const tokenOptions = (tokens: readonly { text: string }[]): [number, string][] =>
  tokens.map((token, i) => [i, `${i} · ${token.text}`]);
