// The picture or the spectrogram of the trace on a canvas, with something painted over its tokens.
import { useEffect, useRef } from "preact/hooks";
import { latestValue, useAsync, useWidth } from "../hooks";
import { useSession } from "../session";
import { ErrorMessage, Loading } from "../ui";
import { type Image, loadImage, placeOf, tokenAt } from "./media";

const HEIGHT = 180;

export interface Overlay {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  /** The rectangle of a source token: x, y, width, height. */
  box: (token: number) => [number, number, number, number];
}

interface MediaCanvasProps {
  paint: (overlay: Overlay) => void;
  repaintOn: readonly unknown[]; // what `paint` depends on
  onToken: (token: number) => void; // the source token under the pointer; −1: none
}

export function MediaCanvas(props: MediaCanvasProps) {
  const { model, trace } = useSession();
  const [container, available] = useWidth<HTMLDivElement>();
  const loaded = useAsync(() => loadImage(trace!, model.config.model), [trace!.id]);
  const image = latestValue(loaded);
  if (loaded.state === "failed") return <ErrorMessage error={loaded.error} />;
  return (
    <div ref={container}>
      {image && available ? (
        <Canvas {...props} image={image} available={available} />
      ) : (
        <Loading what={model.config.model.source} />
      )}
    </div>
  );
}

function Canvas({ image, available, paint, repaintOn, onToken }: MediaCanvasProps & { image: Image; available: number }) {
  const { model, trace } = useSession();
  const config = model.config.model;
  const canvas = useRef<HTMLCanvasElement>(null);
  const isPicture = config.source === "pictures";
  const width = Math.floor(isPicture ? Math.min(available, (HEIGHT / image.height) * image.width) : available);
  const height = Math.floor(isPicture ? (width / image.width) * image.height : HEIGHT);
  const count = trace!.source_tokens.length;
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    const original = new OffscreenCanvas(image.width, image.height);
    original.getContext("2d")!.putImageData(new ImageData(image.data, image.width, image.height), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(original, 0, 0, width, height);
    const box = (token: number): [number, number, number, number] => {
      const place = placeOf(token, count, config);
      // Whole pixels: neighbours neither overlap nor leave a gap.
      const [left, right] = [place.x, place.x + place.width].map((share) => Math.round(share * width));
      const [top, bottom] = [place.y, place.y + place.height].map((share) => Math.round(share * height));
      return [left, top, right - left, bottom - top];
    };
    paint({ context, width, height, box });
  }, [image, width, height, ...repaintOn]);
  return (
    <canvas
      ref={canvas}
      class="media-canvas"
      width={width}
      height={height}
      role="img"
      aria-label={isPicture ? "the picture" : "the spectrogram"}
      onMouseMove={({ offsetX, offsetY }) => onToken(tokenAt(offsetX / width, offsetY / height, count, config))}
      onMouseLeave={() => onToken(-1)}
    />
  );
}
