// The help dialog: what the page shows, the keyboard shortcuts and the colours.
import { useLayoutEffect, useRef } from "preact/hooks";
import { NUMBERING } from "./architecture";
import { VIEW_SHORTCUTS } from "./keyboard";
import { Icon } from "./ui";

const SHORTCUTS: readonly (readonly [string, string])[] = [
  ["← →", "previous or next token; in a matrix, move between cells"],
  ["[  ]", "previous or next layer"],
  [",  .", "previous or next head; before the first head: the mean"],
  ["space", "Walk and Microscope: next step (with Shift: previous); Map and Replay: play or pause"],
  ["+  −", "zoom in or out, in a matrix"],
  ["esc", "close the Inspector"],
  ["f", "larger type, for a projector"],
  ["t", "toggle the light and dark theme"],
  ["?", "show this help"],
];

export function HelpDialog({ views, onClose }: { views: readonly string[]; onClose: () => void }) {
  const closeButton = useRef<HTMLButtonElement>(null);
  // Before the dialog is painted, so that an immediate Escape closes it.
  useLayoutEffect(() => {
    const previousFocus = document.activeElement as HTMLElement | null;
    closeButton.current?.focus();
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      onClose();
    };
    addEventListener("keydown", onKey, true);
    return () => {
      removeEventListener("keydown", onKey, true);
      previousFocus?.focus();
    };
  }, []);
  return (
    <div class="backdrop" onClick={(event) => event.target === event.currentTarget && onClose()}>
      <dialog open class="help-dialog" aria-modal="true" aria-label="help">
        <div class="section-header">
          <h2>See every number</h2>
          <button ref={closeButton} class="icon-button" aria-label="close" onClick={onClose}>
            <Icon name="cross" />
          </button>
        </div>
        <p>
          Enter a text and the model responds. Every number on this page was computed by the model for that text. Click any cell
          of any matrix: the Inspector shows its formula with the actual numbers, recomputes it in your browser and compares the
          two results. The URL contains the complete state of the page, so you can bookmark or share it. The Tour shows the page
          in two minutes. Learn contains lessons that recompute their results from your own words and tables. {NUMBERING}
        </p>
        <dl>
          <dt>
            <kbd>1</kbd> … <kbd>0</kbd> <kbd>-</kbd>
          </dt>
          <dd class="view-keys">
            {views.map((name, i) => (
              <span key={name}>
                <kbd>{VIEW_SHORTCUTS[i]}</kbd> {name}
              </span>
            ))}
          </dd>
          {SHORTCUTS.map(([keys, action]) => (
            <>
              <dt>
                {keys.split("  ").map((key) => (
                  <>
                    <kbd>{key}</kbd>{" "}
                  </>
                ))}
              </dt>
              <dd>{action}</dd>
            </>
          ))}
        </dl>
        <p class="muted small">
          Violet is positive, orange is negative, and paler colours are closer to 0; hatched cells are masked. Use the buttons
          above a matrix to save it as SVG, PNG or CSV.
        </p>
      </dialog>
    </div>
  );
}
