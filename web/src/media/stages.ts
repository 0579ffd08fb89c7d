// Walk, from a picture or sound to the vectors that enter the encoder.
import type { ModelConfig } from "../api";
import { code, type Stage } from "../stages/shared";
import { patchRows } from "./media";

export function mediaStages(config: ModelConfig): Stage[] {
  const common = { group: "encoder", kind: "matrix" as const };
  if (config.source === "pictures") {
    const { patch_size: size, channels } = config;
    return [
      {
        ...common,
        kind: "media",
        key: "encoder.patches",
        label: "patches",
        description: `The picture is cut into squares of ${size} × ${size} pixels, column by column, ${patchRows(config)} in each: these are the tokens. A row of the matrix holds the ${size * size * channels} pixel values of one patch, from −1 (black) to 1.`,
        tensors: ["encoder.patches"],
        code: code("patches"),
      },
      {
        ...common,
        key: "encoder.embedded",
        label: "vectors",
        description:
          "One learned linear map turns the pixels of each patch into a vector. From here on nothing is different from text.",
        tensors: ["encoder.patches", "encoder.embedded"],
        code: code("patch_projection"),
      },
    ]; // prettier-ignore
  }
  return [
    {
      ...common,
      kind: "media",
      key: "encoder.mel_frames",
      label: "spectrogram",
      description: `Every 10 ms, the loudness of ${config.mel_bands} bands of frequency: the log-mel spectrogram. A token is a pair of such frames, 20 ms; a row of the matrix holds its ${2 * config.mel_bands} values.`,
      tensors: ["encoder.mel_frames"],
      code: code("mel_frames"),
    },
    {
      ...common,
      key: "encoder.convolved",
      label: "convolution",
      description:
        "A convolution over three neighbouring frames, then GELU: two vectors per token, one for each frame, side by side.",
      tensors: ["encoder.mel_frames", "encoder.convolved"],
      code: code("first_convolution"),
    },
    {
      ...common,
      key: "encoder.embedded",
      label: "vectors",
      description:
        "A second convolution takes every other step, so that each pair of frames becomes one vector. From here on nothing is different from text.",
      tensors: ["encoder.convolved", "encoder.embedded"],
      code: code("second_convolution"),
    },
  ]; // prettier-ignore
}
