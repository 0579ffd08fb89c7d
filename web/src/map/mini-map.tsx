// The figure of the model in miniature, in the views that look at one part of it: that part is lit, the others are links.
import { useMemo } from "preact/hooks";
import type { Stack } from "../architecture";
import { useSession } from "../session";
import { hrefFor, type StateUpdate } from "../url-state";
import { type Box, drawFigure, pathOf } from "./layout";
import "./map.css";

/** A small figure without text: the boxes of the given groups are lit, and each is a link. */
export function MiniMap({ groups, view }: { groups: readonly string[]; view: string }) {
  const { model } = useSession();
  const config = model.config.model;
  const layerOf = (stack: Stack): number => Number(groups.find((group) => group.startsWith(`${stack}.`))?.split(".")[1]) || 0;
  const [encoder, decoder] = [layerOf("encoder"), layerOf("decoder")];
  const { boxes, frames, arrows, width, height } = useMemo(
    () => drawFigure(config, { encoder, decoder }),
    [config, encoder, decoder],
  );
  return (
    <nav class="mini-map" aria-label="where this is in the model">
      <svg viewBox={`0 0 ${width} ${height}`} role="group">
        {frames.map(({ column, x, y, width, height }) => (
          <rect key={column} class="map-frame" x={x} y={y} width={width} height={height} rx={12} />
        ))}
        {arrows.map((arrow, i) => (
          <path key={i} class={`map-arrow ${arrow.kind}`} d={pathOf(arrow)} />
        ))}
        {frames.flatMap(({ column, bars }) =>
          bars.map(({ layer, x, y, width, height }) => (
            <rect key={`${column} ${layer}`} class="map-bar" x={x} y={y} width={width} height={height} rx={4} />
          )),
        )}
        {boxes.map((box) => (
          <a key={box.stage} href={hrefFor(linkFor(box, view))} aria-label={titleOf(box)}>
            <title>{titleOf(box)}</title>
            <rect
              class={`map-box map-${box.kind}${groups.includes(box.group) ? " lit" : ""}`}
              x={box.x}
              y={box.y}
              width={box.width}
              height={box.height}
              rx={8}
            />
          </a>
        ))}
      </svg>
    </nav>
  );
}

/** A view of attentions stays and selects another; otherwise a box opens its stage of Walk. */
const linkFor = ({ kind, group, stage }: Box, view: string): StateUpdate =>
  kind === "attention" && /^(heads|microscope)$/.test(view)
    ? { attention: group, cell: "" }
    : { view: "walk", stage, cell: "" };

const titleOf = ({ column, layer, title }: Box): string =>
  layer >= 0 ? `${column} layer ${layer}: ${title}` : `${column}: ${title}`;
