// Package browser tests the page of `elasticdl dashboard` in Chromium, without a display. It is a
// module of its own, so that the program does not depend on the client of a browser.
//
//	make test-page   # installs Chromium
//
// Its tests take the program and the test binary of the page as flags, which the Makefile builds:
// one runs jobs, the other serves jobs that are fake.
package browser
