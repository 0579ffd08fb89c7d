// Forms to add an intervention: uniform weights, given weights, a patched vector, or a unit set to 0.
import { useState } from "preact/hooks";
import { type ModelInfo, source, type Trace, tensor } from "../api";
import {
  architectureOf,
  attentions,
  findAttention,
  keyLabels,
  layersOf,
  loadAttention,
  queryTokens,
  stacks,
} from "../architecture";
import { formatNumber, formatPercent } from "../format";
import { latestValue, useAsync } from "../hooks";
import { componentTitle, formatInterventions, type Intervention, unitTensor } from "../interventions";
import { explainOptions, useSession } from "../session";
import { ErrorMessage, Loading, SegmentedControl } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { attentionOptions, HeadSelect, SelectField, TextField, tokenOptions } from "./controls";

export const setInterventions = (all: readonly Intervention[]): void => navigate({ interventions: formatInterventions(all) });
export const MAX_INTERVENTIONS = 32; // the server's limit

const TYPES = [
  ["uniform", "Uniform"],
  ["set", "Set weights"],
  ["patch", "Patch"],
  ["zero", "Zero unit"],
] as const;

interface FormProps {
  model: ModelInfo;
  trace: Trace;
  onAdd: (intervention: Intervention) => void;
}

export function AddIntervention({
  model,
  trace,
  interventions,
}: {
  model: ModelInfo;
  trace: Trace;
  interventions: Intervention[];
}) {
  const types = attentions(model).length ? TYPES : TYPES.slice(2); // the first two change attention weights
  const [type, setType] = useState<(typeof TYPES)[number][0]>(types[0][0]);
  const onAdd = (added: Intervention): void => {
    const key = formatInterventions([added]);
    setInterventions([...interventions.filter((other) => formatInterventions([other]) !== key), added]);
  };
  const Form = { uniform: UniformForm, set: SetWeightsForm, patch: PatchForm, zero: ZeroUnitForm }[type];
  return (
    <>
      <h2>Add an intervention</h2>
      <SegmentedControl label="type of intervention" options={types} value={type} onChange={setType} />
      {interventions.length >= MAX_INTERVENTIONS ? (
        <p class="small muted">The maximum is {MAX_INTERVENTIONS} interventions: remove one first.</p>
      ) : (
        <Form {...{ model, trace, onAdd }} />
      )}
    </>
  );
}

function useAttention(model: ModelInfo) {
  const state = useUrlState();
  const [name, setName] = useState(state.attention);
  return [findAttention(model, name)!, setName] as const; // only used for models with attention
}

function UniformForm({ model, trace, onAdd }: FormProps) {
  const [attention, setName] = useAttention(model);
  const [head, setHead] = useState(-1);
  const [query, setQuery] = useState(-1);
  return (
    <>
      <p class="small muted">Gives every unmasked key the same weight.</p>
      <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={setName} />
      <HeadSelect model={model} allLabel="all heads" value={head} onChange={setHead} />
      <SelectField
        label="query token"
        value={query}
        options={[[-1, "all tokens"], ...tokenOptions(queryTokens(trace, attention))]}
        onChange={setQuery}
      />
      <button
        class="primary-button"
        onClick={() =>
          onAdd({ type: "uniform", attention: attention.name, head: head < 0 ? null : head, query: query < 0 ? null : query })
        }
      >
        Apply
      </button>
    </>
  );
}

function SetWeightsForm({ model, trace, onAdd }: FormProps) {
  const [attention, setName] = useAttention(model);
  const [head, setHead] = useState(0);
  const rows = queryTokens(trace, attention);
  const [selected, setQuery] = useState(0);
  const query = Math.min(selected, rows.length - 1);
  const keys = keyLabels(trace, attention).slice(0, attention.kind === "masked" ? query + 1 : undefined);
  const headKey = `${trace.id} ${attention.name} ${head}`;
  const rowKey = `${headKey} ${query}`;
  const loaded = useAsync(
    async () => ({ key: headKey, weights: await loadAttention(trace, attention, head, "weights") }),
    [headKey],
  );
  const latest = latestValue(loaded);
  const [edited, setEdited] = useState<{ key: string; weights: number[] } | null>(null);
  // The model's own weights until a slider is moved, rounded to the step of the sliders.
  const initial = latest?.key === headKey ? keys.map((_, i) => Math.round(latest.weights.at(query).data[i] * 100) / 100) : null;
  const weights = edited?.key === rowKey ? edited.weights : initial;
  const setWeights = (next: number[]): void => setEdited({ key: rowKey, weights: next });
  if (!weights) return loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : <Loading what="attention weights" />;
  const sum = weights.reduce((a, b) => a + b, 0);
  const setOneHot = (key: number): void => setWeights(keys.map((_, i) => (i === key ? 1 : 0)));
  return (
    <>
      <p class="small muted">Sets the attention weights of one query. The sliders start at the model’s weights.</p>
      <SelectField label="attention" value={attention.name} options={attentionOptions(model)} onChange={setName} />
      <HeadSelect model={model} allLabel="all heads" value={head} onChange={setHead} />
      <SelectField label="query token" value={query} options={tokenOptions(rows)} onChange={setQuery} />
      <div class="weight-sliders">
        {keys.map((key, i) => (
          <div class="slider" key={i}>
            <button class="name" title={`put all weight on ${key}`} onClick={() => setOneHot(i)}>
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
        Sum: {formatPercent(sum)}
        {Math.abs(sum - 1) > 0.02 ? " (a softmax always gives 100%)" : ""}
      </p>
      <button
        class="primary-button"
        onClick={() => onAdd({ type: "set", attention: attention.name, head: head < 0 ? null : head, query, weights })}
      >
        Apply
      </button>
    </>
  );
}

/** The tensors that can be patched: one vector per token, read by the next part of the model. */
function patchableTensors(model: ModelInfo, { tensors }: Trace): [string, string][] {
  const config = model.config.model;
  const output = (layer: string): string => `${layer}.${architectureOf(model).layerOutput(config)}`;
  const names = stacks(config).flatMap((stack) => [
    `${stack}.embedded`,
    ...layersOf(config, stack).map(output),
    ...(stack === "encoder" ? ["encoder.vectors"] : []),
  ]);
  return names.filter((name) => tensors.some((tensor) => tensor.name === name)).map((name) => [name, componentTitle(name)]);
}

function PatchForm({ model, trace, onAdd }: FormProps) {
  const tensors = patchableTensors(model, trace);
  const [name, setName] = useState(tensors[0][0]);
  const [selectedPosition, setPosition] = useState(0);
  const [selectedSource, setSource] = useState(1);
  const [otherText, setOtherText] = useState("");
  const isEncoder = name.startsWith("encoder");
  const tokens = isEncoder ? trace.source_tokens : trace.decoder_input_tokens;
  const { text } = useSession();
  const state = useUrlState();
  const loaded = useAsync(
    otherText.trim()
      ? (signal) => source.explain({ ...explainOptions(state, model, otherText), search: "greedy" }, signal)
      : null,
    [otherText, model.name],
  );
  const sourceTrace = otherText.trim() ? latestValue(loaded) : trace;
  const sourceTokens = sourceTrace ? (isEncoder ? sourceTrace.source_tokens : sourceTrace.decoder_input_tokens) : [];
  const position = Math.min(selectedPosition, tokens.length - 1);
  const sourcePosition = Math.min(selectedSource, Math.max(0, sourceTokens.length - 1));
  return (
    <>
      <p class="small muted">Replaces the vector of one token with that of another.</p>
      <SelectField label="tensor" value={name} options={tensors} onChange={setName} />
      <SelectField label="replace the vector of" value={position} options={tokenOptions(tokens)} onChange={setPosition} />
      <SelectField
        label="with the vector of"
        value={sourcePosition}
        options={tokenOptions(sourceTokens)}
        onChange={setSource}
      />
      <TextField label="from another text (optional)" value={otherText} placeholder={text} onChange={setOtherText} />
      {otherText.trim() && loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      <button
        class="primary-button"
        disabled={!sourceTokens.length}
        onClick={() => onAdd({ type: "patch", name, position, sourcePosition, text: otherText.trim() ? otherText : "" })}
      >
        Apply
      </button>
    </>
  );
}

const MAX_SUGGESTED_UNITS = 8;

function ZeroUnitForm({ model, trace, onAdd }: FormProps) {
  const config = model.config.model;
  const { name, count, description } = architectureOf(model).units;
  const size = count(config);
  const options = stacks(config).flatMap((stack) =>
    layersOf(config, stack).map((layer): [string, string] => [`${layer}.${name}`, componentTitle(`${layer}.${name}`)]),
  );
  const [component, setComponent] = useState(options[options.length - 1][0]);
  const [unit, setUnit] = useState(0);
  const loaded = useAsync(() => tensor(trace.id, unitTensor(component)), [trace.id, component]);
  const activations = latestValue(loaded);
  return (
    <>
      <p class="small muted">{description}</p>
      <SelectField label="layer" value={component} options={options} onChange={setComponent} />
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
      {activations ? (
        <div>
          <p class="small muted">Most active units in this text, with their largest value:</p>
          <div class="examples">
            {mostActiveUnits(activations.data, activations.shape[1]).map(([index, value]) => (
              <button key={index} class="chip" aria-pressed={index === unit} onClick={() => setUnit(index)}>
                {index} · {formatNumber(value)}
              </button>
            ))}
          </div>
        </div>
      ) : null}
      <button class="primary-button" onClick={() => onAdd({ type: "zero", component, unit })}>
        Apply
      </button>
    </>
  );
}

/** The units with the largest magnitude over all tokens, in row-major [tokens, units]. */
function mostActiveUnits(values: Float32Array, units: number): [number, number][] {
  const peaks = Array.from({ length: units }, (_, unit): [number, number] => {
    let peak = 0;
    for (let i = unit; i < values.length; i += units) if (Math.abs(values[i]) > Math.abs(peak)) peak = values[i];
    return [unit, peak];
  });
  return peaks.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, MAX_SUGGESTED_UNITS);
}
