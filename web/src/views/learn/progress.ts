// What the reader has opened and solved, remembered in this browser only.
import { useEffect, useState } from "preact/hooks";

export interface LessonProgress {
  solved: readonly number[]; // exercises, by index
  total: number; // exercises of the lesson
}
export type Progress = Readonly<Record<string, LessonProgress>>;

const KEY = "seq2see.course";
const listeners = new Set<() => void>();

/** The stored progress; empty if there is none, or if it cannot be read. */
export function parseProgress(text: string | null): Progress {
  try {
    const parsed: unknown = JSON.parse(text ?? "{}");
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
    const valid = Object.entries(parsed as Record<string, Partial<LessonProgress>>).filter(
      ([, each]) => each && Array.isArray(each.solved) && each.solved.every(Number.isInteger) && Number.isInteger(each.total),
    );
    return Object.fromEntries(valid) as Progress;
  } catch {
    return {};
  }
}

const store = (): Storage | null => {
  try {
    return localStorage; // throws if the browser forbids it
  } catch {
    return null;
  }
};

export const loadProgress = (): Progress => parseProgress(store()?.getItem(KEY) ?? null);

function save(progress: Progress): void {
  try {
    store()?.setItem(KEY, JSON.stringify(progress));
  } catch {
    // full or forbidden: progress is a convenience
  }
  listeners.forEach((listener) => listener());
}

/** The progress after opening a lesson with `total` exercises, or after solving one. */
export function withLesson(progress: Progress, lesson: string, total: number, solved?: number): Progress {
  const before = progress[lesson]?.solved ?? [];
  const all = solved === undefined || before.includes(solved) ? before : [...before, solved].sort((a, b) => a - b);
  return { ...progress, [lesson]: { solved: all.filter((i) => i < total), total } };
}

export const remember = (lesson: string, total: number, solved?: number): void =>
  save(withLesson(loadProgress(), lesson, total, solved));
export const clearProgress = (): void => save({});

export const isDone = (each: LessonProgress | undefined): boolean =>
  each !== undefined && each.total > 0 && each.solved.length >= each.total;

export function useProgress(): Progress {
  const [progress, setProgress] = useState(loadProgress);
  useEffect(() => {
    const update = (): void => setProgress(loadProgress());
    listeners.add(update);
    return () => void listeners.delete(update);
  }, []);
  return progress;
}
