package local

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// startHelper starts the test program as a helper; it is killed with the test.
func startHelper(t *testing.T, what string) *process {
	t.Helper()
	p, err := command{
		binary: os.Args[0], log: filepath.Join(t.TempDir(), "log"),
		env: map[string]string{helperEnv: what},
	}.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.signal(syscall.SIGKILL) })
	return p
}

func TestLifelineEndsTheChildrenOfAKilledParent(t *testing.T) {
	for child, want := range map[string]string{"orphan": role.ErrOrphaned.Error() + "\n", "stubborn": "alive\n"} {
		t.Run(child, func(t *testing.T) {
			l := newLife(t)
			t.Setenv(childEnv, child)
			parent := startHelper(t, "parent")
			l.begun(t)
			if err := syscall.Kill(parent.pid(), syscall.SIGKILL); err != nil { // and not its group
				t.Fatal(err)
			}
			if said := l.ended(t); said != want {
				t.Errorf("the child said %q, want %q", said, want)
			}
		})
	}
}

// A process whose parent dies in a planned stop hears that, and is not taken for an orphan.
func TestLifelineInAPlannedStop(t *testing.T) {
	l := newLife(t)
	child := startHelper(t, "orphan")
	l.begun(t)
	child.announce()
	child.closeLifeline()
	if said := l.ended(t); said != role.ErrStopped.Error()+"\n" {
		t.Errorf("the child said %q", said)
	}
	child.wait()
}

func TestLifelineWithoutParent(t *testing.T) {
	ctx, stop := Lifeline(t.Context(), nil)
	if ctx.Err() != nil {
		t.Fatal("the context has ended")
	}
	stop()
	<-ctx.Done()
}

// A sibling that inherited the write end of another's lifeline would keep it alive.
func TestLifelineIsNotInheritedBySiblings(t *testing.T) {
	l := newLife(t)
	first := startHelper(t, "orphan")
	l.begun(t)
	t.Setenv(lifeEnv, newLife(t).path)
	other := startHelper(t, "stubborn")
	first.closeLifeline()
	if said := l.ended(t); !strings.Contains(said, role.ErrOrphaned.Error()) {
		t.Errorf("the child said %q", said)
	}
	other.signal(syscall.SIGKILL)
	other.wait()
	if state := first.wait(); !state.Success() {
		t.Errorf("the child ended with %v", state)
	}
}
