// Small components that every view uses: loading, error and empty states, a segmented control, a slider, icons.
import type { ComponentChildren } from "preact";
import type { ApiError } from "./api";
import { hasDevanagari, transliterate } from "./transliteration";

export function Loading({ what }: { what: string }) {
  return (
    <div class="state" role="status">
      <div class="progress-bar" />
      <p class="muted small">Loading {what} …</p>
    </div>
  );
}

export function ErrorMessage({ error }: { error: Error }) {
  return (
    <div class="state error" role="alert">
      <p>{error.message}</p>
      {(error as ApiError).hint ? <p class="muted">{(error as ApiError).hint}</p> : null}
    </div>
  );
}

export function EmptyState({ children }: { children: ComponentChildren }) {
  return <div class="state muted">{children}</div>;
}

/** A word or a text, with each Devanagari word in Latin letters below it. These are generated content: copied text and what a
 * screen reader says stay the model's own words. */
export function Transliterated({ text }: { text: string }) {
  if (!hasDevanagari(text)) return <>{text}</>;
  return (
    <>
      {text.split(/(\s+)/).map((word, i) =>
        hasDevanagari(word) ? (
          <ruby key={i}>
            <span>{word}</span>
            <rt lang="hi-Latn" data-latin={transliterate(word)} />
          </ruby>
        ) : (
          word
        ),
      )}
    </>
  );
}

interface SegmentedControlProps<T extends string> {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}

export function SegmentedControl<T extends string>({ label, options, value, onChange }: SegmentedControlProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([key, name]) => (
        <button key={key} aria-pressed={key === value} onClick={() => onChange(key)}>
          {name}
        </button>
      ))}
    </div>
  );
}

interface SliderProps {
  label: string;
  value: number;
  min: number;
  max: number;
  step: number;
  valueText: string;
  onChange: (value: number) => void;
}

export function Slider({ label, value, min, max, step, valueText, onChange }: SliderProps) {
  return (
    <label class="slider">
      <span>{label}</span>
      <input
        type="range"
        {...{ min, max, step, value }}
        aria-valuetext={valueText}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <output>{valueText}</output>
    </label>
  );
}

const ICONS = {
  sun: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM12 1v3M12 20v3M1 12h3M20 12h3M4.2 4.2l2.1 2.1M17.7 17.7l2.1 2.1M4.2 19.8l2.1-2.1M17.7 6.3l2.1-2.1",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  cross: "M5 5l14 14M19 5L5 19",
};

/** Drawn as SVG, since not every font has these glyphs. */
export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}
