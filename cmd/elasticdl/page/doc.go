// Package page serves the page of jobs, `elasticdl dashboard`: an HTTP server of the loopback
// interface, for one user of this machine.
//
//	browser <── HTML, a second old ── Server ── Source ──┬── this machine: masters, files
//	                                                     └── a cluster: the API server
//
// Pages are complete without scripts. Every state of a page is in its address: the filter of the
// events, the range of the timeline. The script fetches the address again each second and replaces
// the parts that have changed, so that there is one way in which a page is made. Curves and the
// timeline are SVG that the server draws. Nothing is loaded from anywhere else.
//
// Laws:
//
//  1. Nobody sees a page without the token that is in the address that the command prints, or the
//     cookie that the server gives for it.
//  2. A request whose Host is not of the loopback interface is refused, whatever it has: a name of
//     somebody else that leads to this machine is no way in (DNS rebinding).
//  3. Only a request of one of its own pages does something, which is to ask for stacks. All others
//     read.
//  4. All text of a job is text: no name, reason or line of a log becomes markup or an address.
//  5. The size of a page does not depend on the number of workers, entries or lines: more of them
//     are drawn together, and a link shows them.
package page
