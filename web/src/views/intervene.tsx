// Intervene: change values inside the model and compare the output before and after. The interventions are stored in the URL.
import { source, type ModelInfo, type TokenChange, type Trace } from "../api";
import { ATTENTION_NAMES, attentions, attentionTitle, stacks } from "../architecture";
import { formatPercent } from "../format";
import { latestValue, useAsync } from "../hooks";
import { describe, formatInterventions, parseInterventions, toRequest, type Intervention } from "../interventions";
import { explainOptions, useSession } from "../session";
import { EmptyState, ErrorMessage, Icon, Loading } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { HighlightedOutput, NoAttention, TextField } from "./controls";
import { AddIntervention, MAX_INTERVENTIONS, setInterventions } from "./intervention-forms";

export function Intervene() {
  const { model, text, trace: last, busy, error } = useSession();
  const trace = text.trim() ? last : null;
  const state = useUrlState();
  const interventions = parseInterventions(state.interventions);
  const options = explainOptions(state, model, text);
  const after = useAsync(
    trace && interventions.length && source.live
      ? async (signal) => {
          const texts = [...new Set(interventions.flatMap((one) => (one.type === "patch" && one.text ? [one.text] : [])))];
          const others = await Promise.all(texts.map((other) => source.explain({ ...options, search: "greedy", text: other }, signal)));
          const traces = new Map(texts.map((other, i) => [other, others[i].id]));
          const requests = interventions.map((one) => toRequest(one, traces));
          return { after: await source.explain({ ...options, interventions: requests }, signal), before: trace.id };
        }
      : null,
    [trace?.id, state.interventions],
  );
  if (!source.live) return <NeedsModel view="Intervene" reason="An intervention runs the model again" />;
  if (model.kind === "encoder") return <EmptyState><p>An encoder generates no output: choose another model.</p></EmptyState>; // prettier-ignore
  const latest = latestValue(after);
  const current = latest && interventions.length && trace && latest.before === trace.id ? latest : null;
  return (
    <div class="stack">
      <section class="card stack">
        <TextField label={model.kind === "language model" ? "Prompt" : "Text to translate"} value={text} onChange={(value) => navigate({ text: value, row: -1 })} />
        {error ? <ErrorMessage error={error} /> : null}
        {trace ? (
          <BeforeAfter
            hint={model.config.model.heads > 1 ? "Ablate a head below, or add another intervention." : "Add an intervention below."}
            before={trace}
            after={current?.after ?? null}
            busy={busy || (interventions.length > 0 && after.state === "loading")}
          />
        ) : error ? null : text.trim() ? (
          <Loading what="output" />
        ) : (
          <EmptyState>
            <p>Enter a text above.</p>
          </EmptyState>
        )}
        {after.state === "failed" && interventions.length ? <ErrorMessage error={after.error} /> : null}
      </section>
      {trace ? (
        <div class="columns">
          <div class="stack">
            <section class="card stack">
              <HeadSwitches model={model} interventions={interventions} />
            </section>
            <section class="card">
              <ProbabilityChanges changes={current ? current.after.teacher_forced_changes.slice(trace.output_start) : null} pending={interventions.length > 0} />
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
      ) : null}
    </div>
  );
}

/** Replaces a view in an exported file, which has no model. */
export function NeedsModel({ view, reason }: { view: string; reason: string }) {
  return (
    <section class="card" data-needs-model>
      <h2>{view} needs the model</h2>
      <EmptyState>
        <p>
          {reason}, but this file contains the results of a single run. To use this view, start the page with the model:
        </p>
        <p>
          <code>seq2see explore</code>
        </p>
      </EmptyState>
    </section>
  );
}

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
      <dd data-before={before.output}>{before.output || <span class="muted">(empty)</span>}</dd>
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

/** One toggle button per head of the model. */
function HeadSwitches({ model, interventions }: { model: ModelInfo; interventions: Intervention[] }) {
  const { heads } = model.config.model;
  const all = attentions(model);
  const toggle = (attention: string, head: number): void => {
    const others = interventions.filter((one) => !(one.type === "ablate" && one.attention === attention && one.head === head));
    setInterventions(others.length < interventions.length ? others : [...interventions, { type: "ablate", attention, head }]);
  };
  const isAblated = (attention: string, head: number): boolean =>
    interventions.some((one) => one.type === "ablate" && one.attention === attention && one.head === head);
  return (
    <>
      <div>
        <h2>{heads > 1 ? "Ablate heads" : "Ablate attention"}</h2>
        {all.length ? (
          <p class="muted small">{heads > 1 ? "An ablated head contributes nothing to the residual stream." : "An ablated attention returns a zero context vector."}</p>
        ) : (
          <NoAttention model={model} />
        )}
      </div>
      <div class="head-switches">
        {all.map((attention) => (
          <div class="head-switch-row" role="group" aria-label={attentionTitle(attention)} key={attention.name}>
            <span class="small">{attentionTitle(attention)}</span>
            <span class="switches">
              {Array.from({ length: heads }, (_, head) => (
                <button
                  key={head}
                  class="switch"
                  aria-pressed={isAblated(attention.name, head)}
                  aria-label={heads > 1 ? `ablate head ${head}` : "ablate"}
                  title={`${heads > 1 ? `head ${head}: ` : ""}${isAblated(attention.name, head) ? "ablated" : "active"}`}
                  disabled={interventions.length >= MAX_INTERVENTIONS && !isAblated(attention.name, head)}
                  onClick={() => toggle(attention.name, head)}
                >
                  {heads > 1 ? head : isAblated(attention.name, head) ? "off" : "on"}
                </button>
              ))}
            </span>
          </div>
        ))}
      </div>
    </>
  );
}

/** The probability of each token of the original output before and after, with teacher forcing. */
function ProbabilityChanges({ changes, pending }: { changes: TokenChange[] | null; pending: boolean }) {
  return (
    <>
      <div class="section-header">
        <div>
          <h2>Token probabilities</h2>
          <p class="muted small">Probability of each token of the original output, before and after the intervention (teacher forcing).</p>
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
                  <th scope="row">{change.before}</th>
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
      <i class={value < 0 ? "negative" : ""} style={{ width: `${size}%`, ...(value < 0 ? { right: "50%" } : { left: "50%" }) }} />
    </span>
  );
}

/** Example interventions for any model. */
function suggestions(model: ModelInfo, trace: Trace): [string, Intervention[]][] {
  const all = attentions(model);
  const heads = Array.from({ length: Math.min(MAX_INTERVENTIONS, model.config.model.heads) }, (_, head) => head);
  const [stack] = stacks(model.config.model);
  const tokens = stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens.slice(1);
  const first = stack === "encoder" ? 0 : 1; // after <start>
  const name = `${stack}.embedded`;
  const isOnly = all.length === 1;
  return [
    ...all.slice(-1).map((last): [string, Intervention[]] => [
      `ablate ${ATTENTION_NAMES[last.kind]}${isOnly ? "" : " of the last layer"}`,
      heads.map((head) => ({ type: "ablate", attention: last.name, head })),
    ]),
    ...all.slice(0, 1).map((first): [string, Intervention[]] => [
      `uniform attention${isOnly ? "" : " in the first layer"}`,
      [{ type: "uniform", attention: first.name, head: null, query: null }],
    ]),
    ...(tokens.length > 2
      ? [
          [
            `swap the embeddings of “${tokens[0].text}” and “${tokens[1].text}”`,
            [
              { type: "patch", name, position: first, sourcePosition: first + 1, text: "" },
              { type: "patch", name, position: first + 1, sourcePosition: first, text: "" },
            ],
          ] as [string, Intervention[]],
        ]
      : []),
  ];
}

function InterventionList({ model, interventions, trace }: { model: ModelInfo; interventions: Intervention[]; trace: Trace }) {
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
              <button class="icon-button" aria-label={`remove: ${describe(one, trace, model.config.model.heads)}`} onClick={() => setInterventions(interventions.filter((_, j) => j !== i))}>
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <>
          <p class="muted small">None yet. Interventions are stored in the URL, so you can share them. Examples:</p>
          <div class="examples">
            {suggestions(model, trace).map(([label, all]) => (
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
