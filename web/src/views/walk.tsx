// Walk: the whole computation, or a short route through it, one stage at a time, each with its equation, its matrices, a
// description and the line of code that computes it. The space bar advances; clicking a cell opens the Inspector.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { isOverOutput, selectedRow } from "../architecture";
import { latestValue, useAsync } from "../hooks";
import { InspectorLayout } from "../inspector";
import { useSpaceKey } from "../keyboard";
import { maxMagnitude } from "../matrix/grid";
import { MediaStage } from "../media/media-stage";
import { useSession, useTrace } from "../session";
import { equationsFor, hasSharedScale } from "../stages/equations";
import type { Stage } from "../stages/shared";
import { groupTitle, shortRoute, stagesFor } from "../stages/stages";
import { loadPanel, TensorPanel } from "../tensor-panel";
import { SegmentedControl, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { Equations } from "./equation";
import { NextToken } from "./translate";

const MIN_STAGES_FOR_ROUTES = 20;

export function Walk() {
  const { model } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const config = model.config.model;
  const [all, short] = useMemo(() => [stagesFor(config), shortRoute(stagesFor(config), config)], [model]);
  const hasRoutes = all.length > MIN_STAGES_FOR_ROUTES;
  const isShort = hasRoutes && state.route === "short" && short.some(({ key }) => key === (state.stage || all[0].key));
  const stages = isShort ? short : all;
  const current = Math.max(
    0,
    stages.findIndex(({ key }) => key === state.stage),
  );
  const stage = stages[current];
  const goTo = (index: number): void =>
    navigate({ stage: stages[Math.min(stages.length - 1, Math.max(0, index))].key, cell: "" });
  const setRoute = (route: "full" | "short"): void => {
    const passed = all.slice(0, all.indexOf(stage) + 1);
    const nearest = [...short].reverse().find((one) => passed.includes(one)) ?? short[0];
    navigate({ route, ...(route === "short" ? { stage: nearest.key, cell: "" } : {}) });
  };
  useSpaceKey((backwards) => goTo(current + (backwards ? -1 : 1)));

  const row = selectedRow(trace, state.row);
  const equations = useMemo(() => equationsFor(stage, config), [stage]);
  const max = useSharedMax(stage, hasSharedScale(equations));
  const panels = equations.length ? [stage.key, ...stage.tensors.filter((name) => name !== stage.key)] : stage.tensors; // the result first
  return (
    <div class="stack">
      <StageNav stages={stages} current={current} goTo={goTo}>
        {hasRoutes ? (
          <SegmentedControl
            label="route"
            options={[
              ["short", `${short.length} main steps`],
              ["full", `all ${all.length}`],
            ]}
            value={isShort ? "short" : "full"}
            onChange={setRoute}
          />
        ) : null}
      </StageNav>
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
              <p class="code" key={line} title={`from ${file}, without what only records values or acts in training`}>
                <code>{line}</code> <span class="muted">{file}</span>
              </p>
            ))}
          </div>
          <Equations equations={equations} max={max} />
          {stage.kind === "tokens" ? <Tokens stack={stage.group} /> : null}
          {stage.kind === "next" ? <NextToken trace={trace} row={row} /> : null}
          {stage.kind === "media" ? <MediaStage /> : null}
          {stage.kind === "matrix" || stage.kind === "media" ? (
            <div class="panels">
              {panels.map((name) => (
                <TensorPanel
                  key={name}
                  name={name}
                  max={max}
                  row={
                    stage.highlightedRow ?? (isOverOutput(trace, name) ? row - Number(name === stage.previousRowTensor) : -1)
                  }
                />
              ))}
            </div>
          ) : null}
        </section>
      </InspectorLayout>
    </div>
  );
}

/** The largest magnitude among the matrices of a stage, if they share a colour scale. */
function useSharedMax({ key, tensors }: Stage, isShared: boolean): number | undefined {
  const { model } = useSession();
  const trace = useTrace();
  const { head } = useUrlState();
  const loaded = useAsync(
    isShared
      ? async () => {
          const panels = await Promise.all(tensors.map((name) => loadPanel(model, trace, name, head)));
          return { key, max: Math.max(...panels.map(({ grid }) => maxMagnitude(grid))) };
        }
      : null,
    [trace.id, key, isShared, head],
  );
  const latest = latestValue(loaded);
  return isShared && latest?.key === key ? latest.max : undefined;
}

function StageHeadSelect({ stage }: { stage: Stage }) {
  const { model } = useSession();
  const { head } = useUrlState();
  if (
    model.config.model.heads === 1 ||
    !/\.(self|masked|cross)$/.test(stage.group) ||
    /norm\.|sum|projected|concatenated/.test(stage.key)
  )
    return null;
  return (
    <select
      aria-label="head"
      value={String(Math.max(0, head))}
      onChange={(event) => navigate({ head: Number(event.currentTarget.value), cell: "" })}
    >
      {Array.from({ length: model.config.model.heads }, (_, i) => (
        <option key={i} value={String(i)}>{`head ${i}`}</option>
      ))}
    </select>
  );
}

interface StageNavProps {
  stages: readonly Stage[];
  current: number;
  goTo: (index: number) => void;
  children: ComponentChildren;
}

function StageNav({ stages, current, goTo, children }: StageNavProps) {
  const { group: currentGroup } = stages[current];
  const groups = [...new Set(stages.map(({ group }) => group))];
  return (
    <nav class="stage-nav" aria-label="stages">
      {children}
      <select
        aria-label="part of the model"
        value={currentGroup}
        onChange={(event) => goTo(stages.findIndex(({ group }) => group === event.currentTarget.value))}
      >
        {groups.map((group) => (
          <option key={group} value={group}>
            {groupTitle(group)}
          </option>
        ))}
      </select>
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
  const trace = useTrace();
  const tokens = stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens;
  const isKnown = (i: number): boolean => stack !== "encoder" || trace.source_tokens[i].known;
  return (
    <ol class="tokens">
      {tokens.map(({ id, text }, i) => (
        <li key={i} data-id={id}>
          <span class="token-text">
            <Transliterated text={text} />
          </span>
          <span class="muted small">{id}</span>
          {isKnown(i) ? null : <span class="small caution">not in the vocabulary of this model</span>}
        </li>
      ))}
    </ol>
  );
}
