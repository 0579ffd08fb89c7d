// Translate, or Generate for a language model: the output follows the typing. Below it are the attention weights, and beside
// them the probabilities of the next token, on which the sliders act without another request.
import { useEffect, useMemo, useRef } from "preact/hooks";
import {
  type Explanation,
  isLargeVocabulary,
  type NextToken as NextTokenResponse,
  source,
  type Trace,
  tensor,
  vocabularyOf,
} from "../api";
import { type Attention, attentions, attentionTitle, findAttention, selectedHead, selectedRow } from "../architecture";
import { formatNumber, formatPercent } from "../format";
import { latestValue, useAsync } from "../hooks";
import { sampleIndex, samplingDistribution, seededUniform, topIndices } from "../math";
import { mediaKind } from "../media/media";
import { MediaAttention } from "../media/media-attention";
import { MediaEntry } from "../media/media-entry";
import { examplesFor, languagesFor, useSession } from "../session";
import { inLatin } from "../transliteration";
import { EmptyState, ErrorMessage, Loading, SegmentedControl, Slider, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { AttentionLines, drawnHeads, LineControls } from "./attention-lines";
import { Beam } from "./beam";
import { NoAttention, SelectField } from "./controls";

export function Translate() {
  const { model, text, trace, streamedText, busy, error } = useSession();
  const isLanguageModel = model.kind === "language model";
  const isMedia = mediaKind(model.config.model) !== null;
  const examples = examplesFor(model);
  if (model.kind === "encoder") {
    return (
      <div class="stack">
        <section class="card stack">
          <TextEntry text={text} label="Text to encode" />
          {error ? <ErrorMessage error={error} /> : null}
        </section>
        <EmptyState>
          <p>An encoder generates no output. Its vectors and attentions are in Walk, Heads and Microscope.</p>
        </EmptyState>
      </div>
    );
  }
  return (
    <div class="stack">
      <section class="card stack">
        {isMedia ? <MediaEntry /> : <TextEntry text={text} label={isLanguageModel ? "Prompt" : "Text to translate"} />}
        <Output trace={trace} streamedText={streamedText} busy={busy} />
        {trace && !busy ? <Caution trace={trace} /> : null}
        {error ? <ErrorMessage error={error} /> : null}
        <div class="controls" hidden={!source.live}>
          <LanguageControls />
          <SearchControls />
          {examples.length ? (
            <div class="examples" aria-label="examples">
              {examples.map((example) => (
                <button
                  key={example}
                  class="chip"
                  aria-pressed={example === text}
                  onClick={() => navigate({ text: example, row: -1 })}
                >
                  {example}
                </button>
              ))}
            </div>
          ) : null}
        </div>
      </section>
      {trace ? (
        <Details trace={trace} />
      ) : text.trim() ? (
        error ? null : (
          <Loading what="output" />
        )
      ) : (
        <EmptyState>
          <p>{isMedia ? "Choose a file above." : "Enter a text above, or choose an example."}</p>
        </EmptyState>
      )}
    </div>
  );
}

const LONG_TEXT = 240; // characters

function TextEntry({ text, label }: { text: string; label: string }) {
  const textarea = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const element = textarea.current!;
    if (element.value !== text && document.activeElement !== element) element.value = text;
    else if (element.value.trim() !== text.trim()) element.value = text;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);
  return (
    <label class="text-entry">
      <span class="small muted">{label}</span>
      <textarea
        class={text.length > LONG_TEXT ? "text-input long" : "text-input"}
        ref={textarea}
        rows={1}
        spellcheck={false}
        maxLength={8000}
        readOnly={!source.live}
        defaultValue={text}
        onInput={(event) => navigate({ text: event.currentTarget.value || " ", row: -1, cell: "" })}
      />
    </label>
  );
}

function Output({ trace, streamedText, busy }: { trace: Trace | null; streamedText: string; busy: boolean }) {
  const { row } = useUrlState();
  const previous = useRef<string[]>([]);
  const tokens = trace ? trace.target_tokens.map((token) => token.text) : [];
  const firstChange = tokens.findIndex((token, i) => token !== previous.current[i]);
  const firstNew = firstChange < 0 ? tokens.length : firstChange;
  useEffect(() => {
    previous.current = tokens;
  });
  return (
    <div>
      <p class={`output${busy ? " busy" : ""}`} lang="" aria-live="polite" data-output={trace?.output ?? ""}>
        {busy && streamedText ? (
          <Transliterated text={streamedText} />
        ) : trace ? (
          <Words trace={trace} firstNew={firstNew} row={row} />
        ) : null}
      </p>
    </div>
  );
}

/** Names the words that the model does not know, and says if its confidence in the output is low. */
function Caution({ trace }: { trace: Trace }) {
  const unknown = trace.unknown ?? [];
  if (!unknown.length && !trace.low_confidence) return null;
  return (
    <p class="caution small" role="status" data-unknown={unknown.join(" ")} data-low-confidence={String(trace.low_confidence)}>
      <span aria-hidden="true">⚠ </span>
      {unknown.length ? (
        <>
          The model never saw <b>{unknown.join(", ")}</b> in training.{" "}
        </>
      ) : null}
      {trace.low_confidence ? (
        <>Low confidence: {formatNumber(trace.confidence ?? -Infinity, 2)} per token. The output may be wrong.</>
      ) : null}
    </p>
  );
}

/** The output text as clickable words, each of one or more tokens; new words are animated. */
function Words({ trace, firstNew, row }: { trace: Trace; firstNew: number; row: number }) {
  return (
    <>
      {trace.spans.map((span, i) => {
        const word = span.text.trimStart();
        const nextRow = trace.spans[i + 1]?.row ?? Infinity;
        return (
          <span key={`${span.row} ${span.text}`}>
            {span.text.slice(0, span.text.length - word.length)}
            <button
              class={`word${span.row >= firstNew ? " new" : ""}`}
              style={{ animationDelay: `${Math.min(span.row - firstNew, 30) * 28}ms` }}
              aria-pressed={row >= span.row && row < nextRow}
              onClick={() => navigate({ row: span.row === row ? -1 : span.row })}
            >
              <Transliterated text={word} />
            </button>
          </span>
        );
      })}
    </>
  );
}

const names = new Intl.DisplayNames("en", { type: "language" });

/** "French (fra_Latn)" */
const languageName = (code: string): string => `${names.of(/^[a-z]{2,3}(?![a-z])/.exec(code)?.[0] ?? "und")} (${code})`;

/** The languages of a model that has a choice. */
function LanguageControls() {
  const state = useUrlState();
  const { model } = useSession();
  if (!model.languages) return null;
  const { sourceLanguage, targetLanguage } = languagesFor(state, model);
  const options = model.languages.codes
    .map((code): [string, string] => [code, languageName(code)])
    .sort((a, b) => a[1].localeCompare(b[1]));
  return (
    <>
      {sourceLanguage === null ? null : (
        <SelectField
          label={targetLanguage === null ? "spoken" : "from"}
          value={sourceLanguage}
          options={options}
          onChange={(code) => navigate({ sourceLanguage: code, row: -1 })}
        />
      )}
      {targetLanguage === null ? null : (
        <SelectField
          label="to"
          value={targetLanguage}
          options={options}
          onChange={(code) => navigate({ targetLanguage: code, row: -1 })}
        />
      )}
    </>
  );
}

const SEARCHES = [
  ["greedy", "Greedy"],
  ["beam", "Beam"],
  ["sample", "Sample"],
] as const;

function SearchControls() {
  const state = useUrlState();
  return (
    <div class="controls">
      <SegmentedControl
        label="decoding method"
        options={SEARCHES}
        value={state.search as "greedy"}
        onChange={(search) => navigate({ search, row: -1 })}
      />
      {state.search === "beam" ? (
        <label class="small muted">
          beam width{" "}
          <input
            type="number"
            min={2}
            max={16}
            value={state.beam}
            onInput={(event) => navigate({ beam: clamp(event.currentTarget.value, 2, 16) })}
          />
        </label>
      ) : null}
      {state.search === "sample" ? (
        <label class="small muted">
          seed{" "}
          <input
            type="number"
            min={0}
            max={99999}
            value={state.seed}
            onInput={(event) => navigate({ seed: clamp(event.currentTarget.value, 0, 99999) })}
          />
        </label>
      ) : null}
    </div>
  );
}

const clamp = (text: string, min: number, max: number): number => Math.min(max, Math.max(min, Math.round(Number(text) || min)));

function Details({ trace }: { trace: Explanation }) {
  const state = useUrlState();
  const row = selectedRow(trace, state.row);
  return (
    <div class="columns">
      <div class="stack">
        <section class="card">
          <AttentionCard trace={trace} />
        </section>
        {trace.hypotheses && trace.hypotheses.length > 1 ? (
          <section class="card">
            <Beam hypotheses={trace.hypotheses} />
          </section>
        ) : null}
      </div>
      <section class="card stack">
        <NextToken trace={trace} row={row} />
        <button class="chip active" onClick={() => navigate({ view: "walk", row, stage: "", cell: "" })}>
          show each step of the computation →
        </button>
      </section>
    </div>
  );
}

function AttentionCard({ trace }: { trace: Trace }) {
  const state = useUrlState();
  const { model } = useSession();
  const kind = model.kind === "translator" ? "cross" : "masked";
  const all = attentions(model).filter((attention) => attention.kind === kind);
  const selected = findAttention(model, state.attention);
  const attention = selected?.kind === kind ? selected : all[all.length - 1];
  if (attention) return <AttentionWeights trace={trace} attention={attention} all={all} />;
  return (
    <>
      <h2>Where each word looked</h2>
      <NoAttention model={model} />
    </>
  );
}

function AttentionWeights({ trace, attention, all }: { trace: Trace; attention: Attention; all: readonly Attention[] }) {
  const state = useUrlState();
  const { model } = useSession();
  const head = selectedHead(model, state.head);
  return (
    <>
      <div class="section-header">
        <div>
          <h2>Where each word looked</h2>
          <p class="muted small">{attentionTitle(attention)}. Hover over a word or click it.</p>
        </div>
        {all.length > 1 ? (
          <select
            aria-label="layer"
            value={attention.name}
            onChange={(event) => navigate({ attention: event.currentTarget.value })}
          >
            {all.map(({ name, layer }) => (
              <option key={name} value={name}>{`layer ${layer}`}</option>
            ))}
          </select>
        ) : null}
      </div>
      {mediaKind(model.config.model) ? (
        <MediaAttention trace={trace} attention={attention} row={state.row} onRow={(row) => navigate({ row })} />
      ) : (
        <>
          <LineControls head={head} />
          <AttentionLines
            trace={trace}
            attention={attention}
            heads={drawnHeads(state.lines, head)}
            row={state.row}
            onRow={(row) => navigate({ row })}
          />
        </>
      )}
    </>
  );
}

const MAX_CANDIDATES = 8;

type Loaded = { row: number } & ({ logits: Float32Array; vocabulary: string[] } | { response: NextTokenResponse });

/** What sampling sees at a row. The page computes it from all logits; for a large vocabulary, the server does. */
function useNextToken(trace: Trace, row: number): { error: Error | null; shown: (NextTokenResponse & { row: number }) | null } {
  const { temperature, topK, topP, seed } = useUrlState();
  const { model } = useSession();
  const onServer = source.live && isLargeVocabulary(model);
  const loaded = useAsync<Loaded>(
    async (signal) => {
      if (onServer) return { row, response: await source.nextToken(trace.id, row, { temperature, topK, topP, seed }, signal) };
      const [{ data }, { target, banned }] = await Promise.all([
        tensor(trace.id, "logits", `${row}`),
        vocabularyOf(model.name),
      ]);
      const logits = data.slice();
      for (const id of banned) logits[id] = -Infinity;
      return { row, logits, vocabulary: target };
    },
    [trace.id, row, model.name, ...(onServer ? [temperature, topK, topP, seed] : [])],
  );
  const last = latestValue(loaded);
  const shown = useMemo(() => {
    if (!last) return null;
    if ("response" in last) return { ...last.response, row: last.row };
    const { logits, vocabulary } = last;
    const probabilities = samplingDistribution(logits, { temperature, topK, topP });
    const ids = withChosen(topIndices(logits, MAX_CANDIDATES), trace.target_tokens[row].id);
    const candidates = ids.map((id) => ({
      id,
      token: vocabulary[id] ?? String(id),
      logit: logits[id],
      probability: probabilities[id],
    }));
    const step = row - trace.output_start;
    return {
      row: last.row,
      candidates,
      sampled: step < 0 ? null : vocabulary[sampleIndex(probabilities, seededUniform(seed, step))],
    };
  }, [last, row, temperature, topK, topP, seed]);
  return { error: loaded.state === "failed" ? loaded.error : null, shown };
}

/** The candidates to list: the most likely tokens, and always the chosen one. */
const withChosen = (order: number[], chosen: number): number[] =>
  order.includes(chosen) ? order : [...order.slice(0, -1), chosen];

export function NextToken({ trace, row }: { trace: Trace; row: number }) {
  const state = useUrlState();
  const { error, shown } = useNextToken(trace, row);
  const token = trace.target_tokens[row];
  const context = trace.decoder_input_tokens.slice(Math.max(0, row - 3), row + 1).map(({ text }) => text);
  return (
    <>
      <div>
        <h2>Next-token probabilities</h2>
        <p class="muted small">
          after {row > 3 ? "… " : ""}
          <Transliterated text={context.join(" ")} />
        </p>
      </div>
      {error ? <ErrorMessage error={error} /> : null}
      {shown ? (
        <ol class="candidates" data-row={shown.row}>
          {shown.candidates.map(({ id, token: text, logit, probability }) => (
            <li
              key={id}
              class={`candidate${probability === 0 ? " excluded" : ""}${id === token.id ? " selected" : ""}`}
              data-token={id}
            >
              <span class="name" title={`logit ${formatNumber(logit, 3)}, token ${id}`}>
                <Transliterated text={text} />
              </span>
              <span class="meter">
                <i style={{ width: `${probability * 100}%` }} />
              </span>
              <span class="value">{probability === 0 ? "excluded" : formatPercent(probability)}</span>
            </li>
          ))}
          <OtherTokens share={1 - shown.candidates.reduce((sum, { probability }) => sum + probability, 0)} />
        </ol>
      ) : (
        <Loading what="logits" />
      )}
      <div class="stack" data-sliders>
        <Slider
          label="Temperature"
          value={state.temperature}
          min={0}
          max={4}
          step={0.05}
          valueText={state.temperature.toFixed(2)}
          onChange={(temperature) => navigate({ temperature })}
        />
        <Slider
          label="Top-k"
          value={state.topK}
          min={0}
          max={50}
          step={1}
          valueText={state.topK ? String(state.topK) : "all"}
          onChange={(topK) => navigate({ topK })}
        />
        <Slider
          label="Top-p"
          value={state.topP}
          min={0.05}
          max={1}
          step={0.01}
          valueText={state.topP.toFixed(2)}
          onChange={(topP) => navigate({ topP })}
        />
      </div>
      {shown ? <SampledToken sampled={shown.sampled} step={row - trace.output_start} /> : null}
    </>
  );
}

/** What is missing from 100%, if it is visible. */
const OtherTokens = ({ share }: { share: number }) =>
  share < 0.0005 ? null : (
    <li class="small muted" data-other-tokens>
      all other tokens: {formatPercent(share)}
    </li>
  );

/** The random number of the seed at this step and the token it selects, computed like the model does. */
function SampledToken({ sampled, step }: { sampled: string | null; step: number }) {
  const { seed, search, temperature } = useUrlState();
  if (sampled === null) return null;
  if (temperature === 0) return <p class="small muted">At temperature 0 the most likely token is always chosen.</p>;
  return (
    <p class="small muted">
      With seed {seed}, the random number at this step is {seededUniform(seed, step).toFixed(4)}, which selects <b>{sampled}</b>
      {inLatin(sampled)}
      {search === "sample" || !source.live ? "." : "; choose Sample above to decode this way."}
    </p>
  );
}
