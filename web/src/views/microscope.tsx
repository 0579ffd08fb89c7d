// Microscope: one attention of one head, large, at each of its steps; under it the lookup of one row: its query, the keys it is held
// against, their scores, weights and values. Play takes the row through, key by key.
import { useEffect, useState } from "preact/hooks";
import { tensor, type Manifest } from "../api";
import { colourOf, css } from "../colour";
import { present, reducedMotion, useLoaded, usePalette } from "../hooks";
import { WithInspector } from "../inspector";
import { useSpace } from "../keys";
import { percent, short } from "../numbers";
import { parsePlace } from "../operands";
import { PanelOf } from "../panels";
import { useSession } from "../session";
import { go, useAddress } from "../state";
import { attentionNamed, attentions, chosenHead, groups, keyLabels, queryLabels, structureOf, titleOf, type Attention } from "../structure";
import { Choice, Failed, Waiting } from "../ui";
import { NothingLooks } from "./choose";
import { Sentence } from "./sentence";

export function Microscope() {
  const { card, manifest, error } = useSession();
  const state = useAddress();
  const attention = attentionNamed(card, state.attention);
  const { steps } = structureOf(card);
  const step = steps.find(([key]) => key === state.step)?.[0] ?? "weights";
  const head = Math.max(0, chosenHead(card, state.head));
  useEffect(() => {
    if (state.head < 0) go({ head: 0 });
  }, [state.head]);
  if (error && !manifest) return <Failed error={error} />;
  if (!manifest) return <Waiting what="the trace" />;
  if (!attention) return <NothingLooks card={card} />;
  const queries = queryLabels(manifest, attention);
  const inspected = parsePlace(state.cell);
  const pointed = inspected?.name.startsWith(`${attention.name}.`) && inspected.index.length === 3 ? inspected.index[1] : state.row;
  const row = Math.min(Math.max(0, pointed), queries.length - 1);
  return (
    <div class="stack">
      <Sentence />
      <WithInspector>
        <section class="card">
          <div class="lead">
            <h2>{titleOf(card, attention, head)}</h2>
            <div class="controls">
              {attentions(card).length > 1 ? (
                <select aria-label="attention" value={attention.name} onChange={(event) => go({ attention: event.currentTarget.value, cell: "" })}>
                  {attentions(card).map((one) => (
                    <option key={one.name} value={one.name}>
                      {one.name}
                    </option>
                  ))}
                </select>
              ) : null}
              {card.config.model.heads > 1 ? (
                <select aria-label="head" value={String(head)} onChange={(event) => go({ head: Number(event.currentTarget.value), cell: "" })}>
                  {Array.from({ length: card.config.model.heads }, (_, one) => (
                    <option key={one} value={String(one)}>{`head ${one}`}</option>
                  ))}
                </select>
              ) : null}
              <Choice label="step" options={steps} value={step} onChange={(next) => go({ step: next, cell: "" })} />
            </div>
          </div>
          <PanelOf name={`${attention.name}.${step}`} row={row} tallest={640} comfortable={92} />
        </section>
        <section class="card">
          <Lookup manifest={manifest} attention={attention} head={head} row={row} />
        </section>
      </WithInspector>
    </div>
  );
}

const PACE = 700; // ms a key

function Lookup({ manifest, attention, head, row }: { manifest: Manifest; attention: Attention; head: number; row: number }) {
  const { card } = useSession();
  const [shown, setShown] = useState<number | null>(null); // keys that have been looked at while it plays
  const [playing, setPlaying] = useState(false);
  const { lookup } = structureOf(card);
  const shared = Math.floor(head / (card.config.model.heads / groups(card.config.model)));
  const of = (name: string, index: string) => tensor(manifest.id, `${attention.name}.${name}`, index);
  const turned = card.config.model.positions === "rotary" && attention.kind !== "cross" ? "rotated_" : "";
  const loaded = useLoaded(
    async () => {
      const [query, keys, values, weights, found, ...fits] = await Promise.all([
        of(`${turned}queries`, `${row},${head}`),
        of(`${turned}keys`, `:,${shared}`),
        of("values", `:,${shared}`),
        of("weights", `${head},${row}`),
        of("heads", `${row},${head}`),
        ...lookup.map(([step]) => of(step, `${head},${row}`)),
      ]);
      return { query, keys, values, weights, found, fits };
    },
    [manifest.id, attention.name, head, row],
  );
  const keys = keyLabels(manifest, attention);
  const last = keys.length;
  const forward = (): void => setShown((now) => (now === null ? 1 : now >= last ? null : now + 1));

  useEffect(() => {
    setShown(null);
    setPlaying(false);
  }, [manifest.id, attention.name, head, row]);
  useEffect(() => {
    if (!playing) return;
    if (shown !== null && shown >= last) return setPlaying(false);
    const timer = setTimeout(forward, reducedMotion() ? 0 : PACE);
    return () => clearTimeout(timer);
  }, [playing, shown]);
  useSpace((isBack) => (isBack ? setShown((now) => (now === null ? last : now > 1 ? now - 1 : null)) : forward()));

  const data = present(loaded);
  if (loaded.state === "failed") return <Failed error={loaded.error} />;
  if (!data || data.weights.data.length !== last) return <Waiting what="the row" />;
  const asks = queryLabels(manifest, attention)[row];
  const seen = shown ?? last;
  const isHidden = (key: number): boolean => data.fits[data.fits.length - 1].data[key] === -Infinity;
  return (
    <>
      <div class="lead">
        <div>
          <h2>
            What <span class="accent">{asks}</span> looks up
          </h2>
          <p class="soft small">Its query is held against every key; the better they fit, the more of that key’s value it takes.</p>
        </div>
        <div class="controls">
          <button class="chip" onClick={() => (shown === null || shown >= last ? (setShown(0), setPlaying(true)) : setPlaying(!playing))}>
            {playing ? "pause" : "play the row"}
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
              <td>{asks} asks</td>
              <td>
                <Numbers values={data.query.data} />
              </td>
              <td colSpan={2 + lookup.length} />
            </tr>
          </thead>
          <tbody>
            {keys.map((key, i) => (
              <tr key={i} class={i >= seen ? "hidden" : shown !== null && i === seen - 1 ? "now" : ""}>
                <td>{key}</td>
                <td>
                  <Numbers values={data.keys.at(i).data} />
                </td>
                {lookup.map(([step], k) => (
                  <td key={step} class="right">
                    {data.fits[k].data[i] === -Infinity ? "masked" : short(data.fits[k].data[i])}
                  </td>
                ))}
                <td>
                  <span class="meter">
                    <i style={{ width: `${data.weights.data[i] * 100}%` }} />
                  </span>
                  <span class="small soft">{isHidden(i) ? "–" : percent(data.weights.data[i])}</span>
                </td>
                <td>
                  <Numbers values={data.values.at(i).data} fade={data.weights.data[i]} />
                </td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr class={shown === null || shown >= last ? "" : "hidden"}>
              <td colSpan={3 + lookup.length}>weights × values, added up: what {asks} found</td>
              <td>
                <Numbers values={data.found.data} />
              </td>
            </tr>
          </tfoot>
        </table>
      </div>
    </>
  );
}

function Numbers({ values, fade = 1 }: { values: Float32Array; fade?: number }) {
  const palette = usePalette();
  const most = Math.max(...values.map(Math.abs));
  return (
    <span class="strip-cells" style={{ opacity: 0.25 + 0.75 * fade }} title={Array.from(values, (x) => short(x)).join("  ")}>
      {Array.from(values, (x, i) => (
        <i key={i} style={{ background: css(colourOf(x, most, palette)) }} />
      ))}
    </span>
  );
}
