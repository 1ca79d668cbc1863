package kernel

import (
	"strings"
	"testing"
)

// forEachSet runs f with every set that this processor has.
func forEachSet(t *testing.T, f func(t *testing.T)) {
	defer Use(Name())
	for _, name := range Names() {
		if err := Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, f)
	}
}

func TestUse(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		if !strings.HasSuffix(t.Name(), "/"+Name()) {
			t.Fatalf("%s is in use", Name())
		}
	})
	was := Name()
	if err := Use("mmx"); err == nil || !strings.Contains(err.Error(), strings.Join(Names(), ", ")) {
		t.Fatalf("Use(mmx): %v", err)
	}
	if Name() != was {
		t.Fatalf("a refused set is in use: %s", Name())
	}
}

func TestChooseAtStart(t *testing.T) {
	if s := mustChoose(""); s.name != Names()[0] {
		t.Fatalf("%s, want the best one", s.name)
	}
	defer func() {
		message, _ := recover().(string)
		if !strings.Contains(message, "ELASTICDL_KERNELS") || !strings.Contains(message, "generic") {
			t.Fatalf("panic %q", message)
		}
	}()
	mustChoose("sse9")
}

// TestSets shows the sets of kernels that this processor lacks as skipped. The other tests leave
// them out.
func TestSets(t *testing.T) {
	for _, name := range []string{"avx512", "avx2", "generic"} {
		t.Run(name, func(t *testing.T) {
			if _, err := choose(name); err != nil {
				t.Skip(err)
			}
		})
	}
}
