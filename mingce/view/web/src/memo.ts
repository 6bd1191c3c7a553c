/** A component that renders again only when one of its properties is another one. */
import { Component, createElement, type FunctionComponent } from "preact";

export function memo<P extends object>(render: FunctionComponent<P>): FunctionComponent<P> {
  class Memo extends Component<P> {
    shouldComponentUpdate(next: P): boolean {
      const now = this.props as Record<string, unknown>;
      const then = next as Record<string, unknown>;
      return Object.keys(then).some((key) => then[key] !== now[key]) || Object.keys(now).some((key) => !(key in then));
    }
    render() {
      return createElement(render, this.props as P);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
