// The sentence above every view but Translate: the text, to be changed in place, and the output, whose tokens can be chosen.
import { useEffect, useRef } from "preact/hooks";
import { source } from "../api";
import { useSession } from "../session";
import { go, useAddress } from "../state";
import { chosenRow } from "../structure";

export function Sentence() {
  const { text, manifest, busy } = useSession();
  const { row } = useAddress();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (field.current && field.current.value.trim() !== text.trim()) field.current.value = text;
  }, [text]);
  const chosen = manifest ? chosenRow(manifest, row) : 0;
  return (
    <section class="sentence">
      <input
        ref={field}
        aria-label="text"
        defaultValue={text}
        maxLength={8000}
        readOnly={!source.live}
        spellcheck={false}
        onInput={(event) => go({ text: event.currentTarget.value || " ", row: -1, cell: "" })}
      />
      <ol class={`written${busy ? " busy" : ""}`} aria-label="the output's tokens">
        {manifest?.writes.map((token, i) => (
          <li key={i}>
            <button aria-pressed={i === chosen} onClick={() => go({ row: i })}>
              {token.text}
            </button>
          </li>
        ))}
      </ol>
      {manifest?.writes[chosen] ? (
        <p class="small soft">
          The row that has read <b>{manifest.reads[chosen].text}</b> writes <b>{manifest.writes[chosen].text}</b>.
        </p>
      ) : null}
    </section>
  );
}
