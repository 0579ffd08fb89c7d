// The app shell: navigation between the views, the choice of model, the theme and the help dialog.
import "./style.css";
import "./media/media.css";
import { render, type ComponentChildren, type ComponentType } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { source } from "./api";
import { HelpDialog } from "./help-dialog";
import { toggleTheme, usePalette } from "./hooks";
import { useShortcuts } from "./keyboard";
import { Map, Opening } from "./map/map";
import { parseInterventions } from "./interventions";
import { mediaName } from "./media/media";
import { chooseModel, SessionProvider, useSession } from "./session";
import { Tour, TourLink } from "./tour";
import { EmptyState, ErrorMessage, Icon, Loading } from "./ui";
import { hrefFor, navigate, useUrlState } from "./url-state";
import { Compare } from "./views/compare";
import { Heads } from "./views/heads";
import { Intervene } from "./views/intervene";
import { Learn } from "./views/learn/learn";
import { Microscope } from "./views/microscope";
import { Replay } from "./views/replay";
import { SentenceBar } from "./views/sentence-bar";
import { Space } from "./views/space/space";
import { Train } from "./views/train/train";
import { Translate } from "./views/translate";
import { Walk } from "./views/walk";

interface View {
  key: string;
  name: string;
  Component: ComponentType;
  ofTrace?: boolean; // shown below the sentence bar, once there is a trace
  needsModel?: boolean; // not in an exported file
}

/** In the order of the navigation bar; the key is the path in the URL. */
const VIEWS: readonly View[] = [
  { key: "map", name: "Map", Component: Map, ofTrace: true },
  { key: "translate", name: "Translate", Component: Translate },
  { key: "walk", name: "Walk", Component: Walk, ofTrace: true },
  { key: "heads", name: "Heads", Component: Heads, ofTrace: true },
  { key: "microscope", name: "Microscope", Component: Microscope, ofTrace: true },
  { key: "intervene", name: "Intervene", Component: Intervene, ofTrace: true, needsModel: true },
  { key: "replay", name: "Replay", Component: Replay, ofTrace: true, needsModel: true },
  { key: "compare", name: "Compare", Component: Compare, ofTrace: true },
  { key: "space", name: "Space", Component: Space, ofTrace: true, needsModel: true },
  { key: "train", name: "Train", Component: Train, needsModel: true },
  { key: "learn", name: "Learn", Component: Learn, needsModel: true },
];
const OUTPUT_VIEW = { translator: "Translate", "language model": "Generate", encoder: "Encode" };
const VIEW_KEYS = VIEWS.map(({ key }) => key);

function Shell({ nav, onHelp, children }: { nav?: ComponentChildren; onHelp: () => void; children: ComponentChildren }) {
  const palette = usePalette();
  return (
    <>
      <a class="skip-link" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")!.focus())}>
        skip to the content
      </a>
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
      <main id="main" tabIndex={-1}>{children}</main>
    </>
  );
}

function Nav() {
  const { models, model } = useSession();
  const { view } = useUrlState();
  const currentView = VIEW_KEYS.includes(view) ? view : VIEW_KEYS[0];
  useEffect(() => {
    // Not with scrollIntoView, after which the Tab key would start here.
    const link = document.querySelector<HTMLElement>(".views [aria-current]");
    if (link) link.parentElement!.scrollLeft = link.offsetLeft - (link.parentElement!.clientWidth - link.offsetWidth) / 2;
  }, [currentView]);
  return (
    <>
      <nav class="views" aria-label="views">
        {VIEWS.filter(({ needsModel }) => source.live || !needsModel).map(({ key, name }) => (
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
            {key === "translate" ? OUTPUT_VIEW[model.kind] : name}
          </a>
        ))}
      </nav>
      {models.length > 1 ? (
        <select
          aria-label="model"
          value={model.name}
          onChange={(event) => chooseModel(event.currentTarget.value)}
        >
          {models.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      ) : null}
      <TourLink views={VIEW_KEYS}>Tour</TourLink>
    </>
  );
}

function Page({ onHelp }: { onHelp: () => void }) {
  const { view } = useUrlState();
  const { model, trace, error } = useSession();
  const { key, name, Component, ofTrace } = VIEWS.find(({ key }) => key === view) ?? VIEWS[0];
  useShortcuts(model, VIEW_KEYS, trace, onHelp);
  useEffect(() => {
    document.title = `${key === "translate" ? OUTPUT_VIEW[model.kind] : name} · ${model.name} · seq2see`;
  }, [model, key]);
  return (
    <Shell nav={<Nav />} onHelp={onHelp}>
      {source.note ? <p class="note small">{source.note}</p> : null}
      <Tour views={VIEW_KEYS} />
      {key === "intervene" ? null : <PendingInterventions />}
      {ofTrace ? (
        <div class="stack">
          {key === "map" ? <Opening /> : null}
          <SentenceBar />
          {error ? <ErrorMessage error={error} /> : null}
          {trace ? <Component key={key} /> : error ? null : <NoTrace />}
        </div>
      ) : (
        <Component key={key} />
      )}
    </Shell>
  );
}

function NoTrace() {
  const { model, text } = useSession();
  if (text.trim()) return <Loading what="output" />;
  return (
    <EmptyState>
      <p>{mediaName(model.config.model) ? "Choose a file above." : "Enter a text above."}</p>
    </EmptyState>
  );
}

/** Interventions stay in the URL while other views show the model as it is: says so. */
function PendingInterventions() {
  const { interventions } = useUrlState();
  const count = parseInterventions(interventions).length;
  if (!count) return null;
  return (
    <p class="note small">
      {count === 1 ? "One intervention is" : `${count} interventions are`} set; this view shows the model without {count === 1 ? "it" : "them"}.{" "}
      <a class="chip" href={hrefFor({ view: "intervene" })}>
        show
      </a>{" "}
      <button class="chip" onClick={() => navigate({ interventions: "" })}>
        clear
      </button>
    </p>
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
