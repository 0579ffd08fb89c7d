// Walk: the notes' chain for one token, a stage at a time, each with its real matrices, their shapes, one sentence and the line of
// code that does it. Space goes on; a click on any cell opens the Inspector.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { chain, groupName } from "../chain";
import { reducedMotion } from "../hooks";
import { WithInspector } from "../inspector";
import { useSpace } from "../keys";
import { PanelOf } from "../panels";
import { useSession } from "../session";
import type { Stage } from "../stages";
import { go, useAddress } from "../state";
import { chosenRow } from "../structure";
import { Failed, Waiting } from "../ui";
import { Sentence } from "./sentence";
import { NextToken } from "./translate";

export function Walk() {
  const { card, manifest, error } = useSession();
  const state = useAddress();
  const stages = useMemo(() => chain(card.config.model), [card]);
  const found = stages.findIndex(({ key }) => key === state.stage);
  const at = Math.max(0, found);
  const stage = stages[at];
  const to = (index: number): void => go({ stage: stages[Math.min(stages.length - 1, Math.max(0, index))].key, cell: "" });

  useSpace((isBack) => to(at + (isBack ? -1 : 1)));

  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  const row = chosenRow(manifest, state.row);
  return (
    <div class="stack">
      <Sentence />
      <Steps stages={stages} at={at} to={to} />
      <WithInspector>
        <section class="card stack stage" data-stage={stage.key}>
          <div>
            <div class="lead">
              <h2>
                {groupName(stage.group)}: {stage.name}
              </h2>
              <div class="controls">
                <HeadPicker stage={stage} />
                <button class="chip" disabled={at === 0} onClick={() => to(at - 1)}>
                  ← back
                </button>
                <button class="chip on" disabled={at === stages.length - 1} onClick={() => to(at + 1)}>
                  next →
                </button>
              </div>
            </div>
            <p class="told">{stage.sentence}</p>
            {stage.code.map(({ file, line }) => (
              <p class="code" key={line}>
                <code>{line}</code> <span class="soft">{file}</span>
              </p>
            ))}
          </div>
          {stage.kind === "tokens" ? <Tokens stack={stage.group} /> : null}
          {stage.kind === "next" ? <NextToken manifest={manifest} row={row} /> : null}
          {stage.kind === "matrix" ? (
            <div class="panels">
              {stage.shows.map((name) => (
                <PanelOf key={name} name={name} row={stage.row ?? rowIn(name, name === stage.before ? row - 1 : row)} />
              ))}
            </div>
          ) : null}
        </section>
      </WithInspector>
    </div>
  );
}

/** The chosen token's row: of the decoder's quantities only, and not of keys and values that come from the input. */
function rowIn(name: string, row: number): number {
  const ofInput = name.startsWith("encoder") || /\.cross\.(keys|values)$/.test(name);
  return ofInput ? -1 : row;
}

function HeadPicker({ stage }: { stage: Stage }) {
  const { card } = useSession();
  const { head } = useAddress();
  if (card.config.model.heads === 1 || !/\.(self|masked|cross)$/.test(stage.group) || /norm|sum|projected|concatenated/.test(stage.key)) return null;
  return (
    <select aria-label="head" value={String(Math.max(0, head))} onChange={(event) => go({ head: Number(event.currentTarget.value), cell: "" })}>
      {Array.from({ length: card.config.model.heads }, (_, i) => (
        <option key={i} value={String(i)}>{`head ${i}`}</option>
      ))}
    </select>
  );
}

function Steps({ stages, at, to }: { stages: readonly Stage[]; at: number; to: (index: number) => void }) {
  const here = stages[at];
  const groups = [...new Set(stages.map(({ group }) => group))];
  const current = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    current.current?.scrollIntoView({ block: "nearest", inline: "center", behavior: reducedMotion() ? "auto" : "smooth" });
  }, [here.group]);
  return (
    <nav class="steps" aria-label="stages">
      <ol class="groups">
        {groups.map((group) => (
          <li key={group}>
            <button
              ref={group === here.group ? current : null}
              aria-current={group === here.group ? "step" : undefined}
              class={stages.findIndex((stage) => stage.group === group) < at ? "past" : ""}
              onClick={() => to(stages.findIndex((stage) => stage.group === group))}
            >
              {groupName(group)}
            </button>
          </li>
        ))}
      </ol>
      <ol class="within">
        {stages.map((stage, index) =>
          stage.group === here.group ? (
            <li key={stage.key}>
              <button aria-current={index === at ? "step" : undefined} onClick={() => to(index)}>
                {stage.name}
              </button>
            </li>
          ) : null,
        )}
        <li class="soft small count">
          {at + 1} of {stages.length}
        </li>
      </ol>
    </nav>
  );
}

function Tokens({ stack }: { stack: string }) {
  const { manifest, card } = useSession();
  const ofSource = stack === "encoder" && card.config.model.shape === "encoder-decoder";
  const tokens = ofSource ? manifest!.sources : manifest!.reads;
  return (
    <ol class="tokens">
      {tokens.map(({ id, text }, i) => (
        <li key={i} data-id={id}>
          <span class="token-text">{text}</span>
          <span class="soft small">{id}</span>
        </li>
      ))}
    </ol>
  );
}
