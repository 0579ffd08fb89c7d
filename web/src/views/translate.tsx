// Translate, or with a language model Generate: type, and the output follows; under it where each word looked, and beside it what
// else the model could have written. The sliders act on the logits that are already here.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { source, tensor, tokensOf, type Manifest } from "../api";
import { present, useLoaded } from "../hooks";
import { drawnNumber, filtered, percent, pickedAt, ranked, short } from "../numbers";
import { examplesOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionNamed, attentions, attentionStep, chosenHead, chosenRow, titleOf, type Attention } from "../structure";
import { Choice, Empty, Failed, Slider, Waiting } from "../ui";
import { Beam } from "./beam";
import { NoAttention } from "./choose";
import { Ribbon } from "./ribbon";

export function Translate() {
  const { card, text, manifest, written, busy, error } = useSession();
  const writes = card.kind === "language model";
  const examples = examplesOf(card);
  return (
    <div class="stack">
      <section class="card stack">
        <Entry text={text} label={writes ? "Prompt" : "Text to translate"} />
        <Output manifest={text.trim() ? manifest : null} written={written} busy={busy} />
        {error ? <Failed error={error} /> : null}
        <div class="controls" hidden={!source.live}>
          <Search />
          {examples.length ? (
            <div class="examples" aria-label="examples">
              {examples.map((example) => (
                <button key={example} class="chip" aria-pressed={example === text} onClick={() => go({ text: example, row: -1 })}>
                  {example}
                </button>
              ))}
            </div>
          ) : null}
        </div>
      </section>
      {manifest && text.trim() ? <Details manifest={manifest} /> : text.trim() ? error ? null : <Waiting what="the first answer" /> : (
        <Empty>
          <p>Write something above, or choose an example.</p>
        </Empty>
      )}
    </div>
  );
}

function Entry({ text, label }: { text: string; label: string }) {
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const element = area.current!;
    if (element.value !== text && document.activeElement !== element) element.value = text;
    else if (element.value.trim() !== text.trim()) element.value = text;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);
  return (
    <label class="entry">
      <span class="small soft">{label}</span>
      <textarea
        ref={area}
        rows={1}
        spellcheck={false}
        maxLength={8000}
        readOnly={!source.live}
        defaultValue={text}
        onInput={(event) => go({ text: event.currentTarget.value || " ", row: -1, cell: "" })}
      />
    </label>
  );
}

function Output({ manifest, written, busy }: { manifest: Manifest | null; written: string; busy: boolean }) {
  const { row } = useAddress();
  const seen = useRef<string[]>([]);
  const shown = manifest ? manifest.writes.map((token) => token.text) : [];
  const same = shown.findIndex((token, i) => token !== seen.current[i]);
  const fresh = same < 0 ? shown.length : same;
  useEffect(() => {
    seen.current = shown;
  });
  return (
    <p class={`output${busy ? " busy" : ""}`} lang="" aria-live="polite" data-output={manifest?.output ?? ""}>
      {busy && written ? written : manifest ? <Words manifest={manifest} fresh={fresh} row={row} /> : null}
    </p>
  );
}

/** The output as it reads; each word is one that a token, or a few, have written. */
function Words({ manifest, fresh, row }: { manifest: Manifest; fresh: number; row: number }) {
  return (
    <>
      {manifest.spans.map((span, i) => {
        const word = span.text.trimStart();
        const next = manifest.spans[i + 1]?.row ?? Infinity;
        return (
          <span key={`${span.row} ${span.text}`}>
            {span.text.slice(0, span.text.length - word.length)}
            <span
              class={`word${span.row >= fresh ? " new" : ""}${row >= span.row && row < next ? " on" : ""}`}
              style={{ animationDelay: `${Math.min(span.row - fresh, 30) * 28}ms` }}
              onClick={() => go({ row: span.row === row ? -1 : span.row })}
            >
              {word}
            </span>
          </span>
        );
      })}
    </>
  );
}

const SEARCHES = [
  ["greedy", "Likeliest"],
  ["beam", "Beam"],
  ["sample", "Sample"],
] as const;

function Search() {
  const state = useAddress();
  return (
    <div class="controls">
      <Choice label="how the next token is chosen" options={SEARCHES} value={state.search as "greedy"} onChange={(search) => go({ search, row: -1 })} />
      {state.search === "beam" ? (
        <label class="small soft">
          width{" "}
          <input type="number" min={2} max={16} value={state.beam} onInput={(event) => go({ beam: clamp(event.currentTarget.value, 2, 16) })} />
        </label>
      ) : null}
      {state.search === "sample" ? (
        <label class="small soft">
          seed{" "}
          <input type="number" min={0} max={99999} value={state.seed} onInput={(event) => go({ seed: clamp(event.currentTarget.value, 0, 99999) })} />
        </label>
      ) : null}
    </div>
  );
}

const clamp = (text: string, least: number, most: number): number => Math.min(most, Math.max(least, Math.round(Number(text) || least)));

function Details({ manifest }: { manifest: Manifest }) {
  const state = useAddress();
  const row = chosenRow(manifest, state.row);
  return (
    <div class="columns">
      <div class="stack">
        <section class="card">
          <WhereItLooked manifest={manifest} />
        </section>
        {manifest.hypotheses && manifest.hypotheses.length > 1 ? (
          <section class="card">
            <Beam hypotheses={manifest.hypotheses} />
          </section>
        ) : null}
      </div>
      <section class="card stack">
        <NextToken manifest={manifest} row={row} />
        <button class="chip on" onClick={() => go({ view: "walk", row, stage: "", cell: "" })}>
          see how it came about, step by step →
        </button>
      </section>
    </div>
  );
}

function WhereItLooked({ manifest }: { manifest: Manifest }) {
  const state = useAddress();
  const { card } = useSession();
  const kind = card.kind === "translator" ? "cross" : "masked";
  const all = attentions(card).filter((attention) => attention.kind === kind);
  const named = attentionNamed(card, state.attention);
  const attention = named?.kind === kind ? named : all[all.length - 1];
  if (attention) return <Looked manifest={manifest} attention={attention} all={all} />;
  return (
    <>
      <h2>Where each word looked</h2>
      <NoAttention card={card} />
    </>
  );
}

function Looked({ manifest, attention, all }: { manifest: Manifest; attention: Attention; all: readonly Attention[] }) {
  const state = useAddress();
  const { card } = useSession();
  const head = chosenHead(card, state.head);
  const loaded = useLoaded(() => attentionStep(manifest, attention, head, "weights"), [manifest.id, attention.name, head]);
  const weights = present(loaded);
  const above = (attention.kind === "cross" ? manifest.sources : manifest.reads).map((token) => token.text);
  const below = manifest.writes.map((token) => token.text);
  const fits = weights && weights.shape[0] === below.length && weights.shape[1] === above.length;
  return (
    <>
      <div class="lead">
        <div>
          <h2>Where each word looked</h2>
          <p class="soft small">{titleOf(card, attention, head)}. Point at a word.</p>
        </div>
        <div class="controls">
          {all.length > 1 ? (
            <select aria-label="layer" value={attention.name} onChange={(event) => go({ attention: event.currentTarget.value })}>
              {all.map((one) => (
                <option key={one.name} value={one.name}>{`layer ${one.layer}`}</option>
              ))}
            </select>
          ) : null}
          {card.config.model.heads > 1 ? (
            <select aria-label="head" value={String(head)} onChange={(event) => go({ head: Number(event.currentTarget.value) })}>
              <option value="-1">mean</option>
              {Array.from({ length: card.config.model.heads }, (_, one) => (
                <option key={one} value={String(one)}>{`head ${one}`}</option>
              ))}
            </select>
          ) : null}
        </div>
      </div>
      {loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
      {fits ? <Ribbon above={above} below={below} weights={weights} row={state.row} onRow={(row) => go({ row })} /> : <Waiting what="the weights" />}
    </>
  );
}

const SHOWN = 8;

export function NextToken({ manifest, row }: { manifest: Manifest; row: number }) {
  const state = useAddress();
  const { card } = useSession();
  const loaded = useLoaded(
    async () => {
      const [{ data }, { target, banned }] = await Promise.all([tensor(manifest.id, "logits", `${row}`), tokensOf(card.name)]);
      const logits = data.slice();
      for (const id of banned) logits[id] = -Infinity;
      return { logits, words: target, row };
    },
    [manifest.id, row, card.name],
  );
  const here = present(loaded);
  const sampling = { temperature: state.temperature, topK: state.topK, topP: state.topP };
  const result = useMemo(() => {
    if (!here) return null;
    return { drawn: filtered(here.logits, sampling), order: ranked(here.logits, SHOWN) };
  }, [here, state.temperature, state.topK, state.topP]);
  const token = manifest.writes[row];
  const before = manifest.reads.slice(Math.max(0, row - 3), row + 1).map((read) => read.text);
  return (
    <>
      <div>
        <h2>What could come next</h2>
        <p class="soft small">
          after {row > 3 ? "… " : ""}
          {before.join(" ")}
        </p>
      </div>
      {loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
      {here && result ? (
        <ol class="rows" data-row={here.row}>
          {listed(result.order, token.id).map((id) => (
            <li key={id} class={`candidate${result.drawn[id] === 0 ? " out" : ""}${id === token.id ? " chosen" : ""}`} data-token={id}>
              <span class="name" title={`logit ${short(here.logits[id], 3)}, token ${id}`}>
                {here.words[id] ?? id}
              </span>
              <span class="meter">
                <i style={{ width: `${result.drawn[id] * 100}%` }} />
              </span>
              <span class="value">{result.drawn[id] === 0 ? "out" : percent(result.drawn[id])}</span>
            </li>
          ))}
        </ol>
      ) : (
        <Waiting what="the logits" />
      )}
      <div class="stack" data-sliders>
        <Slider label="Temperature" value={state.temperature} min={0} max={4} step={0.05} shown={state.temperature.toFixed(2)} onChange={(temperature) => go({ temperature })} />
        <Slider label="Top-k" value={state.topK} min={0} max={50} step={1} shown={state.topK ? String(state.topK) : "all"} onChange={(topK) => go({ topK })} />
        <Slider label="Top-p" value={state.topP} min={0.05} max={1} step={0.01} shown={state.topP.toFixed(2)} onChange={(topP) => go({ topP })} />
      </div>
      {result && here ? <Draw drawn={result.drawn} words={here.words} step={row - (card.kind === "language model" ? manifest.first : 0)} /> : null}
    </>
  );
}

const listed = (order: number[], chosen: number): number[] => (order.includes(chosen) ? order : [...order.slice(0, -1), chosen]);

/** The number that the seed draws at this step, and the token that it falls on: the same arithmetic as the model's own. */
function Draw({ drawn, words, step }: { drawn: Float64Array; words: string[]; step: number }) {
  const { seed, search, temperature } = useAddress();
  if (step < 0) return null;
  if (temperature === 0) return <p class="small soft">At temperature 0 the likeliest token is taken; nothing is drawn.</p>;
  const u = drawnNumber(seed, step);
  return (
    <p class="small soft">
      Seed {seed} draws {u.toFixed(4)} here, which falls on <b>{words[pickedAt(drawn, u)]}</b>
      {search === "sample" || !source.live ? "." : "; choose Sample above to let it write so."}
    </p>
  );
}
