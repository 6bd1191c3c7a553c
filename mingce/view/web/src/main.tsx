import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/run.css";
import "./style/rollout.css";
import "./style/tutor.css";
import { App } from "./app";
import * as credit from "./credit";
import * as curves from "./curves";

declare global {
  interface Window {
    /** The page's arithmetic, for the console and for the test that holds it against Python's. */
    mingce: { credit: typeof credit; curves: typeof curves };
  }
}

window.mingce = { credit, curves };
render(<App />, document.getElementById("app")!);
