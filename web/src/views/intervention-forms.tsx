// How a change is made by hand: one form each for averaging, setting weights, swapping vectors and switching off a unit.
import { useState } from "preact/hooks";
import { source, tensor, type Trace, type ModelInfo } from "../api";
import { latestValue, useAsync } from "../hooks";
import { formatPercent, formatNumber } from "../format";
import { componentTitle, unitTensor, written, type Intervention } from "../interventions";
import { explainOptions, useSession } from "../session";
import { navigate, useUrlState } from "../url-state";
import { findAttention, attentions, loadAttention, keyLabels, layersOf, stacks, architectureOf, type Attention } from "../architecture";
import { SegmentedControl, ErrorMessage, Loading } from "../ui";
import { attentionOptions, HeadSelect, Line, SelectField, tokenOptions } from "./controls";

export const put = (all: readonly Intervention[]): void => navigate({ reach: written(all) });
export const MOST = 32; // the server takes no more at once

const KINDS = [
  ["even", "Average"],
  ["set", "Set"],
  ["swap", "Swap"],
  ["unit", "Unit off"],
] as const;

interface FormProps {
  model: ModelInfo;
  trace: Trace;
  add: (one: Intervention) => void;
}

export function Add({ model, trace, reached }: { model: ModelInfo; trace: Trace; reached: Intervention[] }) {
  const kinds = attentions(model).length ? KINDS : KINDS.slice(2); // the first two are of weights
  const [kind, setKind] = useState<(typeof KINDS)[number][0]>(kinds[0][0]);
  const add = (one: Intervention): void => put([...reached.filter((other) => written([other]) !== written([one])), one]);
  const Form = { even: Even, set: SetWeights, swap: Swap, unit: Unit }[kind];
  return (
    <>
      <h2>Change something else</h2>
      <SegmentedControl label="kind of change" options={kinds} value={kind} onChange={setKind} />
      {reached.length >= MOST ? <p class="small muted">{MOST} changes at once are the max: remove one first.</p> : <Form {...{ model, trace, add }} />}
    </>
  );
}

const queries = (trace: Trace, { stack }: Attention): readonly { text: string }[] => (stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens);

function useAttention(model: ModelInfo) {
  const state = useUrlState();
  const [name, setName] = useState(state.attention);
  return [findAttention(model, name)!, setName] as const; // the forms of weights are for models that have some
}

function Even({ model, trace, add }: FormProps) {
  const [attention, setName] = useAttention(model);
  const [head, setHead] = useState(-1);
  const [query, setQuery] = useState(-1);
  return (
    <>
      <p class="small muted">Every key that may be looked at gets the same weight.</p>
      <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={setName} />
      <HeadSelect model={model} all="all heads" value={head} onChange={setHead} />
      <SelectField label="for the token" value={query} options={[[-1, "every one"], ...tokenOptions(queries(trace, attention))]} onChange={setQuery} />
      <button class="primary-button" onClick={() => add({ do: "even", attention: attention.name, head: head < 0 ? null : head, query: query < 0 ? null : query })}>
        Average
      </button>
    </>
  );
}

function SetWeights({ model, trace, add }: FormProps) {
  const [attention, setName] = useAttention(model);
  const [head, setHead] = useState(0);
  const rows = queries(trace, attention);
  const [chosen, setQuery] = useState(0);
  const query = Math.min(chosen, rows.length - 1);
  const keys = keyLabels(trace, attention).slice(0, attention.kind === "masked" ? query + 1 : undefined);
  const of = `${trace.id} ${attention.name} ${head}`;
  const own = useAsync(async () => ({ of, whole: await loadAttention(trace, attention, head, "weights") }), [of]);
  const found = latestValue(own);
  const [moved, setMoved] = useState<{ of: string; weights: number[] } | null>(null);
  // Until a slider is moved they are the model's own; a whole formatPercent is as fine as the sliders are.
  const begun = found?.of === of ? keys.map((_, i) => Math.round(found.whole.at(query).data[i] * 100) / 100) : null;
  const weights = moved?.of === `${of} ${query}` ? moved.weights : begun;
  const setWeights = (next: number[]): void => setMoved({ of: `${of} ${query}`, weights: next });
  if (!weights) return own.state === "failed" ? <ErrorMessage error={own.error} /> : <Loading what="the weights" />;
  const sum = weights.reduce((a, b) => a + b, 0);
  const only = (key: number): void => setWeights(keys.map((_, i) => (i === key ? 1 : 0)));
  return (
    <>
      <p class="small muted">Where one token looks, in your own words. The sliders begin with the model’s weights.</p>
      <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={setName} />
      <HeadSelect model={model} all="all heads" value={head} onChange={setHead} />
      <SelectField label="for the token" value={query} options={tokenOptions(rows)} onChange={setQuery} />
      <div class="weight-sliders">
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
            <output>{formatPercent(weights[i])}</output>
          </div>
        ))}
      </div>
      <p class="small muted">
        Together {formatPercent(sum)}
        {Math.abs(sum - 1) > 0.02 ? "; a softmax would always give 100%." : "."}
      </p>
      <button class="primary-button" onClick={() => add({ do: "set", attention: attention.name, head: head < 0 ? null : head, query, weights })}>
        Set
      </button>
    </>
  );
}

/** Where each token has one vector that the next part of the model reads. */
function vectorPlaces(model: ModelInfo, { tensors }: Trace): [string, string][] {
  const config = model.config.model;
  const ends = (layer: string): string => `${layer}.${architectureOf(model).layerOutput(config)}`;
  const places = stacks(config).flatMap((stack) => [`${stack}.embedded`, ...layersOf(config, stack).map(ends), ...(stack === "encoder" ? ["encoder.vectors"] : [])]);
  return places.filter((place) => tensors.some(({ name }) => name === place)).map((place) => [place, componentTitle(place)]);
}

function Swap({ model, trace, add }: FormProps) {
  const places = vectorPlaces(model, trace);
  const [name, setName] = useState(places[0][0]);
  const [at, setAt] = useState(0);
  const [from, setFrom] = useState(1);
  const [other, setOther] = useState("");
  const encoder = name.startsWith("encoder");
  const tokens = encoder ? trace.source_tokens : trace.decoder_input_tokens;
  const { text } = useSession();
  const state = useUrlState();
  const loaded = useAsync(
    other.trim() ? (signal) => source.explain({ ...explainOptions(state, model, other), search: "greedy" }, signal) : null,
    [other, model.name],
  );
  const theirs = other.trim() ? latestValue(loaded) : trace;
  const options = theirs ? (encoder ? theirs.source_tokens : theirs.decoder_input_tokens) : [];
  const [to, source_] = [Math.min(at, tokens.length - 1), Math.min(from, Math.max(0, options.length - 1))];
  return (
    <>
      <p class="small muted">One token goes on with the vector of another.</p>
      <SelectField label="where" value={name} options={places} onChange={setName} />
      <SelectField label="the vector of" value={to} options={tokenOptions(tokens)} onChange={setAt} />
      <SelectField label="becomes that of" value={source_} options={tokenOptions(options)} onChange={setFrom} />
      <Line label="out of another text, if you like" value={other} placeholder={text} onChange={setOther} />
      {other.trim() && loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      <button class="primary-button" disabled={!options.length} onClick={() => add({ do: "swap", name, at: to, from: source_, text: other.trim() ? other : "" })}>
        Swap
      </button>
    </>
  );
}

const SHOWN = 8;

function Unit({ model, trace, add }: FormProps) {
  const config = model.config.model;
  const { name, max, told } = architectureOf(model).units;
  const size = max(config);
  const options = stacks(config).flatMap((stack) => layersOf(config, stack).map((layer): [string, string] => [`${layer}.${name}`, componentTitle(`${layer}.${name}`)]));
  const [place, setPlace] = useState(options[options.length - 1][0]);
  const [unit, setUnit] = useState(0);
  const loaded = useAsync(() => tensor(trace.id, unitTensor(place)), [trace.id, place]);
  const after = latestValue(loaded);
  return (
    <>
      <p class="small muted">{told}</p>
      <SelectField label="layer" value={place} options={options} onChange={setPlace} />
      <label class="select-field">
        <span class="small muted">unit, 0 to {size - 1}</span>
        <input
          type="number"
          min={0}
          max={size - 1}
          value={unit}
          onInput={(event) => setUnit(Math.min(size - 1, Math.max(0, Math.round(Number(event.currentTarget.value)) || 0)))}
        />
      </label>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {after ? (
        <div>
          <p class="small muted">The max active here, with their maxMagnitude value:</p>
          <div class="examples">
            {busiest(after.data, after.shape[1]).map(([index, value]) => (
              <button key={index} class="chip" aria-pressed={index === unit} onClick={() => setUnit(index)}>
                {index} · {formatNumber(value)}
              </button>
            ))}
          </div>
        </div>
      ) : null}
      <button class="primary-button" onClick={() => add({ do: "unit", place, unit })}>
        Switch off
      </button>
    </>
  );
}

/** The units with the maxMagnitude values over all tokens, [tokens, units] row by row. */
function busiest(values: Float32Array, units: number): [number, number][] {
  const max = Array.from({ length: units }, (_, unit): [number, number] => {
    let found = 0;
    for (let i = unit; i < values.length; i += units) if (Math.abs(values[i]) > Math.abs(found)) found = values[i];
    return [unit, found];
  });
  return max.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, SHOWN);
}
