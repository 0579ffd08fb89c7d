// Pictures and sounds as sources: which places of a picture or moments of a sound the source tokens are, and how to paint them.
// Both are painted from the trace itself: a picture from its patches, a sound from its mel frames.
import { type ModelConfig, type Tensor, type Trace, tensor } from "../api";

export type MediaKind = "pictures" | "sounds";

export const mediaKind = ({ source }: ModelConfig): MediaKind | null => (source === "tokens" ? null : source);

/** What the model reads instead of a text, if it does. */
export const mediaName = ({ source }: ModelConfig): string | null =>
  ({ tokens: null, pictures: "picture", sounds: "recording" })[source];

export const SECONDS_PER_TOKEN = 0.02;

export const patchRows = ({ picture_height, patch_size }: ModelConfig): number => picture_height / patch_size;

/** The tensor of the trace that holds the pixels or the spectrogram. */
export const mediaTensor = (config: ModelConfig): string =>
  config.source === "pictures" ? "encoder.patches" : "encoder.mel_frames";

/** Red, green, blue, alpha of each pixel. */
export interface Image {
  width: number;
  height: number;
  data: Uint8ClampedArray<ArrayBuffer>;
}

/** Joins patches, [patches, size² · channels] from −1 to 1, column by column. */
export function pictureOf(patches: Tensor, config: ModelConfig): Image {
  const { patch_size: size, channels } = config;
  const rows = patchRows(config);
  const [width, height] = [(patches.shape[0] / rows) * size, rows * size];
  const data = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const patch = Math.floor(x / size) * rows + Math.floor(y / size);
      const pixel = (y % size) * size + (x % size);
      const color = patches.data.subarray(
        (patch * size * size + pixel) * channels,
        (patch * size * size + pixel + 1) * channels,
      );
      const at = 4 * (y * width + x);
      for (let c = 0; c < 3; c++) data[at + c] = 127.5 * (color[channels === 3 ? c : 0] + 1);
      data[at + 3] = 255;
    }
  return { width, height, data };
}

/** Paints mel frames, [tokens, 2 · bands], one pixel per frame and band, low bands at the bottom, louder is lighter. */
export function spectrogramOf(frames: Tensor, { mel_bands: bands }: ModelConfig): Image {
  const [width, height] = [2 * frames.shape[0], bands];
  let [low, high] = [Infinity, -Infinity];
  for (const value of frames.data) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const data = new Uint8ClampedArray(4 * width * height);
  for (let x = 0; x < width; x++)
    for (let band = 0; band < bands; band++) {
      const level = (frames.data[x * bands + band] - low) / (high - low || 1);
      const at = 4 * ((bands - 1 - band) * width + x);
      // From black over violet and orange to white: lightness rises evenly.
      data.set(
        [
          255 * Math.min(1, 1.7 * level),
          255 * level ** 1.8,
          255 * (level < 0.5 ? level : 0.5 * Math.abs(1.5 - 2 * level) + 0.5 * level),
          255,
        ],
        at,
      );
    }
  return { width, height, data };
}

export async function loadImage(trace: Trace, config: ModelConfig): Promise<Image> {
  const values = await tensor(trace.id, mediaTensor(config));
  return config.source === "pictures" ? pictureOf(values, config) : spectrogramOf(values, config);
}

/** Where a source token is in the picture or spectrogram, as shares of its width and height. */
export function placeOf(
  token: number,
  count: number,
  config: ModelConfig,
): { x: number; y: number; width: number; height: number } {
  const rows = config.source === "pictures" ? patchRows(config) : 1;
  const columns = count / rows;
  return { x: Math.floor(token / rows) / columns, y: (token % rows) / rows, width: 1 / columns, height: 1 / rows };
}

/** The source token at a place, given as shares of the width and height. */
export function tokenAt(x: number, y: number, count: number, config: ModelConfig): number {
  const rows = config.source === "pictures" ? patchRows(config) : 1;
  const at = (share: number, size: number): number => Math.min(size - 1, Math.max(0, Math.floor(share * size)));
  return at(x, count / rows) * rows + at(y, rows);
}

/** The row whose attention is highest at a source token: the written token that is being heard. −1 if none looks there. */
export function rowAt(weights: Tensor, token: number, first: number): number {
  const [rows, count] = weights.shape;
  let [best, highest] = [-1, 0];
  for (let row = first; row < rows; row++) {
    // Relative to the row's own maximum: a row with spread attention also has its moment.
    const own = weights.data.subarray(row * count, (row + 1) * count);
    const share = own[token] / Math.max(...own);
    if (share > 0.3 && share > highest) [best, highest] = [row, share];
  }
  return best;
}
