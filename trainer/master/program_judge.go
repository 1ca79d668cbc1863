package master

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// left reports whether one of the members was asked to leave.
func (g *program) left(members []rendezvous.Member) bool {
	return slices.ContainsFunc(members, func(m rendezvous.Member) bool { return g.leavers[m.Worker] })
}

// failed decides what follows from the end of the last world, and reports it. It returns an error
// if the job fails. Next is the world that follows.
func (g *program) failed(before, next rendezvous.World) error {
	r := g.ring
	v := g.judge.End(verdict.End{World: judged(before), Next: judged(next), Left: g.left(before.Members),
		Keeps: g.keeps, Wanted: r.wanted()}, r.now())
	if v.Text == "" {
		return nil
	}
	g.events.happen(ProgramFailed{v.Text})
	if v.Err == nil && v.Counted {
		g.Log.Info("The program starts again", "failures", g.judge.Counted(), "max_restarts",
			g.Job.Program.MaxRestarts)
	}
	return v.Err
}

// judged returns a world as the verdict needs it.
func judged(w rendezvous.World) verdict.World {
	all := verdict.World{Generation: w.Generation, Kept: len(w.Sources) > 0}
	for _, m := range w.Members {
		all.Workers = append(all.Workers, m.Worker)
	}
	return all
}

// failure returns a failure that a worker has reported.
func failure(worker int, f *wire.Failure) verdict.Failure {
	return verdict.Failure{Worker: worker, Rank: int(f.Rank), PID: int(f.Pid), Code: int(f.Code), Signal: int(f.Signal),
		Message: f.Message, Reason: reason(f), Memory: f.Memory, Excused: f.Excused, Doubt: f.Doubt,
		Forked: f.Forked, Hung: f.Hung, UnixMs: f.UnixMs}
}

// reason returns in one line why a process failed.
func reason(f *wire.Failure) string {
	text := strings.Join(strings.Fields(f.Message), " ")
	if text == "" {
		text = fmt.Sprintf("exit code %d", f.Code)
		if f.Memory {
			text = "killed by the system: out of memory"
		} else if f.Signal != 0 {
			text = "killed by " + cmp.Or(unix.SignalName(syscall.Signal(f.Signal)), fmt.Sprintf("signal %d", f.Signal))
		}
	} else if f.Code != 0 {
		text += fmt.Sprintf(" (exit code %d)", f.Code)
	}
	return text
}

// exitSame is the exit code of commands that await a job which has ended with a
// [verdict.SameEnd].
const exitSame = 4
