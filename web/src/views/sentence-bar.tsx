// The bar above most views: the editable input text, and the output tokens, of which one is selected.
import { useEffect, useRef } from "preact/hooks";
import { source } from "../api";
import { selectedRow } from "../architecture";
import { useSession } from "../session";
import { navigate, useUrlState } from "../url-state";

export function SentenceBar() {
  const { text, trace, busy } = useSession();
  const { row } = useUrlState();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (field.current && field.current.value.trim() !== text.trim()) field.current.value = text;
  }, [text]);
  const selected = trace ? selectedRow(trace, row) : 0;
  return (
    <section class="sentence-bar">
      <input
        ref={field}
        aria-label="input text"
        defaultValue={text}
        maxLength={8000}
        readOnly={!source.live}
        spellcheck={false}
        onInput={(event) => navigate({ text: event.currentTarget.value || " ", row: -1, cell: "" })}
      />
      <ol class={`output-tokens${busy ? " busy" : ""}`} aria-label="output tokens">
        {trace?.target_tokens.map((token, i) => (
          <li key={i}>
            <button aria-pressed={i === selected} onClick={() => navigate({ row: i })}>
              {token.text}
            </button>
          </li>
        ))}
      </ol>
      {trace?.target_tokens[selected] ? (
        <p class="small muted">
          Selected row: input token <b>{trace.decoder_input_tokens[selected].text}</b>, output token <b>{trace.target_tokens[selected].text}</b>
        </p>
      ) : null}
    </section>
  );
}
