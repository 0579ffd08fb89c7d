// Chooses the picture or sound that a model reads, in place of the text field: a file from the disk, or one that is dropped here.
import { useRef, useState } from "preact/hooks";
import { source } from "../api";
import { useSession } from "../session";
import { ErrorMessage } from "../ui";
import { navigate } from "../url-state";
import { mediaKind, mediaName } from "./media";

const ACCEPT = { pictures: "image/*", sounds: "audio/*" } as const;

export function MediaEntry() {
  const { model } = useSession();
  const kind = mediaKind(model.config.model)!;
  const what = mediaName(model.config.model);
  const field = useRef<HTMLInputElement>(null);
  const [name, setName] = useState("");
  const [error, setError] = useState<Error | null>(null);
  if (!source.live) return null;
  const read = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    try {
      const text = await source.upload(file);
      setName(file.name);
      setError(null);
      navigate({ text, row: -1, cell: "" });
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <div
      class="media-entry"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void read(event.dataTransfer?.files[0]);
      }}
    >
      <input
        ref={field}
        type="file"
        hidden
        accept={ACCEPT[kind]}
        aria-label={`${what} file`}
        onChange={(event) => void read(event.currentTarget.files?.[0])}
      />
      <button class="chip active" onClick={() => field.current!.click()}>
        Choose a {what}
      </button>
      <span class="muted small">{name || "or drop it here"}</span>
      {error ? <ErrorMessage error={error} /> : null}
    </div>
  );
}
