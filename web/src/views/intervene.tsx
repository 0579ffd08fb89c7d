// Intervene: change values inside the model and compare the output before and after. The interventions are stored in the URL.
import { useState } from "preact/hooks";
import { type ModelInfo, source, type TokenChange, type Trace } from "../api";
import { attentions, attentionTitle, findAttention, selectedHead, stacks } from "../architecture";
import { colorFor, textColorOn, toCss } from "../color";
import { formatNumber, formatPercent } from "../format";
import { latestValue, useAsync, usePalette } from "../hooks";
import { describe, formatInterventions, type Intervention, parseInterventions, summarize, toRequest } from "../interventions";
import { explainOptions, useSession, useTrace } from "../session";
import { EmptyState, ErrorMessage, Icon, Loading, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { AttentionLines, drawnHeads, LineControls } from "./attention-lines";
import { attentionOptions, HighlightedOutput, NoAttention, SelectField } from "./controls";
import { AddIntervention, MAX_INTERVENTIONS, setInterventions } from "./intervention-forms";

export function Intervene() {
  const { model, text, busy } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const interventions = parseInterventions(state.interventions);
  const options = explainOptions(state, model, text);
  const after = useAsync(
    interventions.length && source.live
      ? async (signal) => {
          const texts = [...new Set(interventions.flatMap((one) => (one.type === "patch" && one.text ? [one.text] : [])))];
          const others = await Promise.all(
            texts.map((other) => source.explain({ ...options, search: "greedy", text: other }, signal)),
          );
          const traces = new Map(texts.map((other, i) => [other, others[i].id]));
          const requests = interventions.map((one) => toRequest(one, traces));
          return { after: await source.explain({ ...options, interventions: requests }, signal), before: trace.id };
        }
      : null,
    [trace.id, state.interventions],
  );
  if (!source.live) return <NeedsModel view="Intervene" reason="An intervention runs the model again" />;
  if (model.kind === "encoder")
    return (
      <EmptyState>
        <p>An encoder generates no output: choose another model.</p>
      </EmptyState>
    ); // prettier-ignore
  const latest = latestValue(after);
  const current = latest && interventions.length && latest.before === trace.id ? latest : null;
  return (
    <div class="stack">
      <section class={interventions.length ? "card stack changed-banner" : "card stack"}>
        {interventions.length ? <Changed phrases={summarize(interventions, trace, model.config.model.heads)} /> : null}
        <BeforeAfter
          hint={
            model.config.model.heads > 1
              ? "Switch a head off below, or add another intervention."
              : "Add an intervention below."
          }
          before={trace}
          after={current?.after ?? null}
          busy={busy || (interventions.length > 0 && after.state === "loading")}
        />
        {current ? <p>{effectText(trace, current.after)}</p> : null}
        {after.state === "failed" && interventions.length ? <ErrorMessage error={after.error} /> : null}
      </section>
      <AttentionBeforeAfter model={model} before={trace} after={current?.after ?? null} />
      <div class="columns">
        <div class="stack">
          <section class="card stack">
            <HeadSwitches model={model} trace={trace} interventions={interventions} />
          </section>
          <section class="card">
            <ProbabilityChanges
              changes={current ? current.after.teacher_forced_changes.slice(trace.output_start) : null}
              pending={interventions.length > 0}
            />
          </section>
        </div>
        <div class="stack">
          <section class="card form">
            <InterventionList model={model} interventions={interventions} trace={trace} />
          </section>
          <section class="card form">
            <AddIntervention key={model.name} model={model} trace={trace} interventions={interventions} />
          </section>
        </div>
      </div>
    </div>
  );
}

/** Replaces a view in an exported file, which has no model. */
export function NeedsModel({ view, reason }: { view: string; reason: string }) {
  return (
    <section class="card" data-needs-model>
      <h2>{view} needs the model</h2>
      <EmptyState>
        <p>{reason}, but this file contains the results of a single run. To use this view, start the page with the model:</p>
        <p>
          <code>seq2see explore</code>
        </p>
      </EmptyState>
    </section>
  );
}

/** What is changed in the model. */
function Changed({ phrases }: { phrases: readonly string[] }) {
  return (
    <div class="section-header flush" role="status" data-changed={phrases.join("; ")}>
      <p>
        <b>Changed:</b> {phrases.join("; ")}
      </p>
      <button class="chip active" onClick={() => setInterventions([])}>
        clear
      </button>
    </div>
  );
}

/** What an intervention did to the output. */
function effectText(before: Trace, after: Trace): string {
  const changes = after.teacher_forced_changes.slice(before.output_start);
  const product = (key: "p_before" | "p_same_token"): number => changes.reduce((p, change) => p * (change[key] ?? 0), 1);
  const [old, now] = [product("p_before"), product("p_same_token")];
  const ratio = old > now ? old / now : now / old;
  const times =
    ratio > 1.05 && ratio < MAX_RATIO ? `, ${formatNumber(ratio, 1)} times ${old > now ? "less" : "more"} likely` : "";
  const words = after.output === before.output ? "The output stays the same" : "The output is different";
  return `${words}. The model gives the original output a probability of ${formatPercent(old)} before and ${formatPercent(now)} after${times}.`;
}

const MAX_RATIO = 1000; // beyond it, the two percentages say enough

interface BeforeAfterProps {
  hint: string; // shown while there are no interventions
  before: Trace;
  after: Trace | null;
  busy: boolean;
}

function BeforeAfter({ hint, before, after, busy }: BeforeAfterProps) {
  const same = after && after.output === before.output;
  return (
    <dl class={`before-after${busy ? " busy" : ""}`}>
      <dt class="small muted">Before</dt>
      <dd data-before={before.output}>
        {before.output ? <Transliterated text={before.output} /> : <span class="muted">(empty)</span>}
      </dd>
      <dt class="small muted">After</dt>
      <dd aria-live="polite" data-after={after?.output ?? ""}>
        {!after ? (
          <span class="muted">{busy ? "…" : hint}</span>
        ) : (
          <>
            <HighlightedOutput trace={after} highlightedRows={changedRows(after.changes)} />{" "}
            {same ? <span class="small muted">· unchanged</span> : null}
          </>
        )}
      </dd>
    </dl>
  );
}

/** The rows of the output after the intervention whose token differs from before. */
function changedRows(changes: readonly TokenChange[]): Set<number> {
  const after = changes.filter((change) => change.after !== null);
  return new Set(after.flatMap((change, row) => (change.after === change.before ? [] : [row])));
}

const MAX_MEASURED = 2e8; // parameters × tokens; each head costs one run of the model, so that more is measured only on request

/** What each head is worth for this text: how far ln P of the output falls without it, by attention. */
function useWorth(model: ModelInfo, trace: Trace, isRequested: boolean): ReadonlyMap<string, number[]> {
  const all = attentions(model);
  const loaded = useAsync(
    isRequested
      ? async () => {
          const drops = await Promise.all(all.map(({ name }) => source.headAblation(trace.id, name)));
          const sums = drops.map((drop) =>
            Array.from({ length: drop.shape[0] }, (_, head) => drop.at(head).data.reduce((a, b) => a + b, 0)),
          );
          return { id: trace.id, worth: new Map(all.map(({ name }, i) => [name, sums[i]])) };
        }
      : null,
    [trace.id, isRequested],
  );
  const latest = latestValue(loaded);
  return latest?.id === trace.id ? latest.worth : NO_WORTH;
}

const NO_WORTH: ReadonlyMap<string, number[]> = new Map();

/** One toggle button per head of the model, coloured by what the head is worth, and one for all heads of an attention. */
function HeadSwitches({ model, trace, interventions }: { model: ModelInfo; trace: Trace; interventions: Intervention[] }) {
  const { heads } = model.config.model;
  const all = attentions(model);
  const palette = usePalette();
  const [requested, request] = useState("");
  const isMeasured =
    requested === trace.id || model.parameters * (trace.source_tokens.length + trace.target_tokens.length) <= MAX_MEASURED;
  const worth = useWorth(model, trace, isMeasured);
  const most = Math.max(0, ...[...worth.values()].flat().map(Math.abs));
  const isAblated = (attention: string, head: number): boolean =>
    interventions.some((one) => one.type === "ablate" && one.attention === attention && one.head === head);
  const headNumbers = Array.from({ length: heads }, (_, head) => head);
  /** Switches these heads off, or on if all are off. */
  const toggle = (attention: string, which: readonly number[]): void => {
    const others = interventions.filter(
      (one) => !(one.type === "ablate" && one.attention === attention && which.includes(one.head)),
    );
    const isOff = which.every((head) => isAblated(attention, head));
    setInterventions(
      isOff
        ? others
        : [...others, ...which.map((head): Intervention => ({ type: "ablate", attention, head }))].slice(0, MAX_INTERVENTIONS),
    );
  };
  const style = (value: number | undefined, isOff: boolean) => {
    if (value === undefined || isOff) return {};
    const color = colorFor(value, most, palette);
    return { background: toCss(color), color: textColorOn(color) };
  };
  return (
    <>
      <div>
        <h2>{heads > 1 ? "Switch heads off" : "Switch attention off"}</h2>
        {all.length ? (
          <p class="muted small">
            {heads > 1
              ? "A head that is off (ablated) contributes nothing."
              : "An attention that is off returns a zero context vector."}
            {isMeasured || !all.length ? null : (
              <button class="chip" onClick={() => request(trace.id)}>
                measure what each is worth
              </button>
            )}
            {most
              ? ` Violet: without it the output becomes less likely, at most by ${formatNumber(most)} in ln P; orange: more likely.`
              : ""}
          </p>
        ) : (
          <NoAttention model={model} />
        )}
      </div>
      <div class="head-switches">
        {all.map((attention) => (
          <div class="head-switch-row" role="group" aria-label={attentionTitle(attention)} key={attention.name}>
            <span class="small">{attentionTitle(attention)}</span>
            <span class="switches">
              {headNumbers.map((head) => {
                const isOff = isAblated(attention.name, head);
                const value = worth.get(attention.name)?.[head];
                return (
                  <button
                    key={head}
                    class="switch"
                    style={style(value, isOff)}
                    aria-pressed={isOff}
                    aria-label={heads > 1 ? `ablate head ${head}` : "ablate"}
                    title={`${heads > 1 ? `head ${head}: ` : ""}${isOff ? "off" : "on"}${value === undefined ? "" : `; without it, ln P of the output changes by ${formatNumber(-value)}`}`}
                    data-worth={value}
                    disabled={interventions.length >= MAX_INTERVENTIONS && !isOff}
                    onClick={() => toggle(attention.name, [head])}
                  >
                    {heads > 1 ? head : isOff ? "off" : "on"}
                  </button>
                );
              })}
              {heads > 1 ? (
                <button
                  class="chip"
                  aria-pressed={headNumbers.every((head) => isAblated(attention.name, head))}
                  onClick={() => toggle(attention.name, headNumbers)}
                >
                  all
                </button>
              ) : null}
            </span>
          </div>
        ))}
      </div>
    </>
  );
}

/** The attention weights of the original run and of the changed one. */
function AttentionBeforeAfter({ model, before, after }: { model: ModelInfo; before: Trace; after: Trace | null }) {
  const state = useUrlState();
  const attention = findAttention(model, state.attention);
  if (!attention || !after) return null;
  const heads = drawnHeads(state.lines, selectedHead(model, state.head));
  const someAreOff = parseInterventions(state.interventions).some(
    (one) => one.type === "ablate" && one.attention === attention.name,
  );
  return (
    <section class="card stack">
      <div class="section-header flush">
        <h2>Attention before and after</h2>
        <SelectField
          label="attention"
          value={attention.name}
          options={attentionOptions(model)}
          onChange={(name) => navigate({ attention: name })}
        />
      </div>
      <LineControls head={heads.length > 1 ? -1 : heads[0]} />
      <div class="two-columns">
        {(
          [
            ["Before", before],
            ["After", after],
          ] as const
        ).map(([name, trace]) => (
          <div key={name} data-attention={name}>
            <h3>{name}</h3>
            <AttentionLines
              trace={trace}
              attention={attention}
              heads={heads}
              row={state.row}
              onRow={(row) => navigate({ row })}
            />
          </div>
        ))}
      </div>
      {someAreOff ? (
        <p class="small muted">
          A head that is switched off still has these weights, but nothing of what it read is passed on.
        </p>
      ) : null}
    </section>
  );
}

/** The probability of each token of the original output before and after, with teacher forcing. */
function ProbabilityChanges({ changes, pending }: { changes: TokenChange[] | null; pending: boolean }) {
  return (
    <>
      <div class="section-header">
        <div>
          <h2>Token probabilities</h2>
          <p class="muted small">
            Probability of each token of the original output, before and after the intervention (teacher forcing).
          </p>
        </div>
      </div>
      {changes ? (
        <table class="probability-changes">
          <thead>
            <tr>
              <th scope="col">token</th>
              <th scope="col">before</th>
              <th scope="col">after</th>
              <th scope="col">change</th>
              <th aria-hidden="true" class="wide" />
            </tr>
          </thead>
          <tbody>
            {changes.map((change, i) => {
              const [before, after] = [change.p_before ?? 0, change.p_same_token ?? 0];
              return (
                <tr key={i} data-change={after - before}>
                  <th scope="row">
                    <Transliterated text={change.before ?? ""} />
                  </th>
                  <td>{formatPercent(before)}</td>
                  <td>{formatPercent(after)}</td>
                  <td class={after - before <= -MIN_CHANGE ? "negative" : ""}>{formatPoints(after - before)}</td>
                  <td class="wide" aria-hidden="true">
                    <SignedBar value={after - before} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      ) : (
        <EmptyState>{pending ? <Loading what="changes" /> : <p>No interventions yet.</p>}</EmptyState>
      )}
    </>
  );
}

const MIN_CHANGE = 0.0005; // rounds to 0.0 percentage points below
const formatPoints = (change: number): string =>
  Math.abs(change) < MIN_CHANGE ? "0" : `${change > 0 ? "+" : "−"}${(Math.abs(change) * 100).toFixed(1)}`;

/** A bar from the centre, to the left if negative. */
function SignedBar({ value, max = 1 }: { value: number; max?: number }) {
  const size = Math.min(1, Math.abs(value) / max) * 50;
  return (
    <span class="signed-bar">
      <i
        class={value < 0 ? "negative" : ""}
        style={{ width: `${size}%`, ...(value < 0 ? { right: "50%" } : { left: "50%" }) }}
      />
    </span>
  );
}

/** Interventions to start with, for any model. */
function suggestions(model: ModelInfo, trace: Trace): [string, Intervention[]][] {
  const all = attentions(model);
  const heads = Array.from({ length: Math.min(MAX_INTERVENTIONS, model.config.model.heads) }, (_, head) => head);
  const [stack] = stacks(model.config.model);
  const tokens = stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens.slice(1);
  const first = stack === "encoder" ? 0 : 1; // after <start>
  const name = `${stack}.embedded`;
  const swap = (i: number): [string, Intervention[]] => [
    `swap “${tokens[i].text}” and “${tokens[i + 1].text}”`,
    [
      { type: "patch", name, position: first + i, sourcePosition: first + i + 1, text: "" },
      { type: "patch", name, position: first + i + 1, sourcePosition: first + i, text: "" },
    ],
  ];
  return [
    ...all.map((one): [string, Intervention[]] => [
      `switch off ${attentionTitle(one)}`,
      heads.map((head) => ({ type: "ablate", attention: one.name, head })),
    ]),
    ...all.map((one): [string, Intervention[]] => [
      `look everywhere alike: ${attentionTitle(one)}`,
      [{ type: "uniform", attention: one.name, head: null, query: null }],
    ]),
    ...tokens.slice(0, -2).map((_, i) => swap(i)),
  ];
}

const MAX_SUGGESTIONS = 4;
const MAX_TRIED = 12;

/** The suggestions that change the output of this text: each is tried. */
function useSuggestions(model: ModelInfo, trace: Trace, isNeeded: boolean) {
  const state = useUrlState();
  const { text } = useSession();
  return useAsync(
    isNeeded
      ? async (signal) => {
          const changing: [string, Intervention[]][] = [];
          const all = suggestions(model, trace);
          // Of each kind, and the last layers first: they change the output most often.
          for (const suggestion of [...all.reverse()].slice(0, MAX_TRIED)) {
            if (changing.length === MAX_SUGGESTIONS || signal.aborted) break;
            const { output } = await source.explain(
              { ...explainOptions(state, model, text), interventions: suggestion[1].map((one) => toRequest(one)) },
              signal,
            );
            if (output !== trace.output) changing.push(suggestion);
          }
          return changing;
        }
      : null,
    [trace.id, isNeeded],
  );
}

function InterventionList({ model, interventions, trace }: { model: ModelInfo; interventions: Intervention[]; trace: Trace }) {
  const suggested = useSuggestions(model, trace, interventions.length === 0);
  return (
    <>
      <div class="section-header tight">
        <h2>Interventions</h2>
        {interventions.length > 1 ? (
          <button class="chip" onClick={() => setInterventions([])}>
            remove all
          </button>
        ) : null}
      </div>
      {interventions.length ? (
        <ul class="intervention-list" aria-label="interventions">
          {interventions.map((one, i) => (
            <li key={formatInterventions([one])}>
              <span>{describe(one, trace, model.config.model.heads)}</span>
              <button
                class="icon-button"
                aria-label={`remove: ${describe(one, trace, model.config.model.heads)}`}
                onClick={() => setInterventions(interventions.filter((_, j) => j !== i))}
              >
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <>
          <p class="muted small">
            None yet.{" "}
            {suggested.state === "loading" ? "Looking for some that change this output …" : "These change this output:"}
          </p>
          <div class="examples" data-suggestions={suggested.state}>
            {(suggested.state === "ready" ? suggested.value : []).map(([label, all]) => (
              <button key={label} class="chip" onClick={() => setInterventions(all)}>
                {label}
              </button>
            ))}
          </div>
        </>
      )}
    </>
  );
}
