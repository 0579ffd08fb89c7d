// Heads: every attention of the model at a glance, encoder left, decoder right, cross-attention between, each head a stamp. Pointing
// at one shows it large, a click keeps it. Sorted as they are, by how widely they look, or by what they add to the chosen token.
import { useMemo, useState } from "preact/hooks";
import { source, Tensor, tensor, type Manifest, type ModelCard } from "../api";
import { present, useLoaded } from "../hooks";
import { WithInspector } from "../inspector";
import { Matrix, Thumbnail } from "../matrix/Matrix";
import { short } from "../numbers";
import { PanelOf } from "../panels";
import { useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionGrid, attentionNamed, attentions, chosenHead, chosenRow, gridName, KINDS, meanOf, title, titleOf, type Attention } from "../structure";
import { Choice, Failed, Waiting } from "../ui";
import { NothingLooks } from "./choose";
import { Sentence } from "./sentence";

const SORTS = [
  ["order", "as they are"],
  ["entropy", "by entropy"],
  ["contribution", "by contribution"],
] as const;

const TOLD: Record<string, string> = {
  order: "Each stamp is one head: rows ask, columns are looked at.",
  entropy: "From the heads that look at one word (0) to those that look at all alike, in nats.",
  contribution: "By what each head adds to the logit of the chosen token, the largest first; encoder heads act only through others.",
};

type Chosen = { attention: string; head: number }; // head −1: the mean

export function Heads() {
  const { card, manifest, error } = useSession();
  const state = useAddress();
  const [peek, setPeek] = useState<Chosen | null>(null);
  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  const named = attentionNamed(card, state.attention);
  if (!named) return <NothingLooks card={card} />;
  const locked = { attention: named.name, head: chosenHead(card, state.head) };
  const all = attentions(card);
  const columns = (["self", "cross", "masked"] as const).filter((kind) => all.some((one) => one.kind === kind));
  return (
    <div class="stack">
      <Sentence />
      <div class="lead flat">
        <Choice label="sort the heads" options={SORTS} value={state.sort as "order"} onChange={(sort) => go({ sort })} />
        <p class="soft small">{TOLD[state.sort] ?? TOLD.order}</p>
      </div>
      <WithInspector>
        <div class={`kinds kinds-${columns.length}`} onMouseLeave={() => setPeek(null)}>
          {columns.map((kind) => (
            <section class="card kind" key={kind}>
              <h3>{kind === "self" ? "Encoder" : kind === "cross" ? "Decoder asks encoder" : "Decoder"}</h3>
              <p class="soft small">{KINDS[kind]}</p>
              {all
                .filter((attention) => attention.kind === kind)
                .map((attention) => (
                  <Layer key={attention.name} attention={attention} manifest={manifest} locked={locked} onPeek={setPeek} />
                ))}
            </section>
          ))}
        </div>
        <Large chosen={peek ?? locked} manifest={manifest} peeking={peek !== null} />
      </WithInspector>
    </div>
  );
}

interface LayerProps {
  attention: Attention;
  manifest: Manifest;
  locked: Chosen;
  onPeek: (chosen: Chosen) => void;
}

function Layer({ attention, manifest, locked, onPeek }: LayerProps) {
  const { card } = useSession();
  const { sort, row } = useAddress();
  const loaded = useLoaded(() => tensor(manifest.id, `${attention.name}.weights`), [manifest.id, attention.name]);
  const sorting = useFigures(manifest, attention, sort, chosenRow(manifest, row));
  const figures = sorting.state === "failed" ? null : present(sorting);
  const weights = present(loaded);
  const stamps = useMemo(() => (weights ? stampsOf(card, manifest, attention, weights) : []), [weights]);
  if (loaded.state === "failed") return <Failed error={loaded.error} />;
  const order = stamps.map((_, i) => i);
  const first = stamps.length > 1 ? -1 : 0; // of several the first stamp is the mean
  if (figures) order.sort((a, b) => (a && b ? (sort === "entropy" ? 1 : -1) * (figures[a - 1] - figures[b - 1]) : a - b));
  return (
    <div class="layer">
      <span class="soft small">layer {attention.layer}</span>
      <div class="stamps" role="group" aria-label={title(attention)} style={{ gridTemplateColumns: `repeat(${across(stamps.length)}, 1fr)` }}>
        {order.map((i) => {
          const head = i + first;
          const chosen = { attention: attention.name, head };
          const on = locked.attention === attention.name && locked.head === head;
          return (
            <button
              key={head}
              class="stamp"
              aria-pressed={on}
              aria-label={titleOf(card, attention, head)}
              data-head={`${attention.name} ${head}`}
              onMouseEnter={() => onPeek(chosen)}
              onFocus={() => onPeek(chosen)}
              onClick={() => go({ ...chosen, cell: "" })}
            >
              <Thumbnail grid={stamps[i]} />
              <span class="small">{head < 0 ? "mean" : first ? head : "\u00a0"}</span>
              {figures && head >= 0 ? <span class="figure">{short(figures[head])}</span> : null}
            </button>
          );
        })}
      </div>
      {sorting.state === "failed" ? <Failed error={new Error(sorting.error.message)} /> : null}
    </div>
  );
}

/** All in one line, or in two of equal length where they would be too small. */
const across = (count: number): number => (count <= 9 ? Math.max(count, 5) : Math.ceil(count / Math.ceil(count / 9)));

/** The mean of all heads, then each of them; an only one is both. */
function stampsOf(card: ModelCard, manifest: Manifest, attention: Attention, weights: Tensor) {
  const heads = Array.from({ length: weights.shape[0] }, (_, head) => weights.at(head));
  return [...(heads.length > 1 ? [meanOf(weights)] : []), ...heads].map((values, i) =>
    attentionGrid(manifest, attention, "weights", values, gridName(card, attention, "weights", i - 1)),
  );
}

/** What the heads of an attention are sorted by, if not by their number. */
function useFigures(manifest: Manifest, attention: Attention, sort: string, row: number) {
  return useLoaded<number[] | null>(
    async () => {
      if (sort === "entropy") return (await source.entropies(manifest.id))[attention.name] ?? null;
      if (sort !== "contribution" || attention.stack === "encoder") return null;
      const { parts } = await source.contributions(manifest.id, row);
      const own = parts.filter(({ place, head }) => place === attention.name && head !== null);
      return own.length ? own.sort((a, b) => a.head! - b.head!).map(({ logit }) => logit) : null;
    },
    [manifest.id, attention.name, sort, sort === "contribution" ? row : 0],
  );
}

function Large({ chosen, manifest, peeking }: { chosen: Chosen; manifest: Manifest; peeking: boolean }) {
  const { card } = useSession();
  const { row } = useAddress();
  const attention = attentionNamed(card, chosen.attention)!;
  const name = `${attention.name}.weights`;
  return (
    <section class="card" data-large={`${chosen.attention} ${chosen.head}`}>
      <div class="lead">
        <h2>{titleOf(card, attention, chosen.head)}</h2>
        {peeking ? (
          <p class="soft small">click to keep it</p>
        ) : (
          <button class="chip" onClick={() => go({ view: "microscope" })}>
            under the microscope →
          </button>
        )}
      </div>
      {!peeking && chosen.head >= 0 ? (
        <PanelOf name={name} row={attention.stack === "decoder" ? row : -1} />
      ) : (
        <Seen manifest={manifest} attention={attention} head={chosen.head} />
      )}
    </section>
  );
}

/** Without the Inspector: a mean over heads is no number of the model's own, and what is only peeked at changes under the hand. */
function Seen({ manifest, attention, head }: { manifest: Manifest; attention: Attention; head: number }) {
  const loaded = useLoaded(() => tensor(manifest.id, `${attention.name}.weights`), [manifest.id, attention.name]);
  const weights = present(loaded);
  const { card } = useSession();
  const grid = useMemo(
    () => weights && stampsOf(card, manifest, attention, weights)[card.config.model.heads > 1 ? head + 1 : 0],
    [weights, head],
  );
  return grid && grid.name.startsWith(attention.name) ? <Matrix grid={grid} tallest={420} /> : <Waiting what="the weights" />;
}
