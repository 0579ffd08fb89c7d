// Where each written token looked: the picture or spectrogram is the source axis, and a token that is hovered over lights the
// patches or moments it attends to. Hovering over the picture shows which tokens look there. A sound can be played; the token
// that listens to the current moment is lit as it goes.
import { useMemo, useState } from "preact/hooks";
import type { Tensor, Trace } from "../api";
import { type Attention, loadAttention, selectedHead } from "../architecture";
import { formatPercent } from "../format";
import { latestValue, useAsync, usePalette } from "../hooks";
import { useSession } from "../session";
import { ErrorMessage, Loading, Transliterated } from "../ui";
import { navigate, useUrlState } from "../url-state";
import { rowAt, SECONDS_PER_TOKEN } from "./media";
import { MediaCanvas, type Overlay } from "./media-canvas";
import { usePlayer } from "./player";

interface MediaAttentionProps {
  trace: Trace;
  row: number; // selected; −1: none
  onRow: (row: number) => void;
}

export function MediaAttention({ trace, attention, ...selection }: MediaAttentionProps & { attention: Attention }) {
  const { model } = useSession();
  const { heads } = model.config.model;
  const head = selectedHead(model, useUrlState().head);
  const loaded = useAsync(() => loadAttention(trace, attention, head, "weights"), [trace.id, attention.name, head]);
  const weights = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  const fits = weights?.shape[0] === trace.target_tokens.length && weights.shape[1] === trace.source_tokens.length;
  return (
    <div class="media-attention">
      {heads > 1 ? (
        <select
          aria-label="head"
          value={String(head)}
          onChange={(event) => navigate({ head: Number(event.currentTarget.value) })}
        >
          <option value="-1">mean of all heads</option>
          {Array.from({ length: heads }, (_, i) => (
            <option key={i} value={String(i)}>{`head ${i}`}</option>
          ))}
        </select>
      ) : null}
      {fits ? <LitMedia trace={trace} weights={weights} {...selection} /> : <Loading what="attention weights" />}
    </div>
  );
}

/** `weights` are [rows, source tokens]. */
function LitMedia({ trace, weights, row, onRow }: MediaAttentionProps & { weights: Tensor }) {
  const { model } = useSession();
  const { surface, accent } = usePalette();
  const [hoveredRow, setHoveredRow] = useState(-1);
  const [hoveredToken, setHoveredToken] = useState(-1);
  const isSound = model.config.model.source === "sounds";
  const player = usePlayer(isSound ? trace.text : "");
  const count = trace.source_tokens.length;
  const playedToken = player.position === null ? -1 : Math.min(count - 1, Math.floor(player.position / SECONDS_PER_TOKEN));
  const playedRow = useMemo(
    () => (playedToken < 0 ? -1 : rowAt(weights, playedToken, trace.output_start)),
    [weights, playedToken],
  );
  const active = hoveredRow >= 0 ? hoveredRow : playedToken >= 0 ? playedRow : row;
  const own = active >= 0 ? weights.data.subarray(active * count, (active + 1) * count) : null;
  const paint = ({ context, width, height, box }: Overlay): void => {
    const highest = own ? Math.max(...own) : 1;
    // What is attended to stays as it is; the rest fades into the surface.
    own?.forEach((weight, token) => {
      context.fillStyle = `rgb(${surface.join(" ")} / ${0.8 * (1 - weight / highest)})`;
      context.fillRect(...box(token));
    });
    if (own && isSound) {
      context.strokeStyle = `rgb(${accent.join(" ")})`;
      context.lineWidth = 2;
      context.beginPath();
      own.forEach((weight, i) => context.lineTo(((i + 0.5) / count) * width, height - 3 - (height - 6) * (weight / highest)));
      context.stroke();
    }
    if (playedToken >= 0) {
      context.fillStyle = `rgb(${accent.join(" ")})`;
      context.fillRect(box(playedToken)[0], 0, 2, height);
    }
  };
  return (
    <>
      <MediaCanvas paint={paint} repaintOn={[weights, active, playedToken, surface]} onToken={setHoveredToken} />
      <ol class="output-tokens" aria-label="written tokens">
        {trace.target_tokens.map((token, i) => (
          <li key={i}>
            <button
              aria-pressed={i === active}
              style={
                hoveredToken >= 0 ? { opacity: 0.25 + 0.75 * Math.min(1, 4 * weights.data[i * count + hoveredToken]) } : {}
              }
              onMouseEnter={() => setHoveredRow(i)}
              onMouseLeave={() => setHoveredRow(-1)}
              onFocus={() => setHoveredRow(i)}
              onBlur={() => setHoveredRow(-1)}
              onClick={() => onRow(i === row ? -1 : i)}
            >
              <Transliterated text={token.text} />
            </button>
          </li>
        ))}
      </ol>
      <div class="controls">
        {player.available ? (
          <button class="chip active" onClick={player.toggle}>
            {player.position === null ? "▶ play" : "■ stop"}
          </button>
        ) : null}
        <p class="muted small" data-looked={active}>
          {player.error || (own ? <Looked trace={trace} row={active} weights={own} /> : "Hover over a token.")}
        </p>
      </div>
    </>
  );
}

/** Names the place that a token attends to most. */
function Looked({ trace, row, weights }: { trace: Trace; row: number; weights: Float32Array }) {
  const best = weights.indexOf(Math.max(...weights));
  return (
    <>
      <b>
        <Transliterated text={trace.target_tokens[row].text} />
      </b>{" "}
      looks most at {trace.source_tokens[best].text}: {formatPercent(weights[best])} of its attention
    </>
  );
}
