// The Inspector: one cell, its formula with the actual numbers, its operands, and the value recomputed in the browser beside
// the model's. Operands that are cells themselves can be inspected in turn, down to the embedding.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Trace } from "./api";
import { rowTokens } from "./architecture";
import { audit } from "./audit/audit";
import { type Audit, type CellRef, formatCellRef, parseCellRef, type VectorOperand } from "./audit/cells";
import { colorFor, toCss } from "./color";
import { formatFloat32, formatNumber } from "./format";
import { latestValue, useAsync, usePalette } from "./hooks";
import { useSession } from "./session";
import { AuditContext } from "./tensor-panel";
import { ErrorMessage, Icon, Loading } from "./ui";
import { navigate, useUrlState } from "./url-state";

/** A view with the Inspector beside it. */
export function InspectorLayout({ children }: { children: ComponentChildren }) {
  const { model, trace } = useSession();
  const { cell } = useUrlState();
  const ref = parseCellRef(cell);
  const info = ref && trace?.tensors.find(({ name }) => name === ref.name);
  const exists = info && ref.index.length === info.shape.length && ref.index.every((i, axis) => i < info.shape[axis]);
  const loaded = useAsync(
    trace && ref && exists ? async () => ({ key: `${trace.id} ${cell}`, result: await audit({ model, trace }, ref) }) : null,
    [trace?.id, cell],
  );
  const latest = latestValue(loaded);
  const result = latest && latest.key === `${trace?.id} ${cell}` ? latest.result : null;
  return (
    <AuditContext.Provider value={result}>
      <div class={ref ? "columns with-inspector" : "stack"}>
        <div class="stack">{children}</div>
        {ref ? (
          <aside class="card inspector" aria-label="Inspector">
            <div class="section-header">
              <h2>Inspector</h2>
              <button
                class="icon-button"
                aria-label="close the Inspector"
                title="close (esc)"
                onClick={() => navigate({ cell: "" })}
              >
                <Icon name="cross" />
              </button>
            </div>
            {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
            {!exists && trace ? <p class="muted">The trace of this text has no such cell.</p> : null}
            {result ? (
              <AuditResult cell={ref} result={result} />
            ) : exists && loaded.state !== "failed" ? (
              <Loading what="operands" />
            ) : null}
          </aside>
        ) : null}
      </div>
    </AuditContext.Provider>
  );
}

function AuditResult({ cell, result }: { cell: CellRef; result: Audit & { model: number } }) {
  const { trace } = useSession();
  const difference = result.computed === result.model ? 0 : result.computed - result.model;
  return (
    <div class="stack audit" data-audit={formatCellRef(cell)} data-model={result.model} data-computed={result.computed}>
      <div>
        <p class="cell-name">{cell.name}</p>
        <p class="muted small">{trace ? describeIndex(cell, trace) : ""}</p>
      </div>
      <div>
        <p class="formula">{result.formula}</p>
        <p class="formula substituted">
          = {result.substituted} <b>= {formatNumber(result.computed, 4)}</b>
        </p>
      </div>
      <table class="audit-result">
        <tbody>
          <tr>
            <th scope="row">model</th>
            <td>{formatFloat32(result.model)}</td>
          </tr>
          <tr>
            <th scope="row">browser</th>
            <td>{formatFloat32(result.computed)}</td>
          </tr>
          <tr>
            <th scope="row">difference</th>
            <td>{formatDifference(difference)}</td>
          </tr>
        </tbody>
      </table>
      {result.scalars.length ? (
        <ul class="audit-scalars">
          {result.scalars.map(({ label, value, cell: operand }) => (
            <li key={label}>
              <span class="muted">{label}</span> <span>{formatFloat32(value)}</span> <InspectLink cell={operand ?? null} />
            </li>
          ))}
        </ul>
      ) : null}
      <VectorOperands vectors={result.vectors} />
    </div>
  );
}

function formatDifference(difference: number): string {
  if (difference === 0) return "0";
  const text = formatNumber(difference, 1);
  return text.includes("e") ? text : difference.toExponential(1);
}

/** The index of a cell in words, such as "head 3 · query मुझे · key like". */
function describeIndex({ name, index }: CellRef, trace: Trace): string {
  const { axes = [], shape = [] } = trace.tensors.find((tensor) => tensor.name === name) ?? {};
  const tokens = rowTokens(trace, name);
  const keys = name.includes(".cross.") ? trace.source_tokens : tokens;
  return index
    .map((i, axis) => {
      switch (axes[axis]) {
        case "head":
          return shape[axis] === 1 ? "" : `head ${i}`;
        case "key":
        case "key token":
          return `key ${keys[i]?.text ?? i}`;
        case "query":
          return `query ${tokens[i]?.text ?? i}`;
        case "token":
          return tokens[i]?.text ?? `token ${i}`;
        case "vocabulary":
          return `token ${i}`;
        case "1":
          return "";
        default:
          return `dimension ${i}`;
      }
    })
    .filter(Boolean)
    .join(" · ");
}

function InspectLink({ cell }: { cell: CellRef | null }) {
  if (!cell) return null;
  const key = formatCellRef(cell);
  return (
    <button
      class="inspect-link"
      title="inspect this operand"
      aria-label={`inspect ${key}`}
      onClick={() => navigate({ cell: key }, true)}
    >
      ↳
    </button>
  );
}

const MAX_LARGEST = 8; // rows of the table before "show all"
const MAX_ROWS = 2000;

/** Vectors as strips of colour, and a table of their elements: the largest products first, or all in order. */
function VectorOperands({ vectors }: { vectors: readonly VectorOperand[] }) {
  const palette = usePalette();
  const [showAll, setShowAll] = useState(false);
  if (!vectors.length) return null;
  const [a, b] = [vectors[0], vectors.filter(({ notMultiplied }) => !notMultiplied)[1]];
  const size = a.values.length;
  const max = vectors.map(({ values }) => Array.from(values).reduce((most, x) => Math.max(most, magnitude(x)), 0));
  const product = (i: number): number => a.values[i] * (b ? b.values[i] : 1);
  const order = Array.from({ length: size }, (_, i) => i).sort((i, j) =>
    showAll ? i - j : magnitude(product(j)) - magnitude(product(i)) || i - j,
  );
  return (
    <div class="audit-vectors">
      {vectors.map(({ label, values }, k) => (
        <div class="vector-strip" key={label}>
          <span class="muted small">
            {label} ({size} values)
          </span>
          <div class="strip-cells">
            {Array.from({ length: Math.min(size, 256) }, (_, i) => (
              <i
                key={i}
                style={{ background: toCss(Number.isFinite(values[i]) ? colorFor(values[i], max[k], palette) : palette.muted) }}
              />
            ))}
          </div>
        </div>
      ))}
      <table>
        <thead>
          <tr>
            <th scope="col">i</th>
            {vectors.map(({ label }) => (
              <th scope="col" key={label}>
                {label}
              </th>
            ))}
            {b ? <th scope="col">product</th> : null}
          </tr>
        </thead>
        <tbody>
          {order.slice(0, showAll ? MAX_ROWS : MAX_LARGEST).map((i) => (
            <tr key={i}>
              <td class="muted">{i}</td>
              {vectors.map(({ label, values, cellAt }) => (
                <td key={label}>
                  {formatNumber(values[i], 3)} <InspectLink cell={cellAt?.(i) ?? null} />
                </td>
              ))}
              {b ? <td>{formatNumber(product(i), 3)}</td> : null}
            </tr>
          ))}
        </tbody>
      </table>
      {size > MAX_LARGEST ? (
        <button class="chip" onClick={() => setShowAll(!showAll)}>
          {showAll ? "show the largest only" : `show ${size > MAX_ROWS ? `the first ${MAX_ROWS}` : `all ${size}`}`}
        </button>
      ) : null}
    </div>
  );
}

const magnitude = (x: number): number => (Number.isFinite(x) ? Math.abs(x) : -1);
