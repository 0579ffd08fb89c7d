// What a beam search followed to the end: its hypotheses with their scores, and the same as a tree, which shows where they part.
import type { Hypothesis, Written } from "../api";
import { percent, short } from "../numbers";

export interface Branch {
  token: Written;
  best: boolean; // on the way to the best hypothesis
  next: Branch[];
}

/** Hypotheses that begin alike share their beginning. */
export function treeOf(hypotheses: readonly Hypothesis[]): Branch[] {
  const roots: Branch[] = [];
  hypotheses.forEach(({ tokens }, number) => {
    let level = roots;
    for (const token of tokens) {
      let branch = level.find((one) => one.token.id === token.id);
      if (!branch) level.push((branch = { token, best: number === 0, next: [] }));
      level = branch.next;
    }
  });
  return roots;
}

export function Beam({ hypotheses }: { hypotheses: readonly Hypothesis[] }) {
  const best = new Set(hypotheses[0].text.split(/\s+/));
  return (
    <>
      <div class="lead">
        <h2>The beam’s best</h2>
        <p class="soft small">score: log-probability a token</p>
      </div>
      <ol class="beam">
        {hypotheses.map((hypothesis, i) => (
          <li key={i}>
            <span class="value">{short(hypothesis.score, 3)}</span>
            <span>
              {hypothesis.text.split(/(\s+)/).map((word, t) => (
                <span key={t} class={best.has(word) || !word.trim() ? (i ? "soft" : "") : "other"}>
                  {word}
                </span>
              ))}
              {hypothesis.finished ? null : <span class="soft"> …</span>}
            </span>
          </li>
        ))}
      </ol>
      <div class="tree" role="img" aria-label="where the hypotheses part">
        <Branches of={treeOf(hypotheses)} />
      </div>
    </>
  );
}

function Branches({ of }: { of: readonly Branch[] }) {
  if (!of.length) return null;
  return (
    <div class="branches">
      {of.map(({ token, best, next }) => (
        <div class="branch" key={token.id}>
          <span class={`twig${best ? " best" : ""}`}>
            {token.text}
            <small>{token.logprob === null ? "" : percent(Math.exp(token.logprob))}</small>
          </span>
          <Branches of={next} />
        </div>
      ))}
    </div>
  );
}
