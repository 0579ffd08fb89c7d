// The tour: seven stops of two minutes in all. A stop is a link into the state of the page with a line of explanation above the
// view; it can be left at any time and resumed where it was left.
import { useLayoutEffect } from "preact/hooks";
import { source } from "./api";
import { findAttention } from "./architecture";
import { formatInterventions } from "./interventions";
import { otherModel, type Session, useSession, withSnapshots } from "./session";
import { hrefFor, navigate, type StateUpdate, useUrlState } from "./url-state";

interface Stop {
  title: string;
  text: string;
  update: StateUpdate;
}

/** The stops that these models and this page can show; an exported file has no model to change or to replay. */
export function stopsFor({ model, models, trace }: Session, views: readonly string[]): Stop[] {
  const attention = findAttention(model, "");
  const row = trace ? Math.min(trace.output_start + 1, trace.target_tokens.length - 1) : 1;
  const generates = model.kind !== "encoder";
  const replayed = withSnapshots(model, models);
  const allHeads = Array.from({ length: model.config.model.heads }, (_, head) => ({
    type: "ablate" as const,
    attention: attention?.name ?? "",
    head,
  }));
  const stop = (isPossible: unknown, title: string, text: string, update: StateUpdate): Stop[] =>
    isPossible ? [{ title, text, update: { interventions: "", cell: "", ...update } }] : [];
  return [
    ...stop(
      generates,
      "Type",
      source.live ? "Change a word of the text: the model answers while you type." : "A text and what the model made of it.",
      { view: "translate", row: -1 },
    ),
    ...stop(
      generates && attention,
      "Where each word looked",
      "The wider the line, the more of that word went into the output. Click another word of the output.",
      { view: "translate", row },
    ),
    ...stop(
      attention,
      "One head",
      "The model looks several times at once. Each picture is one such head; the last layers often find the matching word.",
      { view: "heads", attention: attention?.name ?? "", head: 0, row },
    ),
    ...stop(
      attention,
      "One cell, audited",
      "The Inspector on the right computes one weight again in your browser, from the model’s own numbers. Click any other cell.",
      {
        view: "microscope",
        attention: attention?.name ?? "",
        head: 0,
        row,
        cell: `${attention?.name}.weights:0,${row},0`,
      },
    ), // prettier-ignore
    ...stop(
      source.live && generates && attention,
      "Switch it off",
      "Here a whole layer of attention is off: compare the output before and after. Switch single heads on and off below.",
      {
        view: "intervene",
        interventions: formatInterventions(allHeads),
      },
    ), // prettier-ignore
    ...stop(
      source.live && replayed,
      "Replay the training",
      "The same text at earlier steps of the training: first noise, then words, then sentences. Press Play.",
      {
        ...(replayed && replayed !== model ? otherModel(replayed.name) : {}),
        view: "replay",
        snapshot: replayed?.snapshots[0] ?? -1,
      },
    ), // prettier-ignore
    ...stop(
      source.live,
      "Your own model",
      views.includes("train")
        ? "Start a training here; the finished model opens in every view."
        : "seq2see train --src a.en --tgt a.hi --out runs/mine, then seq2see explore --model runs/mine: every view shows your model.",
      { view: views.includes("train") ? "train" : "map" },
    ),
  ]; // prettier-ignore
}

const STORAGE_KEY = "seq2see tour";

/** The stop at which the tour was left, from 1. */
function lastStop(): number {
  try {
    return Number(localStorage.getItem(STORAGE_KEY)) || 1;
  } catch {
    return 1; // storage may be blocked for a file opened from disk
  }
}

export function TourLink({ views, class: className, children }: { views: readonly string[]; class: string; children: string }) {
  const session = useSession();
  useUrlState(); // the link contains the state
  const stops = stopsFor(session, views);
  const number = Math.min(lastStop(), stops.length);
  return (
    <a class={className} href={hrefFor({ ...stops[number - 1]?.update, tour: number })}>
      {children}
    </a>
  );
}

export function Tour({ views }: { views: readonly string[] }) {
  const session = useSession();
  const { tour } = useUrlState();
  const stops = stopsFor(session, views);
  const current = stops[tour - 1];
  // Not after the next frame: the link of the header, which reads it, may be shown before that.
  useLayoutEffect(() => {
    if (!current) return;
    scrollTo(0, 0);
    try {
      localStorage.setItem(STORAGE_KEY, String(tour));
    } catch {
      // then it starts over
    }
  }, [tour, !current]);
  if (!current) return null;
  const link = (number: number, label: string, isMain: boolean) =>
    stops[number - 1] ? (
      <a class={isMain ? "primary-button" : "chip"} href={hrefFor({ ...stops[number - 1].update, tour: number })}>
        {label}
      </a>
    ) : null;
  return (
    <section class="tour" aria-label="tour">
      <p aria-live="polite">
        <span class="muted small">
          {tour} of {stops.length}
        </span>{" "}
        <b>{current.title}.</b> {current.text}
      </p>
      <div class="controls">
        {link(tour - 1, "← back", false)}
        {link(tour + 1, `next: ${stops[tour]?.title.toLowerCase()} →`, true)}
        <button class="chip" onClick={() => navigate({ tour: 0 })}>
          {tour === stops.length ? "end the tour" : "leave"}
        </button>
      </div>
    </section>
  );
}
