// Heads: thumbnails of every head of the model; encoder on the left, decoder on the right, cross-attention between. Hovering
// over a head enlarges it, clicking selects it. Sorted by number, by entropy, or by contribution to the selected token.
import { useMemo, useState } from "preact/hooks";
import { type ModelInfo, source, type Tensor, type Trace } from "../api";
import {
  ATTENTION_NAMES,
  type Attention,
  attentionGrid,
  attentions,
  attentionTitle,
  findAttention,
  headList,
  headTitle,
  loadAttention,
  loadMean,
  loadThumbnails,
  matrixName,
  meanOverHeads,
  NUMBERING,
  queryTokens,
  selectedHead,
  selectedRow,
  weightScale,
} from "../architecture"; // prettier-ignore
import { formatNumber } from "../format";
import { latestValue, useAsync } from "../hooks";
import { InspectorLayout } from "../inspector";
import { maxMagnitude } from "../matrix/grid";
import { ColorScale, Matrix, Thumbnail } from "../matrix/matrix";
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
  entropy: "Mean entropy of the attention weights in nats, lowest first; 0 means all weight is on one token.",
  contribution: "Direct contribution of each head to the logit of the selected token, largest first; encoder heads have none.",
};

/** Heads of one attention; −1: the mean over all. */
interface HeadsRef {
  attention: string;
  heads: readonly number[];
}

export function Heads() {
  const { model } = useSession();
  const trace = useTrace();
  const state = useUrlState();
  const [hovered, setHovered] = useState<HeadsRef | null>(null);
  const attention = findAttention(model, state.attention);
  if (!attention) return <NoAttentionView model={model} />;
  const selected = { attention: attention.name, heads: drawnHeads(state.lines, selectedHead(model, state.head)) };
  const all = attentions(model);
  const columns = (["self", "cross", "masked"] as const).filter((kind) => all.some((candidate) => candidate.kind === kind));
  return (
    <InspectorLayout>
      <div class="heads-columns">
        <div class="heads-overview" onMouseLeave={() => setHovered(null)}>
          <SegmentedControl
            label="sort the heads"
            options={SORTS}
            value={state.sort as "order"}
            onChange={(sort) => navigate({ sort })}
          />
          <p class="small muted">
            Each picture is one head: a row per query (the token that looks), a column per key (the token it looks at). Weight
            of the key:{" "}
            <ColorScale scale="sequential" ends={["0", weightScale(keyCount(trace)).max ? "1" : "the largest (≤)"]} /> (grey:
            masked). {SORT_DESCRIPTIONS[state.sort]}
          </p>
          {columns.map((kind) => (
            <section key={kind}>
              <h3>
                {kind === "self" ? "Encoder" : kind === "cross" ? "Decoder to encoder" : "Decoder"}, {ATTENTION_NAMES[kind]}
              </h3>
              {all
                .filter((attention) => attention.kind === kind)
                .map((attention) => (
                  <Layer key={attention.name} attention={attention} trace={trace} selected={selected} onHover={setHovered} />
                ))}
            </section>
          ))}
          <p class="small muted">{NUMBERING}</p>
        </div>
        <LargeHead shown={hovered ?? selected} trace={trace} isPreview={hovered !== null} />
      </div>
    </InspectorLayout>
  );
}

const keyCount = (trace: Trace): number => Math.max(trace.source_tokens.length, trace.decoder_input_tokens.length);

interface LayerProps {
  attention: Attention;
  trace: Trace;
  selected: HeadsRef;
  onHover: (shown: HeadsRef) => void;
}

function Layer({ attention, trace, selected, onHover }: LayerProps) {
  const { model } = useSession();
  const { sort, row } = useUrlState();
  const loaded = useAsync(() => loadThumbnails(trace, attention), [trace.id, attention.name]);
  const sorting = useSortValues(trace, attention, sort, selectedRow(trace, row));
  const sortValues = sorting.state === "failed" ? null : latestValue(sorting);
  const weights = latestValue(loaded);
  const thumbnails = useMemo(() => (weights ? thumbnailGrids(model, trace, attention, weights) : []), [weights]);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  const isSampled = weights !== undefined && weights.shape[1] < queryTokens(trace, attention).length; // whose largest weight is not known
  const order = thumbnails.map((_, i) => i);
  const firstHead = thumbnails.length > 1 ? -1 : 0; // the first thumbnail of several is the mean
  if (sortValues)
    order.sort((a, b) => (a && b ? (sort === "entropy" ? 1 : -1) * (sortValues[a - 1] - sortValues[b - 1]) : a - b));
  return (
    <div class="layer">
      <span class="muted small">layer {attention.layer}</span>
      <div class="head-thumbnails" role="group" aria-label={attentionTitle(attention)}>
        {order.map((i) => {
          const head = i + firstHead;
          const isSelected = selected.attention === attention.name && selected.heads.includes(head);
          const onHoverHead = (): void => onHover({ attention: attention.name, heads: [head] });
          const number = head < 0 ? "mean" : firstHead ? String(head) : "";
          const scale = thumbnails[i].max === undefined && !isSampled ? `≤ ${formatNumber(maxMagnitude(thumbnails[i]))}` : "";
          const sortValue = sortValues && head >= 0 ? formatNumber(sortValues[head]) : "";
          return (
            <button
              key={head}
              class="head-thumbnail"
              aria-pressed={isSelected}
              aria-label={`${[number, scale, sortValue].filter(Boolean).join(" ")}: ${headTitle(model, attention, head)}`}
              data-head={`${attention.name} ${head}`}
              onMouseEnter={onHoverHead}
              onFocus={onHoverHead}
              onClick={() => navigate({ attention: attention.name, head, cell: "" })}
            >
              <Thumbnail grid={thumbnails[i]} />
              <span class="small">{number || "\u00a0"}</span> {scale ? <span class="sort-value">{scale}</span> : null}{" "}
              {sortValue ? <span class="sort-value">{sortValue}</span> : null}
            </button>
          );
        })}
      </div>
      {sorting.state === "failed" ? <ErrorMessage error={new Error(sorting.error.message)} /> : null}
    </div>
  );
}

/** The mean over the heads, then each head; only the head itself if there is one. */
function thumbnailGrids(model: ModelInfo, trace: Trace, attention: Attention, weights: Tensor) {
  const heads = Array.from({ length: weights.shape[0] }, (_, head) => weights.at(head));
  return [...(heads.length > 1 ? [meanOverHeads(weights)] : []), ...heads].map((values, i) =>
    attentionGrid(trace, attention, "weights", values, matrixName(model, attention, "weights", i - 1)),
  );
}

/** The values that the heads of an attention are sorted by; null if by number. */
function useSortValues(trace: Trace, attention: Attention, sort: string, row: number) {
  return useAsync<number[] | null>(async () => {
    if (sort === "entropy") return (await source.attentionEntropy(trace.id)).entropies[attention.name] ?? null;
    if (sort !== "contribution" || attention.stack === "encoder") return null;
    const { contributions } = await source.logitAttribution(trace.id, row);
    const matching = contributions.filter(({ component, head }) => component === attention.name && head !== null);
    return matching.length ? matching.sort((a, b) => a.head! - b.head!).map(({ logit }) => logit) : null;
  }, [trace.id, attention.name, sort, sort === "contribution" ? row : 0]);
}

function LargeHead({ shown, trace, isPreview }: { shown: HeadsRef; trace: Trace; isPreview: boolean }) {
  const { model } = useSession();
  const { row } = useUrlState();
  const { heads } = shown;
  const attention = findAttention(model, shown.attention)!;
  const shownRow = attention.stack === "decoder" ? row : -1;
  return (
    <section class="card large-head" data-large={`${shown.attention} ${heads.join()}`}>
      <div class="section-header">
        <h2>{heads.length > 1 ? `${attentionTitle(attention)}, ${headList(heads)}` : headTitle(model, attention, heads[0])}</h2>
        {isPreview ? (
          <p class="muted small">click to select</p>
        ) : (
          <button class="chip" onClick={() => navigate({ view: "microscope", head: heads[0] })}>
            Microscope →
          </button>
        )}
      </div>
      <div class="head-pictures">
        {!isPreview && heads.length === 1 && heads[0] >= 0 ? (
          <TensorPanel name={`${attention.name}.weights`} row={shownRow} />
        ) : (
          <HeadPreview trace={trace} attention={attention} heads={heads} />
        )}
        <div>
          {isPreview ? null : <LineControls head={heads[0]} />}
          <AttentionLines
            trace={trace}
            attention={attention}
            heads={heads}
            row={shownRow}
            onRow={attention.stack === "decoder" ? (next) => navigate({ row: next }) : undefined}
          />
        </div>
      </div>
    </section>
  );
}

/** Without the Inspector: the model does not compute a mean over heads, and a preview disappears when the mouse moves. */
function HeadPreview({ trace, attention, heads }: { trace: Trace; attention: Attention; heads: readonly number[] }) {
  const { model } = useSession();
  const key = `${trace.id} ${attention.name} ${heads.join()}`;
  const loaded = useAsync(async () => {
    const several = heads.length > 1;
    const values = several
      ? await loadMean(trace, attention, heads, "weights")
      : await loadAttention(trace, attention, heads[0], "weights");
    const name = several
      ? `${attention.name}.weights mean of ${headList(heads)}`
      : matrixName(model, attention, "weights", heads[0]);
    return { key, grid: attentionGrid(trace, attention, "weights", values, name) };
  }, [key]);
  const latest = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  return latest?.key.startsWith(`${trace.id} ${attention.name} `) ? (
    <Matrix grid={latest.grid} maxHeight={420} />
  ) : (
    <Loading what="attention weights" />
  );
}
