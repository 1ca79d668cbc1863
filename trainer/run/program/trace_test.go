package program

import (
	"fmt"
	"strings"
	"testing"
)

// Two runs that write the same have the same digest, apart from what differs in each run. Others
// have another.
func TestOutput(t *testing.T) {
	const volatile = `echo "$(date '+%Y-%m-%d %H:%M:%S'),$N pid $$ at 0x7f$N on 127.0.0.1:4000$N since 17$N$N$N$N$N$N$N$N.5"; echo bad >&2; `
	for _, c := range []struct {
		name, script string
		same         bool
	}{
		{"nothing", "kill -9 $$", true},
		{"times, pids and addresses", volatile + "kill -9 $$", true},
		{"an exit code", volatile + "exit 7", true},
		{"many lines", "seq 5000; kill $$", true},
		{"steps", "seq 1$N; kill -9 $$", false},
		{"the same line, more often", "yes | head -n 900$N; kill -9 $$", false},
		{"another value", "echo loss 0.$N >&2; kill -9 $$", false},
		{"an early line", "echo $N; seq 5; kill -9 $$", false},
	} {
		for _, streams := range []string{"", "3"} {
			t.Run(c.name+" "+streams, func(t *testing.T) {
				var digests []string
				for n := range 2 {
					o := Options{Command: []string{"/bin/sh", "-c", c.script}, NoPython: true,
						Env: []string{fmt.Sprint("N=", n+1)}}
					if streams != "" {
						o.Redirects = Streams{all: Both}
					}
					b := newBench(t, o, nil)
					digests = append(digests, b.ends(b.start(1))[0].Output)
				}
				if (digests[0] == digests[1]) != c.same && (streams == "" || c.name != "the same line, more often") {
					t.Errorf("digests %q", digests)
				}
				if wrote := !strings.HasPrefix(c.name, "nothing"); wrote != (digests[0] != "") {
					t.Errorf("digest %q of a process that wrote: %t", digests[0], wrote)
				}
			})
		}
	}
}
