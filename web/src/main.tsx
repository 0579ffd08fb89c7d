// The shell: the views and their addresses, the model, the theme, and help.
import "./style.css";
import { render, type ComponentChildren, type ComponentType } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { source } from "./api";
import { toggleTheme, usePalette } from "./hooks";
import { Help, useKeys } from "./keys";
import { useSession, WithSession } from "./session";
import { go, link, useAddress } from "./state";
import { Icon } from "./ui";
import { Compare } from "./views/compare";
import { Heads } from "./views/heads";
import { Intervene } from "./views/intervene";
import { Learn } from "./views/learn";
import { Microscope } from "./views/microscope";
import { Replay } from "./views/replay";
import { Translate } from "./views/translate";
import { Walk } from "./views/walk";

interface View {
  key: string;
  name: string;
  Component: ComponentType;
}

/** In the order of the bar; a view's key is its address. */
const VIEWS: readonly View[] = [
  { key: "translate", name: "Translate", Component: Translate },
  { key: "walk", name: "Walk", Component: Walk },
  { key: "heads", name: "Heads", Component: Heads },
  { key: "microscope", name: "Microscope", Component: Microscope },
  { key: "intervene", name: "Intervene", Component: Intervene },
  { key: "replay", name: "Replay", Component: Replay },
  { key: "compare", name: "Compare", Component: Compare },
  { key: "learn", name: "Learn", Component: Learn },
];
const KEYS = VIEWS.map(({ key }) => key);

function Shell({ nav, onHelp, children }: { nav?: ComponentChildren; onHelp: () => void; children: ComponentChildren }) {
  const palette = usePalette();
  return (
    <>
      <header class="top">
        <a class="brand" href="#/">
          seq<b>2</b>see
        </a>
        {nav}
        <div class="top-tools">
          <button class="round" aria-label={palette.dark ? "light colours" : "dark colours"} title="light or dark (t)" onClick={toggleTheme}>
            <Icon name={palette.dark ? "sun" : "moon"} />
          </button>
          <button class="round" aria-label="help" title="help (?)" onClick={onHelp}>
            ?
          </button>
        </div>
      </header>
      <main>{children}</main>
    </>
  );
}

function Nav() {
  const { models, card } = useSession();
  const { view } = useAddress();
  const here = KEYS.includes(view) ? view : KEYS[0];
  useEffect(() => document.querySelector(".views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [here]);
  return (
    <>
      <nav class="views" aria-label="views">
        {VIEWS.map(({ key, name }) => (
          <a
            key={key}
            href={link({ view: key })}
            aria-current={key === here ? "page" : undefined}
            onClick={(event) => {
              if (event.metaKey || event.ctrlKey) return;
              event.preventDefault();
              go({ view: key, cell: "" });
            }}
          >
            {key === "translate" && card.kind === "language model" ? "Generate" : name}
          </a>
        ))}
      </nav>
      {models.length > 1 ? (
        <select
          aria-label="model"
          value={card.name}
          onChange={(event) => go({ model: event.currentTarget.value, text: "", row: -1, attention: "", head: -1, reach: "", cell: "" })}
        >
          {models.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      ) : null}
    </>
  );
}

function Page({ onHelp }: { onHelp: () => void }) {
  const { view } = useAddress();
  const { card, manifest } = useSession();
  const { key, Component } = VIEWS.find((one) => one.key === view) ?? VIEWS[0];
  useKeys(card, KEYS, manifest?.reads.length ?? 1, onHelp);
  useEffect(() => {
    document.title = `seq2see · ${card.name}`;
  }, [card]);
  return (
    <Shell nav={<Nav />} onHelp={onHelp}>
      {source.note ? <p class="note small">{source.note}</p> : null}
      <Component key={key} />
    </Shell>
  );
}

function App() {
  const [help, setHelp] = useState(false);
  const onHelp = useCallback(() => setHelp(true), []);
  return (
    <>
      <WithSession around={(state) => <Shell onHelp={onHelp}>{state}</Shell>}>
        <Page onHelp={onHelp} />
      </WithSession>
      {help ? <Help onClose={() => setHelp(false)} /> : null}
    </>
  );
}

render(<App />, document.getElementById("app")!);
