// Keyboard shortcuts: those of every view, and the space bar.
import { useEffect, useLayoutEffect } from "preact/hooks";
import type { ModelInfo, Trace } from "./api";
import { attentions, findAttention, selectedRow } from "./architecture";
import { toggleLargeType, toggleTheme } from "./hooks";
import { getUrlState, navigate, type State, type StateUpdate } from "./url-state";

const isTextInput = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (/^(textarea|select)$/i.test(target.tagName) || (target instanceof HTMLInputElement && target.type !== "range"));

/** The keys of the views from left to right, as they lie on the keyboard. */
export const VIEW_SHORTCUTS = [..."1234567890-"];

/** The state update that a key causes, if any; `row` is the one that is shown. */
export function shortcutUpdate(
  key: string,
  state: State,
  model: ModelInfo,
  views: readonly string[],
  row: number,
): StateUpdate | null {
  const heads = model.config.model.heads;
  const current = findAttention(model, state.attention);
  const moveLayer = (offset: number): StateUpdate | null => {
    if (!current) return null;
    const sameKind = attentions(model).filter(({ stack, kind }) => stack === current.stack && kind === current.kind);
    const next = sameKind[Math.min(sameKind.length - 1, Math.max(0, current.layer + offset))];
    return { attention: next.name, cell: "" };
  };
  switch (key) {
    case "[":
      return moveLayer(-1);
    case "]":
      return moveLayer(1);
    case ",":
      return { head: Math.max(-1, state.head - 1), cell: "" };
    case ".":
      return { head: Math.min(heads - 1, state.head + 1), cell: "" };
    case "ArrowLeft":
      return { row: Math.max(0, row - 1) };
    case "ArrowRight":
      return { row: row + 1 };
    case "Escape":
      return { cell: "" };
    default: {
      const view = views[VIEW_SHORTCUTS.indexOf(key)];
      return view ? { view, cell: "" } : null;
    }
  }
}

export function useShortcuts(model: ModelInfo, views: readonly string[], trace: Trace | null, onHelp: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTextInput(event.target)) return;
      if (event.key === "?") return onHelp();
      if (event.key === "t") return toggleTheme();
      if (event.key === "f") return toggleLargeType();
      const arrow = event.key.startsWith("Arrow");
      if (arrow && event.target instanceof HTMLInputElement) return; // moves the slider
      const state = getUrlState();
      const update = shortcutUpdate(event.key, state, model, views, trace ? selectedRow(trace, state.row) : 0);
      if (!update) return;
      if (update.row !== undefined) update.row = Math.min((trace?.decoder_input_tokens.length || 1) - 1, update.row);
      navigate(update);
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [model, views, trace, onHelp]);
}

/** Calls `onSpace` for the space bar (with Shift: backwards) unless the focused element uses it. The listener is set before the
 * screen is painted, so that an immediate second press acts on what is visible. */
export function useSpaceKey(onSpace: (backwards: boolean) => void): void {
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.key !== " " || /^(textarea|input|select|button|a)$/i.test(target.tagName) || event.defaultPrevented) return;
      event.preventDefault();
      onSpace(event.shiftKey);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
}
