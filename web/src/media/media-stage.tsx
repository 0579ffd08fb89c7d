// The first stage of Walk for a picture or sound: the whole of it, cut into its tokens, and the token under the pointer.
import { useState } from "preact/hooks";
import { usePalette } from "../hooks";
import { useSession } from "../session";
import { MediaCanvas, type Overlay } from "./media-canvas";

export function MediaStage() {
  const { model, trace } = useSession();
  const { accent } = usePalette();
  const [hovered, setHovered] = useState(-1);
  const token = Math.max(0, hovered);
  const outline = ({ context, box }: Overlay, i: number): void => {
    const [x, y, width, height] = box(i);
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  };
  const paint = (overlay: Overlay): void => {
    overlay.context.lineWidth = 1;
    overlay.context.strokeStyle = "rgb(128 128 128 / 0.5)";
    // The moments of a sound are too narrow for borders.
    if (model.config.model.source === "pictures") trace!.source_tokens.forEach((_, i) => outline(overlay, i));
    overlay.context.lineWidth = 3;
    overlay.context.strokeStyle = `rgb(${accent.join(" ")})`;
    outline(overlay, token);
  };
  return (
    <div class="media-stage">
      <MediaCanvas paint={paint} repaintOn={[token, accent]} onToken={setHovered} />
      <p class="small muted" data-token={token}>
        token {token}: <b>{trace!.source_tokens[token]?.text}</b>
      </p>
    </div>
  );
}
