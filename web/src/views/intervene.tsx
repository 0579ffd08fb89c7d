// Intervene: reach into the model and watch the output change. What is done stands in the address, so a link repeats it.
import { source, type Change, type Manifest, type ModelCard } from "../api";
import { present, useLoaded } from "../hooks";
import { percent } from "../numbers";
import { body, read, told, written, type Intervention } from "../reach";
import { questionOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentions, KINDS, stacks, title } from "../structure";
import { Empty, Failed, Icon, Waiting } from "../ui";
import { Line, Marked, NoAttention } from "./choose";
import { Add, MOST, put } from "./forms";

export function Intervene() {
  const { card, text, manifest: last, busy, error } = useSession();
  const manifest = text.trim() ? last : null;
  const state = useAddress();
  const reached = read(state.reach);
  const question = questionOf(state, card, text);
  const after = useLoaded(
    manifest && reached.length && source.live
      ? async (signal) => {
          const others = [...new Set(reached.flatMap((one) => (one.do === "swap" && one.text ? [one.text] : [])))];
          const plain = { ...question, search: "greedy" };
          const found = await Promise.all(others.map((other) => source.explain({ ...plain, text: other }, signal)));
          const traces = new Map(others.map((other, i) => [other, found[i].id]));
          const interventions = reached.map((one) => body(one, traces));
          return { after: await source.explain({ ...question, interventions }, signal), of: manifest.id };
        }
      : null,
    [manifest?.id, state.reach],
  );
  if (!source.live) return <NeedsModel view="Intervene" why="A change inside the model means to run it once more" />;
  if (card.kind === "encoder") return <Empty><p>An encoder writes nothing that could change: choose another model.</p></Empty>; // prettier-ignore
  const found = present(after);
  const current = found && reached.length && manifest && found.of === manifest.id ? found : null;
  return (
    <div class="stack">
      <section class="card stack">
        <Line label={card.kind === "language model" ? "Prompt" : "Text to translate"} value={text} onChange={(value) => go({ text: value, row: -1 })} />
        {error ? <Failed error={error} /> : null}
        {manifest ? <BeforeAfter hint={card.config.model.heads > 1 ? "Switch off a head below, or choose another change." : "Choose a change below."} before={manifest} after={current?.after ?? null} busy={busy || (reached.length > 0 && after.state === "loading")} /> : error ? null : text.trim() ? (
          <Waiting what="the first answer" />
        ) : (
          <Empty>
            <p>Write something above.</p>
          </Empty>
        )}
        {after.state === "failed" && reached.length ? <Failed error={after.error} /> : null}
      </section>
      {manifest ? (
        <div class="columns">
          <div class="stack">
            <section class="card stack">
              <Switchboard card={card} reached={reached} />
            </section>
            <section class="card">
              <Shifts changes={current ? current.after.held.slice(manifest.first) : null} any={reached.length > 0} />
            </section>
          </div>
          <div class="stack">
            <section class="card form">
              <Done card={card} reached={reached} manifest={manifest} />
            </section>
            <section class="card form">
              <Add key={card.name} card={card} manifest={manifest} reached={reached} />
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
      <Empty>
        <p>
          {why}, and this file holds only what one run computed. With the model behind it the same page does it all:
        </p>
        <p>
          <code>seq2see explore</code>
        </p>
      </Empty>
    </section>
  );
}

interface BeforeAfterProps {
  hint: string; // while there is nothing
  before: Manifest;
  after: Manifest | null;
  busy: boolean;
}

function BeforeAfter({ hint, before, after, busy }: BeforeAfterProps) {
  const same = after && after.output === before.output;
  return (
    <dl class={`versus${busy ? " busy" : ""}`}>
      <dt class="small soft">Before</dt>
      <dd data-before={before.output}>{before.output || <span class="soft">nothing</span>}</dd>
      <dt class="small soft">After</dt>
      <dd aria-live="polite" data-after={after?.output ?? ""}>
        {!after ? (
          <span class="soft">{busy ? "…" : hint}</span>
        ) : (
          <>
            <Marked manifest={after} marked={changedRows(after.changes)} />{" "}
            {same ? <span class="small soft">· it says the same</span> : null}
          </>
        )}
      </dd>
    </dl>
  );
}

/** The rows of the output after that wrote something else than the row beside them before. */
function changedRows(changes: readonly Change[]): Set<number> {
  const after = changes.filter((change) => change.after !== null);
  return new Set(after.flatMap((change, row) => (change.after === change.before ? [] : [row])));
}

/** Every head of the model as a switch. */
function Switchboard({ card, reached }: { card: ModelCard; reached: Intervention[] }) {
  const { heads } = card.config.model;
  const all = attentions(card);
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
          <p class="soft small">{heads > 1 ? "A head that is off adds nothing to the tokens’ vectors." : "An attention that is off finds nothing: zeros."}</p>
        ) : (
          <NoAttention card={card} />
        )}
      </div>
      <div class="board">
        {all.map((attention) => (
          <div class="board-row" role="group" aria-label={title(attention)} key={attention.name}>
            <span class="small">{title(attention)}</span>
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
function Shifts({ changes, any }: { changes: Change[] | null; any: boolean }) {
  return (
    <>
      <div class="lead">
        <div>
          <h2>What changed</h2>
          <p class="soft small">P of each token of the first output, before and now, that output held fixed.</p>
        </div>
      </div>
      {changes ? (
        <table class="shifts">
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
              const [was, now] = [change.p_before ?? 0, change.p_kept ?? 0];
              return (
                <tr key={i} data-shift={now - was}>
                  <th scope="row">{change.before}</th>
                  <td>{percent(was)}</td>
                  <td>{percent(now)}</td>
                  <td class={now - was <= -SMALL ? "less" : ""}>{points(now - was)}</td>
                  <td class="wide" aria-hidden="true">
                    <Signed value={now - was} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      ) : (
        <Empty>{any ? <Waiting what="the model, reached into" /> : <p>Nothing yet: the model is as it was trained.</p>}</Empty>
      )}
    </>
  );
}

const SMALL = 0.0005; // nothing at one decimal of a percent
const points = (shift: number): string => (Math.abs(shift) < SMALL ? "0" : `${shift > 0 ? "+" : "−"}${(Math.abs(shift) * 100).toFixed(1)}`);

/** A bar from the middle, to the left for less. */
export function Signed({ value, most = 1 }: { value: number; most?: number }) {
  const size = Math.min(1, Math.abs(value) / most) * 50;
  return (
    <span class="signed">
      <i class={value < 0 ? "less" : ""} style={{ width: `${size}%`, ...(value < 0 ? { right: "50%" } : { left: "50%" }) }} />
    </span>
  );
}

/** To begin with, of any model. */
function suggestions(card: ModelCard, manifest: Manifest): [string, Intervention[]][] {
  const all = attentions(card);
  const heads = Array.from({ length: Math.min(MOST, card.config.model.heads) }, (_, head) => head);
  const [stack] = stacks(card.config.model);
  const words = stack === "encoder" ? manifest.sources : manifest.reads.slice(1);
  const begin = stack === "encoder" ? 0 : 1; // <start> is no word
  const name = `${stack}.embedded`;
  const alone = all.length === 1;
  return [
    ...all.slice(-1).map((last): [string, Intervention[]] => [
      `no ${KINDS[last.kind]}${alone ? "" : " in the last layer"}`,
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

function Done({ card, reached, manifest }: { card: ModelCard; reached: Intervention[]; manifest: Manifest }) {
  return (
    <>
      <div class="lead tight">
        <h2>In effect</h2>
        {reached.length > 1 ? (
          <button class="chip" onClick={() => put([])}>
            remove all
          </button>
        ) : null}
      </div>
      {reached.length ? (
        <ul class="done" aria-label="interventions">
          {reached.map((one, i) => (
            <li key={written([one])}>
              <span>{told(one, manifest, card.config.model.heads)}</span>
              <button class="round" aria-label={`remove: ${told(one, manifest, card.config.model.heads)}`} onClick={() => put(reached.filter((_, j) => j !== i))}>
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <>
          <p class="soft small">Nothing yet. What you change stays in the address: send it, and others see the same. For a start:</p>
          <div class="examples">
            {suggestions(card, manifest).map(([label, all]) => (
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
