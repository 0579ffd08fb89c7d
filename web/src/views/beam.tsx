// The hypotheses of a beam search: a list with scores, and a tree that shows where they diverge.
import type { Hypothesis, ScoredToken } from "../api";
import { formatNumber, formatPercent } from "../format";
import { Transliterated } from "../ui";

export interface Branch {
  token: ScoredToken;
  best: boolean; // part of the best hypothesis
  children: Branch[];
}

/** A prefix tree: hypotheses share their common prefix. */
export function buildTree(hypotheses: readonly Hypothesis[]): Branch[] {
  const roots: Branch[] = [];
  hypotheses.forEach(({ tokens }, rank) => {
    let level = roots;
    for (const token of tokens) {
      let branch = level.find((candidate) => candidate.token.id === token.id);
      if (!branch) {
        branch = { token, best: rank === 0, children: [] };
        level.push(branch);
      }
      level = branch.children;
    }
  });
  return roots;
}

export function Beam({ hypotheses }: { hypotheses: readonly Hypothesis[] }) {
  const bestWords = new Set(hypotheses[0].text.split(/\s+/));
  return (
    <>
      <div class="section-header">
        <h2>Beam search hypotheses</h2>
        <p class="muted small">score: log-probability per token</p>
      </div>
      <ol class="beam">
        {hypotheses.map((hypothesis, i) => (
          <li key={i}>
            <span class="value">{formatNumber(hypothesis.score, 3)}</span>
            <span>
              {hypothesis.text.split(/(\s+)/).map((word, t) => (
                <span key={t} class={bestWords.has(word) || !word.trim() ? (i ? "muted" : "") : "differs"}>
                  <Transliterated text={word} />
                </span>
              ))}
              {hypothesis.finished ? null : <span class="muted"> …</span>}
            </span>
          </li>
        ))}
      </ol>
      <div class="tree" role="img" aria-label="tree of the hypotheses">
        <Branches branches={buildTree(hypotheses)} />
      </div>
    </>
  );
}

function Branches({ branches }: { branches: readonly Branch[] }) {
  if (!branches.length) return null;
  return (
    <div class="branches">
      {branches.map(({ token, best, children }) => (
        <div class="branch" key={token.id}>
          <span class={`tree-token${best ? " best" : ""}`}>
            <Transliterated text={token.text} />
            <small>{token.logprob === null ? "" : formatPercent(Math.exp(token.logprob))}</small>
          </span>
          <Branches branches={children} />
        </div>
      ))}
    </div>
  );
}
