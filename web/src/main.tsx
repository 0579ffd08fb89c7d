// The app shell: navigation between the views, the choice of model, the theme and the help dialog.
import "./style.css";
import { render, type ComponentChildren, type ComponentType } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { source } from "./api";
import { HelpDialog } from "./help-dialog";
import { toggleTheme, usePalette } from "./hooks";
import { useShortcuts } from "./keyboard";
import { SessionProvider, useSession } from "./session";
import { Icon } from "./ui";
import { hrefFor, navigate, useUrlState } from "./url-state";
import { Compare } from "./views/compare";
import { Heads } from "./views/heads";
import { Intervene } from "./views/intervene";
import { Learn } from "./views/learn/learn";
import { Microscope } from "./views/microscope";
import { Replay } from "./views/replay";
import { Translate } from "./views/translate";
import { Walk } from "./views/walk";

interface View {
  key: string;
  name: string;
  Component: ComponentType;
}

/** In the order of the navigation bar; the key is the path in the URL. */
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
const FIRST_VIEW = { translator: "Translate", "language model": "Generate", encoder: "Encode" };
const VIEW_KEYS = VIEWS.map(({ key }) => key);

function Shell({ nav, onHelp, children }: { nav?: ComponentChildren; onHelp: () => void; children: ComponentChildren }) {
  const palette = usePalette();
  return (
    <>
      <header class="header-bar">
        <a class="brand" href="#/">
          seq<b>2</b>see
        </a>
        {nav}
        <div class="header-tools">
          <button class="icon-button" aria-label={palette.dark ? "light theme" : "dark theme"} title="toggle theme (t)" onClick={toggleTheme}>
            <Icon name={palette.dark ? "sun" : "moon"} />
          </button>
          <button class="icon-button" aria-label="help" title="help (?)" onClick={onHelp}>
            ?
          </button>
        </div>
      </header>
      <main>{children}</main>
    </>
  );
}

function Nav() {
  const { models, model } = useSession();
  const { view } = useUrlState();
  const currentView = VIEW_KEYS.includes(view) ? view : VIEW_KEYS[0];
  useEffect(() => document.querySelector(".views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [currentView]);
  return (
    <>
      <nav class="views" aria-label="views">
        {VIEWS.map(({ key, name }) => (
          <a
            key={key}
            href={hrefFor({ view: key })}
            aria-current={key === currentView ? "page" : undefined}
            onClick={(event) => {
              if (event.metaKey || event.ctrlKey) return;
              event.preventDefault();
              navigate({ view: key, cell: "" });
            }}
          >
            {key === "translate" ? FIRST_VIEW[model.kind] : name}
          </a>
        ))}
      </nav>
      {models.length > 1 ? (
        <select
          aria-label="model"
          value={model.name}
          onChange={(event) => navigate({ model: event.currentTarget.value, text: "", row: -1, attention: "", head: -1, interventions: "", cell: "" })}
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
  const { view } = useUrlState();
  const { model, trace } = useSession();
  const { key, Component } = VIEWS.find(({ key }) => key === view) ?? VIEWS[0];
  useShortcuts(model, VIEW_KEYS, trace?.decoder_input_tokens.length ?? 1, onHelp);
  useEffect(() => {
    document.title = `seq2see · ${model.name}`;
  }, [model]);
  return (
    <Shell nav={<Nav />} onHelp={onHelp}>
      {source.note ? <p class="note small">{source.note}</p> : null}
      <Component key={key} />
    </Shell>
  );
}

function App() {
  const [helpOpen, setHelpOpen] = useState(false);
  const onHelp = useCallback(() => setHelpOpen(true), []);
  return (
    <>
      <SessionProvider renderFallback={(content) => <Shell onHelp={onHelp}>{content}</Shell>}>
        <Page onHelp={onHelp} />
      </SessionProvider>
      {helpOpen ? <HelpDialog onClose={() => setHelpOpen(false)} /> : null}
    </>
  );
}

render(<App />, document.getElementById("app")!);
