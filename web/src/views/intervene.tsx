// Intervene: reach into the model and watch the output change. What is done stands in the address, so a link repeats it.
import { source, type Trace, type TokenChange, type ModelInfo } from "../api";
import { latestValue, useAsync } from "../hooks";
import { formatPercent } from "../format";
import { body, read, told, written, type Intervention } from "../interventions";
import { explainOptions, useSession } from "../session";
import { navigate, useUrlState } from "../url-state";
import { attentions, ATTENTION_NAMES, stacks, attentionTitle } from "../architecture";
import { EmptyState, ErrorMessage, Icon, Loading } from "../ui";
import { Line, HighlightedOutput, NoAttention } from "./controls";
import { Add, MOST, put } from "./intervention-forms";

export function Intervene() {
  const { model, text, trace: last, busy, error } = useSession();
  const trace = text.trim() ? last : null;
  const state = useUrlState();
  const reached = read(state.reach);
  const question = explainOptions(state, model, text);
  const after = useAsync(
    trace && reached.length && source.live
      ? async (signal) => {
          const others = [...new Set(reached.flatMap((one) => (one.do === "swap" && one.text ? [one.text] : [])))];
          const plain = { ...question, search: "greedy" };
          const found = await Promise.all(others.map((other) => source.explain({ ...plain, text: other }, signal)));
          const traces = new Map(others.map((other, i) => [other, found[i].id]));
          const interventions = reached.map((one) => body(one, traces));
          return { after: await source.explain({ ...question, interventions }, signal), of: trace.id };
        }
      : null,
    [trace?.id, state.reach],
  );
  if (!source.live) return <NeedsModel view="Intervene" why="A change inside the model means to run it once more" />;
  if (model.kind === "encoder") return <EmptyState><p>An encoder writes nothing that could change: choose another model.</p></EmptyState>; // prettier-ignore
  const found = latestValue(after);
  const current = found && reached.length && trace && found.of === trace.id ? found : null;
  return (
    <div class="stack">
      <section class="card stack">
        <Line label={model.kind === "language model" ? "Prompt" : "Text to translate"} value={text} onChange={(value) => navigate({ text: value, row: -1 })} />
        {error ? <ErrorMessage error={error} /> : null}
        {trace ? <BeforeAfter hint={model.config.model.heads > 1 ? "Switch off a head below, or choose another change." : "Choose a change below."} before={trace} after={current?.after ?? null} busy={busy || (reached.length > 0 && after.state === "loading")} /> : error ? null : text.trim() ? (
          <Loading what="the first answer" />
        ) : (
          <EmptyState>
            <p>Write something above.</p>
          </EmptyState>
        )}
        {after.state === "failed" && reached.length ? <ErrorMessage error={after.error} /> : null}
      </section>
      {trace ? (
        <div class="columns">
          <div class="stack">
            <section class="card stack">
              <Switchboard model={model} reached={reached} />
            </section>
            <section class="card">
              <Shifts changes={current ? current.after.teacher_forced_changes.slice(trace.output_start) : null} any={reached.length > 0} />
            </section>
          </div>
          <div class="stack">
            <section class="card form">
              <Done model={model} reached={reached} trace={trace} />
            </section>
            <section class="card form">
              <Add key={model.name} model={model} trace={trace} reached={reached} />
            </section>
          </div>
        </div>
      ) : null}
    </div>
  );
}

/** In a file that was written for one text. */
export function NeedsModel({ view, why }: { view: string; why: string }) {
  return (
    <section class="card" data-needs-model>
      <h2>{view} needs the model</h2>
      <EmptyState>
        <p>
          {why}, and this file holds only what one run computed. With the model behind it the same page does it all:
        </p>
        <p>
          <code>seq2see explore</code>
        </p>
      </EmptyState>
    </section>
  );
}

interface BeforeAfterProps {
  hint: string; // while there is nothing
  before: Trace;
  after: Trace | null;
  busy: boolean;
}

function BeforeAfter({ hint, before, after, busy }: BeforeAfterProps) {
  const same = after && after.output === before.output;
  return (
    <dl class={`before-after${busy ? " busy" : ""}`}>
      <dt class="small muted">Before</dt>
      <dd data-before={before.output}>{before.output || <span class="muted">nothing</span>}</dd>
      <dt class="small muted">After</dt>
      <dd aria-live="polite" data-after={after?.output ?? ""}>
        {!after ? (
          <span class="muted">{busy ? "…" : hint}</span>
        ) : (
          <>
            <HighlightedOutput trace={after} marked={changedRows(after.changes)} />{" "}
            {same ? <span class="small muted">· it says the same</span> : null}
          </>
        )}
      </dd>
    </dl>
  );
}

/** The rows of the output after that wrote something else than the row beside them before. */
function changedRows(changes: readonly TokenChange[]): Set<number> {
  const after = changes.filter((change) => change.after !== null);
  return new Set(after.flatMap((change, row) => (change.after === change.before ? [] : [row])));
}

/** Every head of the model as a switch. */
function Switchboard({ model, reached }: { model: ModelInfo; reached: Intervention[] }) {
  const { heads } = model.config.model;
  const all = attentions(model);
  const toggle = (attention: string, head: number): void => {
    const others = reached.filter((one) => !(one.do === "off" && one.attention === attention && one.head === head));
    put(others.length < reached.length ? others : [...reached, { do: "off", attention, head }]);
  };
  const isOff = (attention: string, head: number): boolean =>
    reached.some((one) => one.do === "off" && one.attention === attention && one.head === head);
  return (
    <>
      <div>
        <h2>{heads > 1 ? "Switch heads off" : "Switch attention off"}</h2>
        {all.length ? (
          <p class="muted small">{heads > 1 ? "A head that is off adds nothing to the tokens’ vectors." : "An attention that is off finds nothing: zeros."}</p>
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
                  aria-pressed={isOff(attention.name, head)}
                  aria-label={`head ${head} off`}
                  title={`head ${head}: ${isOff(attention.name, head) ? "off" : "on"}`}
                  disabled={reached.length >= MOST && !isOff(attention.name, head)}
                  onClick={() => toggle(attention.name, head)}
                >
                  {heads > 1 ? head : isOff(attention.name, head) ? "off" : "on"}
                </button>
              ))}
            </span>
          </div>
        ))}
      </div>
    </>
  );
}

/** How much each token of the output has won or lost, while the output is held fixed. */
function Shifts({ changes, any }: { changes: TokenChange[] | null; any: boolean }) {
  return (
    <>
      <div class="section-header">
        <div>
          <h2>What changed</h2>
          <p class="muted small">P of each token of the first output, before and now, that output held fixed.</p>
        </div>
      </div>
      {changes ? (
        <table class="probability-changes">
          <thead>
            <tr>
              <th scope="col">token</th>
              <th scope="col">before</th>
              <th scope="col">now</th>
              <th scope="col">shift</th>
              <th aria-hidden="true" class="wide" />
            </tr>
          </thead>
          <tbody>
            {changes.map((change, i) => {
              const [was, now] = [change.p_before ?? 0, change.p_same_token ?? 0];
              return (
                <tr key={i} data-shift={now - was}>
                  <th scope="row">{change.before}</th>
                  <td>{formatPercent(was)}</td>
                  <td>{formatPercent(now)}</td>
                  <td class={now - was <= -SMALL ? "negative" : ""}>{points(now - was)}</td>
                  <td class="wide" aria-hidden="true">
                    <Signed value={now - was} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      ) : (
        <EmptyState>{any ? <Loading what="the model, reached into" /> : <p>Nothing yet: the model is as it was trained.</p>}</EmptyState>
      )}
    </>
  );
}

const SMALL = 0.0005; // nothing at one decimal of a formatPercent
const points = (shift: number): string => (Math.abs(shift) < SMALL ? "0" : `${shift > 0 ? "+" : "−"}${(Math.abs(shift) * 100).toFixed(1)}`);

/** A bar from the middle, to the left for less. */
export function Signed({ value, max = 1 }: { value: number; max?: number }) {
  const size = Math.min(1, Math.abs(value) / max) * 50;
  return (
    <span class="signed-bar">
      <i class={value < 0 ? "negative" : ""} style={{ width: `${size}%`, ...(value < 0 ? { right: "50%" } : { left: "50%" }) }} />
    </span>
  );
}

/** To begin with, of any model. */
function suggestions(model: ModelInfo, trace: Trace): [string, Intervention[]][] {
  const all = attentions(model);
  const heads = Array.from({ length: Math.min(MOST, model.config.model.heads) }, (_, head) => head);
  const [stack] = stacks(model.config.model);
  const words = stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens.slice(1);
  const begin = stack === "encoder" ? 0 : 1; // <start> is no word
  const name = `${stack}.embedded`;
  const alone = all.length === 1;
  return [
    ...all.slice(-1).map((last): [string, Intervention[]] => [
      `no ${ATTENTION_NAMES[last.kind]}${alone ? "" : " in the last layer"}`,
      heads.map((head) => ({ do: "off", attention: last.name, head })),
    ]),
    ...all.slice(0, 1).map((first): [string, Intervention[]] => [
      `${alone ? "it" : "the first layer"} looks at all words alike`,
      [{ do: "even", attention: first.name, head: null, query: null }],
    ]),
    ...(words.length > 2
      ? [
          [
            `“${words[0].text}” and “${words[1].text}” change places`,
            [
              { do: "swap", name, at: begin, from: begin + 1, text: "" },
              { do: "swap", name, at: begin + 1, from: begin, text: "" },
            ],
          ] as [string, Intervention[]],
        ]
      : []),
  ];
}

function Done({ model, reached, trace }: { model: ModelInfo; reached: Intervention[]; trace: Trace }) {
  return (
    <>
      <div class="section-header tight">
        <h2>In effect</h2>
        {reached.length > 1 ? (
          <button class="chip" onClick={() => put([])}>
            remove all
          </button>
        ) : null}
      </div>
      {reached.length ? (
        <ul class="intervention-list" aria-label="interventions">
          {reached.map((one, i) => (
            <li key={written([one])}>
              <span>{told(one, trace, model.config.model.heads)}</span>
              <button class="icon-button" aria-label={`remove: ${told(one, trace, model.config.model.heads)}`} onClick={() => put(reached.filter((_, j) => j !== i))}>
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <>
          <p class="muted small">Nothing yet. What you change stays in the address: send it, and others see the same. For a start:</p>
          <div class="examples">
            {suggestions(model, trace).map(([label, all]) => (
              <button key={label} class="chip" onClick={() => put(all)}>
                {label}
              </button>
            ))}
          </div>
        </>
      )}
    </>
  );
}
