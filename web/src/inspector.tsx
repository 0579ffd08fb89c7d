// The Inspector: one cell, the formula with its own numbers in it, the strips of its operands, and the browser's result beside the
// model's. Every operand that is a cell itself can be followed, down to the embedding.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { audit } from "./audit";
import { parsePlace, placeKey, type Audit, type Place, type Strip } from "./operands";
import { colourOf, css } from "./colour";
import { present, useLoaded, usePalette } from "./hooks";
import { exact, short } from "./numbers";
import { Audited } from "./panels";
import { useSession } from "./session";
import { go, useAddress } from "./state";
import { Failed, Icon, Waiting } from "./ui";

/** A view with the Inspector beside it. */
export function WithInspector({ children }: { children: ComponentChildren }) {
  const { card, manifest } = useSession();
  const { cell } = useAddress();
  const place = parsePlace(cell);
  const known = place && manifest?.tensors.find(({ name }) => name === place.name);
  const inside = known && place.index.length === known.shape.length && place.index.every((i, axis) => i < known.shape[axis]);
  const loaded = useLoaded(
    manifest && place && inside ? async () => ({ key: `${manifest.id} ${cell}`, result: await audit({ card, manifest }, place) }) : null,
    [manifest?.id, cell],
  );
  const found = present(loaded);
  const current = found && found.key === `${manifest?.id} ${cell}` ? found.result : null;
  return (
    <Audited.Provider value={current}>
      <div class={place ? "columns inspecting" : "stack"}>
        <div class="stack">{children}</div>
        {place ? (
          <aside class="card inspector" aria-label="Inspector">
            <div class="lead">
              <h2>Inspector</h2>
              <button class="round" aria-label="close the Inspector" title="close (esc)" onClick={() => go({ cell: "" })}>
                <Icon name="cross" />
              </button>
            </div>
            {loaded.state === "failed" ? <Failed error={loaded.error} /> : null}
            {!inside && manifest ? <p class="soft">This text has no such cell.</p> : null}
            {current ? <Findings place={place} found={current} /> : inside && loaded.state !== "failed" ? <Waiting what="the operands" /> : null}
          </aside>
        ) : null}
      </div>
    </Audited.Provider>
  );
}

function Findings({ place, found }: { place: Place; found: Audit & { model: number } }) {
  const difference = found.computed === found.model ? 0 : found.computed - found.model;
  return (
    <div class="stack findings" data-audit={placeKey(place)} data-model={found.model} data-computed={found.computed}>
      <div>
        <p class="where">{place.name}</p>
        <p class="soft small">{whereabouts(place, useSession())}</p>
      </div>
      <div>
        <p class="formula">{found.formula}</p>
        <p class="formula with-numbers">
          = {found.numbers} <b>= {short(found.computed, 4)}</b>
        </p>
      </div>
      <table class="verdict">
        <tbody>
          <tr>
            <th scope="row">the model</th>
            <td>{exact(found.model)}</td>
          </tr>
          <tr>
            <th scope="row">your browser</th>
            <td>{exact(found.computed)}</td>
          </tr>
          <tr>
            <th scope="row">difference</th>
            <td>{difference === 0 ? "0" : short(difference, 1).includes("e") ? short(difference, 1) : difference.toExponential(1)}</td>
          </tr>
        </tbody>
      </table>
      {found.figures.length ? (
        <ul class="figures">
          {found.figures.map(({ label, value, place: to }) => (
            <li key={label}>
              <span class="soft">{label}</span> <span>{exact(value)}</span> <Follow to={to ?? null} />
            </li>
          ))}
        </ul>
      ) : null}
      <Strips strips={found.strips} />
    </div>
  );
}

function whereabouts(place: Place, { manifest }: ReturnType<typeof useSession>): string {
  const { axes = [], shape = [] } = manifest?.tensors.find(({ name }) => name === place.name) ?? {};
  const own = place.name.startsWith("encoder") ? manifest?.sources : manifest?.reads;
  const keys = place.name.includes(".cross.") ? manifest?.sources : own;
  return place.index
    .map((i, axis) => {
      const kind = axes[axis];
      if (kind === "head") return shape[axis] === 1 ? "" : `head ${i}`;
      if (kind === "key" || kind === "key token") return `key ${keys?.[i]?.text ?? i}`;
      if (kind === "query") return `query ${own?.[i]?.text ?? i}`;
      if (kind === "token") return own?.[i]?.text ?? `token ${i}`;
      return kind === "1" ? "" : kind === "vocabulary" ? `token ${i}` : `number ${i}`;
    })
    .filter(Boolean)
    .join(" · ");
}

function Follow({ to }: { to: Place | null }) {
  if (!to) return null;
  return (
    <button class="follow" title="how it was computed" aria-label={`inspect ${placeKey(to)}`} onClick={() => go({ cell: placeKey(to) }, true)}>
      ↳
    </button>
  );
}

const FEW = 8;

/** Strips of colour, and under them the terms: largest first, all on demand. */
function Strips({ strips }: { strips: readonly Strip[] }) {
  const palette = usePalette();
  const [all, setAll] = useState(false);
  if (!strips.length) return null;
  const [a, b] = [strips[0], strips.filter(({ beside }) => !beside)[1]];
  const size = a.values.length;
  const most = strips.map(({ values }) => Math.max(...Array.from(values, (x) => (Number.isFinite(x) ? Math.abs(x) : 0))));
  const product = (i: number): number => a.values[i] * (b ? b.values[i] : 1);
  const order = Array.from({ length: size }, (_, i) => i).sort((i, j) => (all ? i - j : rank(product(j)) - rank(product(i)) || i - j));
  return (
    <div class="terms">
      {strips.map(({ label, values }, k) => (
        <div class="strip" key={label}>
          <span class="soft small">
            {label}, {size} numbers
          </span>
          <div class="strip-cells">
            {Array.from({ length: Math.min(size, 256) }, (_, i) => (
              <i key={i} style={{ background: css(Number.isFinite(values[i]) ? colourOf(values[i], most[k], palette) : palette.faint) }} />
            ))}
          </div>
        </div>
      ))}
      <table>
        <thead>
          <tr>
            <th scope="col">i</th>
            {strips.map(({ label }) => (
              <th scope="col" key={label}>
                {label}
              </th>
            ))}
            {b ? <th scope="col">product</th> : null}
          </tr>
        </thead>
        <tbody>
          {order.slice(0, all ? 2000 : FEW).map((i) => (
            <tr key={i}>
              <td class="soft">{i}</td>
              {strips.map(({ label, values, part }) => (
                <td key={label}>
                  {short(values[i], 3)} <Follow to={part?.(i) ?? null} />
                </td>
              ))}
              {b ? <td>{short(product(i), 3)}</td> : null}
            </tr>
          ))}
        </tbody>
      </table>
      {size > FEW ? (
        <button class="chip" onClick={() => setAll(!all)}>
          {all ? "the largest only" : `all ${size}`}
        </button>
      ) : null}
    </div>
  );
}

const rank = (x: number): number => (Number.isFinite(x) ? Math.abs(x) : -1);
