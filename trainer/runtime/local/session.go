package local

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// errEnded is returned to the requests of a master that is dead.
var errEnded = errors.New("the master has ended")

// socketpair returns both ends of a connection that has no name in the file system.
func socketpair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(ends[1]), sessionEnv)
	if ours, err = connection(os.NewFile(uintptr(ends[0]), sessionEnv)); err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// connection returns the connection of a socket's file, and closes the file.
func connection(file *os.File) (net.Conn, error) {
	defer file.Close()
	return net.FileConn(file)
}

// session serves the requests of one master in the launcher. Its calls are the methods of [calls].
type session struct {
	pods   *processes
	conn   net.Conn
	over   chan struct{} // closed when the master is dead
	served chan struct{} // closed when no call is left

	ended bool // guarded by the mutex of pods
}

// serve serves the requests of the master at the other end of conn, until the session is ended.
func (r *processes) serve(conn net.Conn) *session {
	s := &session{pods: r, conn: conn, over: make(chan struct{}), served: make(chan struct{})}
	go func() {
		defer close(s.served)
		calls{s}.serve(conn)
	}()
	return s
}

// end ends the session of a master that is dead. Its requests that are not carried out yet are
// dropped.
func (s *session) end() {
	s.pods.mu.Lock()
	s.ended = true
	s.pods.mu.Unlock()
	close(s.over)
	s.conn.Close()
	<-s.served
}

// calls has the requests of a master.
type calls struct{ s *session }

// serve answers the requests of a client of net/rpc until the connection ends and no call is left.
// The server of net/rpc looks up methods by reflection. For it the linker would keep all exported
// methods of the program, a third of its size.
func (c calls) serve(conn net.Conn) {
	methods := map[string]method{"Create": handled(c.Create), "Delete": handled(c.Delete),
		"Adopt": handled(c.Adopt), "Events": handled(c.Events), "Keep": handled(c.Keep), "Kept": handled(c.Kept)}
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var writing sync.Mutex
	var running sync.WaitGroup
	defer running.Wait()
	// also after a request that is not one of the methods
	defer conn.Close()
	for {
		var asked rpc.Request
		if in.Decode(&asked) != nil {
			return
		}
		do, ok := methods[strings.TrimPrefix(asked.ServiceMethod, methodPrefix)]
		if !ok {
			return
		}
		call, err := do(in)
		if err != nil {
			return
		}
		running.Go(func() {
			answer := rpc.Response{ServiceMethod: asked.ServiceMethod, Seq: asked.Seq}
			result, err := call()
			if err != nil {
				answer.Error, result = err.Error(), Nothing{}
			}
			writing.Lock()
			defer writing.Unlock()
			if out.Encode(&answer) != nil || out.Encode(result) != nil {
				conn.Close() // the caller would wait for it
			}
		})
	}
}

// method reads the argument of a call and returns the call, which returns its result.
type method func(*gob.Decoder) (call func() (any, error), err error)

// handled makes a method of a function that sets its result, as net/rpc has them.
func handled[A, R any](do func(A, *R) error) method {
	return func(in *gob.Decoder) (func() (any, error), error) {
		var arg A
		if err := in.Decode(&arg); err != nil {
			return nil, err
		}
		return func() (any, error) {
			result := new(R)
			err := do(arg, result)
			return result, err
		}, nil
	}
}

// methodPrefix begins the names of methods, as net/rpc wants them.
const methodPrefix = "Pods."

// Nothing is the argument or the result of a call that has none.
type Nothing struct{}

// Create starts a pod.
func (c calls) Create(p master.Pod, _ *Nothing) error { return c.s.pods.create(c.s, p) }

// Delete ends a pod.
func (c calls) Delete(id pod.ID, _ *Nothing) error { return c.s.pods.remove(c.s, id) }

// Adopt returns the last event of each pod.
func (c calls) Adopt(_ Nothing, all *[]pod.Event) (err error) {
	*all, err = c.s.pods.adopt(c.s)
	return err
}

// Events waits for the next events of the pods.
func (c calls) Events(_ Nothing, news *[]pod.Event) (err error) {
	*news, err = c.s.pods.next(c.s)
	return err
}

// Keep writes a file of the state, or keeps it, and reports whether it is written. The session
// ends only after it.
func (c calls) Keep(f File, written *bool) error {
	*written = c.s.pods.config.Backlog.put(f.Name, f.Text)
	return nil
}

// Kept returns a file that is kept. It has no name if none is.
func (c calls) Kept(name string, f *File) error {
	if it, ok := c.s.pods.config.Backlog.get(name); ok {
		*f = File{name, it.text}
	}
	return nil
}

// File is a file of a job's state.
type File struct {
	Name string
	Text []byte
}

// pods is the master's end of a session: it requests servers and workers from the launcher. It
// implements [master.Pods].
type pods struct {
	client *rpc.Client
	events chan pod.Event
	closed chan struct{}
	listen func() // starts follow, once
}

var _ master.Pods = (*pods)(nil)

// newPods returns the master's end of a session. The caller closes it.
func newPods(conn net.Conn) *pods {
	p := &pods{client: rpc.NewClient(conn), events: make(chan pod.Event), closed: make(chan struct{})}
	// It starts with the first call, so that Events does not repeat what Adopt has returned.
	p.listen = sync.OnceFunc(func() { go p.follow() })
	return p
}

// follow sends the events of the pods until the launcher has ended, which ends this process, too.
func (p *pods) follow() {
	for {
		var news []pod.Event
		if err := p.client.Call(methodPrefix+"Events", Nothing{}, &news); err != nil {
			return
		}
		for _, e := range news {
			select {
			case p.events <- e:
			case <-p.closed:
				return
			}
		}
	}
}

// call waits for the launcher's answer, or for the end of ctx.
func (p *pods) call(ctx context.Context, name string, args, reply any) error {
	call := p.client.Go(methodPrefix+name, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Create implements [master.Pods]: the launcher starts a process.
func (p *pods) Create(ctx context.Context, pod master.Pod) error {
	p.listen()
	return p.call(ctx, "Create", pod, new(Nothing))
}

// Delete implements [master.Pods]: the launcher sends SIGTERM, and after a grace SIGKILL.
func (p *pods) Delete(ctx context.Context, id pod.ID) error {
	p.listen()
	return p.call(ctx, "Delete", id, new(Nothing))
}

// keep has the launcher write a file of the state, or keep it.
func (p *pods) keep(name string, text []byte) (written bool, err error) {
	err = p.call(context.Background(), "Keep", File{name, text}, &written)
	return written, err
}

// kept returns a file that the launcher keeps.
func (p *pods) kept(name string) (text []byte, ok bool, err error) {
	var f File
	err = p.call(context.Background(), "Kept", name, &f)
	return f.Text, f.Name != "", err
}

// Adopt implements [master.Pods]. The previous master is dead.
func (p *pods) Adopt(ctx context.Context) ([]pod.Event, error) {
	var all []pod.Event
	if err := p.call(ctx, "Adopt", Nothing{}, &all); err != nil {
		return nil, fmt.Errorf("ask the launcher for the job's pods: %w", err)
	}
	p.listen()
	return all, nil
}

// Events implements [master.Pods]. The events tell that a pod runs, with its pid, and how it ended.
func (p *pods) Events() <-chan pod.Event { return p.events }

// close ends the master's end of the session.
func (p *pods) close() {
	close(p.closed)
	p.client.Close()
}
