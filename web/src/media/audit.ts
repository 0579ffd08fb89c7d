// The formulas of the Inspector for the vectors of patches and of mel frames.
import type { Audit, CellContext } from "../audit/cells";
import { type Formula, sumOfProducts, term } from "../audit/formulas";
import { activate, dot } from "../math";

/** A patch's pixels through one linear map. */
async function patchVector(cell: CellContext): Promise<Audit> {
  const [row, i] = cell.index;
  const [x, w, b] = await Promise.all([
    cell.vector("encoder.patches", [row], "pixels"),
    cell.weightRow("source_reader.projection", "W", i),
    cell.weightScalar("source_reader.projection", "b", i),
  ]);
  return {
    formula: "Σ pixel × w + b",
    substituted: `${sumOfProducts(x.values, w!.data)} + ${term(b!)}`,
    scalars: [{ label: "b", value: b! }],
    vectors: [x, { label: `W, row ${i}`, values: w!.data }],
    computed: dot(x.values, w!.data) + b!,
  };
}

/** GELU of a convolution over three frames of a tensor, [tokens, 2 · channels]: frame f is half f % 2 of token ⌊f / 2⌋. */
async function convolution(cell: CellContext, layer: string, source: string, frame: number, output: number): Promise<Audit> {
  const [w, b] = await Promise.all([
    cell.weightRow(`source_reader.${layer}`, "W", output),
    cell.weightScalar(`source_reader.${layer}`, "b", output),
  ]);
  const channels = w!.data.length / 3; // weights are ordered by channel, then by frame
  const last = 2 * cell.run.trace.source_tokens.length - 1;
  const frames = await Promise.all(
    [frame - 1, frame, frame + 1].map(async (f) => {
      if (f < 0 || f > last) return new Float32Array(channels); // padding
      return cell.values(source, `${f >> 1},${(f & 1) * channels}:${((f & 1) + 1) * channels}`);
    }),
  );
  const x = Float32Array.from(w!.data, (_, j) => frames[j % 3][Math.floor(j / 3)]);
  return {
    formula: "GELU(Σ x × w + b), over three frames",
    substituted: `GELU(${sumOfProducts(x, w!.data)} + ${term(b!)})`,
    scalars: [{ label: "b", value: b! }],
    vectors: [
      {
        label: "frames",
        values: x,
        cellAt: (j) => {
          const f = frame - 1 + (j % 3);
          return f < 0 || f > last ? null : { name: source, index: [f >> 1, (f & 1) * channels + Math.floor(j / 3)] };
        },
      },
      { label: `W, row ${output}`, values: w!.data },
    ],
    computed: activate("gelu", dot(x, w!.data) + b!),
  };
}

export const convolved: Formula = (cell) => {
  const [row, i] = cell.index;
  const { width } = cell.config;
  return convolution(cell, "conv1", "encoder.mel_frames", 2 * row + Math.floor(i / width), i % width);
};

/** The vectors that enter the encoder. */
export const mediaVector: Formula = (cell) =>
  cell.config.source === "pictures"
    ? patchVector(cell)
    : convolution(cell, "conv2", "encoder.convolved", 2 * cell.index[0], cell.index[1]);
