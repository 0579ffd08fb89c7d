// Heads: thumbnails of every head of the model; encoder on the left, decoder on the right, cross-attention between. Hovering
// over a head enlarges it, clicking selects it. Sorted by number, by entropy, or by contribution to the selected token.
import { useMemo, useState } from "preact/hooks";
import { source, Tensor, tensor, type ModelInfo, type Trace } from "../api";
import { ATTENTION_NAMES, attentionGrid, attentions, attentionTitle, findAttention, headTitle, matrixName, meanOverHeads, selectedHead, selectedRow, type Attention } from "../architecture";
import { formatNumber } from "../format";
import { latestValue, useAsync } from "../hooks";
import { InspectorLayout } from "../inspector";
import { maxMagnitude } from "../matrix/grid";
import { Matrix, Thumbnail } from "../matrix/matrix";
import { useSession, useTrace } from "../session";
import { TensorPanel } from "../tensor-panel";
import { ErrorMessage, Loading, SegmentedControl } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { AttentionLines, drawnHeads, LineControls } from "./attention-lines";
import { NoAttentionView } from "./controls";

const SORTS = [
  ["order", "by number"],
  ["entropy", "by entropy"],
  ["contribution", "by contribution"],
] as const;

const SORT_DESCRIPTIONS: Record<string, string> = {
  order: "Each thumbnail is one head: rows are queries, columns are keys.",
  entropy: "Mean entropy of the attention weights in nats, lowest first; 0 means all weight is on one token.",
  contribution: "Direct contribution of each head to the logit of the selected token, largest first; encoder heads have none.",
};

type HeadRef = { attention: string; head: number }; // head −1: the mean

export function Heads() {
  const { model } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const [hovered, setHovered] = useState<HeadRef | null>(null);
  const attention = findAttention(model, state.attention);
  if (!attention) return <NoAttentionView model={model} />;
  const selected = { attention: attention.name, head: selectedHead(model, state.head) };
  const all = attentions(model);
  const columns = (["self", "cross", "masked"] as const).filter((kind) => all.some((candidate) => candidate.kind === kind));
  return (
    <div class="stack">
      <div class="section-header flush">
        <SegmentedControl label="sort the heads" options={SORTS} value={state.sort as "order"} onChange={(sort) => navigate({ sort })} />
        <p class="muted small">{SORT_DESCRIPTIONS[state.sort] ?? SORT_DESCRIPTIONS.order}</p>
      </div>
      <InspectorLayout>
        <div class="attention-kinds" onMouseLeave={() => setHovered(null)}>
          {columns.map((kind) => (
            <section class="card attention-kind" key={kind}>
              <h3>{kind === "self" ? "Encoder" : kind === "cross" ? "Decoder to encoder" : "Decoder"}</h3>
              <p class="muted small">{ATTENTION_NAMES[kind]}</p>
              {all
                .filter((attention) => attention.kind === kind)
                .map((attention) => (
                  <Layer key={attention.name} attention={attention} trace={trace} selected={selected} onHover={setHovered} />
                ))}
            </section>
          ))}
        </div>
        <LargeHead headRef={hovered ?? selected} trace={trace} isPreview={hovered !== null} />
      </InspectorLayout>
    </div>
  );
}

interface LayerProps {
  attention: Attention;
  trace: Trace;
  selected: HeadRef;
  onHover: (ref: HeadRef) => void;
}

function Layer({ attention, trace, selected, onHover }: LayerProps) {
  const { model } = useSession();
  const { sort, row } = useUrlState();
  const loaded = useAsync(() => tensor(trace.id, `${attention.name}.weights`), [trace.id, attention.name]);
  const sorting = useSortValues(trace, attention, sort, selectedRow(trace, row));
  const sortValues = sorting.state === "failed" ? null : latestValue(sorting);
  const weights = latestValue(loaded);
  const thumbnails = useMemo(() => (weights ? thumbnailGrids(model, trace, attention, weights) : []), [weights]);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  const order = thumbnails.map((_, i) => i);
  const firstHead = thumbnails.length > 1 ? -1 : 0; // the first thumbnail of several is the mean
  if (sortValues) order.sort((a, b) => (a && b ? (sort === "entropy" ? 1 : -1) * (sortValues[a - 1] - sortValues[b - 1]) : a - b));
  return (
    <div class="layer">
      <span class="muted small">layer {attention.layer}</span>
      <div class="head-thumbnails" role="group" aria-label={attentionTitle(attention)} style={{ gridTemplateColumns: `repeat(${columnCount(thumbnails.length)}, 1fr)` }}>
        {order.map((i) => {
          const head = i + firstHead;
          const ref = { attention: attention.name, head };
          const isSelected = selected.attention === attention.name && selected.head === head;
          const number = head < 0 ? "mean" : firstHead ? String(head) : "";
          const scale = thumbnails[i].max === undefined ? `≤ ${formatNumber(maxMagnitude(thumbnails[i]))}` : "";
          const sortValue = sortValues && head >= 0 ? formatNumber(sortValues[head]) : "";
          return (
            <button
              key={head}
              class="head-thumbnail"
              aria-pressed={isSelected}
              aria-label={`${[number, scale, sortValue].filter(Boolean).join(" ")}: ${headTitle(model, attention, head)}`}
              data-head={`${attention.name} ${head}`}
              onMouseEnter={() => onHover(ref)}
              onFocus={() => onHover(ref)}
              onClick={() => navigate({ ...ref, cell: "" })}
            >
              <Thumbnail grid={thumbnails[i]} />
              <span class="small">{number || "\u00a0"}</span>{" "}
              {scale ? <span class="sort-value">{scale}</span> : null}{" "}
              {sortValue ? <span class="sort-value">{sortValue}</span> : null}
            </button>
          );
        })}
      </div>
      {sorting.state === "failed" ? <ErrorMessage error={new Error(sorting.error.message)} /> : null}
    </div>
  );
}

/** One row, or several of equal length if the thumbnails would be too small. */
const columnCount = (count: number): number => (count <= 9 ? Math.max(count, 5) : Math.ceil(count / Math.ceil(count / 9)));

/** The mean over the heads, then each head; only the head itself if there is one. */
function thumbnailGrids(model: ModelInfo, trace: Trace, attention: Attention, weights: Tensor) {
  const heads = Array.from({ length: weights.shape[0] }, (_, head) => weights.at(head));
  return [...(heads.length > 1 ? [meanOverHeads(weights)] : []), ...heads].map((values, i) =>
    attentionGrid(trace, attention, "weights", values, matrixName(model, attention, "weights", i - 1)),
  );
}

/** The values that the heads of an attention are sorted by; null if by number. */
function useSortValues(trace: Trace, attention: Attention, sort: string, row: number) {
  return useAsync<number[] | null>(
    async () => {
      if (sort === "entropy") return (await source.attentionEntropy(trace.id)).entropies[attention.name] ?? null;
      if (sort !== "contribution" || attention.stack === "encoder") return null;
      const { contributions } = await source.logitAttribution(trace.id, row);
      const matching = contributions.filter(({ component, head }) => component === attention.name && head !== null);
      return matching.length ? matching.sort((a, b) => a.head! - b.head!).map(({ logit }) => logit) : null;
    },
    [trace.id, attention.name, sort, sort === "contribution" ? row : 0],
  );
}

function LargeHead({ headRef, trace, isPreview }: { headRef: HeadRef; trace: Trace; isPreview: boolean }) {
  const { model } = useSession();
  const { row, lines } = useUrlState();
  const attention = findAttention(model, headRef.attention)!;
  const shownRow = attention.stack === "decoder" ? row : -1;
  const name = `${attention.name}.weights`;
  return (
    <section class="card" data-large={`${headRef.attention} ${headRef.head}`}>
      <div class="section-header">
        <h2>{headTitle(model, attention, headRef.head)}</h2>
        {isPreview ? (
          <p class="muted small">click to select</p>
        ) : (
          <button class="chip" onClick={() => navigate({ view: "microscope" })}>
            open in Microscope →
          </button>
        )}
      </div>
      <div class="two-columns matrix-and-lines">
        {!isPreview && headRef.head >= 0 ? (
          <TensorPanel name={name} row={shownRow} />
        ) : (
          <HeadPreview trace={trace} attention={attention} head={headRef.head} />
        )}
        <div>
          {isPreview ? null : <LineControls head={headRef.head} />}
          <AttentionLines trace={trace} attention={attention} heads={isPreview ? [headRef.head] : drawnHeads(lines, headRef.head)} row={shownRow} onRow={attention.stack === "decoder" ? (next) => navigate({ row: next }) : undefined} />
        </div>
      </div>
    </section>
  );
}

/** Without the Inspector: the model does not compute a mean over heads, and a preview disappears when the mouse moves. */
function HeadPreview({ trace, attention, head }: { trace: Trace; attention: Attention; head: number }) {
  const loaded = useAsync(() => tensor(trace.id, `${attention.name}.weights`), [trace.id, attention.name]);
  const weights = latestValue(loaded);
  const { model } = useSession();
  const grid = useMemo(
    () => weights && thumbnailGrids(model, trace, attention, weights)[model.config.model.heads > 1 ? head + 1 : 0],
    [weights, head],
  );
  return grid && grid.name.startsWith(attention.name) ? <Matrix grid={grid} maxHeight={420} /> : <Loading what="attention weights" />;
}
