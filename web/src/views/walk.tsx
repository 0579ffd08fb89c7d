// Walk: the whole computation, one stage at a time, each with its matrices, a description and the line of code that computes
// it. The space bar advances; clicking a cell opens the Inspector.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { selectedRow } from "../architecture";
import { prefersReducedMotion } from "../hooks";
import { InspectorLayout } from "../inspector";
import { useSpaceKey } from "../keyboard";
import { useSession } from "../session";
import type { Stage } from "../stages/shared";
import { groupTitle, stagesFor } from "../stages/stages";
import { TensorPanel } from "../tensor-panel";
import { ErrorMessage, Loading } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { SentenceBar } from "./sentence-bar";
import { NextToken } from "./translate";

export function Walk() {
  const { model, trace, error } = useSession();
  const state = useUrlState();
  const stages = useMemo(() => stagesFor(model.config.model), [model]);
  const current = Math.max(0, stages.findIndex(({ key }) => key === state.stage));
  const stage = stages[current];
  const goTo = (index: number): void => navigate({ stage: stages[Math.min(stages.length - 1, Math.max(0, index))].key, cell: "" });

  useSpaceKey((backwards) => goTo(current + (backwards ? -1 : 1)));

  if (error && !trace) return <ErrorMessage error={error} />;
  if (!trace) return <Loading what="trace" />;
  const row = selectedRow(trace, state.row);
  return (
    <div class="stack">
      <SentenceBar />
      <StageNav stages={stages} current={current} goTo={goTo} />
      <InspectorLayout>
        <section class="card stack stage" data-stage={stage.key}>
          <div>
            <div class="section-header">
              <h2>
                {groupTitle(stage.group)}: {stage.label}
              </h2>
              <div class="controls">
                <StageHeadSelect stage={stage} />
                <button class="chip" disabled={current === 0} onClick={() => goTo(current - 1)}>
                  ← back
                </button>
                <button class="chip active" disabled={current === stages.length - 1} onClick={() => goTo(current + 1)}>
                  next →
                </button>
              </div>
            </div>
            <p class="description">{stage.description}</p>
            {stage.code.map(({ file, line }) => (
              <p class="code" key={line}>
                <code>{line}</code> <span class="muted">{file}</span>
              </p>
            ))}
          </div>
          {stage.kind === "tokens" ? <Tokens stack={stage.group} /> : null}
          {stage.kind === "next" ? <NextToken trace={trace} row={row} /> : null}
          {stage.kind === "matrix" ? (
            <div class="panels">
              {stage.tensors.map((name) => (
                <TensorPanel key={name} name={name} row={stage.highlightedRow ?? rowOf(name, name === stage.previousRowTensor ? row - 1 : row)} />
              ))}
            </div>
          ) : null}
        </section>
      </InspectorLayout>
    </div>
  );
}

/** The row of the selected token, or −1 for tensors over the input tokens. */
function rowOf(name: string, row: number): number {
  const isOverInput = name.startsWith("encoder") || /\.cross\.(keys|values)$/.test(name);
  return isOverInput ? -1 : row;
}

function StageHeadSelect({ stage }: { stage: Stage }) {
  const { model } = useSession();
  const { head } = useUrlState();
  if (model.config.model.heads === 1 || !/\.(self|masked|cross)$/.test(stage.group) || /norm\.|sum|projected|concatenated/.test(stage.key)) return null;
  return (
    <select aria-label="head" value={String(Math.max(0, head))} onChange={(event) => navigate({ head: Number(event.currentTarget.value), cell: "" })}>
      {Array.from({ length: model.config.model.heads }, (_, i) => (
        <option key={i} value={String(i)}>{`head ${i}`}</option>
      ))}
    </select>
  );
}

function StageNav({ stages, current, goTo }: { stages: readonly Stage[]; current: number; goTo: (index: number) => void }) {
  const { group: currentGroup } = stages[current];
  const groups = [...new Set(stages.map(({ group }) => group))];
  const currentButton = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    currentButton.current?.scrollIntoView({ block: "nearest", inline: "center", behavior: prefersReducedMotion() ? "auto" : "smooth" });
  }, [currentGroup]);
  return (
    <nav class="stage-nav" aria-label="stages">
      <ol class="stage-groups">
        {groups.map((group) => (
          <li key={group}>
            <button
              ref={group === currentGroup ? currentButton : null}
              aria-current={group === currentGroup ? "step" : undefined}
              class={stages.findIndex((stage) => stage.group === group) < current ? "completed" : ""}
              onClick={() => goTo(stages.findIndex((stage) => stage.group === group))}
            >
              {groupTitle(group)}
            </button>
          </li>
        ))}
      </ol>
      <ol class="stage-steps">
        {stages.map((stage, index) =>
          stage.group === currentGroup ? (
            <li key={stage.key}>
              <button aria-current={index === current ? "step" : undefined} onClick={() => goTo(index)}>
                {stage.label}
              </button>
            </li>
          ) : null,
        )}
        <li class="muted small stage-count">
          {current + 1} of {stages.length}
        </li>
      </ol>
    </nav>
  );
}

function Tokens({ stack }: { stack: string }) {
  const { trace } = useSession();
  const tokens = stack === "encoder" ? trace!.source_tokens : trace!.decoder_input_tokens;
  return (
    <ol class="tokens">
      {tokens.map(({ id, text }, i) => (
        <li key={i} data-id={id}>
          <span class="token-text">{text}</span>
          <span class="muted small">{id}</span>
        </li>
      ))}
    </ol>
  );
}
