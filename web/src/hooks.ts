// Small things that every view needs: a promise as loading | value | error, the theme, the size of an element.
import { useEffect, useRef, useState } from "preact/hooks";
import { DARK, LIGHT, type Palette } from "./colour";

export type Loading<T> = { state: "loading"; last?: T } | { state: "ready"; value: T } | { state: "failed"; error: Error; last?: T };

/** Runs `load` whenever a dependency changes; answers that come too late are dropped, the last good one is kept meanwhile. */
export function useLoaded<T>(load: ((signal: AbortSignal) => Promise<T>) | null, dependencies: unknown[]): Loading<T> {
  const [result, setResult] = useState<Loading<T>>({ state: "loading" });
  const last = useRef<T | undefined>(undefined);
  useEffect(() => {
    if (!load) return;
    const abort = new AbortController();
    const kept = last.current === undefined ? {} : { last: last.current };
    setResult({ state: "loading", ...kept });
    load(abort.signal).then(
      (value) => {
        if (abort.signal.aborted) return;
        last.current = value;
        setResult({ state: "ready", value });
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setResult({ state: "failed", error: error as Error, ...kept });
      },
    );
    return () => abort.abort();
  }, dependencies);
  return result;
}

/** What is there: the value, or the last one while the next is on its way. */
export function present<T>(loading: Loading<T>): T | undefined {
  return loading.state === "ready" ? loading.value : loading.last;
}

export type Theme = "system" | "light" | "dark";
const KEY = "seq2see theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function remembered(): Theme {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "light" || theme === "dark" ? theme : "system";
  } catch {
    return "system"; // a file opened from disk may keep nothing
  }
}

let theme: Theme = remembered();
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
    localStorage.setItem(KEY, theme);
  } catch {
    // then it holds for this visit
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

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** True once the page's font is there: canvases must be painted again with it. */
export function useFont(): boolean {
  const [ready, setReady] = useState(document.fonts.status === "loaded");
  useEffect(() => void document.fonts.ready.then(() => setReady(true)), []);
  return ready;
}
