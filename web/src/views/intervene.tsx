// Intervene: reach into the model and watch the output change. What is done stands in the address, so a link repeats it.
import { useState } from "preact/hooks";
import { source, tensor, type Change, type Manifest, type ModelCard } from "../api";
import { present, useLoaded } from "../hooks";
import { percent, short } from "../numbers";
import { body, placeName, read, told, written, type Intervention } from "../reach";
import { questionOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionNamed, attentions, attentionStep, keyLabels, KINDS as KIND_NAMES, title, type Attention } from "../structure";
import { Choice, Empty, Failed, Icon, Waiting } from "../ui";
import { attentionOptions, headOptions, Line, Marked, Pick, tokenOptions } from "./choose";

const put = (all: readonly Intervention[]): void => go({ reach: written(all) });
const MOST = 32; // the server takes no more at once

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
        {manifest ? <BeforeAfter before={manifest} after={current?.after ?? null} busy={busy || (reached.length > 0 && after.state === "loading")} /> : error ? null : text.trim() ? (
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
  before: Manifest;
  after: Manifest | null;
  busy: boolean;
}

function BeforeAfter({ before, after, busy }: BeforeAfterProps) {
  const same = after && after.output === before.output;
  return (
    <dl class={`versus${busy ? " busy" : ""}`}>
      <dt class="small soft">Before</dt>
      <dd data-before={before.output}>{before.output || <span class="soft">nothing</span>}</dd>
      <dt class="small soft">After</dt>
      <dd aria-live="polite" data-after={after?.output ?? ""}>
        {!after ? (
          <span class="soft">{busy ? "…" : "Switch off a head below, or choose another change."}</span>
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
  const heads = card.config.model.heads;
  const toggle = (attention: string, head: number): void => {
    const others = reached.filter((one) => !(one.do === "off" && one.attention === attention && one.head === head));
    put(others.length < reached.length ? others : [...reached, { do: "off", attention, head }]);
  };
  const isOff = (attention: string, head: number): boolean =>
    reached.some((one) => one.do === "off" && one.attention === attention && one.head === head);
  return (
    <>
      <div>
        <h2>Switch heads off</h2>
        <p class="soft small">A head that is off adds nothing to the tokens’ vectors.</p>
      </div>
      <div class="board">
        {attentions(card).map((attention) => (
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
                  {head}
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
  const [first, last] = [all[0], all[all.length - 1]];
  const heads = Array.from({ length: Math.min(MOST, card.config.model.heads) }, (_, head) => head);
  const words = first.stack === "encoder" ? manifest.sources : manifest.reads.slice(1);
  const begin = first.stack === "encoder" ? 0 : 1; // <start> is no word
  const name = `${first.stack}.embedded`;
  return [
    [`no ${KIND_NAMES[last.kind]} in the last layer`, heads.map((head) => ({ do: "off", attention: last.name, head }))],
    ["the first layer looks at all words alike", [{ do: "even", attention: first.name, head: null, query: null }]],
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
              <span>{told(one, manifest)}</span>
              <button class="round" aria-label={`remove: ${told(one, manifest)}`} onClick={() => put(reached.filter((_, j) => j !== i))}>
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

const KINDS = [
  ["even", "Average"],
  ["set", "Set"],
  ["swap", "Swap"],
  ["unit", "Unit off"],
] as const;

interface FormProps {
  card: ModelCard;
  manifest: Manifest;
  add: (one: Intervention) => void;
}

function Add({ card, manifest, reached }: { card: ModelCard; manifest: Manifest; reached: Intervention[] }) {
  const [kind, setKind] = useState<(typeof KINDS)[number][0]>("even");
  const add = (one: Intervention): void => put([...reached.filter((other) => written([other]) !== written([one])), one]);
  const Form = { even: Even, set: SetWeights, swap: Swap, unit: Unit }[kind];
  return (
    <>
      <h2>Change something else</h2>
      <Choice label="kind of change" options={KINDS} value={kind} onChange={setKind} />
      {reached.length >= MOST ? <p class="small soft">{MOST} changes at once are the most: remove one first.</p> : <Form {...{ card, manifest, add }} />}
    </>
  );
}

const queries = (manifest: Manifest, { stack }: Attention): readonly { text: string }[] => (stack === "encoder" ? manifest.sources : manifest.reads);

function useAttention(card: ModelCard) {
  const state = useAddress();
  const [name, setName] = useState(attentionNamed(card, state.attention).name);
  return [attentionNamed(card, name), setName] as const;
}

function Even({ card, manifest, add }: FormProps) {
  const [attention, setName] = useAttention(card);
  const [head, setHead] = useState(-1);
  const [query, setQuery] = useState(-1);
  return (
    <>
      <p class="small soft">Every key that may be looked at gets the same weight.</p>
      <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={setName} />
      <Pick label="head" value={head} options={headOptions(card, "all heads")} onChange={setHead} />
      <Pick label="for the token" value={query} options={[[-1, "every one"], ...tokenOptions(queries(manifest, attention))]} onChange={setQuery} />
      <button class="do" onClick={() => add({ do: "even", attention: attention.name, head: head < 0 ? null : head, query: query < 0 ? null : query })}>
        Average
      </button>
    </>
  );
}

function SetWeights({ card, manifest, add }: FormProps) {
  const [attention, setName] = useAttention(card);
  const [head, setHead] = useState(0);
  const rows = queries(manifest, attention);
  const [chosen, setQuery] = useState(0);
  const query = Math.min(chosen, rows.length - 1);
  const keys = keyLabels(manifest, attention).slice(0, attention.kind === "masked" ? query + 1 : undefined);
  const of = `${manifest.id} ${attention.name} ${head}`;
  const own = useLoaded(async () => ({ of, whole: await attentionStep(manifest, attention, head, "weights") }), [of]);
  const found = present(own);
  const [moved, setMoved] = useState<{ of: string; weights: number[] } | null>(null);
  // Until a slider is moved they are the model's own; a whole percent is as fine as the sliders are.
  const begun = found?.of === of ? keys.map((_, i) => Math.round(found.whole.at(query).data[i] * 100) / 100) : null;
  const weights = moved?.of === `${of} ${query}` ? moved.weights : begun;
  const setWeights = (next: number[]): void => setMoved({ of: `${of} ${query}`, weights: next });
  if (!weights) return own.state === "failed" ? <Failed error={own.error} /> : <Waiting what="the weights" />;
  const sum = weights.reduce((a, b) => a + b, 0);
  const only = (key: number): void => setWeights(keys.map((_, i) => (i === key ? 1 : 0)));
  return (
    <>
      <p class="small soft">Where one token looks, in your own words. The sliders begin with the model’s weights.</p>
      <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={setName} />
      <Pick label="head" value={head} options={headOptions(card, "all heads")} onChange={setHead} />
      <Pick label="for the token" value={query} options={tokenOptions(rows)} onChange={setQuery} />
      <div class="keys">
        {keys.map((key, i) => (
          <div class="slider" key={i}>
            <button class="name" title={`look at ${key} only`} onClick={() => only(i)}>
              {key}
            </button>
            <input
              type="range"
              min={0}
              max={1}
              step={0.01}
              value={weights[i]}
              aria-label={`weight of ${key}`}
              onInput={(event) => setWeights(weights.map((w, j) => (j === i ? Number(event.currentTarget.value) : w)))}
            />
            <output>{percent(weights[i])}</output>
          </div>
        ))}
      </div>
      <p class="small soft">
        Together {percent(sum)}
        {Math.abs(sum - 1) > 0.02 ? "; a softmax would always give 100%." : "."}
      </p>
      <button class="do" onClick={() => add({ do: "set", attention: attention.name, head: head < 0 ? null : head, query, weights })}>
        Set
      </button>
    </>
  );
}

/** Where each token has one vector that the next part of the model reads. */
function vectorPlaces({ config: { model } }: ModelCard): [string, string][] {
  const end = model.norm_first ? "sum" : "norm.output";
  const of = (stack: string, layers: number): [string, string][] => [
    [`${stack}.embedded`, `${stack}, embedding`],
    ...Array.from({ length: layers }, (_, n): [string, string] => [`${stack}.${n}.feed_forward.${end}`, `${stack}, after layer ${n}`]),
  ];
  return [
    ...(model.shape === "decoder" ? [] : [...of("encoder", model.encoder_layers), ["encoder.vectors", "encoder, final vectors"] as [string, string]]),
    ...(model.shape === "encoder" ? [] : of("decoder", model.decoder_layers)),
  ];
}

function Swap({ card, manifest, add }: FormProps) {
  const places = vectorPlaces(card);
  const [name, setName] = useState(places[0][0]);
  const [at, setAt] = useState(0);
  const [from, setFrom] = useState(1);
  const [other, setOther] = useState("");
  const encoder = name.startsWith("encoder");
  const tokens = encoder ? manifest.sources : manifest.reads;
  const { text } = useSession();
  const state = useAddress();
  const loaded = useLoaded(
    other.trim() ? (signal) => source.explain({ ...questionOf(state, card, other), search: "greedy" }, signal) : null,
    [other, card.name],
  );
  const theirs = other.trim() ? present(loaded) : manifest;
  const options = theirs ? (encoder ? theirs.sources : theirs.reads) : [];
  const [to, source_] = [Math.min(at, tokens.length - 1), Math.min(from, Math.max(0, options.length - 1))];
  return (
    <>
      <p class="small soft">One token goes on with the vector of another.</p>
      <Pick label="where" value={name} options={places} onChange={setName} />
      <Pick label="the vector of" value={to} options={tokenOptions(tokens)} onChange={setAt} />
      <Pick label="becomes that of" value={source_} options={tokenOptions(options)} onChange={setFrom} />
      <Line label="out of another text, if you like" value={other} placeholder={text} onChange={setOther} />
      {other.trim() && loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
      <button class="do" disabled={!options.length} onClick={() => add({ do: "swap", name, at: to, from: source_, text: other.trim() ? other : "" })}>
        Swap
      </button>
    </>
  );
}

const SHOWN = 8;

function Unit({ card, manifest, add }: FormProps) {
  const { model } = card.config;
  const places = attentions(card).map(({ stack, layer }) => `${stack}.${layer}.feed_forward`);
  const options = [...new Set(places)].map((place): [string, string] => [place, placeName(place)]);
  const [place, setPlace] = useState(options[options.length - 1][0]);
  const [unit, setUnit] = useState(0);
  const loaded = useLoaded(() => tensor(manifest.id, `${place}.after`), [manifest.id, place]);
  const after = present(loaded);
  return (
    <>
      <p class="small soft">One number inside the feed-forward layer is held at 0, at every token.</p>
      <Pick label="layer" value={place} options={options} onChange={setPlace} />
      <label class="pick">
        <span class="small soft">unit, 0 to {model.feed_forward - 1}</span>
        <input
          type="number"
          min={0}
          max={model.feed_forward - 1}
          value={unit}
          onInput={(event) => setUnit(Math.min(model.feed_forward - 1, Math.max(0, Math.round(Number(event.currentTarget.value)) || 0)))}
        />
      </label>
      {loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
      {after ? (
        <div>
          <p class="small soft">The most active here, with their largest value:</p>
          <div class="examples">
            {busiest(after.data, after.shape[1]).map(([index, value]) => (
              <button key={index} class="chip" aria-pressed={index === unit} onClick={() => setUnit(index)}>
                {index} · {short(value)}
              </button>
            ))}
          </div>
        </div>
      ) : null}
      <button class="do" onClick={() => add({ do: "unit", place, unit })}>
        Switch off
      </button>
    </>
  );
}

/** The units with the largest values over all tokens, [tokens, units] row by row. */
function busiest(values: Float32Array, units: number): [number, number][] {
  const most = Array.from({ length: units }, (_, unit): [number, number] => {
    let found = 0;
    for (let i = unit; i < values.length; i += units) if (Math.abs(values[i]) > Math.abs(found)) found = values[i];
    return [unit, found];
  });
  return most.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, SHOWN);
}
