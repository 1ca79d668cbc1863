package program

import (
	"strings"
	"testing"
)

func TestParseStreams(t *testing.T) {
	for text, want := range map[string][3]Std{
		"": {}, "0": {}, "3": {Both, Both, Both}, "1": {Stdout, Stdout, Stdout},
		"0:1,1:2": {Stdout, Stderr, None}, "2:3": {None, None, Both},
	} {
		s, err := ParseStreams("tee", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		for local := range 3 {
			if got := s.Of(local); got != want[local] {
				t.Errorf("%q: local rank %d has %d, want %d", text, local, got, want[local])
			}
		}
	}
	for _, text := range []string{"4", "-1", "x", "0:", "0:4", ":1", "0:1,", "0:1,0:2", "-1:2", "0:1;1:2"} {
		if _, err := ParseStreams("redirects", text); err == nil ||
			!strings.Contains(err.Error(), "--redirects="+text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseStreams(f *testing.F) {
	f.Add("3")
	f.Add("0:1,1:2")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStreams("tee", text)
		if err != nil {
			return
		}
		again, err := ParseStreams("tee", s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is %q, and that is %v, %v", text, s, again, err)
		}
	})
}
