// The app shell: navigation between the views, the choice of model, the theme and the help dialog.
import "./style.css";
import "./media/media.css";
import { type ComponentChildren, type ComponentType, render } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { type ModelInfo, source } from "./api";
import { HelpDialog } from "./help-dialog";
import { toggleTheme, usePalette } from "./hooks";
import { parseInterventions } from "./interventions";
import { useShortcuts, VIEW_SHORTCUTS } from "./keyboard";
import { ModelMap, Opening } from "./map/map";
import { mediaName } from "./media/media";
import { ModelSelect, SessionProvider, useSession } from "./session";
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
  group: string; // of neighbours in the navigation bar
  ofTrace?: boolean; // shown below the sentence bar, once there is a trace
  needsModel?: boolean; // not in an exported file
}

/** In the order of the navigation bar, what a newcomer needs first; the key is the path in the URL. */
const VIEWS: readonly View[] = [
  { key: "map", name: "Map", group: "start", Component: ModelMap, ofTrace: true },
  { key: "learn", name: "Learn", group: "start", Component: Learn, needsModel: true },
  { key: "translate", name: "Translate", group: "look", Component: Translate },
  { key: "walk", name: "Walk", group: "look", Component: Walk, ofTrace: true },
  { key: "heads", name: "Heads", group: "look", Component: Heads, ofTrace: true },
  { key: "microscope", name: "Microscope", group: "look", Component: Microscope, ofTrace: true },
  { key: "space", name: "Space", group: "look", Component: Space, ofTrace: true, needsModel: true },
  { key: "intervene", name: "Intervene", group: "change", Component: Intervene, ofTrace: true, needsModel: true },
  { key: "compare", name: "Compare", group: "change", Component: Compare, ofTrace: true },
  { key: "replay", name: "Replay", group: "train", Component: Replay, ofTrace: true, needsModel: true },
  { key: "train", name: "Train", group: "train", Component: Train, needsModel: true },
];
const OUTPUT_VIEW = { translator: "Translate", "language model": "Generate", encoder: "Encode" };
const viewName = ({ key, name }: View, { kind }: ModelInfo): string => (key === "translate" ? OUTPUT_VIEW[kind] : name);
const LINKED = VIEWS.filter(({ needsModel }) => source.live || !needsModel);
const VIEW_KEYS = LINKED.map(({ key }) => key);

function skipToContent(event: Event): void {
  event.preventDefault();
  document.getElementById("main")!.focus();
}

function Shell({ nav, onHelp, children }: { nav?: ComponentChildren; onHelp: () => void; children: ComponentChildren }) {
  const palette = usePalette();
  return (
    <>
      <a class="skip-link" href="#main" onClick={skipToContent}>
        skip to the content
      </a>
      <header class="header-bar">
        <a class="brand" href="#/">
          seq<b>2</b>see
        </a>
        {nav}
        <div class="header-tools">
          <button
            class="icon-button"
            aria-label={palette.dark ? "light theme" : "dark theme"}
            title="toggle theme (t)"
            onClick={toggleTheme}
          >
            <Icon name={palette.dark ? "sun" : "moon"} />
          </button>
          <button class="icon-button" aria-label="help" title="help (?)" onClick={onHelp}>
            ?
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

function Nav() {
  const { models, model } = useSession();
  const { view } = useUrlState();
  const currentView = VIEWS.some(({ key }) => key === view) ? view : VIEW_KEYS[0];
  useEffect(() => {
    // Not with scrollIntoView, after which the Tab key would start here.
    const link = document.querySelector<HTMLElement>(".views [aria-current]");
    if (link) link.parentElement!.scrollLeft = link.offsetLeft - (link.parentElement!.clientWidth - link.offsetWidth) / 2;
  }, [currentView]);
  return (
    <>
      <nav class="views" aria-label="views">
        {LINKED.map((view, i) => (
          <a
            key={view.key}
            class={i && view.group !== LINKED[i - 1].group ? "new-group" : undefined}
            title={VIEW_SHORTCUTS[i] && `press ${VIEW_SHORTCUTS[i]}`}
            href={hrefFor({ view: view.key })}
            aria-current={view.key === currentView ? "page" : undefined}
            onClick={(event) => {
              if (event.metaKey || event.ctrlKey) return;
              event.preventDefault();
              navigate({ view: view.key, cell: "" });
            }}
          >
            {viewName(view, model)}
          </a>
        ))}
      </nav>
      {models.length > 1 && currentView !== "map" ? <ModelSelect /> : null}
      <TourLink views={VIEW_KEYS} class="chip active">
        Tour
      </TourLink>
    </>
  );
}

function Page({ onHelp }: { onHelp: () => void }) {
  const { view } = useUrlState();
  const { model, trace, error } = useSession();
  const shown = VIEWS.find(({ key }) => key === view) ?? VIEWS[0];
  const { key, Component, ofTrace } = shown;
  useShortcuts(model, VIEW_KEYS, trace, onHelp);
  useEffect(() => {
    document.title = `${viewName(shown, model)} · ${model.name} · seq2see`;
  }, [model, key]);
  return (
    <Shell nav={<Nav />} onHelp={onHelp}>
      {source.note ? <p class="note small">{source.note}</p> : null}
      <Tour views={VIEW_KEYS} />
      {key === "intervene" ? null : <PendingInterventions />}
      {ofTrace ? (
        <div class={`stack ${key}-view`}>
          {key === "map" ? (
            <Opening
              tour={
                <TourLink views={VIEW_KEYS} class="primary-button">
                  Take the tour
                </TourLink>
              }
            />
          ) : null}
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
      {count === 1 ? "One intervention is" : `${count} interventions are`} set; this view shows the model without{" "}
      {count === 1 ? "it" : "them"}.{" "}
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
      {helpOpen ? <HelpDialog views={LINKED.map(({ name }) => name)} onClose={() => setHelpOpen(false)} /> : null}
    </>
  );
}

render(<App />, document.getElementById("app")!);
