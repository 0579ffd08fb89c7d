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
