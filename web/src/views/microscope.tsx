// Microscope: one head of one attention at each of its steps, and below it the computation of one row: its query, the keys with
// their scores and weights, and the values. The row can be played key by key.
import { useEffect, useState } from "preact/hooks";
import { type Trace, tensor } from "../api";
import {
  type Attention,
  architectureOf,
  attentions,
  attentionTitle,
  findAttention,
  headTitle,
  keyLabels,
  keyValueHeads,
  queryLabels,
  scoredPrefix,
  selectedHead,
  selectedRow,
} from "../architecture";
import { parseCellRef } from "../audit/cells";
import { colorFor, toCss } from "../color";
import { formatNumber, formatPercent } from "../format";
import { latestValue, prefersReducedMotion, useAsync, usePalette } from "../hooks";
import { InspectorLayout } from "../inspector";
import { useSpaceKey } from "../keyboard";
import { topIndices } from "../math";
import { useSession, useTrace } from "../session";
import { TensorPanel } from "../tensor-panel";
import { ErrorMessage, Loading, SegmentedControl, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { AttentionLines } from "./attention-lines";
import { NoAttentionView } from "./controls";

export function Microscope() {
  const { model } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const attention = findAttention(model, state.attention);
  const { steps } = architectureOf(model);
  const step = steps.find(([key]) => key === state.step)?.[0] ?? "weights";
  const head = Math.max(0, selectedHead(model, state.head));
  useEffect(() => {
    if (state.head < 0) navigate({ head: 0 });
  }, [state.head]);
  if (!attention) return <NoAttentionView model={model} />;
  const queries = queryLabels(trace, attention);
  const inspected = parseCellRef(state.cell);
  // A row of the encoder is the inspected cell's; one of the decoder is the row that the whole page shows.
  const inspectedRow =
    attention.stack === "encoder" && inspected?.name.startsWith(`${attention.name}.`) && inspected.index.length === 3
      ? inspected.index[1]
      : -1;
  const row = Math.min(inspectedRow >= 0 ? inspectedRow : selectedRow(trace, state.row), queries.length - 1);
  return (
    <div class="stack">
      <InspectorLayout>
        <section class="card">
          <div class="section-header">
            <h2>{headTitle(model, attention, head)}</h2>
            <div class="controls">
              {attentions(model).length > 1 ? (
                <select
                  aria-label="attention"
                  value={attention.name}
                  onChange={(event) => navigate({ attention: event.currentTarget.value, cell: "" })}
                >
                  {attentions(model).map((one) => (
                    <option key={one.name} value={one.name}>
                      {attentionTitle(one)}
                    </option>
                  ))}
                </select>
              ) : null}
              {model.config.model.heads > 1 ? (
                <select
                  aria-label="head"
                  value={String(head)}
                  onChange={(event) => navigate({ head: Number(event.currentTarget.value), cell: "" })}
                >
                  {Array.from({ length: model.config.model.heads }, (_, i) => (
                    <option key={i} value={String(i)}>{`head ${i}`}</option>
                  ))}
                </select>
              ) : null}
              <SegmentedControl
                label="step"
                options={steps}
                value={step}
                onChange={(next) => navigate({ step: next, cell: "" })}
              />
            </div>
          </div>
          <div class="two-columns matrix-and-lines">
            <TensorPanel name={`${attention.name}.${step}`} row={row} maxHeight={640} maxCellWidth={72} />
            <AttentionLines
              trace={trace}
              attention={attention}
              heads={[head]}
              row={row}
              onRow={attention.stack === "decoder" ? (next) => navigate({ row: next }) : undefined}
            />
          </div>
        </section>
        <section class="card">
          <RowTable trace={trace} attention={attention} head={head} row={row} />
        </section>
      </InspectorLayout>
    </div>
  );
}

const PLAY_INTERVAL = 700; // ms per key
const MAX_KEYS = 24; // of a longer text, those with the largest weights are listed

/** The keys with the largest weights, in the order of the text. */
const rowOrder = (weights: Float32Array, most: number): number[] => topIndices(weights, most).sort((a, b) => a - b);

function RowTable({ trace, attention, head, row }: { trace: Trace; attention: Attention; head: number; row: number }) {
  const { model } = useSession();
  const [shown, setShown] = useState<number | null>(null); // keys shown while playing; null: all
  const [playing, setPlaying] = useState(false);
  const { lookup } = architectureOf(model);
  const keyHead = Math.floor(head / (model.config.model.heads / keyValueHeads(model.config.model)));
  const load = (name: string, index: string) => tensor(trace.id, `${attention.name}.${name}`, index);
  const prefix = scoredPrefix(model.config.model, attention.name);
  const loaded = useAsync(async () => {
    const [query, keys, values, weights, output, ...scores] = await Promise.all([
      load(`${prefix}queries`, `${row},${head}`),
      load(`${prefix}keys`, `:,${keyHead}`),
      load("values", `:,${keyHead}`),
      load("weights", `${head},${row}`),
      load("heads", `${row},${head}`),
      ...lookup.map(([step]) => load(step, `${head},${row}`)),
    ]);
    return { query, keys, values, weights, output, scores };
  }, [trace.id, attention.name, head, row]);
  const keys = keyLabels(trace, attention);
  const [showAll, setShowAll] = useState(false);
  const count = showAll ? keys.length : Math.min(keys.length, MAX_KEYS);
  const advance = (): void => setShown((now) => (now === null ? 1 : now >= count ? null : now + 1));

  useEffect(() => {
    setShown(null);
    setPlaying(false);
  }, [trace.id, attention.name, head, row]);
  useEffect(() => {
    if (!playing) return;
    if (shown !== null && shown >= count) return setPlaying(false);
    const timer = setTimeout(advance, prefersReducedMotion() ? 0 : PLAY_INTERVAL);
    return () => clearTimeout(timer);
  }, [playing, shown]);
  useSpaceKey((backwards) => (backwards ? setShown((now) => (now === null ? count : now > 1 ? now - 1 : null)) : advance()));

  const data = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  if (!data || data.weights.data.length !== keys.length) return <Loading what="row" />;
  const query = queryLabels(trace, attention)[row];
  const order = rowOrder(data.weights.data, showAll ? count : MAX_KEYS);
  const visible = shown ?? order.length;
  const isMasked = (key: number): boolean => data.scores[data.scores.length - 1].data[key] === -Infinity;
  return (
    <>
      <div class="section-header">
        <div>
          <h2>
            Attention from{" "}
            <span class="accent">
              <Transliterated text={query} />
            </span>
          </h2>
          <p class="muted small">
            The query is compared with every key; the output is the sum of the values, weighted by the softmax of the scores.
          </p>
        </div>
        <div class="controls">
          <button
            class="chip"
            onClick={() => {
              const atEnd = shown === null || shown >= count;
              if (atEnd) setShown(0);
              setPlaying(atEnd || !playing);
            }}
          >
            {playing ? "pause" : "play row"}
          </button>
        </div>
      </div>
      <div class="lookup-scroll">
        <table class="lookup">
          <thead>
            <tr>
              <th />
              <th scope="col">key</th>
              {lookup.map(([step, label]) => (
                <th key={step} scope="col" class="right">
                  {label}
                </th>
              ))}
              <th scope="col">weight</th>
              <th scope="col">value</th>
            </tr>
            <tr class="query">
              <td>query</td>
              <td>
                <VectorStrip values={data.query.data} />
              </td>
              <td colSpan={2 + lookup.length} />
            </tr>
          </thead>
          <tbody>
            {order.map((i, position) => (
              <tr key={i} class={position >= visible ? "pending" : shown !== null && position === visible - 1 ? "current" : ""}>
                <td>
                  <Transliterated text={keys[i]} />
                </td>
                <td>
                  <VectorStrip values={data.keys.at(i).data} />
                </td>
                {lookup.map(([step], k) => (
                  <td key={step} class="right">
                    {data.scores[k].data[i] === -Infinity ? "masked" : formatNumber(data.scores[k].data[i])}
                  </td>
                ))}
                <td>
                  <span class="meter">
                    <i style={{ width: `${data.weights.data[i] * 100}%` }} />
                  </span>
                  <span class="small muted">{isMasked(i) ? "–" : formatPercent(data.weights.data[i])}</span>
                </td>
                <td>
                  <VectorStrip values={data.values.at(i).data} weight={data.weights.data[i]} />
                </td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr class={shown === null || shown >= count ? "" : "pending"}>
              <td colSpan={3 + lookup.length}>Σ weight × value: the head’s output</td>
              <td>
                <VectorStrip values={data.output.data} />
              </td>
            </tr>
          </tfoot>
        </table>
      </div>
      {keys.length > MAX_KEYS ? (
        <button class="chip" onClick={() => setShowAll(!showAll)}>
          {showAll
            ? `show the ${MAX_KEYS} largest weights`
            : `the ${MAX_KEYS} largest weights are listed: show all ${keys.length} keys`}
        </button>
      ) : null}
    </>
  );
}

function VectorStrip({ values, weight = 1 }: { values: Float32Array; weight?: number }) {
  const palette = usePalette();
  const max = Math.max(...values.map(Math.abs));
  return (
    <span
      class="strip-cells"
      style={{ opacity: 0.25 + 0.75 * weight }}
      title={Array.from(values, (x) => formatNumber(x)).join("  ")}
    >
      {Array.from(values, (x, i) => (
        <i key={i} style={{ background: toCss(colorFor(x, max, palette)) }} />
      ))}
    </span>
  );
}
