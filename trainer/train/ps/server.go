package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// ServerConfig holds the settings of a server.
type ServerConfig struct {
	// Servers 0: 1
	Index, Servers int
	// Self identifies the server; its generation is that of the model.
	Self *rpc.Self
	// Initial makes the model's layout, and the initial values of one of that many parts of it, as
	// [param.Partition] cuts it, the same each time. It is called again for each generation. The
	// values are the server's from then on.
	Initial   func(part, parts int) (param.Layout, []float32, error)
	Optimizer optim.Config
	// LearningRate is of the version that an update starts from, and of how many workers' gradients
	// an update averages: GradsToWait, or 1 if Async. nil: the optimizer's.
	LearningRate func(version int64, workers int) float64

	// every gradient is an update, none is too old
	Async bool
	// gradients in an update; 0: 1
	GradsToWait int
	// nil: not given
	SyncVersionTolerance  *int
	LRStalenessModulation bool

	// what the generation begins with
	Base custody.Base
	// where a copy of what the server has is written when the master orders it
	CheckpointDir string
	// called when there is news of such a copy; must not block
	OnCut func()
	// Open opens a directory of checkpoints; nil: on this machine.
	Open checkpoint.Opener

	// a snapshot at each such version, if none is held; 0: none
	EvaluationSteps int
	// called when one was taken; must not block
	OnSnapshot func(version int64)

	// PlainData has data connections leave TLS when both ends are proved, on a network that
	// encrypts below.
	PlainData bool
	// Meter counts what the server does; nil: nothing counts it.
	Meter *Meter
	// nil: none
	Log *slog.Logger
}

// workers returns how many workers' gradients an update averages.
func (c ServerConfig) workers() int {
	if c.Async {
		return 1
	}
	return max(1, c.GradsToWait)
}

// Server is one parameter server.
type Server struct {
	config ServerConfig
	self   *rpc.Self
	store  store
	log    *slog.Logger

	// turn is held while a push is received and applied, and for each other change of the store.
	// Meanwhile other pushes wait in their sockets.
	turn chan struct{}

	// connections that are not yet authenticated
	strangers credential.Strangers

	// ended by Stop
	ctx     context.Context
	cancel  context.CancelFunc
	control *grpc.Server
	// connections for control
	handoff *handoff
	wg      sync.WaitGroup

	mu sync.Mutex
	// model generation of the store and the rule
	modelGeneration int64
	// number of the newest order of the master
	order int64
	cut   copying
	// highest number of a checkpoint that was ordered
	lastCut int64
	// copy of the store's content; used with the turn, and by the goroutine that writes it
	copy checkpoint.Copy
	// the copy is being written
	copyBusy bool
	failed   failure
	rule     *rule
	layout   param.Layout
	// this server's range of the layout
	span     param.Range
	updating bool
	// closed, and replaced, at the end of an update or of a hold
	changed chan struct{}
	// open data connections
	data map[net.Conn]bool
	// listeners and connections
	open map[io.Closer]bool
}

// NewServer checks the configuration and makes the initial values.
func NewServer(config ServerConfig) (*Server, error) {
	config.Servers = cmp.Or(config.Servers, 1)
	config.Meter = cmp.Or(config.Meter, new(Meter))
	if config.Index < 0 || config.Index >= config.Servers {
		return nil, fmt.Errorf("ps-%d of %d servers: no such index", config.Index, config.Servers)
	}
	if config.Async && (config.GradsToWait > 1 || config.SyncVersionTolerance != nil) {
		return nil, fmt.Errorf("ps-%d: asynchronous, and asked to wait for gradients or to refuse some", config.Index)
	}
	optimizer, err := optim.New(config.Optimizer)
	if err != nil {
		return nil, fmt.Errorf("ps-%d: %w", config.Index, err)
	}
	s := &Server{
		config:  config,
		self:    config.Self,
		store:   store{optimizer: optimizer},
		log:     config.Log,
		turn:    make(chan struct{}, 1),
		control: rpc.NewServer(config.Self, false),
		changed: make(chan struct{}),
		data:    make(map[net.Conn]bool),
		open:    make(map[io.Closer]bool),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.rule = newRule(config)
	// else the master's first order has it read, and hears of it if it cannot be
	if config.Base.Number == 0 {
		if err := s.fill(s.self.ModelGeneration()); err != nil {
			return nil, fmt.Errorf("ps-%d: %w", config.Index, err)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handoff = &handoff{conns: make(chan net.Conn), done: s.ctx.Done()}
	wire.RegisterParameterServerServer(s.control, &control{server: s})
	return s, nil
}

// Serve accepts connections, for control and for data, until Stop. It closes lis.
func (s *Server) Serve(lis net.Listener) error {
	if !s.own(lis) {
		return nil
	}
	defer s.disown(lis)
	s.handoff.addr = lis.Addr()
	s.wg.Go(func() { s.control.Serve(s.handoff) })
	for {
		conn, err := lis.Accept()
		if s.ctx.Err() != nil {
			return nil
		}
		if e, ok := errors.AsType[net.Error](err); ok && !errors.Is(err, net.ErrClosed) {
			// too many open files: some will be closed
			s.log.Warn("Cannot accept a connection", "error", e)
			time.Sleep(acceptPause)
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		if s.own(conn) {
			known := s.strangers.Admit(owned{conn, s}, maxStrangers)
			go s.greet(conn, known)
		}
	}
}

// Stop ends Serve, every connection and every call, and waits for them.
func (s *Server) Stop() {
	s.mu.Lock()
	s.cancel()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.control.Stop()
	s.wg.Wait()
}

// own makes Stop close c and wait until it is disowned; after Stop it closes c itself.
func (s *Server) own(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		c.Close()
		return false
	}
	s.open[c] = true
	s.wg.Add(1)
	return true
}

// disown closes c, once.
func (s *Server) disown(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[c] {
		delete(s.open, c)
		c.Close()
		s.wg.Done()
	}
}

const (
	// time that a connection has to authenticate itself
	greeting    = timing.Greeting
	acceptPause = 100 * time.Millisecond // before the next try to accept one
	// maximum number of connections that are not yet authenticated
	maxStrangers = 256
)

// owned is a connection that Stop ends. The closing side disowns it.
type owned struct {
	net.Conn
	server *Server
}

// Close implements [net.Conn].
func (o owned) Close() error {
	o.server.disown(o.Conn)
	return nil
}

// greet authenticates the dialling peer, and tells a data connection from one for control. It calls
// known when that is done.
func (s *Server) greet(conn net.Conn, known func()) {
	conn.SetDeadline(time.Now().Add(greeting))
	made, err := s.self.Credential().Server(s.ctx, owned{conn, s}, false, s.pushes(), credential.GRPC)
	if err != nil {
		known()
		// as of a kubelet, which looks whether there is somebody
		if !errors.Is(err, io.EOF) {
			s.log.Debug("Refused a connection", "from", conn.RemoteAddr(), "error", err)
		}
		return
	}
	if made.Protocol == credential.GRPC {
		known()
		conn.SetDeadline(time.Time{})
		s.handoff.give(made)
		return
	}
	defer made.Close()
	d := dataConn{server: s, raw: conn, conn: made.Bare(), peer: made.Peer, known: known}
	if s.config.PlainData {
		d.plain, d.direct = credential.Socket(conn), newDirect(conn)
	}
	defer d.known()
	defer s.forget(conn)
	if err := d.serve(); err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		s.log.Debug("Data connection ended", "worker", d.worker, "error", err)
	}
}

// pushes returns how data connections are spoken.
func (s *Server) pushes() credential.Protocol {
	if s.config.PlainData {
		return credential.Push.Plain()
	}
	return credential.Push
}

// forget drops a data connection that has ended.
func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, conn)
}

// Version returns the number of updates applied.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rule.version
}

// Snapshot returns the version whose snapshot is held, 0 if none.
func (s *Server) Snapshot() int64 {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	return s.store.held
}

// standing returns how far the server is, all of it in one model generation: at which version, and
// of which it holds the snapshot, 0 if of none.
func (s *Server) standing() (modelGeneration, version, snapshot int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modelGeneration, s.rule.version, s.Snapshot()
}

// takeTurn waits for the turn.
func (s *Server) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Server) yieldTurn() { <-s.turn }

// gather adds what was received, which is p's, to the sum, and applies that if it is
// due. The caller has the turn, and the rule takes p.
func (s *Server) gather(p push) {
	s.mu.Lock()
	s.rule.accept(p)
	weights, due := s.rule.weights(), s.rule.due()
	s.mu.Unlock()
	s.store.add(weights)
	if due {
		s.update()
	}
}

// update applies the sum. The caller has the turn.
func (s *Server) update() {
	s.mu.Lock()
	weights, version := s.rule.weights(), s.rule.version
	s.updating = true
	s.mu.Unlock()

	s.store.apply(weights, s.store.optimizer.Rate(s.config.LearningRate, version, s.config.workers()))

	s.mu.Lock()
	s.rule.applied()
	version = s.rule.version
	s.updating = false
	s.stir()
	s.mu.Unlock()

	if steps := int64(s.config.EvaluationSteps); steps > 0 && version%steps == 0 &&
		s.store.keep(version) && s.config.OnSnapshot != nil {
		s.config.OnSnapshot(version)
	}
}

// stir wakes all calls that wait for a change. mu is held.
func (s *Server) stir() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// settle applies the sum if it is due, which is asked with mu held.
func (s *Server) settle(ctx context.Context, due func() bool) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.yieldTurn()
	s.mu.Lock()
	now := due()
	s.mu.Unlock()
	if now {
		s.update()
	}
	return nil
}

// handoff is the listener of the control plane: it accepts what greet gives.
type handoff struct {
	conns chan net.Conn
	done  <-chan struct{}
	addr  net.Addr
}

func (h *handoff) give(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.done:
		conn.Close()
	}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handoff) Close() error   { return nil }
func (h *handoff) Addr() net.Addr { return h.addr }
