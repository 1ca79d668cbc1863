package program

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// crashLimit is the age up to which the crash of a process may be caused by its fork: until
	// then it may not have used all that it has imported, or a GPU.
	crashLimit = 30 * time.Second
	// deathLimit is the age from which the death of a fork server does not count.
	deathLimit = time.Minute
	// mostDeaths limits the deaths of young fork servers.
	mostDeaths = 3
	// longImport is the time that torch may be imported before it is reported.
	longImport = 3 * time.Second
	// mostLearned limits the modules that are imported in addition to torch.
	mostLearned = 10000
	// learnAfter is the time after the start at which the imported modules are read, to replace the
	// fork server by one that has imported them.
	learnAfter = 20 * time.Second
)

// known are modules that nearly every program imports without naming them, so that nothing need be
// learned of it: PyTorch 2.x imports some 800 with the first optimizer, which takes 1.4 s.
// Importing them starts no threads, compiles nothing and does not touch GPUs. They are imported
// before the first fork: each process would have to, at the same time. PyTorch 1.x has no such
// module.
var known = []string{"torch._dynamo"}

// devices are the beginnings of the paths of GPUs' devices. A process that has one open may have a
// context of CUDA or ROCm, which a forked process cannot use.
var devices = []string{"/dev/nvidia", "/dev/kfd"}

// forkServers manages the fork servers of a program: the current one, and its successor.
type forkServers struct {
	p *Program
	// background work
	work sync.WaitGroup

	mu      sync.Mutex
	current *forkServer
	// why forking was given up; nil: it was not
	off error
	// reasons that were logged
	logged map[string]bool
	deaths int
	// file of modules that the first generation imports; "" once it is read
	learn string
	// modules that a fork server imports in addition to torch
	learned []string
	// modules that a standby imports: also those that start threads
	studied  []string
	standbys standbys
	closed   chan struct{}
}

func newForkServers(p *Program) *forkServers {
	return &forkServers{p: p, logged: make(map[string]bool), closed: make(chan struct{}),
		off: p.forkable(), learn: filepath.Join(p.logs, "modules"), learned: known, studied: known}
}

// want returns a fork server with that environment: the current one, or a new one.
func (s *forkServers) want(env environ) (*forkServer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != nil {
		return nil, s.off
	}
	if old := s.current; old != nil {
		name := env.atStart().difference(old.env.atStart())
		if name == "" {
			return old, nil
		}
		s.p.options.Log.Debug("restarting the fork server with the value that the processes need", "variable", name)
		s.work.Go(old.close)
	}
	s.begin(env)
	return s.current, nil
}

// begin starts a fork server and watches it. The mutex is held.
func (s *forkServers) begin(env environ) {
	if s.isClosed() {
		s.off = errClosed
		return
	}
	f := startForkServer(s.p, env, s.learned)
	s.current = f
	s.work.Go(func() { s.watch(f) })
}

func (s *forkServers) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// watch starts another fork server when one has died, as long as that helps.
func (s *forkServers) watch(f *forkServer) {
	<-f.ready
	<-f.dead
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != f || s.isClosed() {
		return
	}
	s.current = nil
	log := s.p.options.Log
	switch {
	case f.bad != "":
		s.forgo(f)
	case errors.Is(f.err, errNoTorch):
		s.off = f.err
		return
	case f.err == nil && time.Since(f.since) > deathLimit:
		s.deaths = 0
	default:
		s.deaths++
	}
	if s.deaths >= mostDeaths {
		s.off = fmt.Errorf("%d fork servers in a row died", s.deaths)
		if f.err != nil {
			s.off = fmt.Errorf("%w, the last: %w", s.off, f.err)
		}
		return
	}
	log.Debug("restarting the fork server after it has ended", "error", f.err)
	s.begin(f.env)
}

// forgo removes what a fork server must not import, and logs why. The mutex is held.
func (s *forkServers) forgo(f *forkServer) {
	s.learned = without(s.learned, f.bad)
	if f.always {
		s.studied = without(s.studied, f.bad)
	} else {
		s.standbys.of = cmp.Or(s.standbys.of, f.bad)
	}
	s.p.options.Log.Info("the fork server does not import a module: each process that needs it does",
		"module", f.bad, "reason", f.err)
}

// start starts the group by forks. After an error no process of the group was started.
func (s *forkServers) start(ctx context.Context, g *Group) error {
	env, err := g.same(&s.p.options)
	if err == nil {
		err = s.early()
	}
	if err != nil {
		return err
	}
	switch s.become(ctx, g, env) {
	case 0:
	case len(g.processes):
		g.method = Exec
		return nil
	default:
		return errStandby
	}
	for range mostDeaths + 1 { // one that dies now is not the last
		f, err := s.ready(ctx, env)
		if err != nil {
			return err
		}
		s.mu.Lock()
		learn := s.learn
		s.mu.Unlock()
		if err = f.fork(s.p, g.processes, learn); err == nil {
			g.method = Fork
			s.study(learn)
			return nil
		}
		select {
		case <-f.dead:
		default:
			return err // the fork server runs, but refused
		}
		s.replaced(f)
	}
	return errShortLived
}

// early returns the path of the file in which a forked process leaves the names of variables that
// its script has set too late for modules that the fork server has imported. That process has begun
// again.
func (p *Program) early() string { return filepath.Join(p.logs, "early") }

// early gives forking up if the script sets variables too late for what the fork server has
// imported. Then a process that was forked begins again, and what the script does before is done
// twice.
func (s *forkServers) early() error {
	names, err := os.ReadFile(s.p.early())
	if err != nil { // none did
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off == nil {
		s.off = fmt.Errorf("the program sets %s before the import that reads it", names)
		s.standbys.off = s.off
		for _, f := range s.standbys.servers {
			s.work.Go(f.close)
		}
		s.standbys.servers = nil
		if s.current != nil {
			s.work.Go(s.current.close)
			s.current = nil
		}
	}
	return s.off
}

var errStandby = errors.New("a standby process failed")

var errShortLived = errors.New("fork servers end too soon after their start")

// ready returns a fork server that can fork, or an error that says why there is none.
func (s *forkServers) ready(ctx context.Context, env environ) (*forkServer, error) {
	for range mostDeaths + 1 {
		f, err := s.want(env)
		if err != nil {
			return nil, err
		}
		if err := s.attend(ctx, f); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else if err == nil {
			return f, nil
		}
		s.replaced(f)
	}
	return nil, errShortLived
}

// attend waits until a fork server is ready, and logs why the processes are not started yet if that
// takes long.
func (s *forkServers) attend(ctx context.Context, f *forkServer) error {
	note := time.AfterFunc(longImport, func() {
		s.p.options.Log.Info("Importing torch: the processes start when it is done")
	})
	defer note.Stop()
	return f.wait(ctx)
}

// replaced waits until watch has handled the end of a fork server.
func (s *forkServers) replaced(f *forkServer) {
	for {
		s.mu.Lock()
		over := s.current != f || s.off != nil || s.isClosed()
		s.mu.Unlock()
		if over {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// excuse logs once why processes are not forked.
func (s *forkServers) excuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged[err.Error()] {
		return
	}
	s.logged[err.Error()] = true
	if errors.Is(err, errNoTorch) {
		s.p.options.Log.Info(byExec, "reason", err)
		return
	}
	s.p.options.Log.Warn(byExec+", which takes longer", "reason", err)
}

// blamesFork reports whether a process may have ended because it was forked: a signal by which
// programs crash ended it soon after its start, without an exception before. A process that the
// agent had asked to end may crash on the way, for its own reasons.
func blamesFork(method StartMethod, e Exit, age time.Duration) bool {
	switch syscall.Signal(e.Signal) {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGABRT:
		return method == Fork && age < crashLimit && !e.Stopped && e.Failure == nil
	}
	return false
}

// crashed stops forking, as a process may have crashed because it was forked.
func (s *forkServers) crashed(e Exit, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off == nil {
		if s.current != nil {
			s.work.Go(s.current.close)
			s.current = nil
		}
		s.off = fmt.Errorf("rank %d crashed (%s) %v after it was forked, which may not happen to a "+
			"fresh process", e.Rank, unix.SignalName(syscall.Signal(e.Signal)), age.Round(time.Millisecond))
		s.standbys.of = "torch"
		s.prepare(standbyPause)
	}
}

// study starts the next fork server in parallel with the current one, with the modules that the
// first generation imports.
func (s *forkServers) study(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if file == "" || s.learn == "" {
		return
	}
	s.learn = "" // once
	s.work.Go(func() {
		select {
		case <-s.closed:
			os.Remove(file)
			return
		case <-time.After(s.p.options.learnAfter):
		}
		learned := readModules(file)
		os.Remove(file)
		if len(learned) == 0 {
			return
		}
		s.mu.Lock()
		s.learned, s.studied = slices.Concat(s.learned, learned), slices.Concat(s.studied, learned)
		old, off := s.current, s.off
		s.mu.Unlock()
		if old != nil && off == nil {
			s.succeed(old)
		}
		s.prepare(0)
	})
}

// succeed replaces a fork server as soon as another with more modules is ready.
func (s *forkServers) succeed(old *forkServer) {
	// each attempt may find another module that must not be imported, and leaves its package out
	for range mostLearned {
		s.mu.Lock()
		learned := slices.Clone(s.learned)
		s.mu.Unlock()
		next := startForkServer(s.p, old.env, learned)
		select {
		case <-next.ready:
		case <-s.closed:
			next.close()
			return
		}
		s.mu.Lock()
		if next.err == nil && s.current == old && !s.isClosed() {
			s.current = next
			s.work.Go(func() { s.watch(next) })
			s.mu.Unlock()
			s.p.options.Log.Debug("the fork server has imported what the program imports", "modules", len(learned))
			old.close()
			return
		}
		if next.bad != "" {
			s.forgo(next)
		}
		s.mu.Unlock()
		next.close()
		if next.bad == "" {
			break
		}
	}
	s.mu.Lock()
	s.learned = old.learned
	s.mu.Unlock()
}

var moduleName = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

// without returns the names except for those in the package of the module bad.
func without(names []string, bad string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return topLevel(name) == topLevel(bad) })
}

func topLevel(name string) string { return regexp.MustCompile(`^[^.]*`).FindString(name) }

// readModules reads names of modules, one a line, in their order and each once. Other lines are
// left out.
func readModules(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var names []string
	seen := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan() && len(names) < mostLearned; {
		name := lines.Text()
		if moduleName.MatchString(name) && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// close ends all fork servers.
func (s *forkServers) close() {
	s.mu.Lock()
	close(s.closed)
	current, waits := s.current, s.standbys.servers
	s.current, s.standbys.servers = nil, nil
	s.mu.Unlock()
	if current != nil {
		current.close()
	}
	for _, f := range waits {
		f.close()
	}
	s.work.Wait()
	os.Remove(filepath.Join(s.p.logs, "modules"))
	os.Remove(s.p.early())
}
