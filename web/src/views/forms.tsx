// How a change is made by hand: one form each for averaging, setting weights, swapping vectors and switching off a unit.
import { useState } from "preact/hooks";
import { source, tensor, type Manifest, type ModelCard } from "../api";
import { present, useLoaded } from "../hooks";
import { percent, short } from "../numbers";
import { placeName, unitsOf, written, type Intervention } from "../reach";
import { questionOf, useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionNamed, attentions, attentionStep, keyLabels, layersOf, stacks, structureOf, type Attention } from "../structure";
import { Choice, Failed, Waiting } from "../ui";
import { attentionOptions, HeadPick, Line, Pick, tokenOptions } from "./choose";

export const put = (all: readonly Intervention[]): void => go({ reach: written(all) });
export const MOST = 32; // the server takes no more at once

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

export function Add({ card, manifest, reached }: { card: ModelCard; manifest: Manifest; reached: Intervention[] }) {
  const kinds = attentions(card).length ? KINDS : KINDS.slice(2); // the first two are of weights
  const [kind, setKind] = useState<(typeof KINDS)[number][0]>(kinds[0][0]);
  const add = (one: Intervention): void => put([...reached.filter((other) => written([other]) !== written([one])), one]);
  const Form = { even: Even, set: SetWeights, swap: Swap, unit: Unit }[kind];
  return (
    <>
      <h2>Change something else</h2>
      <Choice label="kind of change" options={kinds} value={kind} onChange={setKind} />
      {reached.length >= MOST ? <p class="small soft">{MOST} changes at once are the most: remove one first.</p> : <Form {...{ card, manifest, add }} />}
    </>
  );
}

const queries = (manifest: Manifest, { stack }: Attention): readonly { text: string }[] => (stack === "encoder" ? manifest.sources : manifest.reads);

function useAttention(card: ModelCard) {
  const state = useAddress();
  const [name, setName] = useState(state.attention);
  return [attentionNamed(card, name)!, setName] as const; // the forms of weights are for models that have some
}

function Even({ card, manifest, add }: FormProps) {
  const [attention, setName] = useAttention(card);
  const [head, setHead] = useState(-1);
  const [query, setQuery] = useState(-1);
  return (
    <>
      <p class="small soft">Every key that may be looked at gets the same weight.</p>
      <Pick label="attention" value={attention.name} options={attentionOptions(card)} onChange={setName} />
      <HeadPick card={card} all="all heads" value={head} onChange={setHead} />
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
      <HeadPick card={card} all="all heads" value={head} onChange={setHead} />
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
function vectorPlaces(card: ModelCard, { tensors }: Manifest): [string, string][] {
  const { model } = card.config;
  const ends = (layer: string): string => `${layer}.${structureOf(card).end(model)}`;
  const places = stacks(model).flatMap((stack) => [`${stack}.embedded`, ...layersOf(model, stack).map(ends), ...(stack === "encoder" ? ["encoder.vectors"] : [])]);
  return places.filter((place) => tensors.some(({ name }) => name === place)).map((place) => [place, placeName(place)]);
}

function Swap({ card, manifest, add }: FormProps) {
  const places = vectorPlaces(card, manifest);
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
  const { name, most, told } = structureOf(card).units;
  const size = most(model);
  const options = stacks(model).flatMap((stack) => layersOf(model, stack).map((layer): [string, string] => [`${layer}.${name}`, placeName(`${layer}.${name}`)]));
  const [place, setPlace] = useState(options[options.length - 1][0]);
  const [unit, setUnit] = useState(0);
  const loaded = useLoaded(() => tensor(manifest.id, unitsOf(place)), [manifest.id, place]);
  const after = present(loaded);
  return (
    <>
      <p class="small soft">{told}</p>
      <Pick label="layer" value={place} options={options} onChange={setPlace} />
      <label class="pick">
        <span class="small soft">unit, 0 to {size - 1}</span>
        <input
          type="number"
          min={0}
          max={size - 1}
          value={unit}
          onInput={(event) => setUnit(Math.min(size - 1, Math.max(0, Math.round(Number(event.currentTarget.value)) || 0)))}
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
