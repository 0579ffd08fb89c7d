// Hooks shared by all views: asynchronous values, the theme, the width of an element, the font.
import { useEffect, useRef, useState } from "preact/hooks";
import { DARK, LIGHT, type Palette } from "./color";

export type AsyncState<T> =
  | { state: "loading"; last?: T }
  | { state: "ready"; value: T }
  | { state: "failed"; error: Error; last?: T };

/** Runs `load` whenever a dependency changes. Outdated results are dropped; the last value stays available while loading. */
export function useAsync<T>(load: ((signal: AbortSignal) => Promise<T>) | null, dependencies: unknown[]): AsyncState<T> {
  const [result, setResult] = useState<AsyncState<T>>({ state: "loading" });
  const last = useRef<T | undefined>(undefined);
  useEffect(() => {
    if (!load) return;
    const abort = new AbortController();
    const previous = last.current === undefined ? {} : { last: last.current };
    setResult({ state: "loading", ...previous });
    load(abort.signal).then(
      (value) => {
        if (abort.signal.aborted) return;
        last.current = value;
        setResult({ state: "ready", value });
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setResult({ state: "failed", error: error as Error, ...previous });
      },
    );
    return () => abort.abort();
  }, dependencies);
  return result;
}

/** The value, or the previous one while the next is loading. */
export function latestValue<T>(result: AsyncState<T>): T | undefined {
  return result.state === "ready" ? result.value : result.last;
}

export type Theme = "system" | "light" | "dark";
const STORAGE_KEY = "seq2see theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function loadTheme(): Theme {
  try {
    const theme = localStorage.getItem(STORAGE_KEY);
    return theme === "light" || theme === "dark" ? theme : "system";
  } catch {
    return "system"; // storage may be blocked for a file opened from disk
  }
}

let theme: Theme = loadTheme();
const themeListeners = new Set<() => void>();
const isDark = (): boolean => theme === "dark" || (theme === "system" && prefersDark.matches);

function applyTheme(): void {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  themeListeners.forEach((listener) => listener());
}
applyTheme();
prefersDark.addEventListener("change", applyTheme);

export function toggleTheme(): void {
  theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem(STORAGE_KEY, theme);
  } catch {
    // lasts until the page is closed
  }
  applyTheme();
}

export function usePalette(): Palette {
  const [palette, setPalette] = useState(isDark() ? DARK : LIGHT);
  useEffect(() => {
    const update = (): void => setPalette(isDark() ? DARK : LIGHT);
    themeListeners.add(update);
    return () => void themeListeners.delete(update);
  }, []);
  return palette;
}

const LARGE_FONT = 16;
const NORMAL_FONT = 12;
const isLarge = (): boolean => document.documentElement.dataset.large !== undefined;

/** Larger type, for a projector. */
export function toggleLargeType(): void {
  if (isLarge()) delete document.documentElement.dataset.large;
  else document.documentElement.dataset.large = "";
  themeListeners.forEach((listener) => listener());
}

/** The size of small type on canvases and in drawings, in pixels. */
export function useFontSize(): number {
  const size = (): number => (isLarge() ? LARGE_FONT : NORMAL_FONT);
  const [fontSize, setFontSize] = useState(size);
  useEffect(() => {
    const update = (): void => setFontSize(size());
    themeListeners.add(update);
    return () => void themeListeners.delete(update);
  }, []);
  return fontSize;
}

export function useWidth<E extends HTMLElement>(): [(element: E | null) => void, number] {
  const [element, setElement] = useState<E | null>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, width];
}

export const prefersReducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Whether the web font has loaded: canvases must be repainted with it. */
export function useFontLoaded(): boolean {
  const [ready, setReady] = useState(document.fonts.status === "loaded");
  useEffect(() => void document.fonts.ready.then(() => setReady(true)), []);
  return ready;
}
