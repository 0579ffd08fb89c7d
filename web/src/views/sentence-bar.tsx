// The bar above the views of a trace: the editable input text, the output tokens, of which one is selected, and in the views
// that look at one part of the model, a small map with that part lit.
import { useEffect, useRef } from "preact/hooks";
import { type ModelInfo, source } from "../api";
import { findAttention, selectedRow } from "../architecture";
import { parseInterventions } from "../interventions";
import { MiniMap } from "../map/mini-map";
import { mediaKind } from "../media/media";
import { MediaEntry } from "../media/media-entry";
import { useSession } from "../session";
import { stagesFor } from "../stages/stages";
import { Transliterated } from "../ui";
import { navigate, type State, useUrlState } from "../url-state";
import { RowName } from "./controls";

/** The parts of the model that a view looks at, such as decoder.1.cross; null if it looks at the whole. */
function litGroups({ view, stage, attention, interventions }: State, model: ModelInfo): string[] | null {
  if (view === "walk")
    return [(stagesFor(model.config.model).find(({ key }) => key === stage) ?? stagesFor(model.config.model)[0]).group];
  if (view === "intervene")
    return parseInterventions(interventions).map((one) =>
      groupOf("attention" in one ? one.attention : one.type === "zero" ? one.component : one.name),
    );
  const selected = view === "heads" || view === "microscope" ? findAttention(model, attention) : null;
  return selected && [selected.name];
}

/** The group of stages that a tensor belongs to. */
const groupOf = (name: string): string =>
  /^\w+\.\d+(\.(self|masked|cross|feed_forward))?/.exec(name)?.[0] ?? name.split(".")[0];

export function SentenceBar() {
  const { model, text, trace, busy } = useSession();
  const state = useUrlState();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (field.current && field.current.value.trim() !== text.trim()) field.current.value = text;
  }, [text]);
  const list = useRef<HTMLOListElement>(null);
  const groups = litGroups(state, model);
  const selected = trace ? selectedRow(trace, state.row) : 0;
  useEffect(() => {
    // Of many tokens, scrolls to the selected one; not the page, as scrollIntoView would.
    const item = list.current?.children[selected] as HTMLElement | undefined;
    if (item && list.current!.scrollHeight > list.current!.clientHeight) list.current!.scrollTop = item.offsetTop - 8;
  }, [selected, trace?.id]);
  return (
    <section class={`sentence-bar${groups ? " with-map" : ""}`}>
      {groups ? <MiniMap groups={groups} view={state.view} /> : null}
      {mediaKind(model.config.model) ? (
        <MediaEntry />
      ) : (
        <input
          ref={field}
          class="text-input"
          aria-label="input text"
          placeholder="Enter a text"
          defaultValue={text.trim()}
          maxLength={8000}
          readOnly={!source.live}
          spellcheck={false}
          onInput={(event) => navigate({ text: event.currentTarget.value || " ", row: -1, cell: "" })}
        />
      )}
      <ol ref={list} class={`output-tokens${busy ? " busy" : ""}`} aria-label="output tokens">
        {trace?.target_tokens.map((token, i) => (
          <li key={i}>
            <button aria-pressed={i === selected} onClick={() => navigate({ row: i })}>
              <Transliterated text={token.text} />
            </button>
          </li>
        ))}
      </ol>
      {trace?.target_tokens[selected] ? (
        <p class="small muted">
          Selected row: <RowName trace={trace} row={selected} />
        </p>
      ) : null}
    </section>
  );
}
