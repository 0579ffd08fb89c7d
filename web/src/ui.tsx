// Small parts of every view: what to show while waiting, when something failed or when there is nothing; choices and sliders.
import type { ComponentChildren } from "preact";
import type { Problem } from "./api";

export function Waiting({ what }: { what: string }) {
  return (
    <div class="state" role="status">
      <div class="bar" />
      <p class="soft small">{what} …</p>
    </div>
  );
}

export function Failed({ error }: { error: Error }) {
  return (
    <div class="state failed" role="alert">
      <p>{error.message}</p>
      {(error as Problem).remedy ? <p class="soft">{(error as Problem).remedy}</p> : null}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="state soft">{children}</div>;
}

interface ChoiceProps<T extends string> {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}

export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>) {
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
  shown: string;
  onChange: (value: number) => void;
}

export function Slider({ label, value, min, max, step, shown, onChange }: SliderProps) {
  return (
    <label class="slider">
      <span>{label}</span>
      <input
        type="range"
        {...{ min, max, step, value }}
        aria-valuetext={shown}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <output>{shown}</output>
    </label>
  );
}

const ICONS = {
  sun: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM12 1v3M12 20v3M1 12h3M20 12h3M4.2 4.2l2.1 2.1M17.7 17.7l2.1 2.1M4.2 19.8l2.1-2.1M17.7 6.3l2.1-2.1",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  cross: "M5 5l14 14M19 5L5 19",
};

/** Drawn, since not every font has them. */
export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}
