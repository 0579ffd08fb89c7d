// The keyboard: what works in every view, and the page that tells it.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { ModelCard } from "./api";
import { toggleTheme } from "./hooks";
import { address, go, type Changes } from "./state";
import { attentionNamed, attentions } from "./structure";
import { Icon } from "./ui";

const KEYS: readonly (readonly [string, string])[] = [
  ["1 … 9", "the views, from left to right"],
  ["← →", "the token before, the token after; in a matrix, the cell"],
  ["[  ]", "the layer below, the layer above"],
  [",  .", "the head before, the head after; before the first: their mean"],
  ["space", "one step further, in Walk and in Microscope; with shift, one back; in Replay, play"],
  ["+  −", "larger or smaller cells, in a matrix"],
  ["esc", "close the Inspector"],
  ["t", "light or dark"],
  ["?", "this page"],
];

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (/^(textarea|select)$/i.test(target.tagName) || (target instanceof HTMLInputElement && target.type !== "range"));

/** What a key changes, if anything. */
export function changesFor(key: string, state: ReturnType<typeof address>, card: ModelCard, views: readonly string[]): Changes | null {
  const heads = card.config.model.heads;
  const here = attentionNamed(card, state.attention);
  const layer = (by: number): Changes | null => {
    if (!here) return null;
    const alike = attentions(card).filter(({ stack, kind }) => stack === here.stack && kind === here.kind);
    const next = alike[Math.min(alike.length - 1, Math.max(0, here.layer + by))];
    return { attention: next.name, cell: "" };
  };
  switch (key) {
    case "[":
      return layer(-1);
    case "]":
      return layer(1);
    case ",":
      return { head: Math.max(-1, state.head - 1), cell: "" };
    case ".":
      return { head: Math.min(heads - 1, state.head + 1), cell: "" };
    case "ArrowLeft":
      return { row: Math.max(0, state.row - 1) };
    case "ArrowRight":
      return { row: state.row + 1 };
    case "Escape":
      return { cell: "" };
    default: {
      const view = /^[1-9]$/.test(key) ? views[Number(key) - 1] : undefined;
      return view ? { view, cell: "" } : null;
    }
  }
}

export function useKeys(card: ModelCard, views: readonly string[], rows: number, help: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "?") return help();
      if (event.key === "t") return toggleTheme();
      const arrow = event.key.startsWith("Arrow");
      if (arrow && event.target instanceof HTMLInputElement) return; // a slider's own
      const changes = changesFor(event.key, address(), card, views);
      if (!changes) return;
      if (changes.row !== undefined) changes.row = Math.min(rows - 1, changes.row);
      go(changes);
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [card, views, rows, help]);
}

/** The space bar, Shift with it going back, where nothing that takes it has the focus. Set before the screen is painted: a press
 * that follows at once must act on what is seen. */
export function useSpace(press: (isBack: boolean) => void): void {
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.key !== " " || /^(textarea|input|select|button|a)$/i.test(target.tagName) || event.defaultPrevented) return;
      event.preventDefault();
      press(event.shiftKey);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
}

export function Help({ onClose }: { onClose: () => void }) {
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    close.current?.focus();
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      onClose();
    };
    addEventListener("keydown", onKey, true);
    return () => {
      removeEventListener("keydown", onKey, true);
      before?.focus();
    };
  }, []);
  return (
    <div class="veil" onClick={(event) => event.target === event.currentTarget && onClose()}>
      <dialog open class="help" aria-modal="true" aria-label="help">
        <div class="lead">
          <h2>See every number</h2>
          <button ref={close} class="round" aria-label="close" onClick={onClose}>
            <Icon name="cross" />
          </button>
        </div>
        <p>
          Type a text and the model answers. Every figure on this page is one that the model computed for it: click any cell of any
          matrix and the Inspector shows the formula with this cell’s own numbers, works it out again in your browser and puts both
          results side by side. The address holds all that you see: keep it or send it. Learn tells the notes’ lessons, and computes them
          again with your own words and tables.
        </p>
        <dl>
          {KEYS.map(([key, does]) => (
            <>
              <dt>
                {key.split("  ").map((one) => (
                  <>
                    <kbd>{one}</kbd>{" "}
                  </>
                ))}
              </dt>
              <dd>{does}</dd>
            </>
          ))}
        </dl>
        <p class="soft small">
          Violet is positive, orange negative, the paler the nearer to 0; crossed-out cells are masked. Any matrix can be saved as SVG,
          PNG or CSV by the buttons above it.
        </p>
      </dialog>
    </div>
  );
}
